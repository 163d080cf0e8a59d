//! The task that queues and leads for a selector, on one thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::{
    base::panics::caught,
    error::Result,
    framework::{
        client::core::{CuratorFramework, ListenerId},
        events::connection_state::ConnectionState,
    },
    locks::{
        leader::{
            campaign::{Campaign, await_connection},
            leadership::{Executor, LeaderState, Leadership},
            selector_listener::LeaderSelectorListener,
        },
        mutex::InterProcessMutex,
        options::acquire::AcquireOptions,
    },
    session::wait::cancel::CancelToken,
};

/// The state that a selector and its task share.
pub(super) struct SelectorShared {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    pub(super) listener: Box<dyn LeaderSelectorListener>,
    /// Runs the tasks, instead of a thread for each.
    pub(super) executor: Option<Executor>,
    /// Cancelled at the close: ends the waits of the task.
    pub(super) closed: CancelToken,
    pub(super) state: Mutex<SelectorState>,
}

#[derive(Default)]
pub(super) struct SelectorState {
    pub(super) life: LeaderState,
    pub(super) id: String,
    pub(super) requeues: bool,
    /// A task queues or leads, or is about to.
    pub(super) is_queued: bool,
    pub(super) term: Option<Leadership>,
    /// Whether the listener wants no leadership in the last connection state that it was told.
    pub(super) is_unwanted: bool,
    pub(super) on_connection: Option<ListenerId>,
}

/// Queues and leads until the selector wants no further term.
pub(super) struct SelectorTask {
    shared: Arc<SelectorShared>,
    /// Set if the task is dropped before its end: the executor did not run it.
    is_dropped: Arc<AtomicBool>,
    is_over: bool,
}

impl SelectorTask {
    pub(super) fn new(shared: &Arc<SelectorShared>, is_dropped: &Arc<AtomicBool>) -> SelectorTask {
        SelectorTask { shared: shared.clone(), is_dropped: is_dropped.clone(), is_over: false }
    }
}

impl Campaign for SelectorTask {
    fn left(&self) -> &CancelToken {
        &self.shared.closed
    }

    fn lead(&mut self) -> Result<bool> {
        self.shared.lead()
    }

    /// A task that queues has to lead once. The listener is told of errors.
    fn goes_on(&mut self, has_led: &Result<bool>) -> bool {
        let shared = &self.shared;
        let goes_on = {
            let mut state = shared.state.lock();
            let wants_more = match has_led {
                Ok(true) => state.requeues,
                Ok(false) => true,
                Err(error) => !error.is_final(),
            };
            let is_started = state.life == LeaderState::Started;
            state.is_queued = is_started && wants_more;
            // From here on another task may be made.
            self.is_over = !state.is_queued;
            if !is_started {
                return false;
            }
            state.is_queued
        };
        if let Err(error) = has_led {
            let _ = caught("a leader selector's listener", || shared.listener.queueing_failed(&shared.client, error));
        }
        goes_on
    }
}

impl Drop for SelectorTask {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_dropped.store(true, Ordering::Release);
            self.shared.state.lock().is_queued = false;
            log::error!("{}: what queues for leadership was dropped", self.shared.path);
        }
    }
}

impl SelectorShared {
    /// Queues and leads, once. `false`: it was over before the listener was called.
    fn lead(&self) -> Result<bool> {
        if !await_connection(&self.client, &self.closed)? {
            return Ok(false);
        }
        let mutex = InterProcessMutex::new(&self.client, &self.path)?;
        let id = self.state.lock().id.clone();
        let mutex = if id.is_empty() { mutex } else { mutex.with_lock_data(id) };
        let Some(held) = mutex.lock_with(&AcquireOptions::new().cancel_token(&self.closed))? else {
            return Ok(false);
        };
        let term = mutex.hold().map(Leadership::new).filter(|leadership| self.begins(leadership));
        if let Some(leadership) = &term {
            let lead = || self.listener.take_leadership(&self.client, leadership);
            let _ = caught("a leader", lead);
            // Before the release: no other process leads before this term has ended.
            leadership.end();
            self.state.lock().term = None;
        }
        if let Err(error) = held.release() {
            log::debug!("{}: at the end of a term: {error}", self.path);
        }
        Ok(term.is_some())
    }

    /// The term begins, unless it is over already.
    fn begins(&self, leadership: &Leadership) -> bool {
        let mut state = self.state.lock();
        // Read under the lock: a state that the listener was told already shows here, and later ones find the term.
        let is_connected = self.client.connection_state().is_some_and(ConnectionState::is_connected);
        // Earlier states were not about this term, but a suspension may last.
        let is_wanted = state.life == LeaderState::Started && (is_connected || !state.is_unwanted);
        if is_wanted && leadership.has_leadership() {
            state.term = Some(leadership.clone());
            return true;
        }
        false
    }

    /// Asks the listener about a connection state, on the dispatch thread.
    pub(super) fn state_changed(&self, client: &CuratorFramework, connection: ConnectionState) {
        let ask = || self.listener.state_changed(client, connection);
        let is_unwanted = match caught("a leader selector's listener", ask) {
            Some(verdict) => verdict.is_err(),
            None => client.connection_state_error_policy().is_error_state(connection),
        };
        let term = {
            let mut state = self.state.lock();
            state.is_unwanted = is_unwanted;
            state.term.clone()
        };
        if let Some(term) = term.filter(|_| is_unwanted) {
            term.end();
        }
    }
}
