//! What a holder knows about its lock.

use std::{fmt, sync::Arc, time::Instant};

use crossbeam_channel::Receiver;

use super::FencingToken;
use crate::{HoldState, framework::HeldNode};

/// What a holder knows about its lock: the part that all guards and [leases](super::Lease) have in common.
///
/// Nothing here talks to a server.
///
/// ```no_run
/// # use curator_locks::InterProcessMutex;
/// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
/// let held = mutex.lock()?;
/// println!("{} with token {}", held.path(), held.fencing_token());
/// assert!(held.is_valid() && !held.is_lost());
/// held.release()
/// # }
/// ```
pub struct Hold {
    held: Arc<HeldNode>,
    path: String,
}

impl Hold {
    /// `path` is the znode's path as the caller sees it.
    pub(super) fn new(held: Arc<HeldNode>, path: String) -> Hold {
        Hold { held, path }
    }

    pub(super) fn node(&self) -> &Arc<HeldNode> {
        &self.held
    }

    /// A number that grows with every grant of this lock, over all processes.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.held.token())
    }

    /// Up to here the servers cannot have given the lock to anybody else, unless somebody deletes its znode.
    ///
    /// It moves on with every heartbeat, a third of the session timeout apart. Once the lock is lost, it lies in the
    /// past. It rests on assumptions (clocks that run at one rate and do not stand, as this one does while the system
    /// sleeps; a session timeout of at least two of the server's ticks), so it is a bound and no proof: the proof is the
    /// [fencing token](Hold::fencing_token).
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.held.valid_until()
    }

    /// Whether the lock is held for certain right now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// Whether the lock is gone for certain.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.state(), HoldState::Lost(_))
    }

    /// What is known about the lock right now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state(Instant::now())
    }

    /// Every change of the state from now on, in order; first of all the state itself, unless it is
    /// [`Held`](HoldState::Held). For `select!`.
    #[must_use]
    pub fn state_changes(&self) -> Receiver<HoldState> {
        self.held.channel()
    }

    /// Calls the listener on every change of the state from now on, in order, on the client's dispatch thread; first of
    /// all with the state itself, unless it is [`Held`](HoldState::Held).
    pub fn on_state_change(&self, listener: impl Fn(HoldState) + Send + Sync + 'static) {
        self.held.listen(Arc::new(listener));
    }

    /// The path of the lock's own znode.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path).field("state", &self.state()).finish_non_exhaustive()
    }
}
