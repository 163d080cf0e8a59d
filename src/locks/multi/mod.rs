//! Several locks as one.

use std::{
    any::Any,
    fmt, iter,
    marker::PhantomData,
    ops::ControlFlow::{self, Break, Continue},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    base::{channel::unbounded, clock, log, panics::caught, sync::Mutex},
    error::{Error, Result},
    framework::{
        client::core::CuratorFramework,
        events::reactions::WakeUp,
        held::{
            certainty::{Certainty, Needs},
            node::HeldNode,
        },
    },
    locks::{
        acquire::{
            batch::{Batch, Batched},
            internals::LockInternals,
            last_look::last_look,
            owners::Owners,
            unclean::wait_after_deaths,
        },
        face::{guard::OfThread, lock::InterProcessLock, methods::lock_methods},
        holds::{
            deadline::Deadline,
            fence::SelfFence,
            hold::{Hold, note_panic},
        },
        mutex::InterProcessMutex,
        options::acquire::{AcquireOptions, PutOff, Wait},
        threads::caching::options::Caching,
    },
    session::wait::{cancel::CancelToken, deadline::WaitEnd},
};

/// A hold younger than this is not asked for before the return: if somebody deleted its znode, the watch tells within a
/// moment, as it tells the holder of any lock.
const LONG_AGO: Duration = Duration::from_millis(20);

/// Several locks as one: all of them or none. Java: `InterProcessMultiLock`.
///
/// Made from paths, it acquires them in sorted order, whatever the order given, so that two multi locks over
/// overlapping paths cannot wait for each other. Made from locks, it keeps the order given: then all users of
/// overlapping sets have to agree on one.
///
/// Where nobody else wants them, mutexes, read locks and write locks of one client are acquired in one round trip, and
/// released in one, however many they are: their creates go as one transaction, and so do their deletes. Such locks have
/// the same fencing token, each in its own directory. Directories that are missing are made first, all of them in two round
/// trips, and then the first lock is created alone, and the others in one transaction. Answers that took 20 ms or longer are looked at
/// once more, which is a second round trip. If somebody is in front in one of the queues, the contenders behind that one leave
/// theirs before it waits: others wait for these for a moment at most (a mere try of one fails meanwhile), and no two multi locks
/// for each other. After such a meeting the client's next few acquires of several locks go one by one.
///
/// Always one by one go cached locks, and those that listen for [unclean deaths](InterProcessMutex::with_unclean_deaths); and so go a
/// mere try, an acquire with [`max_queue`](AcquireOptions::max_queue), and one of a client with
/// [`refuse_mixed_kinds`](crate::Builder::refuse_mixed_kinds), as each of them looks before it writes.
///
/// One deadline bounds all. If one lock fails, those acquired before it are released, the last one first and in the
/// background: the call does not wait for that. It is re-entrant where its locks are.
///
/// It returns only when all its locks are held for certain at one moment. If one was lost while the next one was waited
/// for, because its session ended or somebody deleted its znode, it gives all back and begins again in what is left of
/// the time. Foreign [`InterProcessLock`]s that report nothing are taken as they are, but for a
/// [self-fence](AcquireOptions::self_fence), which they cannot have.
///
/// # When the connection goes
/// Each lock does what it does alone. Before the return, an acquire waits for a lock in doubt until the next heartbeats
/// have made it certain again. It releases all and begins again where one is lost, and fails with [`Error::Uncertain`] where
/// none is made certain for a session timeout.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use std::time::Duration;
/// # use curator_locks::InterProcessMultiLock;
/// let both = InterProcessMultiLock::new(&client, ["/accounts/17", "/accounts/4"])?;
/// if both.acquire_timeout(Duration::from_secs(5))? {
///     both.release()?;
/// } else if let Some(path) = both.timed_out_at() {
///     println!("somebody else holds {path}");
/// }
/// let held = both.lock()?; // or as a guard
/// held.release()?;
/// # Ok(()) });
/// ```
///
/// Every way in:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, Caching, InterProcessMultiLock};
///
/// let lock = InterProcessMultiLock::new(&client, ["/accounts/17", "/accounts/4"])?
///     .with_caching(Caching::default())?;
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
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct InterProcessMultiLock {
    /// The locks in the order in which they are acquired.
    locks: Arc<[Arc<dyn InterProcessLock>]>,
    /// The mutexes that it was made of, if paths were given.
    mutexes: Arc<[InterProcessMutex]>,
    /// The name of the lock at which the time was up last.
    timed_out_at: Arc<Mutex<Option<String>>>,
}

impl InterProcessMultiLock {
    /// One [`InterProcessMutex`] for each path, in sorted order. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`; [`Error::InvalidArgument`] for a path given twice, or
    /// for none at all.
    pub fn new<P: AsRef<str>>(
        client: &CuratorFramework,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<InterProcessMultiLock> {
        let paths: Vec<P> = paths.into_iter().collect();
        let mut paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        paths.sort_unstable();
        if let Some(path) = paths.windows(2).find_map(|pair| pair.first().filter(|path| pair.last() == Some(path))) {
            let rule = "each path once: a lock acquired twice looks like two locks".into();
            return Err(Error::InvalidArgument { name: "paths", value: (*path).to_owned(), rule });
        }
        let mutex = |path: &str| InterProcessMutex::new(client, path);
        InterProcessMultiLock::of(paths.into_iter().map(mutex).collect::<Result<Vec<_>>>()?)
    }

    fn of(mutexes: Vec<InterProcessMutex>) -> Result<InterProcessMultiLock> {
        let locks = mutexes.iter().map(|mutex| Arc::new(mutex.clone()) as Arc<dyn InterProcessLock>);
        Ok(InterProcessMultiLock { mutexes: mutexes.as_slice().into(), ..InterProcessMultiLock::from_locks(locks)? })
    }

    /// Makes each of its mutexes keep the lock when a thread gives it back: see [`Caching`] and
    /// [`InterProcessMutex::with_caching`]. Off by default. It is for this object alone: clones made before are other
    /// contenders.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for one made [from locks](InterProcessMultiLock::from_locks): give it locks that are cached.
    pub fn with_caching(self, caching: Caching) -> Result<InterProcessMultiLock> {
        if self.mutexes.is_empty() {
            let rule = "made from paths: locks are cached one by one".into();
            return Err(Error::InvalidArgument { name: "locks", value: self.paths(), rule });
        }
        InterProcessMultiLock::of(self.mutexes.iter().map(|mutex| mutex.clone().with_caching(caching)).collect())
    }

    /// These locks, in this order. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are none.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use std::sync::Arc;
    /// use curator_locks::{InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreMutex};
    ///
    /// let locks: [Arc<dyn InterProcessLock>; 2] = [
    ///     Arc::new(InterProcessMutex::new(client, "/locks/orders")?),
    ///     Arc::new(InterProcessSemaphoreMutex::new(client, "/locks/report")?),
    /// ];
    /// InterProcessMultiLock::from_locks(locks)?.lock()?.release()?;
    /// # Ok(()) });
    /// ```
    pub fn from_locks(locks: impl IntoIterator<Item = Arc<dyn InterProcessLock>>) -> Result<InterProcessMultiLock> {
        let locks: Arc<[_]> = locks.into_iter().collect();
        if locks.is_empty() {
            let rule = "at least one lock".into();
            return Err(Error::InvalidArgument { name: "locks", value: "none".into(), rule });
        }
        Ok(InterProcessMultiLock { locks, mutexes: Arc::default(), timed_out_at: Arc::default() })
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Members>> {
        let options = options.begun();
        loop {
            match self.take_all(&options)? {
                Break(end) => return Ok(end),
                Continue(()) if options.is_mere_try() && options.timeout_is_error => {
                    return Err(Error::StillTaken { path: self.paths(), ahead: None });
                }
                Continue(()) if options.is_mere_try() => return Ok(None),
                Continue(()) => log::debug!("{}: begins again, a lock was lost", self.paths()),
            }
        }
    }

    /// Acquires one lock after the other, and returns them if all are certain in the end: the first one may be lost
    /// while the last one is waited for. `Break(None)`: the time was up; `Continue`: a member was lost before the last one was
    /// acquired.
    fn take_all(&self, options: &AcquireOptions) -> Result<ControlFlow<Option<Members>>> {
        let caller = options.cancellation();
        let interrupt = CancelToken::new();
        let _passed_on = caller.map(|token| token.pass_on(&interrupt));
        // Whether the loss of a member has ended the wait, and not the caller.
        let is_lost = || interrupt.is_cancelled() && !caller.is_some_and(CancelToken::is_cancelled);
        let lost = interrupt.clone();
        let on_loss: Arc<WakeUp> = Arc::new(move || lost.cancel());
        let (sender, put_off) = unbounded();
        let each = AcquireOptions {
            interrupt: Some(interrupt.clone()),
            put_off: Some(sender),
            is_member: true,
            ..options.clone()
        };
        let batch = Batch::new(options);
        let mut taken = Members { multi: self.clone(), holds: Vec::new(), ends: Vec::new(), since: None };
        for (index, lock) in self.locks.iter().enumerate() {
            if options.is_over() {
                return self.time_is_up(options, name_of(&**lock, index));
            }
            batch.send(self.locks.iter().skip(index).map(|lock| lock.batched()), Wait::of(&each));
            let acquired = match lock.batched() {
                Some(lock) => lock.enter_batched(&each, &batch),
                None => lock.acquire_holds(&each),
            };
            match acquired {
                Ok(Some(holds)) => {
                    taken.add(holds, &on_loss, batch.sent());
                    if let Some(margin) = options.self_fence {
                        taken.check_reported(margin)?;
                    }
                }
                Ok(None) => {
                    return self.time_is_up(options, lock.waited_for().unwrap_or_else(|| name_of(&**lock, index)));
                }
                Err(Error::Cancelled { .. }) if is_lost() => return Ok(Continue(())),
                Err(error) => {
                    if let Error::StillTaken { path, .. } = &error {
                        let _ = self.time_is_up(options, path.clone());
                    }
                    return Err(naming(&**lock, index, error));
                }
            }
        }
        let last: Vec<PutOff> = put_off.try_iter().collect();
        drop(put_off);
        let delay = last.iter().filter_map(|last| last.delay).max().filter(|_| !options.is_member).unwrap_or_default();
        let wait = Wait::of(options);
        if !delay.is_zero() {
            match wait_after_deaths(delay, &taken.nodes(), wait) {
                Some(WaitEnd::Cancelled) => return Err(Error::Cancelled { path: self.paths() }),
                Some(WaitEnd::Deadline) => return self.time_is_up(options, taken.least_certain()),
                None => {}
            }
        }
        let end = self.look_at(taken, wait)?;
        if let Break(Some(_)) = &end {
            last.into_iter().for_each(|last| options.when_all_is_had(last));
        }
        Ok(end)
    }

    /// Notes that the time was up at this lock, and ends the acquire.
    fn time_is_up(&self, options: &AcquireOptions, path: String) -> Result<ControlFlow<Option<Members>>> {
        log::debug!("the time was up at {path}");
        *self.timed_out_at.lock() = Some(path.clone());
        if options.timeout_is_error { Err(Error::StillTaken { path, ahead: None }) } else { Ok(Break(None)) }
    }

    /// The path of the lock for which the last acquire of any thread waited in vain until its time was up; `None` if
    /// there was none. A member without a path is named by its number.
    #[must_use]
    pub fn timed_out_at(&self) -> Option<String> {
        self.timed_out_at.lock().clone()
    }

    fn look_at(&self, taken: Members, wait: Wait<'_>) -> Result<ControlFlow<Option<Members>>> {
        let nodes = taken.nodes();
        // If no lock reports its holds there is nothing to look at.
        let timeouts = || nodes.iter().map(|node| node.session().timeout());
        let Some((shortest, longest)) = timeouts().min().zip(timeouts().max()) else {
            return Ok(Break(Some(taken)));
        };
        let wanted = wait.options.min_validity;
        // A foreign lock may have a session of its own, which shows only now.
        wait.options.check_validity(shortest)?;
        let has_waited = taken.since.is_some_and(|since| clock::since(since) >= LONG_AGO)
            || nodes.iter().skip(1).any(|node| node.has_waited());
        let bound = wait.bound;
        let needs = if has_waited && !wait.only_try { Needs::Answer } else { Needs::Connection };
        match last_look(&nodes, wanted, bound, needs) {
            Ok(Certainty::Certain) => Ok(Break(Some(taken))),
            Ok(Certainty::InDoubt) => Err(Error::Uncertain { path: taken.least_certain(), wanted, after: longest }),
            Ok(Certainty::Gone) => Ok(Continue(())),
            Err(WaitEnd::Cancelled) => Err(Error::Cancelled { path: self.paths() }),
            Err(WaitEnd::Deadline) => self.time_is_up(wait.options, taken.least_certain()),
        }
    }

    fn paths(&self) -> String {
        self.locks.iter().filter_map(|lock| lock.path()).collect::<Vec<_>>().join(", ")
    }

    fn keep(&self, mut taken: Members) {
        drop(taken.keep());
    }

    #[expect(clippy::unused_self, reason = "what each lock has")]
    fn holds_of(&self, taken: &Members) -> Vec<Hold> {
        taken.holds.clone()
    }

    #[expect(clippy::unused_self, reason = "what each lock has")]
    fn guard(&self, members: Members) -> MultiLockGuard {
        MultiLockGuard { members, not_send: PhantomData }
    }

    /// Releases all locks, the last one first, all of them even if one fails. The error is that of the lock that
    /// failed, or [`Error::Several`]; if the caller owns none of them, or has lost all of them, the first
    /// [`Error::NotOwner`] or [`Error::LockLost`] alone, as from a single lock.
    fn give_back(&self, named: &[Hold]) -> Result<()> {
        let mut errors: Vec<Error> = Vec::new();
        let mut panicked: Option<Box<dyn Any + Send>> = None;
        let locks: Vec<_> = self.locks.iter().enumerate().rev().collect();
        for run in locks.chunk_by(|(_, one), (_, next)| are_of_one_client(&***one, &***next)) {
            let batched = run.iter().filter_map(|(_, lock)| lock.batched()).map(Batched::of_batch);
            let batched: Vec<(&LockInternals, &Owners)> = batched.map(|(lock, owners)| (&**lock, &**owners)).collect();
            let release = |lock: &Arc<dyn InterProcessLock>| {
                if named.is_empty() { lock.release() } else { lock.release_holds(named) }
            };
            let results = match run {
                [_, _, ..] => Owners::release_together(&batched, named),
                _ => run.iter().map(|(_, lock)| catch_unwind(AssertUnwindSafe(|| release(lock)))).collect(),
            };
            for ((index, lock), result) in run.iter().zip(results) {
                match result {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        log::debug!("releasing {}: {error}", name_of(&***lock, *index));
                        errors.push(naming(&***lock, *index, error));
                    }
                    Err(panic) => panicked = panicked.or(Some(panic)),
                }
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        let all_are = |kind: fn(&Error) -> bool| errors.len() == self.locks.len() && errors.iter().all(kind);
        let is_one = all_are(|error| matches!(error, Error::NotOwner { .. }))
            || all_are(|error| matches!(error, Error::LockLost { .. }));
        let mut errors = errors.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) if is_one || errors.len() == 0 => Err(first),
            Some(first) => Err(Error::Several { first: Box::new(first), others: errors.collect() }),
        }
    }

    fn abandon(&self, named: &[Hold]) {
        self.abandon_first(self.locks.len(), named);
    }

    fn abandon_first(&self, count: usize, named: &[Hold]) {
        for lock in self.locks.iter().take(count).rev() {
            // A panic must not keep the other locks from being released.
            let _ = caught("releasing a lock", || lock.abandon_holds(named));
        }
    }

    fn is_acquired(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }
}

lock_methods! { InterProcessMultiLock, MultiLockGuard,
    /// Acquires all locks, waiting as long as it takes, also [when the connection goes](#when-the-connection-goes).
    ///
    /// # Errors
    /// The error of the first lock that fails, as [`InterProcessLock::acquire`], naming its path; then none is held.
    /// [`release`](Self::release) releases all, the last one first, even if one fails: then it is that lock's error, or
    /// [`Error::Several`].
    {
        fn waited_for(&self) -> Option<String> {
            self.timed_out_at()
        }

        fn holds(&self) -> Vec<Hold> {
            self.locks.iter().flat_map(|lock| lock.holds()).collect()
        }
    }
}

/// The locks acquired so far, and their holds. Dropping it gives them back without waiting, the last one first; after a
/// panic too.
struct Members {
    multi: InterProcessMultiLock,
    holds: Vec<Hold>,
    /// The number of holds up to and with those of each lock.
    ends: Vec<usize>,
    /// When the first one was acquired, or the requests by which it was were sent.
    since: Option<Instant>,
}

impl Members {
    /// Adds the lock that was acquired last. Its loss ends the wait for the next one.
    fn add(&mut self, holds: Vec<Hold>, on_loss: &Arc<WakeUp>, sent: Option<Instant>) {
        self.since.get_or_insert_with(|| sent.unwrap_or_else(clock::now));
        holds.iter().for_each(|hold| hold.node().znode().wake_on_loss(on_loss));
        self.holds.extend(holds);
        self.ends.push(self.holds.len());
    }

    fn nodes(&self) -> Vec<Arc<HeldNode>> {
        self.holds.iter().map(|hold| hold.node().clone()).collect()
    }

    /// Whether each lock has reported a hold that can be fenced.
    fn check_reported(&self, margin: Duration) -> Result<()> {
        let begins = iter::once(&0).chain(&self.ends);
        let Some(index) = begins.zip(&self.ends).position(|(begin, end)| begin == end) else { return Ok(()) };
        let rule = format!("locks that report their holds: {} does not", self.name(index));
        Err(Error::InvalidArgument { name: "self_fence", value: format!("{margin:?}"), rule })
    }

    /// The name of the lock that is certain for the shortest time.
    fn least_certain(&self) -> String {
        let place = self.holds.iter().enumerate().min_by_key(|(_, hold)| hold.node().valid_until());
        let index = place.map_or(0, |(place, _)| self.ends.partition_point(|end| *end <= place));
        self.name(index)
    }

    fn name(&self, index: usize) -> String {
        self.multi.locks.get(index).map_or_else(String::new, |lock| name_of(&**lock, index))
    }

    /// Leaves the locks to the caller: dropping this releases nothing any more.
    fn keep(&mut self) -> Vec<Hold> {
        self.ends.clear();
        std::mem::take(&mut self.holds)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.multi.abandon_first(self.ends.len(), &self.holds);
    }
}

/// Whether two locks are released in one transaction.
fn are_of_one_client(one: &dyn InterProcessLock, next: &dyn InterProcessLock) -> bool {
    let core = |lock: &dyn InterProcessLock| lock.batched().map(|lock| lock.of_batch().0.client().core.clone());
    core(one).zip(core(next)).is_some_and(|(one, next)| Arc::ptr_eq(&one, &next))
}

fn name_of(lock: &dyn InterProcessLock, index: usize) -> String {
    lock.path().map_or_else(|| format!("lock {index} of a multi lock"), str::to_owned)
}

/// Adds the lock's name to an error that has none.
fn naming(lock: &dyn InterProcessLock, index: usize, error: Error) -> Error {
    match error {
        Error::Timeout { what, after } if !lock.path().is_some_and(|path| what.starts_with(&format!("{path}: "))) => {
            Error::Timeout { what: format!("{}: {what}", name_of(lock, index)), after }
        }
        Error::Protocol(what) => Error::Protocol(format!("{}: {what}", name_of(lock, index))),
        Error::Io { what, source } => Error::Io { what: format!("{}: {what}", name_of(lock, index)), source },
        // The others name the path, or are about the client and not about this lock.
        other => other,
    }
}

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.locks.iter().enumerate().map(|(index, lock)| name_of(&**lock, index));
        f.debug_tuple("InterProcessMultiLock").field(&names.collect::<Vec<_>>()).finish()
    }
}

/// All locks of an [`InterProcessMultiLock`], held: dropping it releases them in the background, the last one first. (A
/// foreign [`InterProcessLock`] is released at once, and blocks for that.) It ends the holds that it was given
/// and none that came after them.
///
/// The guard reports the state of its member locks: it is valid while all of them are. It stays with its thread, whatever its locks are:
/// for tasks, [`acquire_holds`](InterProcessLock::acquire_holds) of semaphore mutexes can be given back by any thread
/// ([`release_holds`](InterProcessLock::release_holds)).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use std::time::{Duration, Instant};
/// # let both = &curator_locks::InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/4"])?;
/// let held = both.lock()?;
/// for hold in held.holds() {
///     println!("{} with token {}", hold.path(), hold.fencing_token());
/// }
/// if held.is_valid() && held.valid_until() > Some(Instant::now() + Duration::from_secs(1)) {
///     // time enough for a second of work
/// }
/// held.release()?;
/// # Ok(()) });
/// ```
#[must_use = "the locks are released at once if the guard is not kept: by `let held =`, not by `let _ =`"]
pub struct MultiLockGuard {
    members: Members,
    /// The locks may belong to the thread that acquired them.
    not_send: PhantomData<OfThread>,
}

impl MultiLockGuard {
    /// Releases all locks and reports how that went: the last one first, neighbours that are mutexes, read locks or write
    /// locks of one client in one round trip. While the connection is gone, at most the session timeout for these, and for
    /// each other one.
    ///
    /// # Errors
    /// As [`InterProcessMultiLock::release`].
    pub fn release(mut self) -> Result<()> {
        let holds = self.members.keep();
        self.members.multi.give_back(&holds)
    }

    /// Tells on a channel when the first of the locks is certain for no longer than this margin, and when all are for
    /// longer again; see [`Hold::deadline`].
    #[must_use = "it ends at once if it is not kept"]
    pub fn deadline(&self, margin: Duration) -> Deadline {
        Deadline::new(self.holds().iter().map(|hold| hold.node().clone()).collect(), margin)
    }

    /// Ends this process before one of the locks may be another's; see [`Hold::self_fence`].
    ///
    /// # Errors
    /// As [`Hold::self_fence`]; then no lock is fenced. [`Error::InvalidArgument`] where a foreign lock among its members
    /// reports no hold.
    pub fn self_fence(&self, margin: Duration) -> Result<SelfFence> {
        self.members.check_reported(margin)?;
        SelfFence::new(self.holds(), margin)
    }

    /// The holds of the locks, in the order of acquiring. Foreign [`InterProcessLock`]s add none.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.members.holds
    }

    /// Whether all locks that report are held for certain right now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.holds().iter().all(Hold::is_valid)
    }

    /// Whether one of the locks is gone for certain.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.holds().iter().any(Hold::is_lost)
    }

    /// Until this instant nobody else can have been granted any of the locks; see [`Hold::valid_until`]. `None` if no
    /// lock reports it.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.holds().iter().map(Hold::valid_until).min()
    }
}

impl Drop for MultiLockGuard {
    fn drop(&mut self) {
        self.members.holds.iter().for_each(note_panic);
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLockGuard").field(&self.holds()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "of its own numbers")]
mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
