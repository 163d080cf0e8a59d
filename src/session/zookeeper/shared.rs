//! What the callers, the worker and the watchdog of one session share.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ::zookeeper::ZkState;
use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex};

use super::super::{
    OnReply, Reply, SessionConfig, SessionError, SessionEvent, SessionObserver, Submission, Ticket, WatchEvent,
    Watcher,
    liveness::Liveness,
    machine::{Action, Actions},
};
use crate::proto::{ErrorCode, EventType, Request, Response};

/// How long after a failed attempt to take the session up the next one follows, unless the handle reports something.
const RETRY: Duration = Duration::from_millis(100);

/// What the watchdog is told.
pub(super) enum Signal {
    /// The handle reports another state; the number counts those that mean the end of a connection.
    Handle(u64, ZkState),
    /// There is something to raise, or another timer.
    Look,
    /// The worker has ended.
    Stop,
}

/// What the worker does next.
pub(super) enum Task {
    /// Take the session up, over whatever connection the handle has now.
    Connect,
    /// Prove that the session lives, over this connection of the handle.
    Heartbeat(u64),
    /// Carry out the request with this ticket, over this connection of the handle.
    Request(u64, Request, u64),
    /// The session is over: clean up and end.
    Leave,
}

/// What a watch was set on, to tell after a reconnect what has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// A znode whose data was last changed by this transaction.
    Node { mzxid: i64 },
    /// No znode.
    Absent,
    /// Children.
    Children,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The request is queued or with the handle; an event that was faster than the reply waits here.
    Requested { early: Option<EventType> },
    /// In place.
    Armed(Seen),
}

/// Which request leaves the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exists,
    Data,
    Children,
}

struct Watched {
    path: String,
    kind: Kind,
    stage: Stage,
    watcher: Watcher,
}

/// A watch to be set again.
pub(super) struct Rearm {
    pub(super) ticket: u64,
    pub(super) path: String,
    pub(super) seen: Seen,
}

struct Queued {
    ticket: u64,
    request: Request,
    on_reply: OnReply,
}

/// How a connection was proved.
pub(super) struct Proof {
    /// Counts the handle's connections: the proof holds for this one.
    pub(super) epoch: u64,
    /// The session that owns the probe.
    pub(super) owner: i64,
    /// When the last question was sent.
    pub(super) sent: Instant,
    /// Not after the handshake was sent, where that is known.
    pub(super) handshake: Option<Instant>,
    /// What has changed while there was no connection.
    pub(super) changes: Vec<(u64, EventType)>,
}

struct State {
    alive: bool,
    /// What requests are told once it is not alive.
    end: SessionError,
    id: i64,
    up: bool,
    /// The handle's connection over which it is up.
    up_epoch: u64,
    connections: u64,
    next_ticket: u64,
    queue: VecDeque<Queued>,
    /// What the handle works on. Taken away when the watchdog loses patience.
    current: Option<(u64, OnReply)>,
    next_attempt: Instant,
    heartbeat_due: bool,
    liveness: Liveness,
    watches: BTreeMap<u64, Watched>,
    /// Session events and what all watchers are told: the watchdog alone hands them out, so that they stay in order.
    outbox: Actions<OnReply, Watcher>,
    last_error: Option<Arc<io::Error>>,
}

/// The state is held for moments, and never while something is called.
pub(super) struct Shared {
    pub(super) config: SessionConfig,
    pub(super) done: Receiver<()>,
    observer: SessionObserver,
    signals: Sender<Signal>,
    /// Counts the ends of the handle's connections, at once and from its own thread.
    epoch: AtomicU64,
    /// The handle has ended for good.
    handle_closed: AtomicBool,
    /// When the handle began to connect last.
    handshake: Mutex<Option<Instant>>,
    state: Mutex<State>,
    /// Wakes the worker: whatever it waits for is changed under the lock, and then this is notified.
    work: Condvar,
}

impl Shared {
    pub(super) fn new(
        config: &SessionConfig,
        observer: SessionObserver,
        signals: Sender<Signal>,
        done: Receiver<()>,
    ) -> Shared {
        let now = Instant::now();
        let state = State {
            alive: true,
            end: SessionError::Expired,
            id: 0,
            up: false,
            up_epoch: 0,
            connections: 0,
            next_ticket: 1,
            queue: VecDeque::new(),
            current: None,
            next_attempt: now,
            heartbeat_due: false,
            liveness: Liveness::new(config.session_timeout, now),
            watches: BTreeMap::new(),
            outbox: Vec::new(),
            last_error: None,
        };
        Shared {
            config: config.clone(),
            done,
            observer,
            signals,
            epoch: AtomicU64::new(0),
            handle_closed: AtomicBool::new(false),
            handshake: Mutex::new(None),
            state: Mutex::new(state),
            work: Condvar::new(),
        }
    }

    pub(super) fn id(&self) -> i64 {
        self.state.lock().id
    }

    pub(super) fn connection(&self) -> u64 {
        let state = self.state.lock();
        if state.is_up() { state.connections } else { 0 }
    }

    pub(super) fn valid_until(&self) -> Option<Instant> {
        let state = self.state.lock();
        if state.alive { state.liveness.valid_until() } else { None }
    }

    pub(super) fn last_error(&self) -> Option<Arc<io::Error>> {
        let state = self.state.lock();
        if state.is_up() { None } else { state.last_error.clone() }
    }

    pub(super) fn is_ended(&self) -> bool {
        !self.state.lock().alive
    }

    pub(super) fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        let mut actions = Vec::new();
        let tickets = {
            let mut state = self.state.lock();
            batch.into_iter().map(|submission| state.submit(submission, &mut actions)).collect()
        };
        self.work.notify_all();
        self.carry_out(actions);
        tickets
    }

    pub(super) fn withdraw(&self, ticket: Ticket) -> bool {
        let taken = {
            let mut state = self.state.lock();
            // Tickets are given in the order of the queue.
            let index = state.queue.binary_search_by_key(&ticket.0, |queued| queued.ticket);
            index.ok().map(|index| (state.queue.remove(index), state.watches.remove(&ticket.0)))
        };
        // What they hold is dropped here, outside of the lock.
        taken.is_some()
    }

    pub(super) fn unwatch(&self, ticket: Ticket) {
        let given_up = self.state.lock().watches.remove(&ticket.0);
        drop(given_up);
    }

    /// Ends the session: nothing is raised any more.
    pub(super) fn leave(&self, error: SessionError) {
        self.end(error, None);
    }

    /// The session is over by itself.
    pub(super) fn ended_with(&self, error: SessionError, event: SessionEvent) {
        self.end(error, Some(event));
    }

    fn end(&self, error: SessionError, event: Option<SessionEvent>) {
        let (actions, dropped) = self.state.lock().end(error, event);
        self.work.notify_all();
        self.look();
        self.carry_out(actions);
        drop(dropped);
    }

    pub(super) fn stop(&self) {
        // The watchdog lives until it is told this.
        let _ = self.signals.send(Signal::Stop);
    }

    fn look(&self) {
        // The watchdog may have ended, when nothing is left to raise.
        let _ = self.signals.send(Signal::Look);
    }

    fn carry_out(&self, actions: Actions<OnReply, Watcher>) {
        for action in actions {
            match action {
                Action::Complete(on_reply, reply) => on_reply(reply),
                Action::Notify(watcher, event) => watcher(&event),
                Action::Raise(event) => (self.observer)(event),
                Action::DropCompletion(on_reply) => drop(on_reply),
                Action::DropWatcher(watcher) => drop(watcher),
            }
        }
    }

    /// What the handle reports, on its own thread and under its own lock: it is noted here, and no more.
    pub(super) fn handle_reports(&self, zk_state: ZkState) {
        self.handle_closed.store(zk_state == ZkState::Closed, Ordering::SeqCst);
        let epoch = match zk_state {
            ZkState::Connected | ZkState::ConnectedReadOnly => self.epoch(),
            ZkState::Connecting => {
                // Before the handshake is sent. Later attempts go unreported, so this is never too late.
                *self.handshake.lock() = Some(Instant::now());
                self.epoch.fetch_add(1, Ordering::SeqCst) + 1
            }
            _ => self.epoch.fetch_add(1, Ordering::SeqCst) + 1,
        };
        // The watchdog may have ended.
        let _ = self.signals.send(Signal::Handle(epoch, zk_state));
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(super) fn is_handle_closed(&self) -> bool {
        self.handle_closed.load(Ordering::SeqCst)
    }

    pub(super) fn handshake(&self) -> Option<Instant> {
        *self.handshake.lock()
    }

    pub(super) fn set_handshake(&self, before: Instant) {
        self.handshake.lock().get_or_insert(before);
    }

    /// The watchdog: timers, the handle's reports, and everything that is raised.
    pub(super) fn watch(&self, inbox: &Receiver<Signal>) {
        loop {
            let timer = self.state.lock().next_timer();
            let signal = match timer {
                Some(at) => inbox.recv_deadline(at).ok(),
                None => inbox.recv().ok(),
            };
            match signal {
                Some(Signal::Handle(epoch, state)) => self.reported(epoch, state),
                Some(Signal::Stop) => {
                    self.hand_out();
                    return;
                }
                Some(Signal::Look) | None => {}
            }
            self.timers();
            self.hand_out();
        }
    }

    fn reported(&self, epoch: u64, zk_state: ZkState) {
        match zk_state {
            ZkState::Connected | ZkState::ConnectedReadOnly => {
                self.state.lock().next_attempt = Instant::now();
                self.work.notify_all();
            }
            // The handle does not come back: nobody can use the session any more.
            ZkState::Closed => self.ended_with(SessionError::Expired, SessionEvent::Expired),
            _ => {
                let cause = io::Error::new(io::ErrorKind::ConnectionReset, "the handle lost its connection");
                self.disconnected(Some(epoch), cause);
            }
        }
    }

    fn timers(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if !state.is_up() {
            return;
        }
        if state.liveness.is_dead(now) {
            drop(state);
            let what = "nothing was answered for two thirds of the session timeout";
            self.disconnected(None, io::Error::new(io::ErrorKind::TimedOut, what));
        } else if state.liveness.take_heartbeat(now) {
            state.heartbeat_due = true;
            self.work.notify_all();
        }
    }

    fn hand_out(&self) {
        let outbox = std::mem::take(&mut self.state.lock().outbox);
        self.carry_out(outbox);
    }

    /// The connection is gone: the one before this report, or `None` for the present one.
    pub(super) fn disconnected(&self, epoch: Option<u64>, cause: io::Error) {
        let mut actions = Vec::new();
        {
            let mut state = self.state.lock();
            // The report is older than the connection.
            if epoch.is_some_and(|epoch| epoch <= state.up_epoch) {
                return;
            }
            state.disconnected(Arc::new(cause), &mut actions);
        }
        self.work.notify_all();
        self.look();
        self.carry_out(actions);
    }

    // From here on: for the worker.

    /// Waits for something to do. A change is not missed: it is made under the lock that is held from the look to the
    /// wait.
    pub(super) fn next_task(&self) -> Task {
        let mut state = self.state.lock();
        loop {
            if !state.alive {
                return Task::Leave;
            }
            if !state.up {
                if Instant::now() >= state.next_attempt {
                    return Task::Connect;
                }
                let at = state.next_attempt;
                let _ = self.work.wait_until(&mut state, at);
                continue;
            }
            if std::mem::take(&mut state.heartbeat_due) {
                return Task::Heartbeat(state.up_epoch);
            }
            if let Some(Queued { ticket, request, on_reply }) = state.queue.pop_front() {
                state.current = Some((ticket, on_reply));
                return Task::Request(ticket, request, state.up_epoch);
            }
            self.work.wait(&mut state);
        }
    }

    /// Waits before the worker tries something again, unless it is woken.
    pub(super) fn pause(&self) {
        let mut state = self.state.lock();
        let _ = self.work.wait_for(&mut state, RETRY);
    }

    /// An attempt to take the session up has failed.
    pub(super) fn not_connected(&self, error: io::Error) {
        log::debug!("the handle does not take the session up: {error}");
        let mut state = self.state.lock();
        state.last_error = Some(Arc::new(error));
        state.next_attempt = Instant::now() + RETRY;
    }

    pub(super) fn to_rearm(&self) -> Vec<Rearm> {
        let state = self.state.lock();
        let armed = state.watches.iter().filter_map(|(ticket, watched)| match watched.stage {
            Stage::Armed(seen) => Some(Rearm { ticket: *ticket, path: watched.path.clone(), seen }),
            Stage::Requested { .. } => None,
        });
        armed.collect()
    }

    /// The session was taken up.
    pub(super) fn connected(&self, proof: Proof) {
        {
            let mut state = self.state.lock();
            // Lost again meanwhile: the next attempt asks anew.
            if !state.alive || proof.epoch != self.epoch() {
                return;
            }
            if proof.handshake.is_some() {
                *self.handshake.lock() = None;
            }
            state.connected(proof, self.config.session_timeout);
        }
        self.look();
    }

    pub(super) fn heartbeat_answered(&self, epoch: u64, sent: Instant) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.up && state.up_epoch == epoch {
            state.liveness.received(now);
            state.liveness.heartbeat_answered(sent, now);
        }
    }

    /// Takes the reply to a request. Across the end of a connection nobody knows in which session it was carried out:
    /// then its outcome counts as unknown.
    pub(super) fn replied(&self, ticket: u64, epoch: u64, reply: Reply) {
        let mut actions = Vec::new();
        let is_lost = {
            let mut state = self.state.lock();
            let Some((_, on_reply)) = state.current.take_if(|(current, _)| *current == ticket) else { return };
            let reply = if epoch == self.epoch() { reply } else { Err(SessionError::ConnectionLoss(None)) };
            let is_lost = matches!(reply, Err(SessionError::ConnectionLoss(_)));
            if !is_lost {
                state.liveness.received(Instant::now());
            }
            state.book_watch(ticket, &reply, on_reply, &mut actions);
            is_lost
        };
        self.carry_out(actions);
        if is_lost {
            self.disconnected(None, io::Error::new(io::ErrorKind::ConnectionReset, "the handle lost its connection"));
        }
    }

    /// A watch fired, on the handle's event thread.
    pub(super) fn fired(&self, ticket: u64, event: EventType) {
        let mut actions = Vec::new();
        self.state.lock().fired(ticket, event, &mut actions);
        self.carry_out(actions);
    }
}

impl State {
    fn is_up(&self) -> bool {
        self.alive && self.up
    }

    fn next_timer(&self) -> Option<Instant> {
        self.is_up().then(|| self.liveness.next_timer())
    }

    fn submit(&mut self, submission: Submission, actions: &mut Actions<OnReply, Watcher>) -> Ticket {
        let Submission { request, watcher, on_reply } = submission;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if !self.alive {
            actions.push(Action::Complete(on_reply, Err(self.end.clone())));
            actions.extend(watcher.map(Action::DropWatcher));
            return Ticket(ticket);
        }
        if let (true, Some(watcher)) = (request.leaves_watch(), watcher) {
            let kind = match request {
                Request::GetChildren { .. } => Kind::Children,
                Request::Exists { .. } => Kind::Exists,
                _ => Kind::Data,
            };
            let stage = Stage::Requested { early: None };
            self.watches.insert(ticket, Watched { path: request.path().to_owned(), kind, stage, watcher });
        }
        self.queue.push_back(Queued { ticket, request, on_reply });
        Ticket(ticket)
    }

    fn connected(&mut self, proof: Proof, timeout: Duration) {
        let now = Instant::now();
        self.id = proof.owner;
        self.up = true;
        self.up_epoch = proof.epoch;
        self.connections += 1;
        self.heartbeat_due = false;
        self.liveness.connected(timeout, proof.handshake, now);
        self.liveness.heartbeat_answered(proof.sent, now);
        if self.connections > 1 {
            self.notify_all(&WatchEvent::Reconnected { connection: self.connections });
        }
        for (ticket, event) in proof.changes {
            let mut changes = Vec::new();
            self.fired(ticket, event, &mut changes);
            self.outbox.append(&mut changes);
        }
        let event = SessionEvent::Connected { connection: self.connections, read_only: false };
        self.outbox.push(Action::Raise(event));
    }

    fn disconnected(&mut self, cause: Arc<io::Error>, actions: &mut Actions<OnReply, Watcher>) {
        if !self.is_up() {
            return;
        }
        self.up = false;
        self.next_attempt = Instant::now();
        self.liveness.disconnected();
        if let Some((ticket, on_reply)) = self.current.take() {
            actions.extend(self.watches.remove(&ticket).map(|watched| Action::DropWatcher(watched.watcher)));
            actions.push(Action::Complete(on_reply, Err(SessionError::ConnectionLoss(Some(cause.clone())))));
        }
        self.last_error = Some(cause);
        self.notify_all(&WatchEvent::Disconnected);
        self.outbox.push(Action::Raise(SessionEvent::Disconnected));
    }

    fn notify_all(&mut self, event: &WatchEvent) {
        let watchers = self.watches.values().map(|watched| watched.watcher.clone());
        self.outbox.extend(watchers.map(|watcher| Action::Notify(watcher, event.clone())));
    }

    fn book_watch(&mut self, ticket: u64, reply: &Reply, on_reply: OnReply, actions: &mut Actions<OnReply, Watcher>) {
        actions.push(Action::Complete(on_reply, reply.clone()));
        let Some(watched) = self.watches.get_mut(&ticket) else { return };
        let Stage::Requested { early } = watched.stage else { return };
        match seen(reply, watched.kind) {
            Some(seen) => watched.stage = Stage::Armed(seen),
            None => {
                actions.extend(self.watches.remove(&ticket).map(|watched| Action::DropWatcher(watched.watcher)));
                return;
            }
        }
        if let Some(event) = early {
            self.fired(ticket, event, actions);
        }
    }

    fn fired(&mut self, ticket: u64, event: EventType, actions: &mut Actions<OnReply, Watcher>) {
        let Some(watched) = self.watches.get_mut(&ticket) else { return };
        if let Stage::Requested { early } = &mut watched.stage {
            early.get_or_insert(event);
            return;
        }
        if let Some(watched) = self.watches.remove(&ticket) {
            let event = WatchEvent::Node { event, connection: self.connections };
            actions.push(Action::Notify(watched.watcher, event));
        }
    }

    fn end(
        &mut self,
        error: SessionError,
        event: Option<SessionEvent>,
    ) -> (Actions<OnReply, Watcher>, Actions<OnReply, Watcher>) {
        if !self.alive {
            return (Vec::new(), Vec::new());
        }
        self.alive = false;
        self.end = error.clone();
        // Watchers are told of the end alone, and of events that nobody waits for any more nobody is.
        let dropped = std::mem::take(&mut self.outbox);
        let watchers = std::mem::take(&mut self.watches);
        let mut actions: Actions<OnReply, Watcher> =
            watchers.into_values().map(|watched| Action::Notify(watched.watcher, WatchEvent::Ended)).collect();
        let current = self.current.take().map(|(_, on_reply)| on_reply);
        let waiting = current.into_iter().chain(self.queue.drain(..).map(|queued| queued.on_reply));
        actions.extend(waiting.map(|on_reply| Action::Complete(on_reply, Err(error.clone()))));
        self.outbox.extend(event.map(Action::Raise));
        (actions, dropped)
    }
}

/// What a reply says about the watch it leaves; `None` if it leaves none.
fn seen(reply: &Reply, kind: Kind) -> Option<Seen> {
    match (reply, kind) {
        (Ok(_), Kind::Children) => Some(Seen::Children),
        (Ok(Response::Stat(stat) | Response::Data { stat, .. }), _) => Some(Seen::Node { mzxid: stat.mzxid }),
        // `exists` alone leaves a watch on a znode that is not there.
        (Err(SessionError::Server(ErrorCode::NoNode)), Kind::Exists) => Some(Seen::Absent),
        _ => None,
    }
}

/// What has happened to a watched znode, by what is there now.
pub(super) fn change(seen: Seen, now: &Reply) -> Option<EventType> {
    match (seen, now) {
        (Seen::Node { mzxid }, Ok(Response::Data { stat, .. } | Response::Stat(stat))) => {
            (stat.mzxid != mzxid).then_some(EventType::NodeDataChanged)
        }
        (Seen::Absent, Ok(_)) => Some(EventType::NodeCreated),
        // A list is cheaper to read again than to compare.
        (Seen::Children, Ok(_)) => Some(EventType::NodeChildrenChanged),
        (Seen::Node { .. } | Seen::Children, Err(SessionError::Server(ErrorCode::NoNode))) => {
            Some(EventType::NodeDeleted)
        }
        _ => None,
    }
}
