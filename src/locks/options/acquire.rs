//! How to acquire a lock, and how one attempt waits, which follows from that.

use std::time::{Duration, Instant};

use crate::{
    base::{channel::Sender, clock},
    error::{Error, Result},
    session::wait::{
        cancel::CancelToken,
        deadline::{WaitBound, WaitEnd},
    },
};

/// How long a call whose time is up still waits for the reply to a request under way, so that a server which answers at
/// all leaves nothing in doubt.
const GRACE: Duration = Duration::from_millis(20);

/// Options of one acquire.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, CancelToken};
///
/// let token = CancelToken::new();
/// let options = AcquireOptions::new().timeout(Duration::from_secs(5)).cancel_token(&token);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct AcquireOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
    pub(in crate::locks) min_validity: Duration,
    pub(in crate::locks) max_ahead: Option<usize>,
    pub(in crate::locks) timeout_is_error: bool,
    pub(in crate::locks) hold_at_least: Option<Duration>,
    pub(in crate::locks) hold_at_most: Option<Duration>,
    pub(in crate::locks) self_fence: Option<Duration>,
    /// The steps for [when all is had](AcquireOptions::when_all_is_had) go there, in a multi lock's member and in an acquire
    /// that is fenced afterwards.
    pub(in crate::locks) put_off: Option<Sender<PutOff>>,
    /// Whether that is a multi lock, which waits after unclean deaths for all its members at once, and then looks at all.
    pub(in crate::locks) is_member: bool,
    /// The end of the timeout, once the call has begun. The calls inside this one get it too: the rest of a timeout may
    /// come to zero, which means a mere try.
    pub(in crate::locks) deadline: Option<Instant>,
    /// Ends the wait as well, for reasons of this crate: a lock that knows no cancel tokens must not be given it.
    pub(in crate::locks) interrupt: Option<CancelToken>,
}

impl AcquireOptions {
    /// Waits for ever, and cannot be cancelled.
    pub fn new() -> Self {
        AcquireOptions::default()
    }

    /// Waits at most this long, for a connection and retries, too; zero means not to wait for others at all, and its
    /// requests are bounded by the client's connection timeout. Defaults to no limit, as does a time beyond the clock's
    /// range.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Ends the wait as soon as this token is cancelled, with [`Error::Cancelled`](crate::Error::Cancelled); nothing is
    /// left in the queue. Defaults to none.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Grants the lock only if it is certain for this time: [`valid_until`](crate::Hold::valid_until) lies this far
    /// ahead when the acquire returns. Defaults to zero: certain at the return, however short that may be.
    ///
    /// If the session is certain for less, the acquire waits for the next heartbeats, with the lock in hand. An idle
    /// client gets there within a quarter of the session timeout. At most half of the session timeout can be had;
    /// [`Deadline`](crate::Deadline) says how to choose it. A mere try waits for the heartbeats, too, at most for the
    /// client's connection timeout.
    ///
    /// The acquire fails with [`Error::InvalidArgument`](crate::Error::InvalidArgument) for more than half of the
    /// session timeout, and for a lock that is [cached](crate::Caching); and with
    /// [`Error::Uncertain`](crate::Error::Uncertain) if within a session timeout the session is never certain for this
    /// time: the servers answer too late then.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::AcquireOptions;
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// // A job of two seconds that nobody can stop, under a session timeout of ten.
    /// if let Some(held) = mutex.lock_with(&AcquireOptions::new().min_validity(Duration::from_secs(2)))? {
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    pub fn min_validity(mut self, time: Duration) -> Self {
        self.min_validity = time;
        self
    }

    /// Queues only behind at most this many contenders: the holder counts, and for a semaphore the waiters in front in
    /// its queue, not the holders of a lease. Defaults to no limit.
    ///
    /// With more the acquire fails at once with [`Error::Busy`](crate::Error::Busy), which says how many. It reads the
    /// queue first, so a busy lock costs a read and no write; a contender that finds too many in front once it has
    /// queued leaves again. One that waits already stays, even if it has to queue again in another session.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use curator_locks::{AcquireOptions, Error};
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// match mutex.lock_with(&AcquireOptions::new().max_queue(10)) {
    ///     Err(Error::Busy { ahead, .. }) => println!("come back later: {ahead} wait"),
    ///     held => drop(held?),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn max_queue(mut self, ahead: usize) -> Self {
        self.max_ahead = Some(ahead);
        self
    }

    /// Returns [`Error::StillTaken`](crate::Error::StillTaken) on timeout (path, number in front) instead of `false` or
    /// `None`. For a multi lock it is the path of the member that could not be acquired. Who is in front tells
    /// [`LockQueue::inspect`](crate::LockQueue::inspect).
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::{AcquireOptions, Error};
    /// # let accounts = &curator_locks::InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/4"])?;
    /// let options = AcquireOptions::new().timeout(Duration::from_secs(5)).timeout_is_error();
    /// match accounts.lock_with(&options) {
    ///     Err(Error::StillTaken { path, .. }) => println!("somebody else has {path}"),
    ///     held => drop(held?),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn timeout_is_error(mut self) -> Self {
        self.timeout_is_error = true;
        self
    }

    /// Keeps the lock from others for at least this long from the acquire on, even if it is given back earlier: for a job
    /// that runs once on one machine of many, where a machine whose clock is late would otherwise find the lock free again.
    ///
    /// The release returns at once, and the client deletes the znode later. So the process and its client have to live that
    /// long: a process of cron's that closes or drops its client after the release frees the lock at once. A session that ends
    /// frees it, too. A multi lock's locks count the time from the moment at which all of them are held. Defaults to zero. Not
    /// for a lock that is [cached](crate::Caching): [`Error::InvalidArgument`](crate::Error::InvalidArgument).
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::AcquireOptions;
    /// # let nightly = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// let once = AcquireOptions::new().timeout(Duration::ZERO).hold_at_least(Duration::from_secs(60));
    /// if let Some(held) = nightly.lock_with(&once)? {
    ///     // ... takes a second; machines whose clock is late by up to a minute find it taken ...
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.hold_at_least = Some(time);
        self
    }

    /// Gives the lock back when it was held for this long, whatever its holder does: the hold is
    /// [`Lost`](crate::HoldState::Lost) with [`HeldTooLong`](crate::LostReason::HeldTooLong) first, and then its znode is
    /// deleted. [`valid_until`](crate::Hold::valid_until) never lies behind that moment, so a
    /// [`Deadline`](crate::Deadline) tells before it. A multi lock's locks count it from the moment at which all of them are
    /// held. Defaults to no limit. Not for a lock that is [cached](crate::Caching):
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument).
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::AcquireOptions;
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// if let Some(held) = mutex.lock_with(&AcquireOptions::new().hold_at_most(Duration::from_secs(600)))? {
    ///     held.on_deadline(Duration::from_secs(10), |event| println!("{event:?}: ten seconds left"));
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    pub fn hold_at_most(mut self, time: Duration) -> Self {
        self.hold_at_most = Some(time);
        self
    }

    /// Ends this process this margin before the lock may be another's, unless it is released before, as
    /// [`Hold::self_fence`](crate::Hold::self_fence) does; the fence lasts as long as the hold. Defaults to none. A multi lock's locks are
    /// fenced once all of them are held.
    ///
    /// The acquire fails as that method does, and then holds nothing; and with [`Error::InvalidArgument`](crate::Error::InvalidArgument)
    /// for a foreign lock that cannot be fenced, or reports no hold to a multi lock. With [`min_validity`](AcquireOptions::min_validity) as long as the
    /// margin it waits instead, should the session be certain for less.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::AcquireOptions;
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// # if cfg!(target_os = "linux") {
    /// let fenced = AcquireOptions::new().self_fence(Duration::from_millis(200));
    /// if let Some(held) = mutex.lock_with(&fenced)? {
    ///     // ... a process that is stopped here for too long does not live to go on ...
    ///     held.release()?;
    /// }
    /// # }
    /// # Ok(()) });
    /// ```
    pub fn self_fence(mut self, margin: Duration) -> Self {
        self.self_fence = Some(margin);
        self
    }

    /// The options for a semaphore's wait queue, which leads to a lease.
    pub(in crate::locks) fn of_queue(&self) -> AcquireOptions {
        let (max_ahead, timeout_is_error) = (self.max_ahead, self.timeout_is_error);
        AcquireOptions { max_ahead, timeout_is_error, ..AcquireOptions::new() }
    }

    /// Whether the caller wants to know how many stand in front.
    pub(in crate::locks) fn counts_ahead(&self) -> bool {
        self.timeout_is_error || self.max_ahead.is_some()
    }

    /// The options for the calls inside this one, from this moment on.
    pub(in crate::locks) fn begun(&self) -> AcquireOptions {
        AcquireOptions { deadline: self.deadline(), ..self.clone() }
    }

    /// `None`: no timeout, or one that is longer than this clock runs.
    pub(in crate::locks) fn deadline(&self) -> Option<Instant> {
        self.deadline.or_else(|| self.timeout.and_then(|timeout| clock::now().checked_add(timeout)))
    }

    /// Whether the call does not wait for others at all.
    pub(in crate::locks) fn is_mere_try(&self) -> bool {
        self.timeout == Some(Duration::ZERO)
    }

    /// Whether the time is up. A mere try has none: it ends with its requests.
    pub(in crate::locks) fn is_over(&self) -> bool {
        !self.is_mere_try() && self.deadline.is_some_and(|deadline| clock::now() >= deadline)
    }

    /// The rest of the timeout, for a lock that takes nothing else. Only a mere try gets zero: zero would make one of a
    /// call whose time has just come to its end.
    pub(in crate::locks) fn time_left(&self) -> Option<Duration> {
        let left = |deadline: Instant| deadline.saturating_duration_since(clock::now()).max(Duration::from_nanos(1));
        self.deadline.filter(|_| !self.is_mere_try()).map(left).or(self.timeout)
    }

    /// The token that ends the wait besides the time.
    pub(in crate::locks) fn cancellation(&self) -> Option<&CancelToken> {
        self.interrupt.as_ref().or(self.cancel.as_ref())
    }

    /// Does the last of an acquire, which is for holds that nothing keeps from the caller any more: at once, unless a multi
    /// lock goes on to other members, or a fence is still to be set. That one has to see when a hold ends.
    pub(in crate::locks) fn when_all_is_had(&self, last: PutOff) {
        let put_off = if self.is_member || last.delay.is_some() { self.put_off(last) } else { Err(last) };
        if let Err(last) = put_off {
            (last.step)();
        }
    }

    /// Leaves this to the call of which the acquire is a part; `Err`: to none. A lock of the caller's may keep the options for
    /// longer than that lasts.
    pub(in crate::locks) fn put_off(&self, last: PutOff) -> std::result::Result<(), PutOff> {
        match &self.put_off {
            Some(put_off) => put_off.send(last).map_err(|unsent| unsent.0),
            None => Err(last),
        }
    }

    /// Refuses a `min_validity` that no session could give.
    pub(in crate::locks) fn check_validity(&self, session_timeout: Duration) -> Result<()> {
        // A session that is answered promptly is certain for 0.67 T less two round trips right after a heartbeat.
        if self.min_validity <= session_timeout / 2 {
            return Ok(());
        }
        let rule = format!("at most half of the session timeout, which is {session_timeout:?}");
        Err(Error::InvalidArgument { name: "min_validity", value: format!("{:?}", self.min_validity), rule })
    }
}

/// The last that a lock does in an acquire.
pub(in crate::locks) struct PutOff {
    pub(in crate::locks) step: Box<dyn FnOnce() + Send>,
    /// How long to wait before, after unclean deaths. `None`: it has nothing to do with these.
    pub(in crate::locks) delay: Option<Duration>,
}

/// How one attempt to get a lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait<'a> {
    /// The end of the wait for others.
    pub(crate) bound: WaitBound<'a>,
    /// Whether the call does not wait for others at all, and does not write if the lock is taken.
    pub(crate) only_try: bool,
    pub(crate) options: &'a AcquireOptions,
    /// When the call began, if that was before this attempt.
    pub(crate) since: Option<Instant>,
}

impl<'a> Wait<'a> {
    /// The wait that these options ask for, from now on, unless their call has begun before.
    pub(in crate::locks) fn of(options: &'a AcquireOptions) -> Wait<'a> {
        let bound = WaitBound { deadline: options.deadline(), cancel: options.cancellation() };
        Wait { bound, only_try: options.is_mere_try(), options, since: None }
    }

    /// The bound on requests. A mere try still waits for its own requests, as a lock that is free should be got.
    pub(crate) fn io(&self, connection_timeout: Duration) -> WaitBound<'a> {
        let deadline = if self.only_try {
            self.bound.deadline.unwrap_or_else(clock::now).checked_add(connection_timeout)
        } else {
            // A deadline at the end of the clock's range is as good as one a moment later.
            self.bound.deadline.map(|deadline| deadline.checked_add(GRACE).unwrap_or(deadline))
        };
        WaitBound { deadline, cancel: self.bound.cancel }
    }

    /// How long to wait for a connection; `None` for a mere try, which ends with its requests.
    pub(in crate::locks) fn waits_until(&self) -> Option<WaitBound<'a>> {
        (!self.only_try).then_some(self.bound)
    }

    /// Whether the time to wait is up. A mere try has none: it ends with its requests.
    pub(crate) fn is_over(&self) -> bool {
        !self.only_try && self.bound.is_over() == Some(WaitEnd::Deadline)
    }
}
