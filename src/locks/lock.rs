//! What all locks have in common.

use std::{fmt, marker::PhantomData, time::Duration};

use super::{AcquireOptions, Hold};
use crate::{Error, Result, panics::caught};

/// A lock that processes share. Java: `InterProcessLock`.
///
/// Object safe, so that locks of different kinds can be kept side by side. The calling thread blocks until the lock is
/// its own; requests that a lost connection swallows are tried again as the client's retry policy says.
pub trait InterProcessLock: Send + Sync {
    /// Acquires the lock, waiting as long as it takes.
    ///
    /// # Errors
    /// [`Error::ConnectionLoss`] or [`Error::SessionExpired`] when the retry policy is exhausted,
    /// [`Error::ClientClosed`], [`Error::LockLost`] for a re-entry into a lock that was lost, and what the server
    /// refuses ([`Error::Server`]). Nothing is left in the queue.
    fn acquire(&self) -> Result<()>;

    /// Acquires the lock unless the time is up first: then `false`, and nothing is left in the queue.
    ///
    /// Zero means not to wait for others. The time bounds everything: connecting, retries, the wait and the clean-up.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`].
    fn acquire_timeout(&self, timeout: Duration) -> Result<bool>;

    /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`], and [`Error::Cancelled`]. A lock that does not implement this method knows no
    /// cancel tokens: [`Error::InvalidArgument`] for one.
    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        if options.cancel.is_some() {
            let rule = "none: this lock cannot be cancelled".into();
            return Err(Error::InvalidArgument { name: "cancel_token", value: "a token".into(), rule });
        }
        options.timeout.map_or_else(|| self.acquire().map(|()| true), |timeout| self.acquire_timeout(timeout))
    }

    /// Gives the lock back, once for each time it was acquired.
    ///
    /// # Errors
    /// [`Error::NotOwner`]; [`Error::LockLost`] if it was lost meanwhile; [`Error::ConnectionLoss`] if the server did not
    /// confirm it in time: the background goes on until the znode is gone.
    fn release(&self) -> Result<()>;

    /// Whether any thread of this process holds the lock through this object.
    fn is_acquired_in_this_process(&self) -> bool;

    /// The lock's path, for messages. Defaults to none.
    fn path(&self) -> Option<&str> {
        None
    }

    /// What is known about each znode that the caller holds through this object: its fencing token, how long it is valid,
    /// whether it was lost. Defaults to none, for a lock that does not know.
    fn holds(&self) -> Vec<Hold> {
        Vec::new()
    }
}

/// Holds a lock as long as it lives. Java: `Locker`.
///
/// For locks as trait objects; where the type is known, its own guard knows more.
///
/// ```no_run
/// # use curator_locks::{InterProcessMutex, Locker};
/// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
/// let locker = Locker::new(mutex)?;
/// // ... the lock is held ...
/// locker.close()
/// # }
/// ```
#[must_use = "the lock is released at once if the locker is not kept"]
pub struct Locker<'a> {
    lock: Option<&'a dyn InterProcessLock>,
    /// The lock may belong to the thread that acquired it.
    not_send: PhantomData<*const ()>,
}

impl<'a> Locker<'a> {
    /// Acquires the lock, waiting as long as it takes.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`].
    pub fn new(lock: &'a dyn InterProcessLock) -> Result<Locker<'a>> {
        lock.acquire()?;
        Ok(Locker { lock: Some(lock), not_send: PhantomData })
    }

    /// Acquires the lock unless the time is up first.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, otherwise as [`InterProcessLock::acquire_timeout`].
    pub fn with_timeout(lock: &'a dyn InterProcessLock, timeout: Duration) -> Result<Locker<'a>> {
        if lock.acquire_timeout(timeout)? {
            return Ok(Locker { lock: Some(lock), not_send: PhantomData });
        }
        Err(Error::Timeout { what: "acquiring the lock".into(), after: timeout })
    }

    /// What is known about each znode of the lock; see [`InterProcessLock::holds`].
    #[must_use]
    pub fn holds(&self) -> Vec<Hold> {
        self.lock.map(InterProcessLock::holds).unwrap_or_default()
    }

    /// Releases the lock and reports how that went. Dropping the locker releases it too, blocks for
    /// that as long, and logs an error.
    ///
    /// # Errors
    /// As [`InterProcessLock::release`].
    pub fn close(mut self) -> Result<()> {
        self.lock.take().map_or(Ok(()), InterProcessLock::release)
    }
}

impl Drop for Locker<'_> {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        // It may be somebody else's, and this thread may unwind.
        if let Some(Err(error)) = caught("releasing a lock on drop", || lock.release()) {
            log::warn!("releasing a lock on drop: {error}");
        }
    }
}

impl fmt::Debug for Locker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locker")
    }
}
