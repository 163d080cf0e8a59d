//! The exclusive lock on one ephemeral name.

mod attempt;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use self::attempt::Attempt;
use super::{
    AcquireOptions, InterProcessLock, LockGuard, LockInternals, StandardLockInternalsDriver, internals::Patience,
    owners::Owners,
};
use crate::{
    CuratorFramework, Error, Result,
    framework::{HeldNode, HoldKind},
    session::Stop,
};

/// The name of the one znode that is the lock, in the lock's directory.
const NAME: &str = "lock";

/// A mutex that processes share, without a queue: whoever creates the znode `<path>/lock` has it. Re-entrant per thread.
///
/// This is the simplest of the classical ZooKeeper locks, an ephemeral znode of a fixed name; Curator has none like it.
/// It excludes exactly those that use this type on the same path; an [`InterProcessMutex`](crate::InterProcessMutex) there
/// is another lock. One object serves any number of threads.
///
/// # When to use it
/// An acquire costs one request and a release another, where [`InterProcessMutex`](crate::InterProcessMutex) needs three
/// for both, and nothing is listed, however many contend. It is a good bargain where contention is rare or waiting is
/// not wanted at all: [`try_lock`](InterProcessUnfairMutex::try_lock) for a job that runs on one machine of many, a
/// lock per order of which there are thousands.
///
/// It is a bad one where many wait. Each release wakes **all** waiters; each sends a create, one wins, and the others set
/// their watch anew: 2 n requests, n of them writes, for one hand-over among n waiters. Nobody is first in line, so a
/// waiter can starve while others come and go. From a handful of constant waiters on, take the
/// [`InterProcessMutex`](crate::InterProcessMutex), where a release wakes one.
///
/// # When the connection goes
/// While it is suspended a waiter goes on waiting, and a holder is told when the lock is in doubt
/// ([`Hold::state`](super::Hold::state)). When the session is lost, the holder is told, and a waiter contends in the
/// session that follows.
///
/// A release whose reply was lost first reads whose the znode is, as the name may be another holder's by then. It cannot
/// tell in one case: an administrator deletes the holder's znode, another contender creates its own, and the holder
/// releases before it has heard of that (it hears of it once it has held the lock for 100 ms).
///
/// ```no_run
/// # use curator_locks::{CuratorFramework, InterProcessUnfairMutex};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let nightly_report = InterProcessUnfairMutex::new(client, "/jobs/nightly-report")?;
/// if let Some(held) = nightly_report.try_lock()? {
///     // ... this machine makes the report ...
///     held.release()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct InterProcessUnfairMutex {
    internals: LockInternals,
    owners: Owners,
    data: Vec<u8>,
}

impl InterProcessUnfairMutex {
    /// A mutex in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessUnfairMutex> {
        let mut internals = LockInternals::new(client, path, Arc::new(StandardLockInternalsDriver::new()), 1)?;
        internals.set_kind(HoldKind::Unfair);
        internals.set_reuses_names();
        let data = client.core.config.default_data.clone();
        Ok(InterProcessUnfairMutex { internals, owners: Owners::default(), data })
    }

    /// What the holder's znode carries, for others to read, behind a line with the unique id of the attempt. Defaults to
    /// the client's default data.
    #[must_use]
    pub fn with_lock_data(mut self, data: impl Into<Vec<u8>>) -> InterProcessUnfairMutex {
        self.data = data.into();
        self
    }

    /// Acquires the lock, waiting as long as it takes. A thread that holds it already only counts.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`].
    pub fn acquire(&self) -> Result<()> {
        self.acquire_with(&AcquireOptions::new()).map(drop)
    }

    /// Acquires the lock unless the time is up first: then `false`. Zero means not to wait for others: if the lock is
    /// taken, that costs one read and no write.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire_timeout`].
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        self.acquire_with(&AcquireOptions::new().timeout(timeout))
    }

    /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`], and [`Error::Cancelled`].
    pub fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        Ok(self.enter(options)?.is_some())
    }

    /// Gives the lock back, once for each time the calling thread acquired it; the last time is one round trip.
    ///
    /// Without the server's confirmation it reports [`Error::ConnectionLoss`] after at most the session timeout, and the
    /// background goes on; another call waits for that.
    ///
    /// # Errors
    /// As [`InterProcessLock::release`].
    pub fn release(&self) -> Result<()> {
        self.owners.release(&self.internals, None)
    }

    /// Acquires the lock, waiting as long as it takes, as a guard.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`].
    pub fn lock(&self) -> Result<LockGuard<'_>> {
        match self.lock_with(&AcquireOptions::new())? {
            Some(guard) => Ok(guard),
            // Without a timeout there is no other way out.
            None => Err(Error::Timeout { what: "acquire".into(), after: Duration::MAX }),
        }
    }

    /// Acquires the lock as a guard unless the time is up first.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire_timeout`].
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<LockGuard<'_>>> {
        self.lock_with(&AcquireOptions::new().timeout(timeout))
    }

    /// Acquires the lock as a guard unless somebody has it.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire_timeout`].
    pub fn try_lock(&self) -> Result<Option<LockGuard<'_>>> {
        self.lock_timeout(Duration::ZERO)
    }

    /// Acquires the lock as a guard, with a timeout, a cancel token, both or neither.
    ///
    /// # Errors
    /// As [`InterProcessUnfairMutex::acquire_with`].
    pub fn lock_with(&self, options: &AcquireOptions) -> Result<Option<LockGuard<'_>>> {
        let held = self.enter(options)?;
        Ok(held.map(|held| LockGuard::new(&self.internals, &self.owners, held)))
    }

    /// Whether any thread of this process holds the lock through this object, or has given it back without the server's
    /// confirmation so far.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.owners.is_any()
    }

    /// Whether the calling thread holds the lock through this object.
    #[must_use]
    pub fn is_owned_by_current_thread(&self) -> bool {
        self.owners.is_current()
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        self.internals.client().core.check_open()?;
        if let Some(held) = self.owners.enter_again(&self.internals)? {
            return Ok(Some(held));
        }
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let stop = Stop { deadline, cancel: options.cancel.as_ref() };
        let patience = Patience { stop, only_try: options.timeout == Some(Duration::ZERO) };
        let attempt = |patience| Attempt::new(&self.internals, NAME, &self.data, patience).run();
        let held = self.internals.by_thread(patience, attempt)?;
        if let Some(held) = &held {
            self.owners.entered(&self.internals, held.clone());
        }
        Ok(held)
    }
}

impl InterProcessLock for InterProcessUnfairMutex {
    fn acquire(&self) -> Result<()> {
        InterProcessUnfairMutex::acquire(self)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        InterProcessUnfairMutex::acquire_timeout(self, timeout)
    }

    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        InterProcessUnfairMutex::acquire_with(self, options)
    }

    fn release(&self) -> Result<()> {
        InterProcessUnfairMutex::release(self)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        InterProcessUnfairMutex::is_acquired_in_this_process(self)
    }

    fn path(&self) -> Option<&str> {
        Some(self.internals.base_path())
    }
}

impl fmt::Debug for InterProcessUnfairMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessUnfairMutex").field("path", &self.internals.base_path()).finish_non_exhaustive()
    }
}
