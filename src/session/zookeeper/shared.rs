//! The state that the callers, the worker and the watchdog of one session share.

use std::{io, mem};

use ::zookeeper::ZkState;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::state::HandleState;
use crate::{
    base::{clock, panics::caught},
    session::{
        api::{SessionConfig, SessionError, SessionEvent, SessionObserver},
        machine::{
            actions::{Action, carry_out},
            liveness::Origin,
        },
    },
};

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

    /// No holder relies on the session any more.
    pub(super) fn nobody_holds(&self) {
        self.state.lock().relied_on_until = None;
        self.work.notify_all();
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
    pub(super) fn carry_out(&self, actions: Vec<Action>) {
        if caught("a callback of the session", || carry_out(actions, &self.observer)).is_none() {
            self.expired();
        }
    }

    /// Notes a report of the handle, which comes on the handle's own thread and under its own lock, and does no more.
    pub(super) fn handle_reports(&self, zk_state: ZkState) {
        let mut state = self.state.lock();
        if matches!(zk_state, ZkState::Connected | ZkState::ConnectedReadOnly) {
            state.next_attempt = clock::now();
        } else {
            state.epoch += 1;
            state.handle_closed |= zk_state == ZkState::Closed;
            if zk_state == ZkState::Connecting {
                // Before the handshake is sent. Later attempts go unreported, so this is never too late. A session that
                // was made does not count as resumed before it has been seen.
                state.handshake.get_or_insert(Origin::Resumed(clock::now()));
            }
            state.disconnected(lost());
        }
        self.wake();
    }

    /// The watchdog: timers, and everything that is raised.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            let now = clock::now();
            if state.ended.is_none() && state.handle_closed {
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
            } else if state.is_up() {
                let at = state.liveness.next_timer();
                let _ = self.news.wait_for(&mut state, clock::until(at));
            } else {
                self.news.wait(&mut state);
            }
        }
    }

    pub(super) fn disconnected(&self, cause: io::Error) {
        self.state.lock().disconnected(cause);
        self.news.notify_all();
    }
}

pub(super) fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the handle lost its connection")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

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
            shared.state.lock().connected(7, clock::now(), shared.config.session_timeout);
            shared.news.notify_all();
            let longest = Duration::from_secs(20);
            assert!(matches!(told.recv_timeout(longest), Ok(SessionEvent::Connected { .. })));
            assert_eq!(told.recv_timeout(longest), Ok(SessionEvent::Expired));
            assert!(shared.state.lock().ended.is_some());
            shared.state.lock().is_finished = true;
            shared.news.notify_all();
        });
    }
}
