//! The mutex that belongs to no thread.

use std::{fmt, marker::PhantomData, ops::Deref, sync::Arc};

use crate::{
    error::Result,
    framework::{client::core::CuratorFramework, held::node::HeldNode},
    locks::{
        api::{holds::hold::Hold, methods::lock_methods, options::acquire::AcquireOptions},
        contender::internals::LockInternals,
        semaphore::{lease::Lease, v2::InterProcessSemaphoreV2},
        threads::owners::Owners,
    },
};

#[cfg(doc)]
use crate::error::Error;

/// A mutex that processes share, not re-entrant, and which any thread may release. Java: `InterProcessSemaphoreMutex`.
///
/// It is a [semaphore](InterProcessSemaphoreV2) with one lease, first come, first served, and shares the path with
/// Curator clients in any language. A thread that acquires it twice waits until another one releases it.
///
/// [`release`](Self::release) gives back what [`acquire`](Self::acquire) took, whoever calls it, but first of all what
/// the calling thread has acquired itself: a thread that has lost the lock hears of that, and frees nobody else's. A
/// guard gives back what it holds itself, and who releases for another thread can name the hold:
/// [`release_holds`](crate::InterProcessLock::release_holds).
///
/// Uncontended, acquire and release are one round trip each. What happens when the connection goes is as for the
/// [semaphore](InterProcessSemaphoreV2).
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex).
///
/// ```
/// # use curator_locks::{CuratorFramework, InterProcessSemaphoreMutex};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let mutex = InterProcessSemaphoreMutex::new(client, "/locks/report")?;
/// mutex.acquire()?;
/// std::thread::scope(|scope| scope.spawn(|| mutex.release()).join()).expect("no panic")?;
///
/// let held = mutex.lock()?; // a guard that may be sent to another thread
/// held.release()
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
/// use curator_locks::{AcquireOptions, InterProcessSemaphoreMutex};
///
/// let lock = InterProcessSemaphoreMutex::new(&client, "/locks/report")?;
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
/// assert_eq!(lock.participant_nodes()?.len(), 1);
/// println!("{:?}", lock.hold());
/// lock.release()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
    /// What was acquired without a guard.
    owners: Arc<OwnersOf>,
}

/// Owners of the leases of one semaphore.
struct OwnersOf {
    owners: Owners,
    leases: Arc<LockInternals>,
}

impl Deref for OwnersOf {
    type Target = Owners;

    fn deref(&self) -> &Owners {
        &self.owners
    }
}

impl Drop for OwnersOf {
    /// Nobody could release what was acquired without a guard.
    fn drop(&mut self) {
        while self.owners.abandon(&self.leases, &[]) {}
    }
}

impl InterProcessSemaphoreMutex {
    /// A mutex at `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessSemaphoreMutex> {
        let semaphore = InterProcessSemaphoreV2::new(client, path, 1)?;
        let owners = OwnersOf { owners: Owners::of_any_thread(), leases: semaphore.leases().clone() };
        Ok(InterProcessSemaphoreMutex { semaphore, owners: Arc::new(owners) })
    }

    /// What this mutex's lease carries, for others to read. Defaults to the client's default data.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessSemaphoreMutex {
        self.semaphore.set_node_data(data);
        self
    }

    /// What is known about the lock, if it was acquired through this object and without a guard: by the calling thread,
    /// or else by any.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.owners.current().map(|held| self.semaphore.leases().hold(held))
    }

    /// The names of the znodes of the holder and of the one that waits for it.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        self.semaphore.participant_nodes()
    }

    pub(in crate::locks) fn leases(&self) -> &Arc<LockInternals> {
        self.semaphore.leases()
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        if options.timeout.is_none() {
            self.semaphore.leases().warn_of_itself();
        }
        Ok(self.semaphore.acquire_nodes(1, options)?.and_then(|mut held| held.pop()))
    }

    fn keep(&self, held: Arc<HeldNode>) {
        self.owners.entered(self.semaphore.leases(), held);
    }

    fn told(&self, held: &Arc<HeldNode>) -> Vec<Hold> {
        vec![self.semaphore.leases().hold(held.clone())]
    }

    fn guard(&self, held: Arc<HeldNode>) -> SemaphoreMutexGuard<'static> {
        self.semaphore.leases().register(&held);
        let lease = Lease::new(self.semaphore.leases(), held);
        SemaphoreMutexGuard { _counted: self.owners.guard(), lease, of_lock: PhantomData }
    }

    fn give_back(&self, named: &[Hold]) -> Result<()> {
        self.owners.release(self.semaphore.leases(), named)
    }

    fn abandon(&self, named: &[Hold]) {
        self.owners.abandon(self.semaphore.leases(), named);
    }

    fn is_acquired(&self) -> bool {
        self.owners.is_any()
    }

    fn base_path(&self) -> Option<&str> {
        Some(self.semaphore.path())
    }

    fn last_wait(&self) -> Option<String> {
        self.base_path().map(str::to_owned)
    }

    fn known_holds(&self) -> Vec<Hold> {
        self.hold().into_iter().collect()
    }
}

lock_methods! { InterProcessSemaphoreMutex, SemaphoreMutexGuard,
    /// Acquires the lock, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes).
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
}

impl fmt::Debug for InterProcessSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex").field("path", &self.semaphore.path()).finish_non_exhaustive()
    }
}

/// A held [`InterProcessSemaphoreMutex`]; may be sent to another thread. Dropping it releases the lock. One from
/// `lock_owned()` borrows nothing: it is a `SemaphoreMutexGuard<'static>`, for a thread that is not of a scope.
///
/// What the holder knows is in [`Hold`], to which the guard dereferences.
///
/// ```
/// # use curator_locks::InterProcessSemaphoreMutex;
/// # fn example(mutex: &InterProcessSemaphoreMutex) -> curator_locks::Result<()> {
/// let held = mutex.lock()?;
/// std::thread::scope(|scope| scope.spawn(|| held.release()).join()).expect("no panic")?;
///
/// let held = mutex.lock_owned()?;
/// std::thread::spawn(move || held.release()).join().expect("no panic")
/// # }
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #     let server = curator_locks::testing::TestingServer::start()?;
/// #     let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// #     let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// #     client.start()?;
/// #     Ok(example(&curator_locks::InterProcessSemaphoreMutex::new(&client, "/example")?)?)
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct SemaphoreMutexGuard<'a> {
    /// Above the lease, so that the mutex is free here before it is for others.
    _counted: Arc<()>,
    lease: Lease,
    of_lock: PhantomData<&'a InterProcessSemaphoreMutex>,
}

impl SemaphoreMutexGuard<'_> {
    /// Releases the lock and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// As [`Lease::close`].
    pub fn release(self) -> Result<()> {
        self.lease.close()
    }
}

impl Deref for SemaphoreMutexGuard<'_> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.lease
    }
}

impl fmt::Debug for SemaphoreMutexGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SemaphoreMutexGuard").field(&*self.lease).finish()
    }
}
