//! What the callers, the worker and the watchdog of one session share.

use std::{
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

use super::state::{HandleState, Proof, QueuedRequest};
use crate::{
    proto::{request::Request, types::EventType},
    session::{
        api::{
            OnReply, Reply, SessionConfig, SessionError, SessionEvent, SessionObserver, Submission, Ticket, Watcher,
        },
        machine::actions::{Actions, carry_out},
    },
};

/// How long after a failed attempt to take the session up the next one follows, unless the handle reports something.
const RETRY: Duration = Duration::from_millis(100);

/// A message to the watchdog.
pub(super) enum Signal {
    /// The handle reports another state; the number counts those that mean the end of a connection.
    Handle(u64, ZkState),
    /// There is something to raise, or another timer.
    Look,
    /// The worker has ended.
    Stop,
}

/// What the worker does next.
pub(super) enum WorkerTask {
    /// Take the session up, over whatever connection the handle has now.
    Connect,
    /// Prove that the session lives, over this connection of the handle.
    Heartbeat(u64),
    /// Carry out the request with this ticket, over this connection of the handle.
    Request(u64, Request, u64),
    /// The session is over: clean up and end.
    Leave,
}

/// The state is held for moments, and never while something is called.
pub(super) struct HandleShared {
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
    state: Mutex<HandleState>,
    /// Wakes the worker: whatever it waits for is changed under the lock, and then this is notified.
    work: Condvar,
}

impl HandleShared {
    pub(super) fn new(
        config: &SessionConfig,
        observer: SessionObserver,
        signals: Sender<Signal>,
        done: Receiver<()>,
    ) -> HandleShared {
        HandleShared {
            config: config.clone(),
            done,
            observer,
            signals,
            epoch: AtomicU64::new(0),
            handle_closed: AtomicBool::new(false),
            handshake: Mutex::new(None),
            state: Mutex::new(HandleState::new(config.session_timeout)),
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
            let submit = |submission: Submission| {
                self.config.counters.requested(&submission.request);
                state.submit(submission, &mut actions)
            };
            batch.into_iter().map(submit).collect()
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
        carry_out(actions, &self.observer);
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
    pub(super) fn watch(&self, signals: &Receiver<Signal>) {
        loop {
            let timer = self.state.lock().next_timer();
            let signal = match timer {
                Some(at) => signals.recv_deadline(at).ok(),
                None => signals.recv().ok(),
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
    pub(super) fn next_task(&self) -> WorkerTask {
        let mut state = self.state.lock();
        loop {
            if !state.alive {
                return WorkerTask::Leave;
            }
            if !state.up {
                if Instant::now() >= state.next_attempt {
                    return WorkerTask::Connect;
                }
                let at = state.next_attempt;
                let _ = self.work.wait_until(&mut state, at);
                continue;
            }
            if std::mem::take(&mut state.heartbeat_due) {
                return WorkerTask::Heartbeat(state.up_epoch);
            }
            if let Some(QueuedRequest { ticket, request, on_reply }) = state.queue.pop_front() {
                state.current = Some((ticket, on_reply));
                return WorkerTask::Request(ticket, request, state.up_epoch);
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
            let is_prompt = state.liveness.heartbeat_answered(sent, now);
            self.config.counters.heartbeat_answered(now.saturating_duration_since(sent), is_prompt);
        }
    }

    /// Takes the reply to a request. Across the end of a connection nobody knows in which session it was carried out:
    /// then its outcome counts as unknown.
    pub(super) fn replied(&self, ticket: u64, request: &Request, epoch: u64, reply: Reply) {
        let mut actions = Vec::new();
        let is_lost = {
            let mut state = self.state.lock();
            let Some((_, on_reply)) = state.current.take_if(|(current, _)| *current == ticket) else { return };
            let reply = if epoch == self.epoch() { reply } else { Err(SessionError::ConnectionLoss(None)) };
            let is_lost = matches!(reply, Err(SessionError::ConnectionLoss(_)));
            if !is_lost {
                state.liveness.received(Instant::now());
            }
            state.book_watch(ticket, request, &reply, on_reply, &mut actions);
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
