//! The network swallows everything and closes nothing.

use super::testbed::*;
use crate::{
    ConnectionState::{Reconnected, Suspended},
    Error, RetryForever, SessionFailedRetryPolicy,
};

#[test]
fn one_way_black_holes_are_noticed_like_any_other() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let testbed = testbed();
        testbed.proxy.black_hole(direction);
        let begin = now();
        let suspended = expect_state(&testbed.states, Suspended);
        assert_at_most("one-way black hole: suspended after", begin..suspended, T * 2 / 3 + 200 * MS);
    }
}

#[test]
fn an_untimed_call_in_a_black_hole_ends_when_the_retry_policy_is_exhausted() {
    let testbed = testbed_of(T, hasty);
    testbed.proxy.black_hole(Direction::Both);
    let begin = now();
    let result = mutex(&testbed.client).acquire();
    assert!(result.as_ref().is_err_and(Error::is_retryable), "{result:?}");
    // The dead connection is noticed after 2T/3; then three retries, each of 200 ms and a wait for a connection of 1 s.
    assert_at_most("black hole: untimed call ends after", since(begin), T * 2 / 3 + 3 * 1200 * MS + 1000 * MS);
}

#[test]
fn an_untimed_call_in_a_black_hole_ends_when_the_session_is_lost() {
    let testbed = testbed();
    let policy = SessionFailedRetryPolicy::new(RetryForever::new(100 * MS));
    let client = hasty(testbed.builder(T)).retry_policy(policy).build().unwrap();
    start(&client);
    testbed.proxy.black_hole(Direction::Both);
    let begin = now();
    let result = mutex(&client).acquire();
    assert!(matches!(result, Err(Error::SessionExpired { .. })), "{result:?}");
    // Noticed after 2T/3, lost T later; and the wait for a connection that is under way then, of 1 s.
    let limit = T * 2 / 3 + T + 1000 * MS + 500 * MS;
    assert_at_most("black hole: untimed call of a policy that ends with the session, after", since(begin), limit);
}

#[test]
fn a_release_in_a_black_hole_says_so_in_time_and_is_finished_in_the_background() {
    let testbed = testbed();
    let mutex = mutex(&testbed.client);
    mutex.acquire().unwrap();
    testbed.proxy.black_hole(Direction::Both);
    let begin = now();
    let result = mutex.release();
    assert_at_most("black hole: release ends after", since(begin), T + 200 * MS);
    assert!(result.as_ref().is_err_and(|error| error.is_retryable() || matches!(error, Error::LockLost { .. })));
    if result.is_err_and(|error| error.is_retryable()) {
        // Neither held nor free as far as this process knows: releasing.
        assert!(mutex.is_acquired_in_this_process());
        assert!(!mutex.is_owned_by_current_thread());
    }
    testbed.proxy.pass().unwrap();
    wait_for_nodes(&testbed.observer, 0);
    eventually("the release is known", || !mutex.is_acquired_in_this_process());
}

#[test]
fn a_queued_waiter_outlasts_a_suspension() {
    let testbed = testbed_with(LONG);
    let holder = mutex(&testbed.observer);
    holder.acquire().unwrap();
    let client = testbed.client.clone();
    let session = client.session_id();
    let waiter = spawn(move || mutex(&client).lock().map(|held| (held.path().to_owned(), held.release())));
    wait_for_nodes(&testbed.observer, 2);
    let queued = nodes(&testbed.observer);
    testbed.proxy.cut();
    testbed.proxy.black_hole(Direction::Both);
    expect_state(&testbed.states, Suspended);
    // Well within the session, which lives for T without a word.
    sleep(T / 3);
    testbed.proxy.pass().unwrap();
    expect_state(&testbed.states, Reconnected);
    assert_eq!(testbed.client.session_id(), session);
    holder.release().unwrap();
    let (path, released) = join(&waiter).1.unwrap();
    released.unwrap();
    figure("black hole: a queued waiter outlasted a suspension of", T / 3);
    assert!(queued.iter().any(|name| path.ends_with(name)), "{path} is not one of {queued:?}");
}

mod slow {
    use super::*;

    #[test]
    fn a_timed_call_in_a_black_hole_ends_by_its_deadline() {
        let testbed = testbed();
        let mutex = mutex(&testbed.client);
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        testbed.proxy.black_hole(Direction::Both);
        let mut over = Vec::new();
        for timeout in [1000 * MS, 1000 * MS, 1500 * MS, 1500 * MS, 4000 * MS] {
            let begin = now();
            let result = mutex.acquire_timeout(timeout);
            over.push((since(begin), timeout));
            assert!(matches!(result, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{result:?}");
        }
        assert_over_at_most("black hole: timed call over its deadline", over, 50 * MS);
    }

    #[test]
    fn a_timed_waiter_in_a_black_hole_ends_by_its_deadline() {
        let testbed = testbed_with(LONG);
        let holder = mutex(&testbed.observer);
        holder.acquire().unwrap();
        // Not over before the waiter is seen to wait.
        let timeout = 10_000 * MS;
        let mut over = Vec::new();
        for _ in 0..3 {
            testbed.proxy.clear_log();
            let client = testbed.client.clone();
            let waiter = spawn(move || {
                let begin = now();
                let result = mutex(&client).acquire_timeout(timeout);
                (since(begin), result)
            });
            wait_for_nodes(&testbed.observer, 2);
            // It sleeps when both its watches are set; the reply to the sync comes after theirs.
            let watches = || testbed.proxy.log().iter().filter(|record| record.op == op::GET_DATA).count();
            eventually("it waits", || watches() == 2);
            testbed.client.sync().for_path("/").unwrap();
            testbed.proxy.black_hole(Direction::Both);
            let (took, result) = join(&waiter).1;
            assert!(!result.unwrap());
            over.push((took, timeout));
            testbed.proxy.pass().unwrap();
            wait_for_nodes(&testbed.observer, 1);
        }
        assert_over_at_most("black hole: timed waiter over its deadline", over, 50 * MS);
    }

    #[test]
    fn a_call_under_way_when_the_network_dies_ends_by_its_deadline() {
        let testbed = testbed_with(3 * T);
        let mutex = mutex(&testbed.client);
        // A link may be slow: up to 0.3 of the session timeout, 2.7 s, without an answer the time was merely too short.
        let (short, long) = (2000 * MS, T + T / 5);
        let mut over = Vec::new();
        for timeout in [short, long, short, long] {
            eventually("it is connected", || testbed.client.is_connected());
            let creates = RequestMatch::creates();
            let fault = testbed.proxy.inject(creates, Fault::HoldReply);
            let begin = now();
            let result = mutex.acquire_timeout(timeout);
            over.push((since(begin), timeout));
            fault.wait_for_hits(1, LONG).unwrap();
            match result {
                Ok(false) => assert_eq!(timeout, short),
                Err(Error::ConnectionLoss { .. }) => assert_eq!(timeout, long),
                result => panic!("{timeout:?}: {result:?}"),
            }
            fault.release();
            wait_for_nodes(&testbed.observer, 0);
        }
        assert_over_at_most("in mid-call: over the deadline", over, 50 * MS);
        // What the server had made goes, whoever waited for it.
        wait_for_nodes(&testbed.observer, 0);
        assert!(mutex.acquire_timeout(LONG).unwrap());
        mutex.release().unwrap();
    }
}
