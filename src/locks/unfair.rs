//! The exclusive lock on one ephemeral name.

use std::sync::Arc;

use crate::{
    error::Result,
    framework::{
        client::core::CuratorFramework,
        held::{holds::HoldKind, node::HeldNode},
    },
    locks::{
        api::{guard::LockGuard, methods::thread_lock_methods, options::acquire::AcquireOptions},
        contender::{driver::StandardLockInternalsDriver, internals::LockInternals},
        mutex::InterProcessMutex,
        threads::owners::Owners,
    },
};

/// The name of the one znode that is the lock, in the lock's directory.
const NAME: &str = "lock";

/// A mutex that processes share, without a queue: whoever creates the znode `<path>/lock` has it. Re-entrant per
/// thread.
///
/// This is the simplest of the classical ZooKeeper locks, an ephemeral znode of a fixed name; Curator has none like it.
/// It excludes exactly those that use this type on the same path; an [`InterProcessMutex`](crate::InterProcessMutex)
/// there is another lock. One object serves any number of threads.
///
/// # When to use it
/// An acquire costs one request and a release another, where [`InterProcessMutex`](crate::InterProcessMutex) needs
/// three for both, and nothing is listed, however many contend. It is a good bargain where contention is rare or
/// waiting is not wanted at all: [`try_lock`](InterProcessUnfairMutex::try_lock) for a job that runs on one machine of
/// many, a lock per order of which there are thousands.
///
/// It is a bad one where many wait. Each release wakes **all** waiters; each sends a create, one wins, and the others
/// set their watch anew: 2 n requests, n of them writes, for one hand-over among n waiters. Nobody is first in line, so
/// a waiter can starve while others come and go. From a handful of constant waiters on, take the
/// [`InterProcessMutex`](crate::InterProcessMutex), where a release wakes one.
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex), but for the place in a queue. A release whose reply was
/// lost first reads whose the znode is, as the name may be another holder's by then. It cannot tell in one case: an
/// administrator deletes the holder's znode, another contender creates its own, and the holder releases before it has
/// heard of that (it hears of it once it has held the lock for 100 ms).
///
/// ```
/// # use curator_locks::{CuratorFramework, InterProcessUnfairMutex};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let nightly_report = InterProcessUnfairMutex::new(client, "/jobs/nightly-report")?;
/// if let Some(held) = nightly_report.try_lock()? {
///     // ... this machine makes the report ...
///     held.release()?;
/// }
/// # Ok(())
/// # }
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #     let server = curator_locks::testing::TestingServer::start()?;
/// #     let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// #     let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// #     client.start()?;
/// #     Ok(example(&client)?)
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
///
/// Every way in:
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, InterProcessUnfairMutex};
///
/// let lock = InterProcessUnfairMutex::new(&client, "/jobs/nightly-report")?;
/// let five_seconds = AcquireOptions::new().timeout(Duration::from_secs(5));
/// if lock.acquire_timeout(Duration::from_secs(5))? {
///     assert!(lock.is_acquired_in_this_process());
///     lock.release()?;
/// }
/// if lock.acquire_with(&five_seconds)? {
///     lock.release()?;
/// }
/// lock.acquire()?;
/// lock.release()?;
/// drop(lock.try_lock()?); // as `lock`, or not at all
/// drop(lock.lock_timeout(Duration::from_secs(5))?);
/// drop(lock.lock_with(&five_seconds)?);
/// drop(lock.lock_owned()?); // a guard that keeps the lock's object
/// drop(lock.lock_owned_timeout(Duration::from_secs(5))?);
/// drop(lock.lock_owned_with(&five_seconds)?);
///
/// lock.acquire()?;
/// assert!(lock.is_owned_by_current_thread());
/// assert_eq!(lock.lock_path(), lock.hold().map(|hold| hold.path().to_owned()));
/// lock.release()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct InterProcessUnfairMutex {
    mutex: InterProcessMutex,
}

impl InterProcessUnfairMutex {
    /// A mutex in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath) for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessUnfairMutex> {
        let mut internals = LockInternals::new(client, path, Arc::new(StandardLockInternalsDriver::new()))?;
        internals.kind = HoldKind::Unfair;
        internals.set_fixed_name(NAME, |_| format!("{}\n", uuid::Uuid::new_v4()));
        Ok(InterProcessUnfairMutex { mutex: InterProcessMutex::of(internals) })
    }

    /// What the holder's znode carries, for others to read, behind a line with the unique id of the attempt. Defaults
    /// to the client's default data.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessUnfairMutex {
        InterProcessUnfairMutex { mutex: self.mutex.with_lock_data(data) }
    }

    pub(in crate::locks) fn parts(&self) -> (&Arc<LockInternals>, &Arc<Owners>) {
        self.mutex.parts()
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        self.mutex.enter(options)
    }
}

thread_lock_methods! { InterProcessUnfairMutex,
    /// Acquires the lock, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes). If this
    /// thread holds it already, only its hold count grows, without a request.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire);
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) if the calling thread holds the lock through another
    /// object of this client, so that it would wait for itself.
}
