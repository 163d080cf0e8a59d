//! On which terms a lock is acquired: how long the queue may be, for how long it is certain, how long it is held.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    framework::held::node::HeldNode,
    locks::{api::options::acquire::AcquireOptions, contender::internals::LockInternals},
};

/// On which terms a lock is acquired.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// For so long the lock has to be certain when it is granted.
    pub(crate) min_validity: Duration,
    /// So many may stand in front.
    pub(crate) max_ahead: Option<usize>,
    pub(crate) on_position: Option<PositionListener>,
    /// The end of the time is an error.
    pub(crate) has_to_say: bool,
    hold_at_least: Option<Duration>,
    hold_at_most: Option<Duration>,
}

/// None but the one that it is certain at the return.
pub(crate) static NO_TERMS: Terms = Terms {
    min_validity: Duration::ZERO,
    max_ahead: None,
    on_position: None,
    has_to_say: false,
    hold_at_least: None,
    hold_at_most: None,
};

/// Is told how many stand in front.
#[derive(Clone)]
pub(crate) struct PositionListener(Arc<dyn Fn(usize) + Send + Sync>);

impl PositionListener {
    pub(in crate::locks) fn tell(&self, ahead: usize) {
        self.0(ahead);
    }
}

impl fmt::Debug for PositionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PositionListener")
    }
}

impl Default for Terms {
    fn default() -> Terms {
        NO_TERMS.clone()
    }
}

impl Terms {
    /// For a queue that leads to something else.
    pub(in crate::locks) fn of_queue(&self) -> Terms {
        let (max_ahead, on_position) = (self.max_ahead, self.on_position.clone());
        Terms { max_ahead, on_position, has_to_say: self.has_to_say, ..NO_TERMS.clone() }
    }

    /// Whether anybody wants to know how many stand in front.
    pub(in crate::locks) fn counts(&self) -> bool {
        self.has_to_say || self.max_ahead.is_some() || self.on_position.is_some()
    }
}

impl LockInternals {
    /// Where one znode serves many holds, nothing can be said of one of them alone.
    pub(in crate::locks) fn check_cached(&self, terms: &Terms) -> Result<()> {
        let refused = if self.deaths().get().is_some() {
            ("unclean deaths", "one mark would stand for all holds of a lock that is cached")
        } else if terms.hold_at_least.is_some() || terms.hold_at_most.is_some() || !terms.min_validity.is_zero() {
            ("options", "neither a validity nor a length of the hold for a lock that is cached")
        } else {
            return Ok(());
        };
        let (name, rule) = (refused.0, refused.1.to_owned());
        Err(Error::InvalidArgument { name, value: self.base_path().to_owned(), rule })
    }

    /// These holds have just been granted.
    pub(in crate::locks) fn limit_holds(&self, held: &[Arc<HeldNode>], terms: &Terms) {
        let after = |time: Option<Duration>| time.and_then(|time| Instant::now().checked_add(time));
        let (least, most) = (after(terms.hold_at_least), after(terms.hold_at_most));
        if least.is_none() && most.is_none() {
            return;
        }
        for held in held {
            // Not to keep the client alive, which keeps the hold.
            let (core, job) = (Arc::downgrade(&self.client().core), self.deletion_of_held(held));
            let give_back = move || {
                if let Some(core) = core.upgrade() {
                    core.clean_up(job);
                }
            };
            held.limit(least, most, give_back);
        }
    }

    /// Whether a hold that was given back keeps its znode for now.
    pub(in crate::locks) fn stays(&self, held: &HeldNode) -> bool {
        let Some(rest) = held.has_to_stay() else { return false };
        let (core, job) = (self.client().core.clone(), self.deletion_of_held(held));
        let owner = core.clone();
        owner.run_later(rest, move || core.clean_up(job));
        true
    }
}

impl AcquireOptions {
    /// Queues only where at most so many stand in front: the holder counts, and for a semaphore those in front in its
    /// queue do, not those that hold a lease. Defaults to no limit.
    ///
    /// With more the acquire fails at once with [`Error::Busy`](crate::Error::Busy), which says how many. It reads the queue
    /// first, so a busy lock costs a read and no write; one that turns out to be behind too many once it has queued leaves
    /// again. Who queues already stays, whoever comes after it.
    ///
    /// ```no_run
    /// # use curator_locks::{AcquireOptions, Error, InterProcessMutex};
    /// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
    /// match mutex.lock_with(&AcquireOptions::new().max_queue(10)) {
    ///     Err(Error::Busy { ahead, .. }) => println!("come back later: {ahead} wait"),
    ///     held => drop(held?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_queue(mut self, ahead: usize) -> Self {
        self.terms.max_ahead = Some(ahead);
        self
    }

    /// Calls the listener with the number of those in front, whenever the waiter has read the queue and it has changed: on
    /// the thread that waits, under no lock; the acquire waits for it. A waiter reads the queue when the one in front of it
    /// has gone, so with the default [`WaitStrategy`](crate::WaitStrategy) it hears rarely: it is woken when that matters
    /// to it.
    ///
    /// ```no_run
    /// # use curator_locks::{AcquireOptions, InterProcessMutex};
    /// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
    /// let options = AcquireOptions::new().on_position(|ahead| println!("{ahead} in front"));
    /// let held = mutex.lock_with(&options)?;
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_position(mut self, listener: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.terms.on_position = Some(PositionListener(Arc::new(listener)));
        self
    }

    /// Has the end of the time reported as [`Error::StillTaken`](crate::Error::StillTaken), which says at which path and
    /// behind how many, instead of `false` or `None`. For a multi lock it is the path of the lock that was not got.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use curator_locks::{AcquireOptions, Error, InterProcessMultiLock};
    /// # fn example(accounts: &InterProcessMultiLock) -> curator_locks::Result<()> {
    /// let options = AcquireOptions::new().timeout(Duration::from_secs(5)).timeout_is_error();
    /// match accounts.lock_with(&options) {
    ///     Err(Error::StillTaken { path, .. }) => println!("somebody else has {path}"),
    ///     held => drop(held?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout_is_error(mut self) -> Self {
        self.terms.has_to_say = true;
        self
    }

    /// Keeps the lock from others for at least this long from the grant on, even if it is given back earlier: for a job that
    /// runs once on one machine of many, where it may be over before the clock of another one says that it is time. The
    /// release returns at once, and the client deletes the znode later. It goes earlier with the client, and with the
    /// session. Defaults to zero.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use curator_locks::{AcquireOptions, InterProcessMutex};
    /// # fn example(nightly: &InterProcessMutex) -> curator_locks::Result<()> {
    /// let once = AcquireOptions::new().timeout(Duration::ZERO).hold_at_least(Duration::from_secs(60));
    /// if let Some(held) = nightly.lock_with(&once)? {
    ///     // ... takes a second; machines whose clock is late by up to a minute find it taken ...
    ///     held.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.terms.hold_at_least = Some(time);
        self
    }

    /// Gives the lock back when it was held for this long, whatever its holder does: the hold is
    /// [`Lost`](crate::HoldState::Lost) with [`HeldTooLong`](crate::LostReason::HeldTooLong) first, and then its znode is
    /// deleted. [`valid_until`](crate::Hold::valid_until) never lies behind that moment, so a
    /// [`Deadline`](crate::Deadline) tells before it. Defaults to no limit.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use curator_locks::{AcquireOptions, InterProcessMutex};
    /// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
    /// if let Some(held) = mutex.lock_with(&AcquireOptions::new().hold_at_most(Duration::from_secs(600)))? {
    ///     held.on_deadline(Duration::from_secs(10), |event| println!("{event:?}: ten seconds left"));
    ///     held.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_at_most(mut self, time: Duration) -> Self {
        self.terms.hold_at_most = Some(time);
        self
    }
}
