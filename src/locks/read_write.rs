//! The read/write lock: two locks that queue in one directory.

use crate::{
    base::paths::name_of,
    error::Result,
    framework::{client::core::CuratorFramework, held::holds::HoldKind},
    locks::{
        acquire::internals::LockInternals,
        face::{
            guard::LockGuard,
            methods::{listening_methods, mutex_lock_methods, revocable_methods},
        },
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
/// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
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
        let read = InterProcessMutex::of_kind(client, path, ReadLockDriver, HoldKind::Read)?;
        Ok(InterProcessReadWriteLock::of(read, write, None))
    }

    fn of(mut read: InterProcessMutex, mut write: InterProcessMutex, caching: Option<Caching>) -> Self {
        InterProcessMutex::join(&mut read, &mut write, caching);
        let (read, write) = (InterProcessReadLock { mutex: read }, InterProcessWriteLock { mutex: write });
        InterProcessReadWriteLock { read, write }
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
        let configured = |half: &InterProcessMutex| InterProcessMutex::of(half.internals().configured(&change));
        InterProcessReadWriteLock::of(configured(&self.read.mutex), configured(&self.write.mutex), caching)
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

/// One of both locks: a mutex does its work. The attributes are those of the type and of `acquire`.
macro_rules! half {
    ($(#[$doc:meta])* $lock:ident, $(#[$acquire:meta])*) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $lock {
            mutex: InterProcessMutex,
        }

        mutex_lock_methods! { $lock, $(#[$acquire])* }

        impl $lock {
            /// The paths of all contenders of this kind, in the order of the queue. With
            /// [caching](crate::InterProcessReadWriteLock::with_caching) one znode stands for many threads.
            ///
            /// # Errors
            /// As [every operation on a znode](crate::operations#errors).
            pub fn participant_nodes(&self) -> Result<Vec<String>> {
                let mut nodes = self.mutex.participant_nodes()?;
                nodes.retain(|path| name_of(path).contains(self.internals().driver().lock_name()));
                Ok(nodes)
            }

            /// The lock's internals: its directory and its driver.
            #[must_use]
            pub fn internals(&self) -> &LockInternals {
                self.mutex.internals()
            }

        }

        revocable_methods! { $lock, |lock| lock.mutex, |mutex| $lock { mutex },
            /// Calls the listener when somebody asks for the lock with [`Revoker`](crate::Revoker); see
            /// [`InterProcessMutex::make_revocable`]. Java: `makeRevocable`.
        }
    };
}

half! {
    /// The lock that readers share; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
    /// `InterProcessReadWriteLock.ReadLock`.
    ///
    /// It waits for every writer in front of it, and watches the last of them, so it is woken once.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use std::time::Duration;
    /// use curator_locks::{AcquireOptions, InterProcessReadWriteLock};
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
    /// let reading = lock.read_lock();
    /// reading.make_revocable(|_: &curator_locks::InterProcessReadLock| println!("somebody wants what is read"));
    /// assert!(reading.acquire_timeout(Duration::from_secs(5))?);
    /// assert!(reading.is_owned_by_current_thread() && reading.is_acquired_in_this_process());
    /// assert_eq!(reading.participant_nodes()?, [reading.lock_path().ok_or("not held")?]);
    /// reading.release()?;
    ///
    /// let held = reading.lock()?; // or as a guard
    /// held.release()?;
    /// if let Some(held) = reading.lock_with(&AcquireOptions::new().timeout(Duration::from_secs(5)))? {
    ///     held.release()?;
    /// }
    /// if let Some(held) = reading.try_lock()? {
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    InterProcessReadLock,
    /// Acquires the lock, waiting as long as it takes, also
    /// [when the connection goes](crate::InterProcessReadWriteLock#when-the-connection-goes). If this thread holds it
    /// already, only its hold count grows, without a request; if it holds the write lock, it gets this one at once.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire). [`Error::LockLost`](crate::Error::LockLost)
    /// also for a thread whose write lock was lost. [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread
    /// that holds a mutex or a write lock on this path through another object of this client: it would wait for itself.
    /// If it holds a read lock through another object and a writer queues in between, it waits and logs a warning, as
    /// that writer may give up.
}

half! {
    /// The lock that a writer has alone; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
    /// `InterProcessReadWriteLock.WriteLock`.
    ///
    /// It waits for every contender in front of it, and watches the last of them.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use std::time::Duration;
    /// use curator_locks::{AcquireOptions, InterProcessReadWriteLock};
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
    /// let writing = lock.write_lock();
    /// writing.make_revocable(|_: &curator_locks::InterProcessWriteLock| println!("somebody wants what is written"));
    /// assert!(writing.acquire_timeout(Duration::from_secs(5))?);
    /// assert!(writing.is_owned_by_current_thread() && writing.is_acquired_in_this_process());
    /// assert_eq!(writing.participant_nodes()?, [writing.lock_path().ok_or("not held")?]);
    /// writing.release()?;
    ///
    /// let held = writing.lock()?; // or as a guard
    /// held.release()?;
    /// if let Some(held) = writing.lock_with(&AcquireOptions::new().timeout(Duration::from_secs(5)))? {
    ///     held.release()?;
    /// }
    /// if let Some(held) = writing.try_lock()? {
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    InterProcessWriteLock,
    /// Acquires the lock, waiting as long as it takes, also
    /// [when the connection goes](crate::InterProcessReadWriteLock#when-the-connection-goes). If this thread holds it
    /// already, only its hold count grows, without a request.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread that holds the read lock, or a lock on this
    /// path through another object of this client: it would wait for itself.
}
