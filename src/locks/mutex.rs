//! The re-entrant mutex.

use std::{
    slice,
    sync::{Arc, Weak},
};

use crate::{
    error::Result,
    framework::{
        client::core::CuratorFramework,
        held::{holds::HoldKind, node::HeldNode},
    },
    locks::{
        acquire::{
            batch::{Batch, Batched},
            internals::LockInternals,
            owners::Owners,
        },
        face::{
            guard::LockGuard,
            methods::{listening_methods, revocable_methods, thread_lock_methods},
            revocation::{RevocationListener, RevocationRequest},
        },
        holds::hold::Hold,
        options::{
            acquire::{AcquireOptions, Wait},
            wait_strategy::WaitStrategy,
        },
        recipe::{
            driver::{LockInternalsDriver, StandardLockInternalsDriver},
            spec::Recipe,
        },
        threads::caching::{cache::Cache, local_queue::Mode, options::Caching},
    },
};

/// A mutex that processes share, first come, first served, re-entrant per thread. Java: `InterProcessMutex`.
///
/// Each contender is a znode in the lock's directory. The first holds the lock, and each other one watches its
/// predecessor, so a release wakes one thread of one process. Curator clients in any language queue in the same
/// directory. One object serves any number of threads; each has its own place in the queue.
///
/// Uncontended, acquire and release are one round trip each.
///
/// A clone is the same lock: a thread that holds it through one holds it through the other. Each `with_` method makes
/// another lock object on the same path, as [`new`](InterProcessMutex::new) does, and leaves clones that were made
/// before as they are: they keep their holds and their listeners, and queue with the other one. So call it right after
/// `new`: on a lock that is held by [`acquire`](InterProcessMutex::acquire) it takes away the object that could release it.
///
/// # When the connection goes
/// While the connection is suspended a waiter keeps its place, and a holder is told when the lock is in doubt
/// ([`Hold::state`](crate::Hold::state)). When the session is lost, the holder is told, and a waiter queues again in
/// the session that follows.
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
/// let held = mutex.lock()?; // a guard, which is released when it is dropped
/// assert!(held.is_valid());
/// held.release()?; // as dropping it does, but says how it went
///
/// // Or for one closure: an error if the lock was lost before that came to its end.
/// let token = mutex.run(|held| held.fencing_token())?;
/// println!("done, as number {token}");
///
/// mutex.acquire()?; // or as in Java
/// mutex.acquire()?; // the same thread once more: only the hold count grows
/// mutex.release()?;
/// assert!(mutex.is_owned_by_current_thread());
/// mutex.release()?;
/// # Ok(())
/// # }
/// ```
///
/// Every way in:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, InterProcessMutex, WaitStrategy};
///
/// let lock = InterProcessMutex::new(&client, "/locks/order-42")?
///     .with_lock_data("host-17")
///     .with_wait_strategy(WaitStrategy::WatchPredecessor);
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
/// assert_eq!(lock.participant_nodes()?.first(), lock.lock_path().as_ref());
/// lock.release()?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct InterProcessMutex {
    internals: Arc<LockInternals>,
    owners: Arc<Owners>,
    /// A read lock's writers: the owners of the write lock, which need not queue.
    writers: Option<Arc<Owners>>,
    cache: Option<Arc<Cache>>,
}

impl InterProcessMutex {
    /// A mutex in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath) for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<InterProcessMutex> {
        InterProcessMutex::of_kind(client, path, StandardLockInternalsDriver::new(), HoldKind::Mutex)
    }

    /// A mutex with rules of its own.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath) for an invalid path, or `/`.
    pub fn with_driver(
        client: &CuratorFramework,
        path: &str,
        driver: impl LockInternalsDriver,
    ) -> Result<InterProcessMutex> {
        InterProcessMutex::of_kind(client, path, driver, HoldKind::Custom)
    }

    pub(crate) fn of_kind(
        client: &CuratorFramework,
        path: &str,
        driver: impl LockInternalsDriver,
        kind: HoldKind,
    ) -> Result<InterProcessMutex> {
        Ok(InterProcessMutex::of(LockInternals::new(client, path, Recipe::new(kind, driver))?))
    }

    pub(in crate::locks) fn of(internals: LockInternals) -> InterProcessMutex {
        InterProcessMutex { internals: Arc::new(internals), owners: Arc::default(), writers: None, cache: None }
    }

    /// Sets the data of this mutex's znodes, for others to read. Defaults to the client's default data. Java:
    /// `getLockNodeBytes`.
    #[must_use]
    pub fn with_lock_data(self, data: impl Into<Vec<u8>>) -> InterProcessMutex {
        self.configured(|internals| internals.set_data(data))
    }

    /// Sets how this object's contenders wait for their turn. Defaults to [`WaitStrategy::WatchPredecessor`].
    #[must_use]
    pub fn with_wait_strategy(self, strategy: WaitStrategy) -> InterProcessMutex {
        self.configured(|internals| internals.strategy = strategy)
    }

    /// Keeps the lock in this process when a thread releases it, for the next thread or the next acquire: see
    /// [`Caching`]. Off by default. It covers this object and its clones; another object on the same path is another
    /// contender. A lock with a [driver of your own](InterProcessMutex::with_driver) is never cached.
    ///
    /// A release then talks to no server, and does not block.
    #[must_use]
    pub fn with_caching(self, caching: Caching) -> InterProcessMutex {
        self.rebuilt(|_| (), Some(caching))
    }

    /// Refuses a second acquire of a thread that holds the lock: [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), and a
    /// mere try finds the lock taken. By default the thread holds it twice, as in Curator.
    ///
    /// Tasks that share a pool of threads need this: two of them on one thread would both be inside.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use curator_locks::{Error, InterProcessMutex};
    /// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.non_reentrant();
    /// mutex.run(|_| {
    ///     assert!(matches!(mutex.acquire(), Err(Error::WouldDeadlock { .. })));
    ///     assert!(matches!(mutex.try_lock(), Ok(None)));
    /// })?;
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn non_reentrant(self) -> InterProcessMutex {
        self.configured(|internals| internals.is_reentrant = false)
    }

    /// Another lock object, with these settings but for this change.
    pub(in crate::locks) fn configured(&self, change: impl FnOnce(&mut LockInternals)) -> InterProcessMutex {
        self.rebuilt(change, self.caching())
    }

    fn rebuilt(&self, change: impl FnOnce(&mut LockInternals), caching: Option<Caching>) -> InterProcessMutex {
        let mut mutex = InterProcessMutex::of(self.internals.configured(change));
        let caching = caching.filter(|_| mutex.internals.recipe.kind == HoldKind::Mutex);
        mutex.cache = caching.map(|caching| Cache::new(mutex.internals.clone(), None, caching));
        mutex
    }

    pub(in crate::locks) fn caching(&self) -> Option<Caching> {
        self.cache.as_ref().map(|cache| cache.limits)
    }

    /// Makes them the halves of a read/write lock: the threads that hold the write lock are let into the other without
    /// queueing, and both have one cache, which keeps their znodes for the next threads.
    pub(in crate::locks) fn join(
        read: &mut InterProcessMutex,
        write: &mut InterProcessMutex,
        caching: Option<Caching>,
    ) {
        read.writers = Some(write.owners.clone());
        write.cache = caching.map(|caching| Cache::new(write.internals.clone(), Some(read.internals.clone()), caching));
        read.cache = write.cache.clone();
    }

    /// How many threads wait in this object [with caching](InterProcessMutex::with_caching), behind the one that holds
    /// the lock or queues for it. They have no znodes, so [`participant_nodes`](InterProcessMutex::participant_nodes)
    /// does not show them. 0 without caching. [`LockQueue::inspect`](crate::LockQueue::inspect) counts those of all
    /// objects on the path, and tells whether the lock is idle.
    #[must_use]
    pub fn local_waiters(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.waiting())
    }

    /// The paths of all contenders in the order of the queue, the holder first.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        LockInternals::participant_nodes(self.internals.client(), self.internals.base_path())
    }

    /// `lock` makes the listener's argument of this mutex, on the dispatch thread, which calls the executor.
    pub(in crate::locks) fn revocable<L: Send + 'static>(
        &self,
        listener: impl RevocationListener<L>,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
        lock: impl Fn(InterProcessMutex) -> L + Send + Sync + 'static,
    ) {
        let (internals, owners, writers) = (Arc::downgrade(&self.internals), self.owners.clone(), self.writers.clone());
        let cache = self.cache.as_ref().map(Arc::downgrade);
        let listener = Arc::new(listener);
        let tell = move |_: &RevocationRequest| {
            let Some(internals) = internals.upgrade() else { return };
            let (owners, writers, listener) = (owners.clone(), writers.clone(), listener.clone());
            let lock =
                lock(InterProcessMutex { internals, owners, writers, cache: cache.as_ref().and_then(Weak::upgrade) });
            executor(Box::new(move || listener.revocation_requested(&lock)));
        };
        self.internals.on_revocation(false, Arc::new(tell));
    }

    /// The lock's internals: its directory and its driver.
    #[must_use]
    pub fn internals(&self) -> &LockInternals {
        &self.internals
    }

    fn inner(&self) -> &InterProcessMutex {
        self
    }

    pub(in crate::locks) fn parts(&self) -> (&Arc<LockInternals>, &Arc<Owners>) {
        (&self.internals, &self.owners)
    }

    pub(in crate::locks) fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
        self.enter_of(options, None)
    }

    fn enter_of(&self, options: &AcquireOptions, batch: Option<&Batch>) -> Result<Option<Arc<HeldNode>>> {
        self.internals.client().core.check_open()?;
        let wait = Wait::of(options);
        if !self.internals.may_enter_again(&self.owners, wait)? {
            return Ok(None);
        }
        if let Some(held) = self.owners.enter_again(&self.internals, wait)? {
            return Ok(Some(held));
        }
        self.internals.observed(self.internals.recipe.kind.name(), slice::from_ref, || {
            if let Some(writer) = self.writers.as_ref().and_then(|writers| writers.current()) {
                if let Some((cache, tenure)) = writer.cache() {
                    cache.ends_with_turn(tenure);
                }
                return self.internals.attempt_downgrade(wait, &self.owners, &writer);
            }
            self.internals.by_thread(wait, |wait| match &self.cache {
                Some(cache) => {
                    self.internals.check_cached(wait.options)?;
                    let mode =
                        if self.internals.recipe.kind == HoldKind::Read { Mode::Shared } else { Mode::Exclusive };
                    cache.acquire(mode, wait, &self.owners)
                }
                None => self.internals.attempt_lock(wait, Some(&self.owners), batch),
            })
        })
    }
}

impl Batched for InterProcessMutex {
    fn of_batch(&self) -> (&Arc<LockInternals>, &Arc<Owners>) {
        self.parts()
    }

    fn is_plain(&self) -> bool {
        let Recipe { is_sole, unique, .. } = &self.internals.recipe;
        let is_queued_for = self.cache.is_none() && !is_sole && unique.is_none() && self.internals.deaths.is_none();
        let is_outside = |owners: &Arc<Owners>| owners.current().is_none();
        let is_free = is_outside(&self.owners) && self.writers.as_ref().is_none_or(is_outside);
        is_queued_for && is_free && self.internals.thread_holds.obstacles().is_empty()
    }

    fn enter_batched(&self, options: &AcquireOptions, batch: &Batch) -> Result<Option<Vec<Hold>>> {
        Ok(self.enter_of(options, Some(batch))?.map(|held| vec![self.internals.hold(held)]))
    }
}

thread_lock_methods! { InterProcessMutex,
    /// Acquires the lock, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes). If this
    /// thread holds it already, only its hold count grows, without a request.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire);
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) if the calling thread holds a lock on this path through
    /// another object of this client, so that it would wait for itself. With a [driver of your
    /// own](InterProcessMutex::with_driver) the client cannot know that, and only logs a warning.
}

listening_methods! { InterProcessMutex, |lock| [lock.parts().0] }

revocable_methods! { InterProcessMutex, |mutex| mutex, |mutex| mutex,
    /// Calls the listener when somebody asks for the lock with [`Revoker`](crate::Revoker). Call it before acquiring.
    /// Java: `makeRevocable`.
    ///
    /// A release ends it, as in Curator: call this again before the next acquire. A hold from before this call cannot
    /// be asked. The listener serves the acquires of all threads that begin from now on, while they wait and while they
    /// hold (by [`WaitStrategy::WatchParent`] only while they hold); a second call replaces it. Two things differ from
    /// Curator: another thread's hold keeps the listener with which it began, and called during a hold, it stays in force
    /// after that hold's release.
    ///
    /// Each request is told once, also one that was written before the watch on the znode was in place; Curator loses
    /// that one. The listener runs on the client's dispatch thread, under no lock; while it runs, other listeners wait.
    /// While the connection is suspended no request arrives; the client tells of it after the reconnect. A request
    /// replaces the [lock data](InterProcessMutex::with_lock_data). Costs one read per acquire.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// # use curator_locks::InterProcessMutex;
    /// # let mutex = InterProcessMutex::new(client, "/example")?;
    /// # let (client, other) = (client.clone(), mutex.clone());
    /// # std::thread::spawn(move || loop {
    /// #     for holder in other.participant_nodes().unwrap_or_default() {
    /// #         let _ = curator_locks::Revoker::attempt_revoke(&client, &holder);
    /// #     }
    /// # });
    /// let asked = Arc::new(AtomicBool::new(false));
    /// let flag = asked.clone();
    /// mutex.make_revocable(move |_: &InterProcessMutex| flag.store(true, Ordering::Relaxed));
    /// let held = mutex.lock()?;
    /// while !asked.load(Ordering::Relaxed) {
    ///     // ... the next piece of the work ...
    /// }
    /// held.release()?;
    /// # Ok(()) });
    /// ```
}
