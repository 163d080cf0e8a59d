//! The trait that all locks implement, and a guard for any of them.

use std::{fmt, marker::PhantomData, time::Duration};

use crate::{
    base::{log, panics::caught},
    error::{Error, Result},
    locks::{
        acquire::batch::Batched,
        face::guard::OfThread,
        holds::hold::{Hold, note_panic},
        options::acquire::AcquireOptions,
    },
};

/// A lock that processes share. Java: `InterProcessLock`.
///
/// Object safe, so that locks of different kinds can be kept side by side. The calling thread blocks until the lock is
/// its own; requests that a lost connection swallows are tried again as the client's retry policy says.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, InterProcessLock, InterProcessMutex, InterProcessSemaphoreMutex};
///
/// let locks: [Box<dyn InterProcessLock>; 2] = [
///     Box::new(InterProcessMutex::new(&client, "/locks/order-42")?),
///     Box::new(InterProcessSemaphoreMutex::new(&client, "/locks/report")?),
/// ];
/// for lock in &locks {
///     lock.acquire()?;
///     assert!(lock.is_acquired_in_this_process());
///     for hold in lock.holds() {
///         println!("{:?} with token {}", lock.path(), hold.fencing_token());
///     }
///     lock.release()?;
///     if !lock.acquire_timeout(Duration::from_secs(5))? {
///         println!("{:?} is still taken", lock.waited_for());
///     } else {
///         lock.release()?;
///     }
///     if lock.acquire_with(&AcquireOptions::new().timeout(Duration::ZERO))? {
///         lock.release()?;
///     }
///     if let Some(holds) = lock.acquire_holds(&AcquireOptions::new())? {
///         lock.release_holds(&holds)?; // these and no other; `abandon_holds` does not wait
///     }
/// }
/// # Ok(()) });
/// ```
pub trait InterProcessLock: Send + Sync {
    /// Acquires the lock, waiting as long as it takes.
    ///
    /// While the connection is suspended a waiter keeps its place in the queue. When the session is lost it queues again at
    /// the end, in the session that follows, if that comes before the client's retry policy gives up.
    ///
    /// # Errors
    /// [`Error::ConnectionLoss`] or [`Error::SessionExpired`] when the retry policy is exhausted, [`Error::Uncertain`]
    /// when no heartbeat makes the lock certain, [`Error::ClientClosed`], [`Error::LockLost`] for a re-entry into a
    /// lock that was lost, and [`Error::Server`] when the server refuses a request. Nothing is left in the queue.
    fn acquire(&self) -> Result<()>;

    /// Acquires the lock unless the time is up first: then `false`, and nothing is left in the queue. The background
    /// finishes the requests that the server has not confirmed by then.
    ///
    /// The time bounds everything: connecting, retries and the wait. Zero means not to wait for others; the requests of
    /// such a mere try are bounded by the client's connection timeout instead, all of them together.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`]. Without an answer in time it is [`Error::ConnectionLoss`] and not `false`, where
    /// there is no connection or the servers are silent.
    #[must_use = "`false` means that the time was up and the lock is not held"]
    fn acquire_timeout(&self, timeout: Duration) -> Result<bool>;

    /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first, as for
    /// [`acquire_timeout`](InterProcessLock::acquire_timeout). Without a timeout it waits as
    /// [`acquire`](InterProcessLock::acquire) does; a cancellation ends it at once, and nothing is left in the queue.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire_timeout`], and [`Error::Cancelled`]. A lock that does not implement this method
    /// knows no cancel tokens and no [self-fence](AcquireOptions::self_fence): [`Error::InvalidArgument`] for one.
    #[must_use = "`false` means that the time was up and the lock is not held"]
    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        if options.cancel.is_some() {
            let rule = "none: this lock cannot be cancelled".into();
            return Err(Error::InvalidArgument { name: "cancel_token", value: "a token".into(), rule });
        }
        if let Some(margin) = options.self_fence {
            let rule = "none: this lock cannot be fenced".into();
            return Err(Error::InvalidArgument { name: "self_fence", value: format!("{margin:?}"), rule });
        }
        options.time_left().map_or_else(|| self.acquire().map(|()| true), |timeout| self.acquire_timeout(timeout))
    }

    /// As [`acquire_with`](InterProcessLock::acquire_with), and hands out the holds that this very call has got: each
    /// of them stays what it is, whatever other threads release and acquire meanwhile. `None`: the time was up first.
    ///
    /// To drop a hold gives nothing back: that is for [`release_holds`](InterProcessLock::release_holds) or
    /// [`abandon_holds`](InterProcessLock::abandon_holds), from any thread.
    ///
    /// By default it acquires and then asks [`holds`](InterProcessLock::holds), which is the same for a lock that
    /// belongs to the thread that acquired it.
    ///
    /// In a multi lock, [`hold_at_least`](AcquireOptions::hold_at_least) and [`hold_at_most`](AcquireOptions::hold_at_most)
    /// count from when all locks are held, for all holds that the options brought; and so do
    /// [unclean deaths](crate::InterProcessMutex::with_unclean_deaths) for those.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire_with`].
    #[must_use = "`None` means that the time was up and the lock is not held"]
    fn acquire_holds(&self, options: &AcquireOptions) -> Result<Option<Vec<Hold>>> {
        Ok(self.acquire_with(options)?.then(|| self.holds()))
    }

    /// Gives the lock back, once for each time it was acquired. It ends a hold of the caller's own, also one that was lost,
    /// before it ends another one.
    ///
    /// The last time, this crate's locks block for one round trip; while the connection is gone as the client's retry
    /// policy says, and at most the session timeout. A lock that was lost takes no request.
    ///
    /// # Errors
    /// [`Error::NotOwner`]; [`Error::LockLost`] if it was lost meanwhile; [`Error::ConnectionLoss`] if the server did not
    /// confirm it in time: the client keeps deleting the znode in the background until it is gone.
    fn release(&self) -> Result<()>;

    /// Gives back these holds of [`acquire_holds`](InterProcessLock::acquire_holds), and no other: a hold that was
    /// released or lost meanwhile may have a successor. Holds of other locks are passed over. With no hold at all it
    /// acts as [`release`](InterProcessLock::release), which is also the default. Blocks as that does.
    ///
    /// # Errors
    /// As [`InterProcessLock::release`]; [`Error::NotOwner`] if none of them is held through this object.
    fn release_holds(&self, holds: &[Hold]) -> Result<()> {
        let _ = holds;
        self.release()
    }

    /// Like [`release_holds`](InterProcessLock::release_holds), without waiting and without a result: a dropped guard
    /// calls this. The locks of this crate leave it to the background; the default releases and logs the error.
    fn abandon_holds(&self, holds: &[Hold]) {
        if let Err(error) = self.release_holds(holds) {
            log::warn!("giving back {}: {error}", self.path().unwrap_or("a lock"));
        }
    }

    /// Whether any thread of this process holds the lock through this object.
    fn is_acquired_in_this_process(&self) -> bool;

    /// The lock's path, for messages. Defaults to none.
    fn path(&self) -> Option<&str> {
        None
    }

    /// The lock that the calling thread's last acquire waited for when its time was up, for messages: a multi lock
    /// names one of its members. Defaults to the path.
    fn waited_for(&self) -> Option<String> {
        self.path().map(str::to_owned)
    }

    /// The caller's holds through this object, one for each znode: fencing token, validity, and whether it was lost.
    /// Defaults to none, for a lock that does not know.
    fn holds(&self) -> Vec<Hold> {
        Vec::new()
    }

    /// The lock as a multi lock needs it that sends for several at once; `None`: it goes by itself.
    #[doc(hidden)]
    fn batched(&self) -> Option<&dyn Batched> {
        None
    }
}

/// Holds a lock as long as it lives. Java: `Locker`.
///
/// For locks as trait objects. If you know the type, prefer the lock's own guard: it also reports the state. It stays with its thread.
/// Around locks as trait objects `catch_unwind` needs an `AssertUnwindSafe`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessLock, InterProcessMutex, InterProcessUnfairMutex, Locker};
///
/// let locks: Vec<Box<dyn InterProcessLock>> = vec![
///     Box::new(InterProcessMutex::new(client, "/locks/orders")?),
///     Box::new(InterProcessUnfairMutex::new(client, "/locks/cleanup")?),
/// ];
/// for lock in &locks {
///     let locker = Locker::new(lock.as_ref())?;
///     // ... the lock is held ...
///     locker.close()?;
/// }
/// # Ok(()) });
/// ```
#[must_use = "the lock is released at once if the locker is not kept"]
pub struct Locker<'a> {
    lock: &'a dyn InterProcessLock,
    /// The holds of its acquire: it ends these and no others.
    holds: Vec<Hold>,
    is_open: bool,
    /// The lock may belong to the thread that acquired it.
    not_send: PhantomData<OfThread>,
}

impl<'a> Locker<'a> {
    /// Acquires the lock, waiting as long as it takes, as [`InterProcessLock::acquire`] does.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`].
    pub fn new(lock: &'a dyn InterProcessLock) -> Result<Locker<'a>> {
        // Without a timeout the acquire ends with the lock or with an error.
        let holds = lock.acquire_holds(&AcquireOptions::new())?.unwrap_or_default();
        Ok(Locker::of(lock, holds))
    }

    /// Acquires the lock unless the time is up first. The time bounds everything, as that of
    /// [`InterProcessLock::acquire_timeout`] does.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, otherwise as [`InterProcessLock::acquire_timeout`].
    pub fn with_timeout(lock: &'a dyn InterProcessLock, timeout: Duration) -> Result<Locker<'a>> {
        if let Some(holds) = lock.acquire_holds(&AcquireOptions::new().timeout(timeout))? {
            return Ok(Locker::of(lock, holds));
        }
        let what =
            lock.waited_for().map_or_else(|| "acquiring the lock".to_owned(), |path| format!("acquiring {path}"));
        Err(Error::Timeout { what, after: timeout })
    }

    fn of(lock: &'a dyn InterProcessLock, holds: Vec<Hold>) -> Locker<'a> {
        Locker { lock, holds, is_open: true, not_send: PhantomData }
    }

    /// The holds of its acquire, one for each znode; see [`InterProcessLock::holds`].
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Releases the lock and reports how that went; blocks as [`InterProcessLock::release`] does. Dropping the locker
    /// releases it too, as [`abandon_holds`](InterProcessLock::abandon_holds) does: a lock of this crate in the background.
    ///
    /// # Errors
    /// As [`InterProcessLock::release_holds`].
    pub fn close(mut self) -> Result<()> {
        self.is_open = false;
        self.lock.release_holds(&self.holds)
    }
}

impl Drop for Locker<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.holds.iter().for_each(note_panic);
            // The lock may be of the caller's own type, and this thread may unwind.
            let _ = caught("releasing a lock on drop", || self.lock.abandon_holds(&self.holds));
        }
    }
}

impl fmt::Debug for Locker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locker")
    }
}
