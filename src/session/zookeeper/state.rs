//! The state of a session over a handle: what is queued, watched and told.

use std::{
    collections::BTreeMap,
    io, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    base::clock,
    proto::{
        request::Request,
        types::{ErrorCode, EventType},
    },
    session::{
        api::{OnReply, Reply, SessionError, SessionEvent, Submission, Ticket, WatchEvent, Watcher},
        machine::{
            actions::Action,
            liveness::{Liveness, Origin},
        },
    },
};

pub(super) struct Watched {
    watcher: Watcher,
    /// While the request is queued or with the handle: an event that was faster than the reply waits here.
    early: Option<EventType>,
    /// Once the watch is in place: this event is told when the connection ends, because later changes go unseen.
    unseen: Option<EventType>,
}

pub(super) struct HandleState {
    /// The error of every request once the session has ended.
    pub(super) ended: Option<SessionError>,
    pub(super) id: i64,
    pub(super) up: bool,
    pub(super) connections: u64,
    pub(super) next_ticket: u64,
    /// Requests by their tickets, which are given in the order of submission.
    pub(super) queue: BTreeMap<u64, (Request, OnReply)>,
    /// The request that the handle works on. Taken away when the connection ends.
    pub(super) current: Option<(u64, OnReply)>,
    /// Counts the ends of the handle's connections.
    pub(super) epoch: u64,
    /// How the handle came by the connection that is taken up next, if it has said so.
    pub(super) handshake: Option<Origin>,
    /// The handle has ended for good.
    pub(super) handle_closed: bool,
    /// Once the session is given up: until when a holder may rely on it, so that it must not be closed.
    pub(super) relied_on_until: Option<Instant>,
    /// The worker has ended.
    pub(super) is_finished: bool,
    pub(super) next_attempt: Instant,
    pub(super) heartbeat_due: bool,
    pub(super) liveness: Liveness,
    pub(super) watches: BTreeMap<u64, Watched>,
    /// The actions that the watchdog alone hands out, so that they stay in order.
    pub(super) outbox: Vec<Action>,
    pub(super) last_error: Option<Arc<io::Error>>,
}

impl HandleState {
    pub(super) fn new(timeout: Duration) -> HandleState {
        let now = clock::now();
        HandleState {
            ended: None,
            id: 0,
            up: false,
            connections: 0,
            next_ticket: 1,
            queue: BTreeMap::new(),
            current: None,
            epoch: 0,
            handshake: None,
            handle_closed: false,
            relied_on_until: None,
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
        self.ended.is_none() && self.up
    }

    pub(super) fn submit(&mut self, submission: Submission, actions: &mut Vec<Action>) -> Ticket {
        let Submission { request, watcher, on_reply } = submission;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Some(error) = &self.ended {
            actions.push(Action::Complete(on_reply, Err(error.clone())));
            actions.extend(watcher.map(Action::DropWatcher));
            return Ticket(ticket);
        }
        if let (Some(_), Some(watcher)) = (request.watch_table(), watcher) {
            self.watches.insert(ticket, Watched { watcher, early: None, unseen: None });
        }
        self.queue.insert(ticket, (request, on_reply));
        Ticket(ticket)
    }

    /// Notes that this session was seen to own the probe, by a question sent at `sent`.
    pub(super) fn connected(&mut self, owner: i64, sent: Instant, timeout: Duration) {
        let now = clock::now();
        self.id = owner;
        self.up = true;
        self.connections += 1;
        self.heartbeat_due = false;
        let origin = self.handshake.take().unwrap_or(Origin::Unknown);
        // The handle sends the question behind the handshake, before that is answered. So it says that the handshake counts if that was
        // answered while the session was certain, and confirms nothing in doubt.
        let is_certain = self.liveness.valid_until().is_some_and(|until| now < until);
        self.liveness.connected(timeout, origin, if is_certain { sent } else { now });
        self.liveness.received(now);
        self.liveness.heartbeat_answered(sent, now, true);
        let connection = self.connections;
        if connection > 1 {
            self.watches.retain(|_, Watched { watcher, unseen, .. }| {
                // The package does not set a watch again.
                let changed = unseen.map(|event| WatchEvent::Node { event, connection });
                let event = changed.unwrap_or(WatchEvent::Reconnected { connection });
                self.outbox.push(Action::Notify(watcher.clone(), event));
                unseen.is_none()
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
        self.next_attempt = clock::now();
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

    /// The watch that the request under way leaves, if the reply says so: the event that came before the reply is told.
    pub(super) fn book_watch(&mut self, ticket: u64, request: &Request, reply: &Reply) -> Option<Action> {
        let watched = self.watches.get_mut(&ticket)?;
        let is_left = match reply {
            // `exists` alone leaves a watch on a znode that is not there.
            Err(SessionError::Server(ErrorCode::NoNode)) => matches!(request, Request::Exists { .. }),
            reply => reply.is_ok(),
        };
        if !is_left {
            return self.watches.remove(&ticket).map(|watched| Action::DropWatcher(watched.watcher));
        }
        let is_of_children = matches!(request, Request::GetChildren { .. });
        watched.unseen = Some(if is_of_children { EventType::NodeChildrenChanged } else { EventType::NodeDataChanged });
        watched.early.and_then(|event| self.fired(ticket, event))
    }

    pub(super) fn fired(&mut self, ticket: u64, event: EventType) -> Option<Action> {
        let watched = self.watches.get_mut(&ticket)?;
        if watched.unseen.is_none() {
            watched.early.get_or_insert(event);
            return None;
        }
        let event = WatchEvent::Node { event, connection: self.connections };
        self.watches.remove(&ticket).map(|watched| Action::Notify(watched.watcher, event))
    }

    pub(super) fn end(&mut self, error: SessionError, event: Option<SessionEvent>) -> (Vec<Action>, Vec<Action>) {
        if matches!(error, SessionError::Closed) {
            self.relied_on_until = None;
        } else if self.ended.is_none() {
            self.relied_on_until = self.liveness.valid_until();
        }
        if self.ended.is_some() {
            return (Vec::new(), Vec::new());
        }
        self.ended = Some(error.clone());
        // Watchers are told of the end alone: events that were not handed out yet are dropped.
        let (mut actions, dropped): (Vec<Action>, Vec<_>) =
            mem::take(&mut self.outbox).into_iter().partition(|action| matches!(action, Action::Complete(..)));
        let watchers = mem::take(&mut self.watches);
        actions.extend(watchers.into_values().map(|watched| Action::Notify(watched.watcher, WatchEvent::Ended)));
        let current = self.current.take().map(|(_, on_reply)| on_reply);
        let waiting = current.into_iter().chain(mem::take(&mut self.queue).into_values().map(|(_, on_reply)| on_reply));
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
        state.connected(7, clock::now(), T);
    }

    fn submit(state: &mut HandleState, request: Request) -> u64 {
        let watcher: Watcher = Arc::new(|_| {});
        let submission = Submission { request, watcher: Some(watcher), on_reply: Box::new(|_| {}) };
        state.submit(submission, &mut Vec::new()).0
    }

    fn get_data() -> Request {
        Request::GetData { path: "/a".into(), watch: true }
    }

    fn notified(actions: impl IntoIterator<Item = Action>) -> Vec<WatchEvent> {
        let events = actions.into_iter().filter_map(|action| match action {
            Action::Notify(_, event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    #[test]
    fn what_was_proved_of_the_session_has_passed_when_it_is_taken_up_again_and_a_heartbeat_proves_more() {
        let mut state = HandleState::new(T);
        let now = clock::now();
        state.handshake = Some(Origin::Created(now - T));
        connect(&mut state);
        let of_creation = state.liveness.valid_until();
        assert_eq!(of_creation, Some(now - T / 20));
        state.disconnected(io::Error::other("gone"));
        state.handshake = Some(Origin::Resumed(now));
        connect(&mut state);
        assert_eq!(state.liveness.valid_until(), of_creation);
        let confirmed = clock::now() + T * 3 / 5;
        state.liveness.heartbeat_answered(confirmed, confirmed, true);
        assert!(state.liveness.valid_until() > of_creation);
    }

    #[test]
    fn a_handshake_counts_with_the_question_behind_it_if_the_session_is_certain_when_that_is_answered() {
        for (lasts, counts) in [(T / 2, true), (Duration::ZERO, false)] {
            let mut state = HandleState::new(T);
            let now = clock::now();
            state.handshake = Some(Origin::Created(now + lasts + T / 20 - T));
            connect(&mut state);
            let before = state.liveness.valid_until();
            state.disconnected(io::Error::other("gone"));
            state.handshake = Some(Origin::Resumed(now - T / 4));
            // Taken by the handle while the session was certain.
            state.connected(7, now - T / 4, T);
            assert_eq!(state.liveness.valid_until() > before, counts);
        }
    }

    #[test]
    fn an_event_that_is_faster_than_the_reply_comes_after_it() {
        let (mut state, ticket) = watching(get_data());
        assert!(state.fired(ticket, EventType::NodeDeleted).is_none());
        let fired = state.book_watch(ticket, &get_data(), &data());
        assert_eq!(notified(fired), [WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 }]);
        assert!(state.watches.is_empty());
    }

    #[test]
    fn a_znode_that_is_missing_is_watched_by_exists_alone() {
        for (request, watched) in [(get_data(), 0), (Request::Exists { path: "/a".into(), watch: true }, 1)] {
            let (mut state, ticket) = watching(request.clone());
            let no_node = Err(SessionError::Server(ErrorCode::NoNode));
            state.book_watch(ticket, &request, &no_node);
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
        state.book_watch(ticket, &get_data(), &data());
        let list = Request::GetChildren { path: "/a".into(), watch: true, with_stat: false };
        let listed = submit(&mut state, list.clone());
        state.book_watch(listed, &list, &Ok(Response::Done));
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
