//! The read/write lock: two locks that queue in one directory.

mod halves;

use std::fmt;

pub use self::halves::{InterProcessReadLock, InterProcessWriteLock};
use crate::{
    error::Result, framework::client::core::CuratorFramework, locks::api::options::wait_strategy::WaitStrategy,
};

#[cfg(doc)]
use crate::error::Error;

/// A read lock and a write lock on one path: any number of readers, or one writer. Java: `InterProcessReadWriteLock`.
///
/// Both queue in the same directory, first come, first served: a reader waits for every writer in front of it, a writer
/// for everybody, so neither starves. Curator clients queue in the same directory. Both are re-entrant per thread, and
/// one object serves any number of threads.
///
/// # Both at a time
/// A thread that holds the write lock can acquire the read lock, and keep it when it releases the write lock. It keeps
/// its place then, so no writer comes in between (a downgrade). It costs one round trip. The write lock of another
/// thread, or one that was lost, gives no such right.
///
/// The other way round a thread would wait for itself: [`InterProcessWriteLock::acquire`] fails with
/// [`Error::WouldDeadlock`] for a thread that holds the read lock. So does an acquire with a timeout; a mere try is
/// `false`.
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex).
///
/// ```no_run
/// use curator_locks::{CuratorFramework, InterProcessReadWriteLock};
///
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let lock = InterProcessReadWriteLock::new(client, "/locks/catalogue")?;
/// lock.read_lock().acquire()?; // beside other readers
/// lock.read_lock().release()?;
///
/// let writing = lock.write_lock().lock()?; // alone
/// let reading = lock.read_lock().lock()?;
/// writing.release()?; // from here on beside other readers, and no writer was in between
/// reading.release()
/// # }
/// ```
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    read: InterProcessReadLock,
    write: InterProcessWriteLock,
}

impl InterProcessReadWriteLock {
    /// The two locks of the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessReadWriteLock> {
        let write = InterProcessWriteLock::new(client, path)?;
        let read = InterProcessReadLock::new(client, path, &write)?;
        Ok(InterProcessReadWriteLock { read, write })
    }

    /// What the znodes of both locks carry, for others to read. Defaults to the client's default data.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessReadWriteLock {
        let data = data.into();
        self.read.internals().set_data(data.clone());
        self.write.internals().set_data(data);
        self
    }

    /// How the contenders for both locks wait for their turn. Defaults to [`WaitStrategy::WatchPredecessor`].
    #[must_use]
    pub fn with_wait_strategy(self, strategy: WaitStrategy) -> InterProcessReadWriteLock {
        self.read.internals().set_strategy(strategy);
        self.write.internals().set_strategy(strategy);
        self
    }

    /// The lock that readers share. A clone of it is the same lock; use one where a value is wanted, as by
    /// [`InterProcessMultiLock::from_locks`](crate::InterProcessMultiLock::from_locks).
    #[must_use]
    pub fn read_lock(&self) -> &InterProcessReadLock {
        &self.read
    }

    /// The lock that a writer has alone. A clone of it is the same lock, too.
    #[must_use]
    pub fn write_lock(&self) -> &InterProcessWriteLock {
        &self.write
    }
}

impl fmt::Debug for InterProcessReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessReadWriteLock")
            .field("path", &self.write.internals().base_path())
            .finish_non_exhaustive()
    }
}
