//! Sleeps and allowances of every policy, seen through a sleeper that only records.

use std::{cell::RefCell, sync::Arc};

use super::*;
use crate::proto::types::ErrorCode;

const MS: Duration = Duration::from_millis(1);

/// Records the sleeps; every one from number `awake_from` on is cut short.
struct Recorder {
    sleeps: RefCell<Vec<Duration>>,
    awake_from: usize,
}

impl Recorder {
    fn new(awake_from: usize) -> Recorder {
        Recorder { sleeps: RefCell::new(Vec::new()), awake_from }
    }
}

impl RetrySleeper for Recorder {
    fn sleep_for(&self, duration: Duration) -> bool {
        self.sleeps.borrow_mut().push(duration);
        self.sleeps.borrow().len() <= self.awake_from
    }
}

/// How many retries are allowed one after the other, 1,000 at most, and the sleeps before them.
fn retries(policy: &dyn RetryPolicy) -> (u32, Vec<Duration>) {
    let recorder = Recorder::new(usize::MAX);
    let mut count = 0;
    while count < 1_000 && policy.allow_retry(count, Duration::ZERO, &recorder) {
        count += 1;
    }
    (count, recorder.sleeps.into_inner())
}

#[test]
fn n_times_allows_n_retries_with_the_same_sleep() {
    for n in [0, 1, 2, 7] {
        assert_eq!(retries(&RetryNTimes::new(n, 5 * MS)), (n, vec![5 * MS; n as usize]));
    }
    assert_eq!(retries(&RetryOneTime::new(5 * MS)), (1, vec![5 * MS]));
    let awake = Recorder::new(usize::MAX);
    assert!(!RetryNTimes::new(u32::MAX, MS).allow_retry(u32::MAX, Duration::MAX, &awake));
    assert!(awake.sleeps.into_inner().is_empty(), "a refusal does not sleep");
}

#[test]
fn backoff_allows_29_retries_at_most() {
    for (asked, allowed) in [(0, 0), (1, 1), (3, 3), (29, 29), (30, 29), (u32::MAX, 29)] {
        assert_eq!(retries(&ExponentialBackoffRetry::new(MS, asked)).0, allowed);
        assert_eq!(retries(&BoundedExponentialBackoffRetry::new(MS, MS, asked)).0, allowed);
    }
}

#[test]
fn backoff_sleeps_stay_in_their_range_and_reach_both_ends() {
    let policy = ExponentialBackoffRetry::new(MS, 29);
    let mut rng = fastrand::Rng::with_seed(7);
    for (retry_count, longest) in [(0, 1), (1, 3), (2, 7), (3, 15)] {
        let sleeps: Vec<Duration> = (0..2_000).map(|_| policy.sleep_before(retry_count, &mut rng)).collect();
        assert_eq!(sleeps.iter().min(), Some(&MS));
        assert_eq!(sleeps.iter().max(), Some(&(longest * MS)));
    }
    for retry_count in [28, 29, 30, u32::MAX] {
        let sleeps = (0..1_000).map(|_| policy.sleep_before(retry_count, &mut rng));
        let longest = sleeps.max().unwrap_or_default();
        assert!(longest > (1 << 28) * MS && longest < (1 << 30) * MS, "{retry_count}: {longest:?}");
    }
}

#[test]
fn the_smallest_factor_is_twice_as_likely_as_the_others() {
    // 0 counts as 1, as in Curator: of the four draws for retry 1 two give the base.
    let policy = ExponentialBackoffRetry::new(MS, 29);
    let mut rng = fastrand::Rng::with_seed(1);
    let shortest = (0..4_000).filter(|_| policy.sleep_before(1, &mut rng) == MS).count();
    assert!((1_800..2_200).contains(&shortest), "{shortest}");
}

#[test]
fn backoff_never_sleeps_longer_than_its_maximum() {
    let capped = ExponentialBackoffRetry::with_max_sleep(MS, 29, 3 * MS);
    let (_, sleeps) = retries(&capped);
    assert_eq!(sleeps.iter().max(), Some(&(3 * MS)));
    let (_, sleeps) = retries(&BoundedExponentialBackoffRetry::new(10 * MS, 3 * MS, 29));
    assert_eq!(sleeps, vec![3 * MS; 29]);
}

#[test]
fn no_duration_overflows() {
    let (_, sleeps) = retries(&ExponentialBackoffRetry::new(Duration::MAX, 29));
    assert_eq!(sleeps, vec![Duration::from_millis(DEFAULT_MAX_SLEEP_MILLIS); 29]);
    let (_, sleeps) = retries(&BoundedExponentialBackoffRetry::new(Duration::MAX, Duration::MAX, 29));
    assert_eq!(sleeps, vec![Duration::MAX; 29]);
    let (_, sleeps) = retries(&ExponentialBackoffRetry::new(Duration::ZERO, 29));
    assert_eq!(sleeps, vec![Duration::ZERO; 29]);
}

#[test]
fn until_elapsed_counts_the_time_before_the_sleep() {
    let policy = RetryUntilElapsed::new(100 * MS, 70 * MS);
    for (elapsed, allowed) in [(Duration::ZERO, true), (99 * MS, true), (100 * MS, false), (Duration::MAX, false)] {
        let recorder = Recorder::new(usize::MAX);
        assert_eq!(policy.allow_retry(u32::MAX, elapsed, &recorder), allowed, "{elapsed:?}");
        assert_eq!(recorder.sleeps.into_inner(), if allowed { vec![70 * MS] } else { vec![] });
    }
    let never = RetryUntilElapsed::new(Duration::ZERO, MS);
    assert!(!never.allow_retry(0, Duration::ZERO, &Recorder::new(usize::MAX)));
}

#[test]
fn forever_retries_on_and_never_spins() {
    assert_eq!(retries(&RetryForever::new(2 * MS)), (1_000, vec![2 * MS; 1_000]));
    assert_eq!(retries(&RetryForever::new(Duration::ZERO)), (1_000, vec![MS; 1_000]));
    assert_eq!(RetryForever::new(Duration::from_nanos(1)), RetryForever::new(MS));
    assert!(RetryForever::new(MS).allow_retry(u32::MAX, Duration::MAX, &Recorder::new(1)));
}

#[test]
fn an_interrupted_sleep_ends_every_policy() {
    let policies: [Box<dyn RetryPolicy>; 7] = [
        Box::new(RetryNTimes::new(9, MS)),
        Box::new(RetryOneTime::new(MS)),
        Box::new(ExponentialBackoffRetry::new(MS, 9)),
        Box::new(BoundedExponentialBackoffRetry::new(MS, MS, 9)),
        Box::new(RetryUntilElapsed::new(MS, MS)),
        Box::new(RetryForever::new(MS)),
        Box::new(SessionFailedRetryPolicy::new(RetryForever::new(MS))),
    ];
    for policy in policies {
        let recorder = Recorder::new(0);
        assert!(!policy.allow_retry(0, Duration::ZERO, &recorder));
        assert_eq!(recorder.sleeps.into_inner(), [MS]);
    }
}

fn server(code: ErrorCode) -> Error {
    Error::Server { code, operation: "create", path: "/a".into() }
}

#[test]
fn only_errors_of_connection_and_session_are_retried() {
    let expired = Error::SessionExpired { operation: "create", path: "/a".into() };
    let lost = Error::ConnectionLoss { operation: "create", path: "/a".into(), maybe_done: true, cause: None };
    let plain = RetryForever::new(MS);
    let strict = SessionFailedRetryPolicy::new(plain);
    for (error, by_default, session_failed) in [
        (lost, true, true),
        (server(ErrorCode::OperationTimeout), true, true),
        (server(ErrorCode::SessionMoved), true, true),
        (expired, true, false),
        (server(ErrorCode::SessionExpired), true, false),
        (server(ErrorCode::NoNode), false, false),
        (Error::ClientClosed, false, false),
        (Error::Cancelled { path: "/a".into() }, false, false),
    ] {
        assert_eq!(plain.allows_error(&error), by_default, "{error}");
        assert_eq!(strict.allows_error(&error), session_failed, "{error}");
    }
}

#[test]
fn shared_and_boxed_policies_answer_as_what_they_hold() {
    let expired = server(ErrorCode::SessionExpired);
    let shared: Arc<dyn RetryPolicy> = Arc::new(SessionFailedRetryPolicy::new(RetryNTimes::new(3, MS)));
    let boxed: Box<dyn RetryPolicy> = Box::new(Arc::clone(&shared));
    assert!(!shared.allows_error(&expired) && !boxed.allows_error(&expired));
    assert_eq!(retries(&shared), (3, vec![MS; 3]));
    assert_eq!(retries(&SessionFailedRetryPolicy::new(boxed)), (3, vec![MS; 3]));
}
