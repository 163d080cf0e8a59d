//! The mutex that belongs to no thread.

use std::{
    fmt,
    marker::PhantomData,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use parking_lot::Mutex;

use super::{
    AcquireOptions, Hold, InterProcessSemaphoreV2, Lease, LockInternals, methods::lock_methods, owners::is_meant,
};
use crate::{CuratorFramework, Error, Result, framework::HeldNode, session::Stop};

/// A mutex that processes share, not re-entrant, and which any thread may release. Java: `InterProcessSemaphoreMutex`.
///
/// It is a [semaphore](InterProcessSemaphoreV2) with one lease, first come, first served, and shares the path with
/// Curator clients in any language. A thread that acquires it twice waits until another one releases it.
///
/// [`release`](Self::release) gives back what [`acquire`](Self::acquire) took, whoever calls it, but first of all what the
/// calling thread has acquired itself: a thread that has lost the lock hears of that, and frees nobody else's. A guard gives
/// back what it holds itself, and who releases for another thread can name the hold:
/// [`release_holds`](crate::InterProcessLock::release_holds).
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
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
    /// What was acquired without a guard and not given back, or not for certain. At most one is held; the others were lost,
    /// and their own release has yet to be told so. If that came upon somebody else's lease instead, it would free it.
    kept: Arc<Mutex<Vec<Kept>>>,
    guards: Arc<AtomicUsize>,
}

/// How many may lie here that are not held any more: there are threads that never come back.
const MAX_ENDED: usize = 32;

/// One acquire without a guard.
struct Kept {
    /// Who acquired it, or tried to give it back.
    thread: ThreadId,
    node: Arc<HeldNode>,
    state: State,
}

enum State {
    Held(Lease),
    /// It was given back and the server has not confirmed that. The channel is disconnected when the znode is gone.
    Releasing(Receiver<()>),
}

/// Which of several acquires a release is for, the last one first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Lost,
    Releasing,
    Held,
}

impl Kept {
    fn standing(&self) -> Standing {
        match &self.state {
            State::Releasing(_) => Standing::Releasing,
            State::Held(lease) if lease.is_lost() => Standing::Lost,
            State::Held(_) => Standing::Held,
        }
    }

    fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Held(lease) => Some(lease),
            State::Releasing(_) => None,
        }
    }

    /// It is held, or may be as far as anybody knows.
    fn is_acquired(&self) -> bool {
        match &self.state {
            State::Held(lease) => !lease.is_lost(),
            State::Releasing(done) => done.try_recv() != Err(TryRecvError::Disconnected),
        }
    }
}

/// The one that the calling thread means: its own, else one that is held, as any thread may release it.
fn meant<'a>(kept: impl Iterator<Item = (usize, &'a Kept)>) -> Option<(usize, &'a Kept)> {
    let me = thread::current().id();
    kept.max_by_key(|(index, kept)| (kept.thread == me, kept.standing(), *index))
}

impl InterProcessSemaphoreMutex {
    /// A mutex at `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessSemaphoreMutex> {
        let semaphore = InterProcessSemaphoreV2::new(client, path, 1)?;
        Ok(InterProcessSemaphoreMutex { semaphore, kept: Arc::default(), guards: Arc::default() })
    }

    /// What this mutex's lease carries, for others to read. Defaults to the client's default data.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessSemaphoreMutex {
        self.semaphore.set_node_data(data);
        self
    }

    /// What is known about the lock, if it was acquired through this object and without a guard: by the calling thread, or
    /// else by any.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let kept = self.kept.lock();
        let leases = kept.iter().enumerate().filter(|(_, kept)| kept.lease().is_some());
        meant(leases).and_then(|(_, kept)| kept.lease().map(Lease::hold))
    }

    /// The names of the znodes of the holder and of the one that waits for it.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        self.semaphore.participant_nodes()
    }

    pub(super) fn leases(&self) -> &LockInternals {
        self.semaphore.leases()
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
        let me = thread::current().id();
        // Nobody asks for the outcome of an earlier release any more.
        self.kept.lock().retain(|kept| kept.thread != me || kept.lease().is_some());
        self.put(lease.node().clone(), State::Held(lease));
    }

    fn guard(&self, lease: Lease) -> SemaphoreMutexGuard<'static> {
        self.guards.fetch_add(1, Ordering::Relaxed);
        SemaphoreMutexGuard { _counted: Counted(self.guards.clone()), lease, of_lock: PhantomData }
    }

    fn give_back(&self, named: &[Hold]) -> Result<()> {
        // Taken out first, so that what another thread acquires meanwhile stays (CURATOR-376).
        let Some(Kept { node, state, .. }) = self.take(named) else { return Err(self.not_owner()) };
        match state {
            State::Held(lease) => self.close(node, lease),
            State::Releasing(done) => self.await_release(node, done),
        }
    }

    /// What it drops goes on in the background.
    fn abandon(&self, named: &[Hold]) {
        drop(self.take(named));
    }

    fn take(&self, named: &[Hold]) -> Option<Kept> {
        let mut kept = self.kept.lock();
        let named = kept.iter().enumerate().filter(|(_, kept)| is_meant(&kept.node, named));
        let index = meant(named).map(|(index, _)| index)?;
        Some(kept.remove(index))
    }

    fn put(&self, node: Arc<HeldNode>, state: State) {
        let thread = thread::current().id();
        let mut kept = self.kept.lock();
        kept.push(Kept { thread, node, state });
        let mut ended = kept.iter().enumerate().filter(|(_, kept)| kept.standing() != Standing::Held);
        let oldest = ended.next().map(|(index, _)| index).filter(|_| ended.count() >= MAX_ENDED);
        let forgotten = oldest.map(|index| kept.remove(index));
        drop(kept);
        // Outside of the lock: the end of a watch may have to be told to the server.
        drop(forgotten);
    }

    fn is_acquired(&self) -> bool {
        self.kept.lock().iter().any(Kept::is_acquired) || self.guards.load(Ordering::Relaxed) > 0
    }

    fn base_path(&self) -> Option<&str> {
        Some(self.semaphore.path())
    }

    fn known_holds(&self) -> Vec<Hold> {
        self.hold().into_iter().collect()
    }

    fn close(&self, node: Arc<HeldNode>, lease: Lease) -> Result<()> {
        let (result, job) = lease.end();
        if let Some(mut job) = job {
            self.put(node, State::Releasing(job.done()));
            self.semaphore.client().core.clean_up(job);
        }
        result
    }

    /// The background has yet to hear that the znode is gone.
    fn await_release(&self, node: Arc<HeldNode>, done: Receiver<()>) -> Result<()> {
        let client = self.semaphore.client();
        match done.recv_deadline(Instant::now() + client.session_timeout()) {
            Err(RecvTimeoutError::Timeout) => {
                self.put(node, State::Releasing(done));
                Err(client.call("release", self.semaphore.path(), Stop::default()).connection_loss())
            }
            _ => Ok(()),
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

/// A held [`InterProcessSemaphoreMutex`]; may be sent to another thread. Dropping it releases the lock. One from
/// `lock_owned()` borrows nothing: it is a `SemaphoreMutexGuard<'static>`, for a thread that is not of a scope.
///
/// What the holder knows is in [`Hold`], to which the guard dereferences.
///
/// ```no_run
/// # use curator_locks::InterProcessSemaphoreMutex;
/// # fn example(mutex: &InterProcessSemaphoreMutex) -> curator_locks::Result<()> {
/// let held = mutex.lock()?;
/// std::thread::scope(|scope| scope.spawn(|| held.release()).join()).expect("no panic")?;
///
/// let held = mutex.lock_owned()?;
/// std::thread::spawn(move || held.release()).join().expect("no panic")
/// # }
/// ```
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct SemaphoreMutexGuard<'a> {
    // Above the lease, so that the mutex is free here before it is for others.
    _counted: Counted,
    lease: Lease,
    of_lock: PhantomData<&'a InterProcessSemaphoreMutex>,
}

/// Counts a guard as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
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
