//! The state that the callers, the worker and the watchdog of one session share.

use std::{
    io, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use ::zookeeper::ZkState;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::state::{HandleState, QueuedRequest};
use crate::{
    base::panics::caught,
    proto::{request::Request, types::EventType},
    session::{
        api::{OnReply, Reply, SessionConfig, SessionError, SessionEvent, SessionObserver, Watcher},
        machine::{
            actions::{Actions, carry_out},
            liveness::{Origin, longest_round_trip},
        },
    },
};

/// How long after a failed attempt to take the session up the next one follows, unless the handle reports something.
const RETRY: Duration = Duration::from_millis(100);

/// The next task of the worker.
pub(super) enum WorkerTask {
    /// Take the session up, over whatever connection the handle has now.
    Connect,
    /// Prove that the session lives.
    Heartbeat,
    /// Carry out the request with this ticket.
    Request(u64, Request),
    /// The session is over: clean up and end.
    Leave,
}

/// The state is locked for moments, and never during a call. A thread that waits for a change is notified after the
/// change was made under the lock: so no change is missed.
pub(super) struct HandleShared {
    pub(super) config: SessionConfig,
    observer: SessionObserver,
    pub(super) state: Mutex<HandleState>,
    /// Wakes the worker.
    pub(super) work: Condvar,
    /// Wakes the watchdog, and callers that wait for the worker's end.
    pub(super) news: Condvar,
}

impl HandleShared {
    pub(super) fn new(config: &SessionConfig, observer: SessionObserver) -> HandleShared {
        let state = Mutex::new(HandleState::new(config.session_timeout));
        HandleShared { config: config.clone(), observer, state, work: Condvar::new(), news: Condvar::new() }
    }

    pub(super) fn id(&self) -> i64 {
        self.state.lock().id
    }

    /// Ends the session. Nothing is raised any more, but for this event, if it has ended by itself.
    pub(super) fn end(&self, error: SessionError, event: Option<SessionEvent>) {
        let (actions, dropped) = self.state.lock().end(error, event);
        self.wake();
        self.carry_out(actions);
        drop(dropped);
    }

    pub(super) fn expired(&self) {
        self.end(SessionError::Expired, Some(SessionEvent::Expired));
    }

    fn wake(&self) {
        self.work.notify_all();
        self.news.notify_all();
    }

    /// Runs callers' code. A panic there ends the session instead of the thread, which may be the handle's own: no
    /// caller must wait for a thread that is gone.
    pub(super) fn carry_out(&self, actions: Actions<OnReply, Watcher>) {
        if caught("a callback of the session", || carry_out(actions, &self.observer)).is_none() {
            self.expired();
        }
    }

    /// Notes a report of the handle, which comes on the handle's own thread and under its own lock, and does no more.
    pub(super) fn handle_reports(&self, zk_state: ZkState) {
        let mut state = self.state.lock();
        if matches!(zk_state, ZkState::Connected | ZkState::ConnectedReadOnly) {
            state.next_attempt = Instant::now();
        } else {
            state.epoch += 1;
            state.handle_closed |= zk_state == ZkState::Closed;
            if zk_state == ZkState::Connecting {
                // Before the handshake is sent. Later attempts go unreported, so this is never too late. A session that
                // was made does not count as resumed before it has been seen.
                state.handshake.get_or_insert(Origin::Resumed { sent: Instant::now(), counts: true });
            }
            state.disconnected(lost());
        }
        self.wake();
    }

    /// The watchdog: timers, and everything that is raised.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            if state.alive && state.handle_closed {
                // The handle does not come back: the session cannot be used any more.
                MutexGuard::unlocked(&mut state, || self.expired());
            } else if let Some(why) = state.liveness.why_dead(now).filter(|_| state.is_up()) {
                state.disconnected(io::Error::new(io::ErrorKind::TimedOut, why));
                self.work.notify_all();
            } else if state.is_up() && state.liveness.take_heartbeat(now) {
                state.heartbeat_due = true;
                self.work.notify_all();
            }
            let outbox = mem::take(&mut state.outbox);
            if !outbox.is_empty() {
                MutexGuard::unlocked(&mut state, || self.carry_out(outbox));
            } else if state.is_finished {
                return;
            } else if let Some(at) = state.next_timer() {
                let _ = self.news.wait_until(&mut state, at);
            } else {
                self.news.wait(&mut state);
            }
        }
    }

    // From here on: for the worker.

    /// Waits for something to do.
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
            if mem::take(&mut state.heartbeat_due) {
                return WorkerTask::Heartbeat;
            }
            if let Some(QueuedRequest { ticket, request, on_reply }) = state.queue.pop_front() {
                state.current = Some((ticket, on_reply));
                return WorkerTask::Request(ticket, request);
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

    /// The session was taken up over this connection of the handle: it owned the probe after the question was sent.
    pub(super) fn connected(&self, epoch: u64, owner: i64, sent: Instant) {
        let mut state = self.state.lock();
        // Lost again meanwhile: the next attempt asks anew.
        if state.alive && epoch == state.epoch {
            state.connected(owner, sent, self.config.session_timeout);
            self.news.notify_all();
        }
    }

    pub(super) fn disconnected(&self, cause: io::Error) {
        self.state.lock().disconnected(cause);
        self.news.notify_all();
    }

    pub(super) fn heartbeat_answered(&self, sent: Instant) {
        let now = Instant::now();
        let mut state = self.state.lock();
        // Only the worker takes the session up: it was up all the time.
        if state.is_up() {
            state.liveness.received(now);
            state.liveness.heartbeat_answered(sent, now);
            let took = now.saturating_duration_since(sent);
            self.config.counters.heartbeat_answered(took, took > longest_round_trip(self.config.session_timeout));
        }
    }

    /// Takes the reply to the request under way. Across the end of a connection it is unknown in which session it was
    /// carried out: its outcome counts as unknown then, which was told already.
    pub(super) fn replied(&self, request: &Request, reply: Reply) {
        if matches!(reply, Err(SessionError::ConnectionLoss(_))) {
            return self.disconnected(lost());
        }
        let mut actions = Vec::new();
        {
            let mut state = self.state.lock();
            let Some((ticket, on_reply)) = state.current.take() else { return };
            state.liveness.received(Instant::now());
            state.book_watch(ticket, request, &reply, on_reply, &mut actions);
        }
        self.carry_out(actions);
    }

    /// A watch fired, on the handle's event thread.
    pub(super) fn fired(&self, ticket: u64, event: EventType) {
        let mut actions = Vec::new();
        self.state.lock().fired(ticket, event, &mut actions);
        self.carry_out(actions);
    }

    /// The worker has ended.
    pub(super) fn finished(&self) {
        self.state.lock().is_finished = true;
        self.news.notify_all();
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the handle lost its connection")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use crossbeam_channel::unbounded;

    use super::*;
    use crate::session::fake::server_side::config;

    #[test]
    fn a_callback_that_panics_ends_the_session_and_its_end_is_told() {
        let (raised, told) = unbounded();
        let observer: SessionObserver = Arc::new(move |event| {
            let is_connected = matches!(event, SessionEvent::Connected { .. });
            raised.send(event).unwrap();
            assert!(!is_connected, "on purpose");
        });
        let shared = HandleShared::new(&config(), observer);
        thread::scope(|scope| {
            scope.spawn(|| shared.watch());
            shared.connected(0, 7, Instant::now());
            let longest = Duration::from_secs(20);
            assert!(matches!(told.recv_timeout(longest), Ok(SessionEvent::Connected { .. })));
            assert_eq!(told.recv_timeout(longest), Ok(SessionEvent::Expired));
            assert!(!shared.state.lock().alive);
            shared.finished();
        });
    }
}
