//! The read/write lock: two locks that queue in one directory.

mod halves;

pub use self::halves::{InterProcessReadLock, InterProcessWriteLock};
use crate::{
    error::Result,
    framework::{client::core::CuratorFramework, held::holds::HoldKind},
    locks::{
        acquire::internals::LockInternals,
        face::methods::listening_methods,
        mutex::InterProcessMutex,
        options::wait_strategy::WaitStrategy,
        recipe::driver::{ReadLockDriver, WriteLockDriver},
        threads::caching::options::Caching,
    },
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
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{CuratorFramework, InterProcessReadWriteLock};
///
/// let lock = InterProcessReadWriteLock::new(client, "/locks/catalogue")?;
/// lock.read_lock().acquire()?; // beside other readers
/// lock.read_lock().release()?;
///
/// let writing = lock.write_lock().lock()?; // alone
/// let reading = lock.read_lock().lock()?;
/// writing.release()?; // from here on beside other readers, and no writer was in between
/// reading.release()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
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
        let write = InterProcessMutex::of_kind(client, path, WriteLockDriver, HoldKind::Write)?;
        let read = InterProcessMutex::of_kind(client, path, ReadLockDriver, HoldKind::Read)?.beside(&write);
        let (read, write) = (InterProcessReadLock { mutex: read }, InterProcessWriteLock { mutex: write });
        Ok(InterProcessReadWriteLock { read, write })
    }

    /// Sets the data of the znodes of both locks, for others to read. Defaults to the client's default data.
    ///
    /// Call this right after `new`: like each `with_` method of [`InterProcessMutex`](crate::InterProcessMutex) it
    /// makes another lock object.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessReadWriteLock {
        let data = data.into();
        self.configured(|internals| internals.set_data(data.clone()))
    }

    /// Sets how the contenders for both locks wait for their turn. Defaults to [`WaitStrategy::WatchPredecessor`].
    #[must_use]
    pub fn with_wait_strategy(self, strategy: WaitStrategy) -> InterProcessReadWriteLock {
        self.configured(|internals| internals.strategy = strategy)
    }

    /// Makes this object keep a granted znode when a thread gives the lock back, for other threads of this process: see
    /// [`Caching`]. Off by default. It is for both locks, and for this object alone: clones made before, and other
    /// objects on the same path, are other contenders.
    ///
    /// One read znode serves all readers of this process: a reader that comes while it stands costs no request, whether others
    /// read or not, and readers of other processes do not disturb it. A writer's arrival, in this or another process, ends
    /// that: later readers queue behind the writer, and the znode goes with the last reader that holds by it. The local threads
    /// are served in the order in which they came, readers that follow each other together. One write znode serves writers that
    /// follow each other, as with [`InterProcessMutex`](crate::InterProcessMutex::with_caching); between a writer and a reader
    /// the znode changes, which costs requests.
    ///
    /// A thread that holds the write lock gets the read lock by a znode of its own, as without caching, and the write
    /// znode goes with its hold. Readers beside each other have tokens in no order; a writer's is greater than those of
    /// all before it, and smaller than those of all after it. A read lock that is [given
    /// back](crate::RevocationRequest::release) on request ends the holds of all threads that read by its znode.
    ///
    /// A release then talks to no server, and does not block. Do not cache a lock that is mostly written and read by
    /// turns, and not one where others only try.
    #[must_use]
    pub fn with_caching(self, caching: Caching) -> InterProcessReadWriteLock {
        self.rebuilt(|_| (), Some(caching))
    }

    fn configured(&self, change: impl Fn(&mut LockInternals)) -> InterProcessReadWriteLock {
        self.rebuilt(change, self.write.mutex.caching())
    }

    /// Another lock object, with these settings but for this change.
    fn rebuilt(&self, change: impl Fn(&mut LockInternals), caching: Option<Caching>) -> InterProcessReadWriteLock {
        let (read, write) = (self.read.internals().configured(&change), self.write.internals().configured(&change));
        let mut write = InterProcessMutex::of(write);
        let mut read = InterProcessMutex::of(read).beside(&write);
        if let Some(caching) = caching {
            InterProcessMutex::cache_both(&mut read, &mut write, caching);
        }
        InterProcessReadWriteLock {
            read: InterProcessReadLock { mutex: read },
            write: InterProcessWriteLock { mutex: write },
        }
    }

    /// How many threads of this process wait, in this object and [with
    /// caching](InterProcessReadWriteLock::with_caching), for either lock behind the one that queues for it or has it.
    /// They have no znode of their own. 0 without caching.
    #[must_use]
    pub fn local_waiters(&self) -> usize {
        self.write.mutex.local_waiters()
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

listening_methods! { InterProcessReadWriteLock, |lock| [lock.read.mutex.parts().0, lock.write.mutex.parts().0] }
