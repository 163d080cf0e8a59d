//! The state of a session over a handle: what is queued, watched and told.

use std::{
    collections::{BTreeMap, VecDeque},
    io, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    proto::{
        request::Request,
        types::{ErrorCode, EventType},
    },
    session::{
        api::{OnReply, Reply, SessionError, SessionEvent, Submission, Ticket, WatchEvent, Watcher},
        machine::{
            actions::{Action, Actions},
            liveness::{Liveness, Origin},
        },
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStage {
    /// The request is queued or with the handle; an event that was faster than the reply waits here.
    Requested { early: Option<EventType> },
    /// In place until the connection ends; this event is told then, because later changes go unseen.
    Armed { unseen: EventType },
}

pub(super) struct Watched {
    stage: WatchStage,
    watcher: Watcher,
}

pub(super) struct QueuedRequest {
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) on_reply: OnReply,
}

pub(super) struct HandleState {
    pub(super) alive: bool,
    /// The error of every request once it is not alive.
    pub(super) end: SessionError,
    pub(super) id: i64,
    pub(super) up: bool,
    pub(super) connections: u64,
    pub(super) next_ticket: u64,
    pub(super) queue: VecDeque<QueuedRequest>,
    /// The request that the handle works on. Taken away when the connection ends.
    pub(super) current: Option<(u64, OnReply)>,
    /// Counts the ends of the handle's connections.
    pub(super) epoch: u64,
    /// How the handle came by the connection that is taken up next, if it has said so.
    pub(super) handshake: Option<Origin>,
    /// The handle has ended for good.
    pub(super) handle_closed: bool,
    /// The worker has ended.
    pub(super) is_finished: bool,
    pub(super) next_attempt: Instant,
    pub(super) heartbeat_due: bool,
    pub(super) liveness: Liveness,
    pub(super) watches: BTreeMap<u64, Watched>,
    /// The actions that the watchdog alone hands out, so that they stay in order.
    pub(super) outbox: Actions<OnReply, Watcher>,
    pub(super) last_error: Option<Arc<io::Error>>,
}

impl HandleState {
    pub(super) fn new(timeout: Duration) -> HandleState {
        let now = Instant::now();
        HandleState {
            alive: true,
            end: SessionError::Expired,
            id: 0,
            up: false,
            connections: 0,
            next_ticket: 1,
            queue: VecDeque::new(),
            current: None,
            epoch: 0,
            handshake: None,
            handle_closed: false,
            is_finished: false,
            next_attempt: now,
            heartbeat_due: false,
            liveness: Liveness::one_at_a_time(timeout, now),
            watches: BTreeMap::new(),
            outbox: Vec::new(),
            last_error: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.alive && self.up
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.is_up().then(|| self.liveness.next_timer())
    }

    pub(super) fn submit(&mut self, submission: Submission, actions: &mut Actions<OnReply, Watcher>) -> Ticket {
        let Submission { request, watcher, on_reply } = submission;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if !self.alive {
            actions.push(Action::Complete(on_reply, Err(self.end.clone())));
            actions.extend(watcher.map(Action::DropWatcher));
            return Ticket(ticket);
        }
        if let (Some(_), Some(watcher)) = (request.watch_table(), watcher) {
            self.watches.insert(ticket, Watched { stage: WatchStage::Requested { early: None }, watcher });
        }
        self.queue.push_back(QueuedRequest { ticket, request, on_reply });
        Ticket(ticket)
    }

    /// Notes that this session was seen to own the probe, by a question sent at `sent`.
    pub(super) fn connected(&mut self, owner: i64, sent: Instant, timeout: Duration) {
        let now = Instant::now();
        self.id = owner;
        self.up = true;
        self.connections += 1;
        self.heartbeat_due = false;
        let origin = self.handshake.take().unwrap_or(Origin::Resumed { sent, counts: false });
        self.liveness.connected(timeout, origin, now);
        self.liveness.heartbeat_answered(sent, now);
        let connection = self.connections;
        if connection > 1 {
            self.watches.retain(|_, Watched { stage, watcher }| {
                let (event, is_kept) = match *stage {
                    // The package does not set it again.
                    WatchStage::Armed { unseen } => (WatchEvent::Node { event: unseen, connection }, false),
                    WatchStage::Requested { .. } => (WatchEvent::Reconnected { connection }, true),
                };
                self.outbox.push(Action::Notify(watcher.clone(), event));
                is_kept
            });
        }
        let event = SessionEvent::Connected { connection, read_only: false };
        self.outbox.push(Action::Raise(event));
    }

    pub(super) fn disconnected(&mut self, cause: io::Error) {
        if !self.is_up() {
            return;
        }
        self.up = false;
        self.next_attempt = Instant::now();
        self.liveness.disconnected();
        let cause = Arc::new(cause);
        if let Some((ticket, on_reply)) = self.current.take() {
            self.outbox.extend(self.watches.remove(&ticket).map(|watched| Action::DropWatcher(watched.watcher)));
            self.outbox.push(Action::Complete(on_reply, Err(SessionError::ConnectionLoss(Some(cause.clone())))));
        }
        self.last_error = Some(cause);
        let watchers = self.watches.values().map(|watched| watched.watcher.clone());
        self.outbox.extend(watchers.map(|watcher| Action::Notify(watcher, WatchEvent::Disconnected)));
        self.outbox.push(Action::Raise(SessionEvent::Disconnected));
    }

    pub(super) fn book_watch(
        &mut self,
        ticket: u64,
        request: &Request,
        reply: &Reply,
        on_reply: OnReply,
        actions: &mut Actions<OnReply, Watcher>,
    ) {
        actions.push(Action::Complete(on_reply, reply.clone()));
        let Some(watched) = self.watches.get_mut(&ticket) else { return };
        let WatchStage::Requested { early } = watched.stage else { return };
        let is_left = match reply {
            // `exists` alone leaves a watch on a znode that is not there.
            Err(SessionError::Server(ErrorCode::NoNode)) => matches!(request, Request::Exists { .. }),
            reply => reply.is_ok(),
        };
        if !is_left {
            actions.extend(self.watches.remove(&ticket).map(|watched| Action::DropWatcher(watched.watcher)));
            return;
        }
        let is_of_children = matches!(request, Request::GetChildren { .. });
        let unseen = if is_of_children { EventType::NodeChildrenChanged } else { EventType::NodeDataChanged };
        watched.stage = WatchStage::Armed { unseen };
        if let Some(event) = early {
            self.fired(ticket, event, actions);
        }
    }

    pub(super) fn fired(&mut self, ticket: u64, event: EventType, actions: &mut Actions<OnReply, Watcher>) {
        let Some(watched) = self.watches.get_mut(&ticket) else { return };
        if let WatchStage::Requested { early } = &mut watched.stage {
            early.get_or_insert(event);
            return;
        }
        if let Some(watched) = self.watches.remove(&ticket) {
            let event = WatchEvent::Node { event, connection: self.connections };
            actions.push(Action::Notify(watched.watcher, event));
        }
    }

    pub(super) fn end(
        &mut self,
        error: SessionError,
        event: Option<SessionEvent>,
    ) -> (Actions<OnReply, Watcher>, Actions<OnReply, Watcher>) {
        if !self.alive {
            return (Vec::new(), Vec::new());
        }
        self.alive = false;
        self.end = error.clone();
        // Watchers are told of the end alone: events that were not handed out yet are dropped.
        let (mut actions, dropped): (Actions<OnReply, Watcher>, Vec<_>) =
            mem::take(&mut self.outbox).into_iter().partition(|action| matches!(action, Action::Complete(..)));
        let watchers = mem::take(&mut self.watches);
        actions.extend(watchers.into_values().map(|watched| Action::Notify(watched.watcher, WatchEvent::Ended)));
        let current = self.current.take().map(|(_, on_reply)| on_reply);
        let waiting = current.into_iter().chain(self.queue.drain(..).map(|queued| queued.on_reply));
        actions.extend(waiting.map(|on_reply| Action::Complete(on_reply, Err(error.clone()))));
        self.outbox.extend(event.map(Action::Raise));
        (actions, dropped)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::proto::{response::Response, types::Stat};

    const T: Duration = Duration::from_secs(6);

    fn data() -> Reply {
        Ok(Response::Data { data: Vec::new(), stat: Stat::default() })
    }

    /// A state that is up, with one watch requested.
    fn watching(request: Request) -> (HandleState, u64) {
        let mut state = HandleState::new(T);
        connect(&mut state);
        let ticket = submit(&mut state, request);
        (state, ticket)
    }

    fn connect(state: &mut HandleState) {
        state.connected(7, Instant::now(), T);
    }

    fn submit(state: &mut HandleState, request: Request) -> u64 {
        let watcher: Watcher = Arc::new(|_| {});
        let submission = Submission { request, watcher: Some(watcher), on_reply: Box::new(|_| {}) };
        state.submit(submission, &mut Vec::new()).0
    }

    fn get_data() -> Request {
        Request::GetData { path: "/a".into(), watch: true }
    }

    fn notified(actions: Actions<OnReply, Watcher>) -> Vec<WatchEvent> {
        let events = actions.into_iter().filter_map(|action| match action {
            Action::Notify(_, event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    #[test]
    fn what_was_proved_of_the_session_has_passed_when_it_is_taken_up_again_and_a_heartbeat_proves_more() {
        let mut state = HandleState::new(T);
        let now = Instant::now();
        state.handshake = Some(Origin::Created(now - T));
        connect(&mut state);
        let of_creation = state.liveness.valid_until();
        assert_eq!(of_creation, Some(now - T / 20));
        state.disconnected(io::Error::other("gone"));
        state.handshake = Some(Origin::Resumed { sent: now, counts: true });
        connect(&mut state);
        assert_eq!(state.liveness.valid_until(), of_creation);
        state.liveness.heartbeat_answered(Instant::now() + T / 4, Instant::now() + T / 4);
        assert!(state.liveness.valid_until() > of_creation);
    }

    #[test]
    fn an_event_that_is_faster_than_the_reply_comes_after_it() {
        let (mut state, ticket) = watching(get_data());
        let mut actions = Vec::new();
        state.fired(ticket, EventType::NodeDeleted, &mut actions);
        assert!(actions.is_empty());
        state.book_watch(ticket, &get_data(), &data(), Box::new(|_| {}), &mut actions);
        assert!(matches!(actions.first(), Some(Action::Complete(..))));
        assert_eq!(notified(actions), [WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 }]);
        assert!(state.watches.is_empty());
    }

    #[test]
    fn a_znode_that_is_missing_is_watched_by_exists_alone() {
        for (request, watched) in [(get_data(), 0), (Request::Exists { path: "/a".into(), watch: true }, 1)] {
            let (mut state, ticket) = watching(request.clone());
            let no_node = Err(SessionError::Server(ErrorCode::NoNode));
            state.book_watch(ticket, &request, &no_node, Box::new(|_| {}), &mut Vec::new());
            assert_eq!(state.watches.len(), watched);
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_the_request_under_way_and_no_other() {
        let (mut state, _) = watching(get_data());
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = ended.clone();
        let on_reply: OnReply = Box::new(move |reply| {
            assert!(matches!(reply, Err(SessionError::ConnectionLoss(Some(_)))));
            counter.fetch_add(1, Ordering::SeqCst);
        });
        state.current = Some((99, on_reply));
        state.disconnected(io::ErrorKind::TimedOut.into());
        for action in mem::take(&mut state.outbox) {
            if let Action::Complete(on_reply, reply) = action {
                on_reply(reply);
            }
        }
        assert_eq!((ended.load(Ordering::SeqCst), state.queue.len()), (1, 1));
        // A second report of the same end says nothing new.
        state.disconnected(io::ErrorKind::TimedOut.into());
        assert!(state.outbox.is_empty());
    }

    #[test]
    fn a_reply_that_was_not_handed_out_yet_survives_the_end_and_an_event_does_not() {
        let (mut state, _) = watching(get_data());
        state.current = Some((99, Box::new(|_| {})));
        state.disconnected(io::ErrorKind::TimedOut.into());
        let (actions, dropped) = state.end(SessionError::Closed, None);
        assert!(matches!(actions.first(), Some(Action::Complete(_, Err(SessionError::ConnectionLoss(_))))));
        assert_eq!(notified(dropped), [WatchEvent::Disconnected]);
    }

    #[test]
    fn nothing_but_the_end_is_told_once_the_session_is_left() {
        let (mut state, _) = watching(get_data());
        let (actions, _) = state.end(SessionError::Closed, None);
        assert!(matches!(actions.last(), Some(Action::Complete(_, Err(SessionError::Closed)))));
        assert_eq!(notified(actions), [WatchEvent::Ended]);
        assert!(state.outbox.is_empty() && state.queue.is_empty());
    }

    #[test]
    fn a_watch_that_outlives_its_connection_is_used_up_and_one_that_was_not_sent_yet_is_not() {
        let (mut state, ticket) = watching(get_data());
        state.book_watch(ticket, &get_data(), &data(), Box::new(|_| {}), &mut Vec::new());
        let list = Request::GetChildren { path: "/a".into(), watch: true, with_stat: false };
        let listed = submit(&mut state, list.clone());
        state.book_watch(listed, &list, &Ok(Response::Done), Box::new(|_| {}), &mut Vec::new());
        let queued = submit(&mut state, get_data());
        state.disconnected(io::ErrorKind::TimedOut.into());
        state.outbox.clear();
        connect(&mut state);
        let changed = |event| WatchEvent::Node { event, connection: 2 };
        let [data, children] = [EventType::NodeDataChanged, EventType::NodeChildrenChanged].map(changed);
        assert_eq!(notified(mem::take(&mut state.outbox)), [data, children, WatchEvent::Reconnected { connection: 2 }]);
        assert_eq!(state.watches.keys().collect::<Vec<_>>(), [&queued]);
    }
}
