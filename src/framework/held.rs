//! Znodes whose existence this process relies on, and how it learns that they are gone.

mod registry;

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::{background::Event, dispatch::Dispatcher, revocation::RevocableNode};
use crate::paths::ServerPath;
use crate::{
    CancelToken, LostReason,
    proto::{ErrorCode, EventType, Request, Response, Stat},
    session::{Reply, Session, SessionError, Submission, Ticket, Watch, WatchEvent, Watcher},
};

pub(crate) use registry::HeldNodes;

/// A hold shorter than this is not watched, so that an uncontended cycle needs no packets besides create and delete.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// What a holder knows about its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// The servers cannot have given the lock to anybody else.
    Held,
    /// They may have, or may be about to: nothing was heard from them for too long. It can become `Held` again.
    InDoubt,
    /// It is gone, for this reason. Final.
    Lost(LostReason),
}

/// A callback for [`HoldState`]; runs on the dispatch thread.
pub(crate) type HoldListener = Arc<dyn Fn(HoldState) + Send + Sync>;

/// The znode that is a hold.
pub(crate) struct Znode {
    pub(crate) path: ServerPath,
    pub(crate) czxid: i64,
    /// What the holder shows to storage: the czxid, unless the lock was made from another one that was held before.
    pub(crate) token: i64,
    /// No session owns it, as the driver says. Then it is held until somebody deletes it; after the end of the session
    /// that made it, nobody looks any more whether it is there.
    pub(crate) outlives_session: bool,
}

/// A znode of a session, held until released or lost.
pub(crate) struct HeldNode {
    id: u64,
    znode: Znode,
    session: Arc<dyn Session>,
    since: Instant,
    /// The connection over which the znode was last seen to exist. Over a later one that has to be checked first.
    seen_over: AtomicU64,
    /// The connection over which that was asked for last.
    asked_over: AtomicU64,
    /// Its data are looked at for requests to give the lock back.
    revocable: Option<Arc<RevocableNode>>,
    events: Sender<Event>,
    inner: Mutex<Inner>,
}

struct Inner {
    lost: Option<LostReason>,
    released: bool,
    /// A watch, or a check after a reconnect, is on its way or in place.
    watch: WatchState,
    /// The connection over which a question came to nothing, and until when it is not asked again there.
    failed: Option<(u64, Instant)>,
    /// What was told last, for the log.
    told: HoldState,
    /// Each with what it was told last; the state in which a hold begins counts as told.
    channels: Vec<(HoldState, Sender<HoldState>)>,
    listeners: Vec<(HoldState, HoldListener)>,
    /// Cancelled when the znode is lost: whoever holds it waits for something else, in vain then.
    interrupts: Vec<Weak<CancelToken>>,
    /// How often it was said that the lock is held for long.
    warnings: u32,
}

impl Inner {
    fn may_ask_over(&self, connection: u64, now: Instant) -> bool {
        self.failed.is_none_or(|(over, until)| over != connection || now >= until)
    }

    /// After how long a hold the next warning is due.
    fn next_warning(&self, limit: Duration) -> Duration {
        limit.saturating_mul(1 << self.warnings.min(30))
    }
}

enum WatchState {
    Absent,
    Requested,
    Present(#[allow(dead_code, reason = "dropping it gives the watch up")] Watch),
}

impl HeldNode {
    pub(crate) fn path(&self) -> &ServerPath {
        &self.znode.path
    }

    pub(crate) fn outlives_session(&self) -> bool {
        self.znode.outlives_session
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.session
    }

    pub(crate) fn revocable(&self) -> Option<&RevocableNode> {
        self.revocable.as_deref()
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.znode.czxid
    }

    /// What storage has to be shown: grows with every grant of a lock.
    pub(crate) fn token(&self) -> i64 {
        self.znode.token
    }

    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_in(&self.inner.lock())
    }

    fn lost_in(&self, inner: &Inner) -> Option<LostReason> {
        match inner.lost {
            // The background thread has yet to say why.
            None if self.session.is_ended() && !self.znode.outlives_session => Some(LostReason::SessionExpired),
            lost => lost,
        }
    }

    /// Up to here the lock is held, if nobody deletes the znode; in the past once the lock is lost.
    pub(crate) fn valid_until(&self) -> Instant {
        match self.lost() {
            Some(_) => self.since,
            None => self.session.valid_until().unwrap_or(self.since),
        }
    }

    pub(crate) fn state(&self, now: Instant) -> HoldState {
        self.state_in(&self.inner.lock(), now)
    }

    fn state_in(&self, inner: &Inner, now: Instant) -> HoldState {
        if let Some(reason) = self.lost_in(inner) {
            return HoldState::Lost(reason);
        }
        let connection = self.session.connection();
        let unseen = connection != 0 && connection != self.seen_over.load(Ordering::Acquire);
        if unseen || self.session.valid_until().is_none_or(|at| now >= at) {
            return HoldState::InDoubt;
        }
        HoldState::Held
    }

    /// When the background thread has to look at it; `None`: not before something happens. A state that nobody listens to
    /// is worked out when somebody asks for it.
    fn next_look(&self, max_hold_time: Option<Duration>, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        if inner.released {
            return None;
        }
        let state = self.state_in(&inner, now);
        let told = || inner.channels.iter().map(|(told, _)| *told).chain(inner.listeners.iter().map(|(told, _)| *told));
        if told().any(|told| told != state) {
            // It has changed since they were told.
            return Some(now);
        }
        let has_listeners = told().next().is_some();
        let (of_doubt, of_question) = match state {
            HoldState::Lost(_) => return None,
            HoldState::Held => {
                let is_watched = matches!(inner.watch, WatchState::Present(_));
                (self.session.valid_until().filter(|_| has_listeners), (!is_watched).then(|| now + WATCH_AFTER))
            }
            // Nothing tells when the doubt ends.
            HoldState::InDoubt => (None, Some(now + WATCH_AFTER)),
        };
        // Not sooner than that: a limit so short that it is always over would keep the thread busy.
        let of_warning = max_hold_time
            .and_then(|limit| self.since.checked_add(inner.next_warning(limit)))
            .map(|at| at.max(now + WATCH_AFTER));
        [of_doubt, of_question, of_warning].into_iter().flatten().min()
    }

    /// Whether the znode is there for certain, unless somebody deletes it right now.
    pub(crate) fn is_certain(&self) -> bool {
        self.state(Instant::now()) == HoldState::Held
    }

    /// The znode was seen over this connection, after the hold began.
    pub(crate) fn seen_again(&self, connection: u64) {
        self.seen_over.store(connection, Ordering::Release);
    }

    /// Listeners hear of it now. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        // The end of a znode that its holder has released must not wake the client's thread at each release.
        if self.mark_lost(reason) {
            // The inbox lives as long as the client.
            let _ = self.events.send(Event::Look);
        }
    }

    /// `false`: it was released before.
    fn mark_lost(&self, reason: LostReason) -> bool {
        let mut inner = self.inner.lock();
        if inner.released {
            return false;
        }
        inner.lost.get_or_insert(reason);
        let interrupts = std::mem::take(&mut inner.interrupts);
        drop(inner);
        for token in interrupts.iter().filter_map(Weak::upgrade) {
            token.cancel();
        }
        true
    }

    /// Cancels the token when the znode is lost, unless the token has gone by then.
    pub(crate) fn interrupt_on_loss(&self, token: &Arc<CancelToken>) {
        let mut inner = self.inner.lock();
        inner.interrupts.retain(|other| other.strong_count() > 0);
        inner.interrupts.push(Arc::downgrade(token));
        let is_lost = self.lost_in(&inner).is_some();
        drop(inner);
        if is_lost {
            token.cancel();
        }
    }

    /// From here on the znode's end is the holder's own doing.
    pub(crate) fn released(&self) {
        self.inner.lock().released = true;
    }

    /// Tells of the state if it is not that in which a hold begins, and of every change. What happened between the grant
    /// and this call would be missed otherwise.
    pub(crate) fn channel(&self) -> Receiver<HoldState> {
        let (sender, receiver) = unbounded();
        let mut inner = self.inner.lock();
        let state = self.state_in(&inner, Instant::now());
        if state != HoldState::Held {
            // The receiver is right here.
            let _ = sender.send(state);
        }
        inner.channels.push((state, sender));
        drop(inner);
        // The inbox lives as long as the client.
        let _ = self.events.send(Event::Look);
        receiver
    }

    /// As [`channel`](Self::channel), on the dispatch thread.
    pub(crate) fn listen(&self, listener: HoldListener) {
        self.inner.lock().listeners.push((HoldState::Held, listener));
        // The inbox lives as long as the client.
        let _ = self.events.send(Event::Look);
    }

    fn tell(&self, dispatcher: &Dispatcher, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.released {
            return;
        }
        let state = self.state_in(&inner, now);
        inner
            .channels
            .retain_mut(|(told, channel)| std::mem::replace(told, state) == state || channel.send(state).is_ok());
        let is_news = |(told, listener): &mut (HoldState, HoldListener)| {
            (std::mem::replace(told, state) != state).then(|| listener.clone())
        };
        let listeners: Vec<HoldListener> = inner.listeners.iter_mut().filter_map(is_news).collect();
        let is_change = std::mem::replace(&mut inner.told, state) != state;
        drop(inner);
        if is_change {
            log::debug!("{}: {state:?}", self.znode.path);
        }
        for listener in listeners {
            dispatcher.run(move || listener(state));
        }
    }

    /// At the limit, and each time the hold has lasted twice as long as at the last warning.
    fn warn_if_held_for_long(&self, limit: Duration, now: Instant) {
        let held_for = now.saturating_duration_since(self.since);
        let mut inner = self.inner.lock();
        if inner.released || held_for < inner.next_warning(limit) {
            return;
        }
        inner.warnings += 1;
        drop(inner);
        log::warn!("{}: held for {held_for:?}, longer than the maximum hold time of {limit:?}", self.path());
    }

    /// Sends for what is not known: after a reconnect, whether the znode is still there; after a while, a watch on it.
    fn check(self: &Arc<Self>, now: Instant) {
        let connection = self.session.connection();
        if connection == 0 || self.lost().is_some() {
            return;
        }
        let unseen = connection != self.seen_over.load(Ordering::Acquire);
        let is_due = self.revocable.is_some() || now >= self.since + WATCH_AFTER;
        let (is_watched, may_ask) = {
            let inner = self.inner.lock();
            (!matches!(inner.watch, WatchState::Absent), inner.may_ask_over(connection, now))
        };
        if !may_ask {
            return;
        }
        if is_due && !is_watched {
            self.request_watch(connection);
        } else if unseen && self.asked_over.swap(connection, Ordering::AcqRel) != connection {
            // Once: a server that is slow to answer would be asked ten times a second otherwise, for each znode held.
            self.request_stat(connection);
        }
    }

    fn request_watch(self: &Arc<Self>, connection: u64) {
        {
            let mut inner = self.inner.lock();
            if inner.released || !matches!(inner.watch, WatchState::Absent) {
                return;
            }
            inner.watch = WatchState::Requested;
        }
        let weak = Arc::downgrade(self);
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            if let Some(node) = weak.upgrade() {
                node.watched(event);
            }
        });
        let request = Request::GetData { path: self.znode.path.as_str().to_owned(), watch: true };
        let node = Arc::downgrade(self);
        let on_reply = Box::new(move |reply| {
            if let Some(node) = node.upgrade() {
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
            drop(inner);
            drop(watch);
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

    /// A reply tells whether the znode is there, and still the same.
    pub(crate) fn seen(&self, connection: u64, reply: Reply) {
        if let (Ok(Response::Data { data, stat }), Some(revocable)) = (&reply, &self.revocable)
            && self.is_ours(stat)
            && !self.inner.lock().released
        {
            revocable.read(data, stat);
        }
        match reply {
            Ok(Response::Data { stat, .. } | Response::Stat(stat)) if self.is_ours(&stat) => {
                self.seen_over.store(connection, Ordering::Release);
            }
            Ok(_) | Err(SessionError::Server(ErrorCode::NoNode)) => self.lose(LostReason::NodeDeleted),
            // Unknown: a later look asks again. A watch that was asked for is not there.
            Err(_) => {
                self.asked_over.store(0, Ordering::Release);
                self.inner.lock().failed = Some((connection, Instant::now() + WATCH_AFTER));
                self.unwatched();
                // So that there is a later look. The inbox lives as long as the client.
                let _ = self.events.send(Event::Look);
            }
        }
    }

    pub(crate) fn is_ours(&self, stat: &Stat) -> bool {
        // A driver may use znodes that no session owns.
        stat.czxid == self.znode.czxid && [0, self.session.id()].contains(&stat.ephemeral_owner)
    }

    /// The watch reports. Runs on the thread that reads for the session.
    pub(crate) fn watched(&self, event: &WatchEvent) {
        match event {
            WatchEvent::Node { event: EventType::NodeDeleted, .. } => {
                self.lose(LostReason::NodeDeleted);
            }
            // Used up by a change of the data, which may be a request: set it again.
            WatchEvent::Node { .. } => {
                self.unwatched();
                // The inbox lives as long as the client.
                let _ = self.events.send(Event::Look);
            }
            WatchEvent::Disconnected | WatchEvent::Reconnected { .. } | WatchEvent::Ended => {}
        }
    }

    fn unwatched(&self) {
        let watch = std::mem::replace(&mut self.inner.lock().watch, WatchState::Absent);
        // Outside of the lock, because it may have to tell the server.
        drop(watch);
    }
}

impl fmt::Debug for HeldNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNode")
            .field("path", &self.znode.path)
            .field("czxid", &self.znode.czxid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
