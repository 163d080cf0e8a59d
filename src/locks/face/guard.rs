//! A held lock as a value.

use std::{
    marker::PhantomData,
    slice,
    sync::{Arc, MutexGuard},
};

use crate::{
    error::Result,
    framework::held::node::HeldNode,
    locks::{
        acquire::{internals::LockInternals, owners::Owners},
        holds::hold::{Hold, note_panic},
    },
};

/// A held lock that belongs to a thread: dropping it releases the lock.
///
/// It borrows nothing, so it may be kept in a struct, or returned, and outlive the lock object. But it stays with its thread
/// (to the compiler, by a [`MutexGuard`](std::sync::MutexGuard)): others may look at it, or have a clone of its [`Hold`]. The guard of an
/// [`InterProcessSemaphoreMutex`](crate::InterProcessSemaphoreMutex) may go to another thread, and be held over an `.await`.
///
/// The guard dereferences to [`Hold`], the holder's knowledge of the lock: the [fencing token](Hold::fencing_token), up
/// to when the lock cannot have been given to anybody else ([`valid_until`](Hold::valid_until)), and whether it was
/// lost ([`state`](Hold::state), also as a [channel](Hold::state_changes) and a [callback](Hold::on_state_change)).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::{Duration, Instant};
/// use curator_locks::{HoldState, LostReason};
/// # use curator_locks::InterProcessMutex;
///
/// # let mutex = InterProcessMutex::new(client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// let changes = held.state_changes();
/// if held.valid_until() > Instant::now() + Duration::from_secs(1) {
///     // time enough for a second of work
/// }
///
/// client.delete().for_path(held.path())?; // what an administrator should not do
///
/// // In doubt until the servers have said that the session lives; a client that hears of both at once tells of the loss alone.
/// let mut change = changes.recv_timeout(Duration::from_secs(10))?;
/// if change == HoldState::InDoubt {
///     change = changes.recv_timeout(Duration::from_secs(10))?;
/// }
/// assert_eq!(change, HoldState::Lost(LostReason::NodeDeleted));
/// assert!(held.release().is_err());
///
/// /// Keeps the lock for as long as it lives.
/// struct Editor {
///     held: curator_locks::LockGuard,
/// }
/// let editor = Editor { held: mutex.lock()? };
/// drop(mutex);
/// assert!(editor.held.is_valid());
/// editor.held.release()?;
/// # Ok(()) });
/// ```
#[must_use = "the lock is released at once if the guard is not kept: by `let held =`, not by `let _ =`"]
pub struct LockGuard {
    lock: Arc<LockInternals>,
    owners: Arc<Owners>,
    hold: Hold,
    is_open: bool,
    not_send: PhantomData<OfThread>,
}

/// Marks a type that belongs to one thread: it is not `Send`, but `Sync`.
pub(in crate::locks) type OfThread = MutexGuard<'static, ()>;

impl LockGuard {
    pub(crate) fn new(lock: &Arc<LockInternals>, owners: &Arc<Owners>, held: Arc<HeldNode>) -> LockGuard {
        let (lock, owners, hold) = (lock.clone(), owners.clone(), lock.hold(held));
        LockGuard { lock, owners, hold, is_open: true, not_send: PhantomData }
    }

    /// Releases the lock and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// [`Error::LockLost`](crate::Error::LockLost) if it was lost before; [`Error::ConnectionLoss`](crate::Error::ConnectionLoss)
    /// if the server did not confirm: the client keeps deleting the znode in the background until it is gone.
    pub fn release(mut self) -> Result<()> {
        self.is_open = false;
        self.owners.release(&self.lock, slice::from_ref(&self.hold))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.is_open {
            note_panic(&self.hold);
            self.owners.abandon(&self.lock, slice::from_ref(&self.hold));
        }
    }
}

/// Dereferences a guard to its hold, which is also what it shows of itself. `$hold` is that of `$this` guard.
macro_rules! guard_of_hold {
    ($guard:ident, |$this:ident| $hold:expr) => {
        impl std::ops::Deref for $guard {
            type Target = $crate::locks::holds::hold::Hold;

            fn deref(&self) -> &Self::Target {
                let $this = self;
                $hold
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&**self).finish()
            }
        }
    };
}

guard_of_hold! { LockGuard, |guard| &guard.hold }

pub(in crate::locks) use guard_of_hold;
