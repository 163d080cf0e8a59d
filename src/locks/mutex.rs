//! The re-entrant mutex.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    AcquireOptions, InterProcessLock, LockGuard, LockInternals, LockInternalsDriver, StandardLockInternalsDriver,
    internals::Patience, owners::Owners,
};
use crate::{CuratorFramework, Error, Result, framework::HeldNode, session::Stop};

/// A mutex that processes share, first come, first served, re-entrant per thread. Java: `InterProcessMutex`.
///
/// Each contender is a znode in the lock's directory; the first holds the lock and each other one watches its
/// predecessor, so a release wakes one thread of one process. Curator clients in any language queue in the same
/// directory. One object serves any number of threads; each has its own place in the queue.
///
/// Uncontended, acquire and release are one round trip each.
///
/// # When the connection goes
/// While it is suspended a waiter keeps its place, and a holder is told when the lock is in doubt
/// ([`Hold::state`](super::Hold::state)). When the session is lost, the holder is told, and a waiter queues again in the session that
/// follows.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, ExponentialBackoffRetry, InterProcessMutex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "testing")]
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # #[cfg(feature = "testing")]
/// # let servers = server.connect_string();
/// # #[cfg(not(feature = "testing"))]
/// let servers = "zk1:2181,zk2:2181,zk3:2181";
/// # if cfg!(not(feature = "testing")) { return Ok(()) }
/// let client = CuratorFramework::builder()
///     .connect_string(servers)
///     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
///     .build()?;
/// client.start()?;
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// mutex.acquire()?; // as in Java
/// mutex.acquire()?; // the same thread once more: only counts
/// mutex.release()?;
/// assert!(mutex.is_owned_by_current_thread());
/// mutex.release()?;
///
/// let held = mutex.lock()?; // or as a guard
/// assert!(held.is_valid());
/// held.release()?;
/// # Ok(())
/// # }
/// ```
pub struct InterProcessMutex {
    internals: LockInternals,
    owners: Owners,
    data: Vec<u8>,
}

impl InterProcessMutex {
    /// A mutex in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessMutex> {
        InterProcessMutex::with_driver(client, path, StandardLockInternalsDriver::new())
    }

    /// A mutex with rules of its own.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn with_driver(
        client: &CuratorFramework,
        path: &str,
        driver: impl LockInternalsDriver,
    ) -> Result<InterProcessMutex> {
        let internals = LockInternals::new(client, path, Arc::new(driver), 1)?;
        let data = client.core.config.default_data.clone();
        Ok(InterProcessMutex { internals, owners: Owners::default(), data })
    }

    /// What this mutex's znodes carry, for others to read. Defaults to the client's default data. Java:
    /// `getLockNodeBytes`.
    #[must_use]
    pub fn with_lock_data(mut self, data: impl Into<Vec<u8>>) -> InterProcessMutex {
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

    /// Acquires the lock unless the time is up first: then `false`, and nothing is left in the queue. Zero means not to
    /// wait for others: if the lock is taken, that costs one read and no write.
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
    /// As [`InterProcessMutex::acquire_with`].
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

    /// The paths of all contenders in the order of the queue, the holder first.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        LockInternals::participant_nodes(self.internals.client(), self.internals.base_path())
    }

    /// The path of the calling thread's znode, if it holds the lock through this object.
    #[must_use]
    pub fn lock_path(&self) -> Option<String> {
        self.owners.current().map(|held| self.internals.client_path(&held))
    }

    /// What the lock stands on.
    #[must_use]
    pub fn internals(&self) -> &LockInternals {
        &self.internals
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        self.internals.client().core.check_open()?;
        if let Some(held) = self.owners.enter_again(&self.internals)? {
            return Ok(Some(held));
        }
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let stop = Stop { deadline, cancel: options.cancel.as_ref() };
        let patience = Patience { stop, only_try: options.timeout == Some(Duration::ZERO) };
        let held = self.internals.attempt_lock(&self.data, patience)?;
        if let Some(held) = &held {
            self.owners.entered(held.clone());
        }
        Ok(held)
    }
}

impl InterProcessLock for InterProcessMutex {
    fn acquire(&self) -> Result<()> {
        InterProcessMutex::acquire(self)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        InterProcessMutex::acquire_timeout(self, timeout)
    }

    fn release(&self) -> Result<()> {
        InterProcessMutex::release(self)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        InterProcessMutex::is_acquired_in_this_process(self)
    }

    fn path(&self) -> Option<&str> {
        Some(self.internals.base_path())
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.internals.base_path()).finish_non_exhaustive()
    }
}
