//! The exclusive lock on one ephemeral name.

use crate::{
    error::Result,
    framework::{client::core::CuratorFramework, held::holds::HoldKind},
    locks::{
        acquire::{internals::LockInternals, kinds::UNFAIR_HOLDER},
        face::{
            guard::LockGuard,
            methods::{listening_methods, mutex_lock_methods},
        },
        mutex::InterProcessMutex,
        recipe::{driver::StandardLockInternalsDriver, spec::Recipe},
    },
};

/// The end of the name of the holder's znode.
const NAME: &str = "lock";

/// A mutex that processes share, without a queue: the contender that creates a znode in `<path>/lock/holder` while no
/// other has one there has the lock. Re-entrant per thread.
///
/// This is the simplest of the classical ZooKeeper locks, one ephemeral znode that only one can create; Curator has none
/// like it. The classical one has a fixed name, so that a delete that comes late takes the next holder's. Here each
/// holder's znode has a name of its own, and one transaction creates it and makes sure that it is alone. It excludes
/// exactly those that use this type on the same path; an [`InterProcessMutex`](crate::InterProcessMutex) there is another
/// lock. One object serves any number of threads.
///
/// # When to use it
/// An acquire costs one request and a release another, where [`InterProcessMutex`](crate::InterProcessMutex) needs
/// three for both. It is a good bargain where contention is rare or
/// waiting is not wanted at all: [`try_lock`](InterProcessUnfairMutex::try_lock) for a job that runs on one machine of
/// many, a lock per order of which there are thousands.
///
/// It is a bad one where many wait. Each release wakes **all** waiters; each sends a create, one wins, and the others
/// look for the holder and watch its znode: 3 n requests, n of them writes, for one hand-over among n waiters. No waiter is
/// first in line, so it can starve while others come and go. From a handful of constant waiters on, take the
/// [`InterProcessMutex`](crate::InterProcessMutex), where a release wakes one.
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex), but for the place in a queue.
///
/// # Rights
/// Each acquire makes the directory `<path>/lock/holder` anew, with the access control list that the client's
/// [`AclProvider`](crate::AclProvider) names for it: one that was set there by hand is not kept. Those who share the lock
/// may create and delete in `<path>/lock`, and read `<path>/lock/holder` and the znodes in it to wait. Each has to be
/// allowed to write its own znode, as the data are written by an operation of their own.
///
/// # What servers need
/// Transactions, and containers if the client makes containers: a session over the package `zookeeper` has none, and an
/// acquire over it fails with [`ErrorCode::Unimplemented`](crate::ErrorCode::Unimplemented).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::InterProcessUnfairMutex;
/// let nightly_report = InterProcessUnfairMutex::new(&client, "/jobs/nightly-report")?;
/// if let Some(held) = nightly_report.try_lock()? {
///     // ... this machine makes the report ...
///     held.release()?;
/// }
/// # Ok(()) });
/// ```
///
/// Every way in:
///
/// ```
/// # curator_locks::docs::example(|client| {
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
///
/// lock.acquire()?;
/// assert!(lock.is_owned_by_current_thread());
/// assert_eq!(lock.lock_path(), lock.hold().map(|hold| hold.path().to_owned()));
/// lock.release()?;
/// # Ok(()) });
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
        let driver = StandardLockInternalsDriver::with_lock_name(NAME);
        let recipe = Recipe { below: Some(UNFAIR_HOLDER), is_sole: true, ..Recipe::new(HoldKind::Unfair, driver) };
        Ok(InterProcessUnfairMutex { mutex: InterProcessMutex::of(LockInternals::new(client, path, recipe)?) })
    }

    /// Sets the data of the holder's znode, for others to read. Defaults to the client's default data.
    ///
    /// Call this right after `new`: like each `with_` method of [`InterProcessMutex`](crate::InterProcessMutex) it
    /// makes another lock object.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessUnfairMutex {
        InterProcessUnfairMutex { mutex: self.mutex.with_lock_data(data) }
    }

    fn configured(&self, change: impl Fn(&mut LockInternals)) -> InterProcessUnfairMutex {
        InterProcessUnfairMutex { mutex: self.mutex.configured(change) }
    }
}

mutex_lock_methods! { InterProcessUnfairMutex,
    /// Acquires the lock, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes). If this
    /// thread holds it already, only its hold count grows, without a request.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire);
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) if the calling thread holds the lock through another
    /// object of this client, so that it would wait for itself.
}

listening_methods! { InterProcessUnfairMutex, |lock| [lock.parts().0] }
