//! The table of retry policies: which retry is allowed, and the sleep before it. The clock is whoever asks.

use std::{cell::RefCell, ops::RangeInclusive, time::Duration};

use curator_locks::{
    BoundedExponentialBackoffRetry, Error, ErrorCode, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime,
    RetryPolicy, RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};

use super::scene::*;

/// A clock that only moves when somebody sleeps by it.
struct Clock {
    sleeps: RefCell<Vec<Duration>>,
    /// Sleeps that are not cut short.
    sound_sleeps: usize,
}

impl Clock {
    fn new() -> Clock {
        Clock { sleeps: RefCell::default(), sound_sleeps: usize::MAX }
    }

    fn interrupted() -> Clock {
        Clock { sound_sleeps: 0, ..Clock::new() }
    }

    fn elapsed(&self) -> Duration {
        self.sleeps.borrow().iter().fold(Duration::ZERO, |sum, sleep| sum.saturating_add(*sleep))
    }
}

impl RetrySleeper for Clock {
    fn sleep_for(&self, duration: Duration) -> bool {
        self.sleeps.borrow_mut().push(duration);
        self.sleeps.borrow().len() <= self.sound_sleeps
    }
}

/// Asks as a call does whose attempts fail at once, 200 times at most. Gives how often, and the sleeps.
fn ask(policy: &dyn RetryPolicy) -> (usize, Vec<Duration>) {
    let clock = Clock::new();
    let mut asked = 0;
    while asked < 200 {
        asked += 1;
        if !policy.allow_retry(u32::try_from(asked - 1).unwrap(), clock.elapsed(), &clock) {
            break;
        }
    }
    (asked, clock.sleeps.into_inner())
}

/// A policy that allows n retries is asked n + 1 times; an interrupted sleep ends it.
fn assert_row(name: &str, policy: &dyn RetryPolicy, expected: &[Duration]) {
    let (asked, sleeps) = ask(policy);
    figure(name, (asked, &sleeps));
    assert_eq!(sleeps, expected, "{name}");
    assert_eq!(asked, expected.len() + 1, "{name}");
    let awake = Clock::interrupted();
    assert!(!policy.allow_retry(0, Duration::ZERO, &awake), "{name}: a sleep cut short ends it");
}

/// The range of each sleep, seen often enough to reach both ends of it.
fn assert_ranges(name: &str, policy: &dyn RetryPolicy, ranges: &[RangeInclusive<u32>]) {
    for (count, range) in ranges.iter().enumerate() {
        let clock = Clock::new();
        for _ in 0..2000 {
            assert!(policy.allow_retry(u32::try_from(count).unwrap(), Duration::ZERO, &clock), "{name}: retry {count}");
        }
        let sleeps = clock.sleeps.into_inner();
        let (least, most) = (*sleeps.iter().min().unwrap(), *sleeps.iter().max().unwrap());
        figure(&format!("{name}: sleep before retry {count}"), (least, most));
        assert_eq!((least, most), (*range.start() * MS, *range.end() * MS), "{name}: retry {count}");
    }
}

#[test]
fn retry_n_times_sleeps_the_same_before_each_of_n() {
    assert_row("RetryNTimes(3, 7 ms)", &RetryNTimes::new(3, 7 * MS), &[7 * MS; 3]);
    assert_row("RetryNTimes(1, 0)", &RetryNTimes::new(1, Duration::ZERO), &[Duration::ZERO]);
    let (asked, sleeps) = ask(&RetryNTimes::new(0, 7 * MS));
    assert_eq!((asked, sleeps), (1, Vec::new()));
}

#[test]
fn retry_one_time_sleeps_once() {
    assert_row("RetryOneTime(7 ms)", &RetryOneTime::new(7 * MS), &[7 * MS]);
}

#[test]
fn exponential_backoff_draws_from_a_range_that_doubles() {
    let policy = ExponentialBackoffRetry::new(MS, 5);
    assert_ranges("ExponentialBackoffRetry(1 ms, 5)", &policy, &[1..=1, 1..=3, 1..=7, 1..=15, 1..=31]);
    assert!(!policy.allow_retry(5, Duration::ZERO, &Clock::new()));
}

#[test]
fn exponential_backoff_stops_at_29_retries_and_never_overflows() {
    for (asked_for, allowed) in [(0, 0), (29, 29), (30, 29), (u32::MAX, 29)] {
        let (asked, sleeps) = ask(&ExponentialBackoffRetry::new(Duration::MAX, asked_for));
        assert_eq!((asked, sleeps.len()), (allowed + 1, allowed));
        assert!(sleeps.iter().all(|sleep| *sleep == Duration::from_millis(i32::MAX.unsigned_abs().into())));
    }
    figure("ExponentialBackoffRetry: most retries", 29);
}

#[test]
fn exponential_backoff_is_pinned_to_its_longest_sleep() {
    let policy = ExponentialBackoffRetry::with_max_sleep(MS, 29, 5 * MS);
    assert_ranges("ExponentialBackoffRetry(1 ms, 29, 5 ms)", &policy, &[1..=1, 1..=3, 1..=5, 1..=5]);
}

#[test]
fn bounded_exponential_backoff_is_the_same_with_a_longest_sleep() {
    let policy = BoundedExponentialBackoffRetry::new(MS, 5 * MS, 4);
    assert_ranges("BoundedExponentialBackoffRetry(1 ms, 5 ms, 4)", &policy, &[1..=1, 1..=3, 1..=5, 1..=5]);
    assert!(!policy.allow_retry(4, Duration::ZERO, &Clock::new()));
    assert_eq!(ask(&BoundedExponentialBackoffRetry::new(MS, MS, u32::MAX)).0, 30);
}

#[test]
fn retry_until_elapsed_goes_by_the_time_before_the_sleep() {
    // Asked at 0, 40, 80 and 120 ms: the third retry begins after the limit.
    assert_row("RetryUntilElapsed(100 ms, 40 ms)", &RetryUntilElapsed::new(100 * MS, 40 * MS), &[40 * MS; 3]);
    let policy = RetryUntilElapsed::new(100 * MS, 40 * MS);
    for (elapsed, allowed) in [(0, true), (99, true), (100, false), (101, false)] {
        assert_eq!(policy.allow_retry(u32::MAX, elapsed * MS, &Clock::new()), allowed, "after {elapsed} ms");
    }
}

#[test]
fn retry_forever_has_no_end_and_no_spin() {
    let (asked, sleeps) = ask(&RetryForever::new(7 * MS));
    figure("RetryForever(7 ms): asked, and still allowed", asked);
    assert_eq!((asked, sleeps), (200, vec![7 * MS; 200]));
    assert_eq!(ask(&RetryForever::new(Duration::ZERO)).1, vec![MS; 200]);
    assert!(!RetryForever::new(MS).allow_retry(0, Duration::ZERO, &Clock::interrupted()));
}

fn server(code: ErrorCode) -> Error {
    Error::Server { code, operation: "create", path: "/a".into() }
}

/// Each error, whether it is retried, and whether by a policy that fails with the session.
fn errors() -> Vec<(Error, bool, bool)> {
    let (operation, path) = ("create", "/a".to_owned());
    vec![
        (Error::ConnectionLoss { operation, path: path.clone(), maybe_done: true, cause: None }, true, true),
        (server(ErrorCode::ConnectionLoss), true, true),
        (server(ErrorCode::OperationTimeout), true, true),
        (server(ErrorCode::RequestTimeout), true, true),
        (server(ErrorCode::SessionMoved), true, true),
        (server(ErrorCode::ThrottledOp), true, true),
        (server(ErrorCode::SessionExpired), true, false),
        (Error::SessionExpired { operation, path: path.clone() }, true, false),
        (server(ErrorCode::NoNode), false, false),
        (server(ErrorCode::NodeExists), false, false),
        (server(ErrorCode::NoAuth), false, false),
        (Error::Cancelled { path }, false, false),
        (Error::ClientClosed, false, false),
    ]
}

#[test]
fn session_failed_retry_policy_asks_its_delegate_about_all_but_an_expired_session() {
    let policy = SessionFailedRetryPolicy::new(RetryNTimes::new(2, 7 * MS));
    assert_row("SessionFailedRetryPolicy(RetryNTimes(2, 7 ms))", &policy, &[7 * MS; 2]);
    for (error, _, allowed) in errors() {
        assert_eq!(policy.allows_error(&error), allowed, "{error}");
    }
}

#[test]
fn losses_timeouts_moves_expiries_and_what_a_busy_server_put_off_are_retried_and_nothing_else() {
    let policy = RetryForever::new(MS);
    for (error, allowed, _) in errors() {
        assert_eq!((policy.allows_error(&error), error.is_retryable()), (allowed, allowed), "{error}");
    }
    figure("errors that are retried", errors().iter().filter(|(_, allowed, _)| *allowed).count());
}
