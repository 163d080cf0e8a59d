//! The questions to the server about a held znode, and the meaning of its answers.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{HeldZnode, WatchState};
use crate::{
    base::{clock, unlocked::drop_unlocked},
    error::{LostReason, Meaning},
    framework::{events::event::Event, held::WATCH_AFTER},
    proto::{
        request::Request,
        response::Response,
        types::{ErrorCode, EventType, Stat},
    },
    session::{
        api::{Reply, SessionError, Submission, Ticket, WatchEvent, Watcher},
        wait::pending::{Watch, answered_together},
    },
};

impl HeldZnode {
    /// Asks the server what is not known: after a reconnect, whether the znode is still there; after its end, whether the
    /// session lives. Sets the watch after a while.
    pub(crate) fn check(self: &Arc<Self>, now: Instant) {
        let connection = self.session.connection();
        let (is_over, is_deleted) = {
            let inner = self.inner.lock();
            (inner.life.is_over() || self.session.is_ended(), inner.deleted_over.is_some())
        };
        if connection == 0 || is_over {
            return;
        }
        if is_deleted {
            return self.ask_who_deleted(connection, now);
        }
        let unseen = connection != self.seen_over.load(Ordering::Acquire);
        let is_due = self.revocable.is_some() || now >= self.since + WATCH_AFTER;
        let (is_watched, asks_again) = {
            let mut inner = self.inner.lock();
            if !inner.may_ask_over(connection, now) {
                return;
            }
            let is_watched = !matches!(inner.watch, WatchState::Absent);
            (is_watched, is_watched && inner.asks_again.take_if(|at| now >= *at).is_some())
        };
        if is_due && !is_watched {
            self.request_watch(connection);
            return;
        }
        // Asked once: a server that is slow to answer would be asked ten times a second otherwise, for each znode held.
        let is_new = unseen && self.asked_over.swap(connection, Ordering::AcqRel) != connection;
        if is_new || asks_again {
            self.request_stat(connection);
        }
    }

    fn request_watch(self: &Arc<Self>, connection: u64) {
        let path = self.znode.path.as_str().to_owned();
        let request = {
            let mut inner = self.inner.lock();
            if inner.life.is_released() || !matches!(inner.watch, WatchState::Absent) {
                return;
            }
            inner.watch = WatchState::Requested;
            if inner.may_not_read {
                Request::Exists { path, watch: true }
            } else {
                Request::GetData { path, watch: true }
            }
        };
        let weak = Arc::downgrade(self);
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            if let Some(node) = weak.upgrade() {
                node.watched(event);
            }
        });
        let node = Arc::downgrade(self);
        let on_reply = Box::new(move |reply| {
            if let Some(node) = node.upgrade() {
                node.watch_answered(&reply);
                node.seen(connection, reply);
            }
        });
        let tickets = self.session.submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
        let watch = Watch::new(self.session.clone(), tickets.first().copied().unwrap_or(Ticket(0)));
        let mut inner = self.inner.lock();
        // The reply or the event may have been faster; then the watch is used up.
        if matches!(inner.watch, WatchState::Requested) {
            inner.watch = WatchState::Present(watch);
        } else {
            drop_unlocked(inner, [watch]);
        }
    }

    fn watch_answered(&self, reply: &Reply) {
        if let Ok(Response::Data { stat, .. } | Response::Stat(stat)) = reply
            && self.is_ours(stat)
        {
            let mut inner = self.inner.lock();
            // Such servers send no event to a client that may not read the znode.
            inner.is_watched = !inner.may_not_read;
        }
    }

    fn request_stat(self: &Arc<Self>, connection: u64) {
        let request = Request::Exists { path: self.znode.path.as_str().to_owned(), watch: false };
        let node = Arc::downgrade(self);
        let on_reply = Box::new(move |reply| {
            if let Some(node) = node.upgrade() {
                node.seen(connection, reply);
            }
        });
        self.session.submit(vec![Submission { request, watcher: None, on_reply }]);
    }

    /// Takes a reply that tells whether the same znode is still there.
    pub(crate) fn seen(&self, connection: u64, reply: Reply) {
        if let (Ok(Response::Data { data, stat }), Some(revocable)) = (&reply, &self.revocable)
            && self.is_ours(stat)
            && !self.inner.lock().life.is_released()
        {
            revocable.read(data, stat);
        }
        match reply {
            Ok(Response::Data { stat, .. } | Response::Stat(stat)) if self.is_ours(&stat) => {
                self.seen_again(connection);
                self.plan_to_ask_again();
            }
            Ok(_) | Err(SessionError::Server(ErrorCode::NoNode)) => self.deleted(self.session.connection()),
            Err(error) => self.unanswered(connection, &error),
        }
    }

    /// Without read permission no watch event comes, so ask again after one session timeout.
    fn plan_to_ask_again(&self) {
        let mut inner = self.inner.lock();
        if inner.may_not_read && !inner.life.is_over() {
            inner.asks_again = clock::now().checked_add(self.session.timeout());
            drop(inner);
            self.events.send(Event::Look);
        }
    }

    /// The server did not say, so a later look asks again. If a watch was asked for, it was not set.
    fn unanswered(&self, connection: u64, error: &SessionError) {
        self.asked_over.store(0, Ordering::Release);
        {
            let mut inner = self.inner.lock();
            let pause = match error {
                // Servers before 3.8.4 tell without read permission, too, whether it is there (ZOOKEEPER-2590).
                // Data above the client's frame limit would end the next connection as well.
                SessionError::Server(ErrorCode::NoAuth) | SessionError::FrameTooLarge { .. }
                    if !mem::replace(&mut inner.may_not_read, true) =>
                {
                    Duration::ZERO
                }
                SessionError::Server(ErrorCode::NoAuth) => self.session.timeout(),
                _ => WATCH_AFTER,
            };
            inner.failed = Some((connection, clock::now() + pause));
        }
        self.unwatched();
        // Plans a later look.
        self.events.send(Event::Look);
    }

    fn is_ours(&self, stat: &Stat) -> bool {
        // A driver may use znodes that no session owns.
        stat.czxid == self.znode.czxid && [0, self.session.id()].contains(&stat.ephemeral_owner)
    }

    /// The watch reports. Runs on the thread that reads for the session.
    pub(crate) fn watched(&self, event: &WatchEvent) {
        match event {
            WatchEvent::Node { event: EventType::NodeDeleted, connection } => self.deleted(*connection),
            // A change of the data, which may be a request, has used the watch up: set it again.
            WatchEvent::Node { .. } => {
                {
                    let mut inner = self.inner.lock();
                    (inner.may_not_read, inner.asks_again) = (false, None);
                }
                self.unwatched();
                self.events.send(Event::Look);
            }
            WatchEvent::Disconnected | WatchEvent::Reconnected { .. } | WatchEvent::Ended => {}
        }
    }

    /// The znode is gone: somebody has deleted it, or it went with its session, of which the server reports the znodes
    /// first.
    fn deleted(&self, connection: u64) {
        {
            let mut inner = self.inner.lock();
            if inner.life.is_over() {
                // The end of a znode that its holder has given back must not wake the client's thread.
                return;
            }
            inner.deleted_over.get_or_insert(connection);
        }
        self.tell_cache();
        // Not asked from here: this thread reads for the session, and a full socket could block it.
        self.events.send(Event::Look);
    }

    /// A session that answers, or has another connection, after the end of the znode has not taken the znode along.
    ///
    /// The sync makes the leader look for the session: a follower that has yet to hear of its end would answer by itself.
    fn ask_who_deleted(self: &Arc<Self>, connection: u64, now: Instant) {
        {
            let mut inner = self.inner.lock();
            let Some(deleted_over) = inner.deleted_over else { return };
            if deleted_over < connection {
                drop(inner);
                return self.lose(LostReason::NodeDeleted);
            }
            if !inner.may_ask_over(connection, now) || mem::replace(&mut inner.is_asked, true) {
                return;
            }
        }
        let path = || self.znode.path.as_str().to_owned();
        let requests = [Request::Sync { path: path() }, Request::Exists { path: path(), watch: false }];
        let node = Arc::downgrade(self);
        let then = move |replies: Vec<Reply>| {
            if let Some(node) = node.upgrade() {
                node.session_said(connection, &replies);
            }
        };
        let requests = requests.map(|request| (request, None)).into();
        self.session.submit(answered_together(requests, then).collect());
    }

    fn session_said(&self, connection: u64, replies: &[Reply]) {
        let lives = |reply: &Reply| match reply {
            Ok(_) => true,
            Err(SessionError::Server(code)) => code.meaning() == Meaning::Final,
            Err(_) => false,
        };
        if replies.iter().all(lives) {
            return self.lose(LostReason::NodeDeleted);
        }
        let mut inner = self.inner.lock();
        inner.failed = Some((connection, clock::now() + WATCH_AFTER));
        inner.is_asked = false;
    }

    fn unwatched(&self) {
        let mut inner = self.inner.lock();
        inner.is_watched = false;
        let watch = mem::replace(&mut inner.watch, WatchState::Absent);
        drop_unlocked(inner, [watch]);
    }
}
