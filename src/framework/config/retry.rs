//! Retry policies: whether to try once more after a lost connection, and how long to wait before.
//!
//! A policy decides and sleeps through the [`RetrySleeper`] it is handed, so the call that retries stays in charge of
//! its deadline and of cancellation.

use std::{ops::Deref, time::Duration};

use crate::error::{Error, Meaning};

/// Above this, [`ExponentialBackoffRetry`] does not count: the factor of the next sleep would leave 31 bits.
const MAX_BACKOFF_RETRIES: u32 = 29;

/// The longest sleep of [`ExponentialBackoffRetry::new`], in milliseconds: about 24.8 days.
const DEFAULT_MAX_SLEEP_MILLIS: u64 = i32::MAX as u64;

/// The shortest interval of [`RetryForever`].
const MIN_FOREVER_INTERVAL: Duration = Duration::from_millis(1);

/// How a [`RetryPolicy`] waits. Java: `RetrySleeper`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{RetryOneTime, RetryPolicy, RetrySleeper};
///
/// /// For a test: does not wait.
/// struct Impatient;
/// impl RetrySleeper for Impatient {
///     fn sleep_for(&self, _duration: Duration) -> bool {
///         true
///     }
/// }
/// assert!(RetryOneTime::new(Duration::from_secs(60)).allow_retry(0, Duration::ZERO, &Impatient));
/// ```
pub trait RetrySleeper {
    /// Waits for `duration`, at most until the call's deadline.
    ///
    /// `false`: the wait was cut short because the call was cancelled, the client was closed, or the call's deadline
    /// has passed. A policy then answers `false` as well.
    fn sleep_for(&self, duration: Duration) -> bool;
}

/// Decides whether an operation whose connection or session was lost is tried again. Java: `RetryPolicy`.
///
/// One policy serves all calls of a client at the same time, so it keeps no state of a single call.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{Error, RetryPolicy, RetrySleeper};
///
/// /// Ten times a second for a minute, and not at all once the session is lost.
/// struct Eager;
/// impl RetryPolicy for Eager {
///     fn allow_retry(&self, _retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
///         elapsed < Duration::from_secs(60) && sleeper.sleep_for(Duration::from_millis(100))
///     }
///     fn allows_error(&self, error: &Error) -> bool {
///         error.is_retryable() && !matches!(error, Error::SessionExpired { .. })
///     }
/// }
/// assert!(!Eager.allows_error(&Error::ClientClosed));
/// ```
pub trait RetryPolicy: Send + Sync + 'static {
    /// Whether to try again, asked after an attempt failed; sleeps through `sleeper` before it answers `true`.
    ///
    /// `retry_count` is 0 after the first attempt. `elapsed` is the time since the operation began. Both begin anew when
    /// an acquire goes on after it has waited for others. A policy that allows n retries is asked n + 1 times.
    fn allow_retry(&self, retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool;

    /// Whether this error may be retried at all; defaults to [`Error::is_retryable`].
    fn allows_error(&self, error: &Error) -> bool {
        error.is_retryable()
    }
}

/// A `Box` or an `Arc` of a policy is a policy, as is whatever else is a smart pointer to one. So a policy of your own that wraps
/// another must not be `Deref` to it.
impl<P: Deref<Target: RetryPolicy> + Send + Sync + 'static> RetryPolicy for P {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        (**self).allow_retry(retry_count, elapsed, sleeper)
    }

    fn allows_error(&self, error: &Error) -> bool {
        (**self).allows_error(error)
    }
}

/// Retries up to n times, with the same sleep before each. Java: `RetryNTimes`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{RetryNTimes, RetryPolicy, RetrySleeper};
///
/// struct Patient;
/// impl RetrySleeper for Patient {
///     fn sleep_for(&self, duration: Duration) -> bool {
///         duration == Duration::from_millis(100)
///     }
/// }
///
/// let policy = RetryNTimes::new(2, Duration::from_millis(100));
/// assert!(policy.allow_retry(0, Duration::ZERO, &Patient));
/// assert!(policy.allow_retry(1, Duration::ZERO, &Patient));
/// assert!(!policy.allow_retry(2, Duration::ZERO, &Patient));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryNTimes {
    n: u32,
    sleep: Duration,
}

impl RetryNTimes {
    /// Allows `n` retries, 0 for none, and sleeps for `sleep` before each.
    #[must_use]
    pub const fn new(n: u32, sleep: Duration) -> RetryNTimes {
        RetryNTimes { n, sleep }
    }
}

impl RetryPolicy for RetryNTimes {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        retry_count < self.n && sleeper.sleep_for(self.sleep)
    }
}

/// Retries once. Java: `RetryOneTime`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{RetryOneTime, RetryPolicy};
///
/// # struct Now;
/// # impl curator_locks::RetrySleeper for Now {
/// #     fn sleep_for(&self, _: Duration) -> bool { true }
/// # }
/// let policy = RetryOneTime::new(Duration::from_secs(1));
/// assert!(policy.allow_retry(0, Duration::ZERO, &Now));
/// assert!(!policy.allow_retry(1, Duration::ZERO, &Now));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryOneTime(RetryNTimes);

impl RetryOneTime {
    /// Allows one retry, `sleep` after the first attempt failed.
    #[must_use]
    pub const fn new(sleep: Duration) -> RetryOneTime {
        RetryOneTime(RetryNTimes::new(1, sleep))
    }
}

impl RetryPolicy for RetryOneTime {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        self.0.allow_retry(retry_count, elapsed, sleeper)
    }
}

/// Retries with random sleeps that grow twice as long on average each time. Java: `ExponentialBackoffRetry`.
///
/// Before retry k, counted from 0, it sleeps for the base times a random whole number from 1 to 2^(k+1) - 1, but never
/// longer than the maximum. The randomness keeps many clients from coming back in step after an outage.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::ExponentialBackoffRetry;
///
/// // 1 s, then 1..3 s, then 1..7 s
/// let policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3);
/// // the same, but never longer than 5 s
/// let capped = ExponentialBackoffRetry::with_max_sleep(Duration::from_secs(1), 3, Duration::from_secs(5));
/// assert_ne!(policy, capped);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoffRetry {
    base: Duration,
    max_retries: u32,
    max_sleep: Duration,
}

impl ExponentialBackoffRetry {
    /// Allows `max_retries` retries, 29 at most (more is taken as 29); one sleep lasts at most 2^31 - 1 ms.
    #[must_use]
    pub const fn new(base: Duration, max_retries: u32) -> ExponentialBackoffRetry {
        ExponentialBackoffRetry::with_max_sleep(base, max_retries, Duration::from_millis(DEFAULT_MAX_SLEEP_MILLIS))
    }

    /// Allows `max_retries` retries, 29 at most (more is taken as 29); one sleep lasts at most `max_sleep`.
    #[must_use]
    pub const fn with_max_sleep(base: Duration, max_retries: u32, max_sleep: Duration) -> ExponentialBackoffRetry {
        let max_retries = if max_retries > MAX_BACKOFF_RETRIES { MAX_BACKOFF_RETRIES } else { max_retries };
        ExponentialBackoffRetry { base, max_retries, max_sleep }
    }

    /// The sleep before retry `retry_count`, which is below 30 or counts as 29.
    fn sleep_before(&self, retry_count: u32, rng: &mut fastrand::Rng) -> Duration {
        let bound = 1u32 << (retry_count.min(MAX_BACKOFF_RETRIES) + 1);
        self.base.saturating_mul(rng.u32(0..bound).max(1)).min(self.max_sleep)
    }
}

impl RetryPolicy for ExponentialBackoffRetry {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        retry_count < self.max_retries && sleeper.sleep_for(self.sleep_before(retry_count, &mut fastrand::Rng::new()))
    }
}

/// [`ExponentialBackoffRetry`] with a required limit on one sleep. Java: `BoundedExponentialBackoffRetry`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{BoundedExponentialBackoffRetry, RetryPolicy};
///
/// # struct Now;
/// # impl curator_locks::RetrySleeper for Now {
/// #     fn sleep_for(&self, _: Duration) -> bool { true }
/// # }
/// // 1 s, then 1..3 s, and from then on up to 5 s
/// let policy = BoundedExponentialBackoffRetry::new(Duration::from_secs(1), Duration::from_secs(5), 10);
/// assert!(policy.allow_retry(9, Duration::ZERO, &Now) && !policy.allow_retry(10, Duration::ZERO, &Now));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundedExponentialBackoffRetry(ExponentialBackoffRetry);

impl BoundedExponentialBackoffRetry {
    /// Allows `max_retries` retries, 29 at most (more is taken as 29); one sleep lasts at most `max_sleep`.
    #[must_use]
    pub const fn new(base: Duration, max_sleep: Duration, max_retries: u32) -> BoundedExponentialBackoffRetry {
        BoundedExponentialBackoffRetry(ExponentialBackoffRetry::with_max_sleep(base, max_retries, max_sleep))
    }
}

impl RetryPolicy for BoundedExponentialBackoffRetry {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        self.0.allow_retry(retry_count, elapsed, sleeper)
    }
}

/// Retries until an operation has taken too long. Java: `RetryUntilElapsed`.
///
/// The time counts from the operation's begin to its last failure: the sleep after it and the retry itself come on top.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{RetryPolicy, RetryUntilElapsed};
///
/// # struct Now;
/// # impl curator_locks::RetrySleeper for Now {
/// #     fn sleep_for(&self, _: Duration) -> bool { true }
/// # }
/// let policy = RetryUntilElapsed::new(Duration::from_secs(60), Duration::from_millis(500));
/// assert!(policy.allow_retry(1000, Duration::from_secs(59), &Now));
/// assert!(!policy.allow_retry(0, Duration::from_secs(61), &Now));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryUntilElapsed {
    max_elapsed: Duration,
    sleep: Duration,
}

impl RetryUntilElapsed {
    /// Retries while less than `max_elapsed` has passed, and sleeps for `sleep` before each retry.
    #[must_use]
    pub const fn new(max_elapsed: Duration, sleep: Duration) -> RetryUntilElapsed {
        RetryUntilElapsed { max_elapsed, sleep }
    }
}

impl RetryPolicy for RetryUntilElapsed {
    fn allow_retry(&self, _retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        elapsed < self.max_elapsed && sleeper.sleep_for(self.sleep)
    }
}

/// Retries until the call is cancelled, its deadline passes or the client is closed. Java: `RetryForever`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{RetryForever, RetryPolicy};
///
/// # struct Now;
/// # impl curator_locks::RetrySleeper for Now {
/// #     fn sleep_for(&self, _: Duration) -> bool { true }
/// # }
/// let policy = RetryForever::new(Duration::from_secs(1));
/// assert!(policy.allow_retry(1_000_000, Duration::from_secs(86_400), &Now));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryForever {
    interval: Duration,
}

impl RetryForever {
    /// Retries without limit, `interval` apart; less than 1 ms is taken as 1 ms, so that it never spins.
    #[must_use]
    pub fn new(interval: Duration) -> RetryForever {
        RetryForever { interval: interval.max(MIN_FOREVER_INTERVAL) }
    }
}

impl RetryPolicy for RetryForever {
    fn allow_retry(&self, _retry_count: u32, _elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        sleeper.sleep_for(self.interval)
    }
}

/// Does as another policy says, but never retries after an expired session. Java: `SessionFailedRetryPolicy`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{Error, RetryOneTime, RetryPolicy, SessionFailedRetryPolicy};
///
/// let policy = SessionFailedRetryPolicy::new(RetryOneTime::new(Duration::from_millis(50)));
/// let expired = Error::SessionExpired { operation: "create", path: "/locks/a".into() };
/// assert!(!policy.allows_error(&expired));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFailedRetryPolicy<P> {
    delegate: P,
}

impl<P: RetryPolicy> SessionFailedRetryPolicy<P> {
    /// Asks `delegate` about everything but an expired session.
    #[must_use]
    pub const fn new(delegate: P) -> SessionFailedRetryPolicy<P> {
        SessionFailedRetryPolicy { delegate }
    }
}

impl<P: RetryPolicy> RetryPolicy for SessionFailedRetryPolicy<P> {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        self.delegate.allow_retry(retry_count, elapsed, sleeper)
    }

    fn allows_error(&self, error: &Error) -> bool {
        error.meaning() != Meaning::SessionGone && self.delegate.allows_error(error)
    }
}

#[cfg(test)]
mod tests;
