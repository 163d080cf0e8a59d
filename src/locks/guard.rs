//! A held lock as a value.

use std::{fmt, marker::PhantomData, ops::Deref, sync::Arc};

use super::{Hold, internals::LockInternals, owners::Owners};
use crate::{Result, framework::HeldNode};

/// A held lock that belongs to a thread: dropping it releases the lock.
///
/// What the holder knows is in [`Hold`], to which the guard dereferences: the [fencing token](Hold::fencing_token), up
/// to when the lock cannot have been given to anybody else ([`valid_until`](Hold::valid_until)), and whether it was lost
/// ([`state`](Hold::state), also as a [channel](Hold::state_changes) and a [callback](Hold::on_state_change)).
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct LockGuard<'a> {
    lock: &'a LockInternals,
    owners: &'a Owners,
    hold: Hold,
    is_open: bool,
    /// The lock belongs to the thread that acquired it.
    not_send: PhantomData<*const ()>,
}

impl<'a> LockGuard<'a> {
    pub(crate) fn new(lock: &'a LockInternals, owners: &'a Owners, held: Arc<HeldNode>) -> LockGuard<'a> {
        let path = lock.client_path(&held);
        LockGuard { lock, owners, hold: Hold::new(held, path), is_open: true, not_send: PhantomData }
    }

    /// Releases the lock and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// [`Error::LockLost`](crate::Error::LockLost) if it was lost before; [`Error::ConnectionLoss`](crate::Error::ConnectionLoss)
    /// if the server did not confirm: the background goes on until the znode is gone.
    pub fn release(mut self) -> Result<()> {
        self.is_open = false;
        self.owners.release(self.lock)
    }
}

impl Deref for LockGuard<'_> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        if let Some(held) = self.owners.leave() {
            self.lock.release_in_background(&held);
        }
    }
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.hold).finish()
    }
}
