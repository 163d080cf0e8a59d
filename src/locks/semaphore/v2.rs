//! The counting semaphore.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

#[cfg(doc)]
use crate::locks::shared::count::SharedCount;
use crate::{
    base::{clock, log},
    error::{Error, LostReason, Result},
    framework::{
        client::core::CuratorFramework,
        held::{holds::HoldKind, node::HeldNode},
    },
    locks::{
        acquire::{
            Outcome,
            contention::Acquire,
            internals::{LockInternals, children_of},
            kinds::{SEMAPHORE_LEASES, SEMAPHORE_LOCKS},
            limit::Limit,
            release::QueueHead,
        },
        face::methods::{listening_methods, no_end},
        holds::fence::fenced,
        options::{
            acquire::{AcquireOptions, Wait},
            wait_strategy::WaitStrategy,
        },
        recipe::{
            driver::{StandardLockInternalsDriver, sorted_contenders},
            spec::{Recipe, Spec},
        },
        semaphore::lease::Lease,
        shared::count::SharedCountReader,
    },
};

/// A semaphore that processes share: at most a given number of leases at a time, first come, first served. Java:
/// `InterProcessSemaphoreV2`.
///
/// Each lease is a znode in `<path>/leases`. A contender that finds too few leases queues in `<path>/locks`, and the first of
/// that queue waits until enough leases were given back. Curator clients in any language share both directories.
///
/// The number of leases is a convention among those that use the path: the same everywhere, or a [`SharedCount`], which
/// can change while threads wait. Lowering it revokes no lease.
///
/// Uncontended, acquire and give-back are one round trip each, four requests in total.
///
/// # Several leases at once
/// [`acquire_many`](Self::acquire_many) is all or nothing, and keeps its place in the queue until it has all. So
/// clients of this crate cannot block each other. Curator's `acquire(n)` takes one lease after the other and lets
/// others in between: against that one, a deadlock is unavoidable.
///
/// # When the connection goes
/// As with [`InterProcessMutex`](crate::InterProcessMutex); each lease is told by itself.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use std::time::Duration;
/// # use curator_locks::InterProcessSemaphoreV2;
/// let semaphore = InterProcessSemaphoreV2::new(&client, "/downloads", 3)?;
/// let lease = semaphore.acquire()?;
/// if let Some(more) = semaphore.acquire_many_timeout(2, Duration::from_secs(5))? {
///     semaphore.return_all(more)?;
/// }
/// lease.close()?;
/// # Ok(()) });
/// ```
///
/// With a shared count as the number of leases:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, InterProcessSemaphoreV2, SharedCount};
///
/// let limit = SharedCount::new(&client, "/downloads-limit", 3)?;
/// limit.start()?;
/// let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/downloads", &limit)?;
/// semaphore.set_node_data("host-17");
/// let two = semaphore.acquire_many(2)?;
/// assert_eq!(semaphore.participant_nodes()?.len(), 2);
/// let last = semaphore.acquire_timeout(Duration::from_secs(5))?.ok_or("too few leases")?;
/// assert!(semaphore.acquire_with(1, &AcquireOptions::new().timeout(Duration::ZERO))?.is_none()); // all are taken
/// semaphore.return_lease(last)?;
/// semaphore.return_all(two)?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    locks: Arc<LockInternals>,
    pub(super) leases: Arc<LockInternals>,
    limit: Limit,
    /// Whether the last acquire had to wait for others: then the next one queues at once instead of trying first.
    is_contended: Arc<AtomicBool>,
}

impl InterProcessSemaphoreV2 {
    /// The names below the semaphore's path. Java: `LOCK_SCHEMA`.
    pub const LOCK_SCHEMA: [&'static str; 2] = [SEMAPHORE_LOCKS, SEMAPHORE_LEASES];

    /// A semaphore with a fixed number of leases. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str, max_leases: usize) -> Result<InterProcessSemaphoreV2> {
        InterProcessSemaphoreV2::with_limit(client, path, Limit::Fixed(max_leases))
    }

    /// A semaphore with as many leases as a count says: a [`SharedCount`] that the caller has
    /// [started](SharedCount::start), or a limit of the caller's own. A change wakes the waiters; a negative count means
    /// none, as a panic of the caller's code does. Does no I/O.
    ///
    /// # Errors
    /// As [`InterProcessSemaphoreV2::new`].
    pub fn with_shared_count(
        client: &CuratorFramework,
        path: &str,
        count: &(impl SharedCountReader + Clone),
    ) -> Result<InterProcessSemaphoreV2> {
        InterProcessSemaphoreV2::with_limit(client, path, Limit::Shared(Arc::new(count.clone())))
    }

    fn with_limit(client: &CuratorFramework, path: &str, limit: Limit) -> Result<InterProcessSemaphoreV2> {
        let (queue, counter) =
            (StandardLockInternalsDriver::new(), StandardLockInternalsDriver::with_lock_name("lease-"));
        let queue = Recipe { below: Some(SEMAPHORE_LOCKS), is_queue: true, ..Recipe::new(HoldKind::Custom, queue) };
        let leases = Recipe { below: Some(SEMAPHORE_LEASES), ..Recipe::new(HoldKind::AnyThread, counter) };
        let internals = |recipe| LockInternals::new(client, path, recipe).map(Arc::new);
        let (locks, leases) = (internals(queue)?, internals(leases)?);
        Ok(InterProcessSemaphoreV2 { locks, leases, limit, is_contended: Arc::default() })
    }

    /// Sets the data of the znodes of leases acquired from now on, and of their waiters, for others to read. Defaults
    /// to the client's default data.
    pub fn set_node_data(&self, data: impl Into<Vec<u8>>) {
        let data = data.into();
        // A look at the queue shows the waiters' data, too.
        self.locks.set_data(data.clone());
        self.leases.set_data(data);
    }

    pub(in crate::locks) fn configured(&self, change: impl Fn(&mut LockInternals)) -> InterProcessSemaphoreV2 {
        InterProcessSemaphoreV2 {
            locks: Arc::new(self.locks.configured(&change)),
            leases: Arc::new(self.leases.configured(&change)),
            limit: self.limit.clone(),
            is_contended: Arc::default(),
        }
    }

    /// Acquires one lease, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes).
    ///
    /// # Errors
    /// As [`InterProcessSemaphoreV2::acquire_with`].
    #[must_use = "the lease is given back at once if it is not kept"]
    pub fn acquire(&self) -> Result<Lease> {
        self.acquire_many(1)?.pop().ok_or_else(no_end)
    }

    /// Acquires this many leases at once, waiting as long as it takes, as [`acquire`](Self::acquire) does.
    ///
    /// # Errors
    /// As [`InterProcessSemaphoreV2::acquire_with`].
    #[must_use = "the leases are given back at once if they are not kept"]
    pub fn acquire_many(&self, count: usize) -> Result<Vec<Lease>> {
        self.acquire_with(count, &AcquireOptions::new())?.ok_or_else(no_end)
    }

    /// Acquires one lease unless the time is up first. Zero means not to wait for others: if there is none, that costs
    /// two reads and no write.
    ///
    /// # Errors
    /// As [`InterProcessSemaphoreV2::acquire_with`].
    #[must_use = "leases are given back at once if they are not kept, and there may be none"]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Lease>> {
        Ok(self.acquire_many_timeout(1, timeout)?.and_then(|mut leases| leases.pop()))
    }

    /// Acquires this many leases at once, or none if the time is up first.
    ///
    /// # Errors
    /// As [`InterProcessSemaphoreV2::acquire_with`].
    #[must_use = "leases are given back at once if they are not kept, and there may be none"]
    pub fn acquire_many_timeout(&self, count: usize, timeout: Duration) -> Result<Option<Vec<Lease>>> {
        self.acquire_with(count, &AcquireOptions::new().timeout(timeout))
    }

    /// Acquires this many leases at once, with a timeout, a cancel token, both or neither. `None`: the time was up
    /// first, and nothing is left behind. One deadline bounds everything: the wait for a connection, retries and the wait
    /// for others. A cancellation ends it at once.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no lease at all, or more than there can be at any time; [`Error::ConnectionLoss`]
    /// or [`Error::SessionExpired`] when the retry policy is exhausted, [`Error::ClientClosed`], [`Error::Cancelled`],
    /// and [`Error::Server`] when the server refuses a request. Nothing is left behind then either.
    #[must_use = "leases are given back at once if they are not kept, and there may be none"]
    pub fn acquire_with(&self, count: usize, options: &AcquireOptions) -> Result<Option<Vec<Lease>>> {
        let leases = |held: Vec<_>| held.into_iter().map(|held| Lease::new(&self.leases, held)).collect();
        let enter = |options: &AcquireOptions| Ok(self.acquire_nodes(count, options)?.map(leases));
        let holds_of = |leases: &Vec<Lease>| leases.iter().map(|lease| (**lease).clone()).collect();
        fenced(options, enter, holds_of, drop)
    }

    pub(in crate::locks) fn acquire_nodes(
        &self,
        count: usize,
        options: &AcquireOptions,
    ) -> Result<Option<Vec<Arc<HeldNode>>>> {
        self.check_count(count)?;
        self.client().core.check_open()?;
        // The wait begins before the queue, which is only a part of it.
        let wait = Wait { since: Some(clock::now()), ..Wait::of(options) };
        self.leases.observed("semaphore", Vec::as_slice, || self.enter(count, wait))
    }

    /// Gives a lease back, and blocks, as [`Lease::close`] does.
    ///
    /// # Errors
    /// As [`Lease::close`].
    pub fn return_lease(&self, lease: Lease) -> Result<()> {
        lease.close()
    }

    /// Gives leases back, all of them even if one fails: one round trip for those of this object, however many they
    /// are, and one session timeout bounds it.
    ///
    /// # Errors
    /// The first of all errors, as [`Lease::close`]; the others are logged.
    pub fn return_all(&self, leases: impl IntoIterator<Item = Lease>) -> Result<()> {
        let is_own = |lease: &Lease| Arc::ptr_eq(&lease.leases, &self.leases);
        let (own, others): (Vec<Lease>, Vec<Lease>) = leases.into_iter().partition(is_own);
        let nodes: Vec<Arc<HeldNode>> = own.into_iter().map(Lease::into_node).collect();
        let own = self.leases.release_all(&nodes).into_iter().map(|(closed, _)| closed);
        let mut errors = own.chain(others.into_iter().map(Lease::close)).filter_map(Result::err);
        let first = errors.next();
        errors.for_each(|error| log::warn!("{}: giving back one more lease: {error}", self.path()));
        first.map_or(Ok(()), Err)
    }

    /// The names of the znodes in `leases`, in the order in which they came: those that hold a lease and the one that
    /// waits for it. Empty if there is no such directory.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participant_nodes(&self) -> Result<Vec<String>> {
        let names = children_of(self.client(), &format!("{}/{SEMAPHORE_LEASES}", self.path()))?;
        Ok(sorted_contenders(&names).into_iter().map(str::to_owned).collect())
    }

    fn path(&self) -> &str {
        self.locks.base_path()
    }

    fn client(&self) -> &CuratorFramework {
        self.locks.client()
    }

    fn check_count(&self, count: usize) -> Result<()> {
        let rule = match &self.limit {
            _ if count == 0 => "at least one lease".to_owned(),
            Limit::Fixed(limit) if count > *limit => format!("the semaphore {} has {limit} leases", self.path()),
            Limit::Shared(_) if i32::try_from(count).is_err() => {
                format!("at most {}, as many as a count can say", i32::MAX)
            }
            Limit::Fixed(_) | Limit::Shared(_) => return Ok(()),
        };
        Err(Error::InvalidArgument { name: "count", value: count.to_string(), rule })
    }

    fn enter(&self, count: usize, wait: Wait<'_>) -> Result<Option<Vec<Arc<HeldNode>>>> {
        if wait.only_try || !self.is_contended.load(Ordering::Relaxed) {
            if let Outcome::Granted { held, .. } = self.acquire_leases(count, wait, None)? {
                return Ok(Some(held));
            }
            if wait.only_try {
                return Ok(None);
            }
            self.is_contended.store(true, Ordering::Relaxed);
        }
        self.queue(count, wait)
    }

    /// Queues, and waits at the head of the queue until all leases are counted.
    fn queue(&self, count: usize, wait: Wait<'_>) -> Result<Option<Vec<Arc<HeldNode>>>> {
        let io = wait.io(self.client().core.config.connection_timeout);
        let in_queue = wait.options.of_queue();
        loop {
            let Some(held) = self.locks.attempt_lock(Wait { options: &in_queue, ..wait }, None, None)? else {
                return Ok(None);
            };
            let head = QueueHead { queue: &self.locks, held: held.clone() };
            match self.acquire_leases(count, wait, Some(head))? {
                Outcome::Granted { held, has_waited } => {
                    self.is_contended.store(has_waited, Ordering::Relaxed);
                    return Ok(Some(held));
                }
                Outcome::TimeUp | Outcome::WriterGone => return Ok(None),
                // Queues again in the session that follows, as a waiter in the queue itself does.
                Outcome::QueueHeadLost
                    if held.session().is_ended()
                        || held.lost().is_some_and(|reason| reason != LostReason::NodeDeleted) => {}
                // Somebody has deleted the znode in the queue, most often after a wait: a failure of its own. If the
                // time is up, the next iteration says so.
                Outcome::QueueHeadLost => {
                    let call = self.client().call("acquire", self.path(), io);
                    if let Err(error) = call.allow_again(&mut 0, self.leases.node_gone())
                        && !wait.is_over()
                    {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Creates the lease znodes and then looks. At the head of the queue the acquire waits until all leases are counted.
    ///
    /// Without a place in the queue it does not wait: nobody may queue, and enough leases have to be free. This never lets
    /// in too many: the znodes are among the first, as many as there are leases, and stay so. It overtakes no contender:
    /// the look shows all that had queued before. If two acquires do it at a time, at most the later one has to go.
    fn acquire_leases(&self, count: usize, wait: Wait<'_>, queue_head: Option<QueueHead<'_>>) -> Result<Outcome> {
        let spec = Spec {
            count,
            waits: queue_head.is_some().then_some(WaitStrategy::WatchParent),
            must_be_empty: queue_head.is_none().then(|| self.locks.directory().as_str().to_owned()),
            holds_queue_head: queue_head.is_some(),
            looks_first: wait.only_try,
            // The contenders in front are counted, and limited, in the queue's own directory.
            counts: false,
            max_ahead: None,
            ..self.leases.spec(wait)
        };
        Acquire { limit: Some(&self.limit), queue_head, ..Acquire::new(&self.leases, spec, wait) }.run()
    }
}

listening_methods! { InterProcessSemaphoreV2, |lock| [&lock.leases] }

impl fmt::Debug for InterProcessSemaphoreV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2")
            .field("path", &self.path())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
