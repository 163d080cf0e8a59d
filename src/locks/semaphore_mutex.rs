//! The mutex that belongs to no thread.

use std::{
    fmt,
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use parking_lot::Mutex;

use super::{AcquireOptions, Hold, InterProcessSemaphoreV2, Lease, methods::lock_methods};
use crate::{CuratorFramework, Error, Result, session::Stop};

/// A mutex that processes share, not re-entrant, and which any thread may release. Java: `InterProcessSemaphoreMutex`.
///
/// It is a [semaphore](InterProcessSemaphoreV2) with one lease, first come, first served, and shares the path with
/// Curator clients in any language. A thread that acquires it twice waits until another one releases it.
///
/// [`release`](Self::release) gives back what [`acquire`](Self::acquire) took, whoever calls it; a guard gives back
/// what it holds itself.
///
/// Uncontended, acquire and release are one round trip each. What happens when the connection goes is as for the
/// [semaphore](InterProcessSemaphoreV2).
///
/// ```no_run
/// # use curator_locks::{CuratorFramework, InterProcessSemaphoreMutex};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let mutex = InterProcessSemaphoreMutex::new(client, "/locks/report")?;
/// mutex.acquire()?;
/// std::thread::scope(|scope| scope.spawn(|| mutex.release()).join()).expect("no panic")?;
///
/// let held = mutex.lock()?; // a guard that may be sent to another thread
/// held.release()
/// # }
/// ```
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
    slot: Mutex<Slot>,
    guards: AtomicUsize,
}

/// What was acquired without a guard.
enum Slot {
    Free,
    Held(Lease),
    /// It was given back and the server has not confirmed that. The channel is disconnected when the znode is gone.
    Releasing(Receiver<()>),
}

impl InterProcessSemaphoreMutex {
    /// A mutex at `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessSemaphoreMutex> {
        let semaphore = InterProcessSemaphoreV2::new(client, path, 1)?;
        Ok(InterProcessSemaphoreMutex { semaphore, slot: Mutex::new(Slot::Free), guards: AtomicUsize::new(0) })
    }

    /// What this mutex's lease carries, for others to read. Defaults to the client's default data.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessSemaphoreMutex {
        self.semaphore.set_node_data(data);
        self
    }

    /// What is known about the lock, if it is held through this object and without a guard.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        match &*self.slot.lock() {
            Slot::Held(lease) => Some(lease.hold()),
            Slot::Free | Slot::Releasing(_) => None,
        }
    }

    /// The names of the znodes of the holder and of the one that waits for it.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        self.semaphore.participant_nodes()
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Lease>> {
        if options.timeout.is_none() {
            self.semaphore.leases().warn_of_itself();
        }
        let lease = self.semaphore.acquire_with(1, options)?.and_then(|mut leases| leases.pop());
        if let Some(lease) = &lease {
            lease.register();
        }
        Ok(lease)
    }

    fn keep(&self, lease: Lease) {
        let slot = std::mem::replace(&mut *self.slot.lock(), Slot::Held(lease));
        // Outside of the lock: if it holds a lease, then one that was lost.
        drop(slot);
    }

    fn guard(&self, lease: Lease) -> SemaphoreMutexGuard<'_> {
        self.guards.fetch_add(1, Ordering::Relaxed);
        SemaphoreMutexGuard { _counted: Counted(&self.guards), lease }
    }

    fn give_back(&self) -> Result<()> {
        // Taken out first, so that what another thread acquires meanwhile stays (CURATOR-376).
        let slot = std::mem::replace(&mut *self.slot.lock(), Slot::Free);
        match slot {
            Slot::Held(lease) => self.close(lease),
            Slot::Releasing(done) => self.await_release(done),
            Slot::Free => Err(self.not_owner()),
        }
    }

    fn is_acquired(&self) -> bool {
        let in_slot = match &*self.slot.lock() {
            Slot::Free => false,
            Slot::Held(_) => true,
            Slot::Releasing(done) => done.try_recv() != Err(TryRecvError::Disconnected),
        };
        in_slot || self.guards.load(Ordering::Relaxed) > 0
    }

    fn base_path(&self) -> Option<&str> {
        Some(self.semaphore.path())
    }

    fn known_holds(&self) -> Vec<Hold> {
        self.hold().into_iter().collect()
    }

    fn close(&self, lease: Lease) -> Result<()> {
        let (result, job) = lease.end();
        if let Some(mut job) = job {
            self.releasing(job.done());
            self.semaphore.client().core.clean_up(job);
        }
        result
    }

    /// The background has yet to hear that the znode is gone.
    fn await_release(&self, done: Receiver<()>) -> Result<()> {
        let client = self.semaphore.client();
        match done.recv_deadline(Instant::now() + client.session_timeout()) {
            Err(RecvTimeoutError::Timeout) => {
                self.releasing(done);
                Err(client.call("release", self.semaphore.path(), Stop::default()).connection_loss())
            }
            _ => Ok(()),
        }
    }

    fn releasing(&self, done: Receiver<()>) {
        let mut slot = self.slot.lock();
        // Not over what another thread has acquired in the meantime.
        if matches!(*slot, Slot::Free) {
            *slot = Slot::Releasing(done);
        }
    }

    fn not_owner(&self) -> Error {
        let detail = match self.guards.load(Ordering::Relaxed) {
            0 => "nobody holds it through this object".to_owned(),
            _ => "a guard holds it: release that, or drop it".to_owned(),
        };
        Error::NotOwner { path: self.semaphore.path().to_owned(), detail }
    }
}

lock_methods! { InterProcessSemaphoreMutex, SemaphoreMutexGuard,
    /// Acquires the lock, waiting as long as it takes.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
}

impl fmt::Debug for InterProcessSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex").field("path", &self.semaphore.path()).finish_non_exhaustive()
    }
}

/// A held [`InterProcessSemaphoreMutex`]; may be sent to another thread. Dropping it releases the lock.
///
/// What the holder knows is in [`Hold`], to which the guard dereferences.
///
/// ```no_run
/// # use curator_locks::InterProcessSemaphoreMutex;
/// # fn example(mutex: &InterProcessSemaphoreMutex) -> curator_locks::Result<()> {
/// let held = mutex.lock()?;
/// std::thread::scope(|scope| scope.spawn(|| held.release()).join()).expect("no panic")
/// # }
/// ```
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct SemaphoreMutexGuard<'a> {
    // Above the lease, so that the mutex is free here before it is for others.
    _counted: Counted<'a>,
    lease: Lease,
}

/// Counts a guard as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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
