//! The mutex that belongs to no thread.

use std::sync::Arc;

use crate::{
    error::Result,
    framework::{client::core::CuratorFramework, held::node::HeldNode},
    locks::{
        acquire::{internals::LockInternals, owners::Owners},
        face::{
            guard::guard_of_hold,
            methods::{listening_methods, owned_lock_methods},
        },
        holds::hold::Hold,
        options::acquire::AcquireOptions,
        semaphore::{lease::Lease, v2::InterProcessSemaphoreV2},
    },
};

#[cfg(doc)]
use crate::error::Error;

/// A mutex that processes share, not re-entrant, and which any thread may release. Java: `InterProcessSemaphoreMutex`.
///
/// It is a [semaphore](InterProcessSemaphoreV2) with one lease, first come, first served, and shares the path with
/// Curator clients in any language. A thread that acquires it twice waits until another one releases it.
///
/// [`release`](Self::release) gives back a hold that [`acquire`](Self::acquire) took, from any thread, but the calling
/// thread's own hold first: a thread that has lost the lock is told of that, and frees nobody else's. A guard gives
/// back its own hold. A thread that releases for another one can name the hold:
/// [`release_holds`](crate::InterProcessLock::release_holds), a method of the trait [`InterProcessLock`](crate::InterProcessLock).
///
/// Uncontended, acquire and release are one round trip each. After a lost connection it behaves as the
/// [semaphore](InterProcessSemaphoreV2) does.
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::InterProcessSemaphoreMutex;
/// let mutex = InterProcessSemaphoreMutex::new(&client, "/locks/report")?;
/// mutex.acquire()?;
/// std::thread::scope(|scope| scope.spawn(|| mutex.release()).join()).expect("no panic")?;
///
/// let held = mutex.lock()?; // a guard that may be sent to another thread
/// held.release()?;
/// # Ok(()) });
/// ```
///
/// Every way in:
///
/// ```
/// # curator_locks::docs::example(|client| {
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
///
/// lock.acquire()?;
/// assert_eq!(lock.participant_nodes()?.len(), 1);
/// println!("{:?}", lock.hold());
/// lock.release()?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
    /// The holds that were acquired without a guard.
    owners: Arc<Owners>,
}

impl InterProcessSemaphoreMutex {
    /// A mutex at `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessSemaphoreMutex> {
        Ok(InterProcessSemaphoreMutex::of(InterProcessSemaphoreV2::new(client, path, 1)?))
    }

    fn of(semaphore: InterProcessSemaphoreV2) -> InterProcessSemaphoreMutex {
        let owners = Owners::of_any_thread(&semaphore.leases);
        InterProcessSemaphoreMutex { semaphore, owners }
    }

    fn configured(&self, change: impl Fn(&mut LockInternals)) -> InterProcessSemaphoreMutex {
        InterProcessSemaphoreMutex::of(self.semaphore.configured(change))
    }

    /// Sets the data of this mutex's lease, for others to read. Defaults to the client's default data.
    ///
    /// Call this right after `new`: like each `with_` method of [`InterProcessMutex`](crate::InterProcessMutex) it
    /// makes another lock object.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessSemaphoreMutex {
        let data = data.into();
        self.configured(|internals| internals.set_data(data.clone()))
    }

    /// The hold, if the lock was acquired through this object and without a guard: by the calling thread, or else by
    /// any.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.owners.current().map(|held| self.semaphore.leases.hold(held))
    }

    /// The names of the znodes of the holder and of the one that waits for it.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        self.semaphore.participant_nodes()
    }

    fn parts(&self) -> (&Arc<LockInternals>, &Owners) {
        (&self.semaphore.leases, &self.owners)
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        if options.timeout.is_none() {
            self.semaphore.leases.warn_of_itself();
        }
        Ok(self.semaphore.acquire_nodes(1, options)?.and_then(|mut held| held.pop()))
    }

    fn keep(&self, held: Arc<HeldNode>) {
        self.owners.entered(&self.semaphore.leases, held);
    }

    fn guard(&self, held: Arc<HeldNode>) -> SemaphoreMutexGuard {
        let leases = &self.semaphore.leases;
        leases.thread_holds.add(leases.recipe.kind, &held);
        SemaphoreMutexGuard { _counted: self.owners.guard(), lease: Lease::new(leases, held) }
    }
}

owned_lock_methods! { InterProcessSemaphoreMutex, SemaphoreMutexGuard,
    /// Acquires the lock, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes).
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
}

listening_methods! { InterProcessSemaphoreMutex, |lock| [&lock.semaphore.leases] }

/// A held [`InterProcessSemaphoreMutex`]; may be sent to another thread, and outlive the lock object. Dropping it releases
/// the lock.
///
/// The guard dereferences to [`Hold`], the holder's knowledge of the lock.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # let mutex = &curator_locks::InterProcessSemaphoreMutex::new(client, "/example")?;
/// let held = mutex.lock()?;
/// std::thread::spawn(move || held.release()).join().expect("no panic")?;
/// # Ok(()) });
/// ```
#[must_use = "the lock is released at once if the guard is not kept: by `let held =`, not by `let _ =`"]
pub struct SemaphoreMutexGuard {
    /// Above the lease, so that the mutex is free here before it is for others.
    _counted: Arc<()>,
    lease: Lease,
}

impl SemaphoreMutexGuard {
    /// Releases the lock and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// As [`Lease::close`].
    pub fn release(self) -> Result<()> {
        self.lease.close()
    }
}

guard_of_hold! { SemaphoreMutexGuard, |guard| &guard.lease }
