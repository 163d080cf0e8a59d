//! The network swallows everything and closes nothing.

use std::time::Instant;

use curator_locks::{
    ConnectionState::{Lost, Reconnected, Suspended},
    Error, HoldState, LostReason, RetryForever, SessionFailedRetryPolicy,
    testing::{Direction, op},
};

use super::scene::*;

#[test]
fn an_idle_holder_is_suspended_then_in_doubt_before_the_server_expires_it_then_lost() {
    let machine = Machine::watch();
    let scene = scene();
    let witness = Witness::of(&scene.server);
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let changes = held.state_changes();
    settle(&scene.client, &scene.states);
    scene.proxy.black_hole(Direction::Both);
    let begin = Instant::now();
    // The server's own word, from another connection.
    let observer = scene.observer.clone();
    let expired = spawn(move || eventually("the server expires the session", || nodes(&observer).is_empty()));

    let suspended = expect_state(&scene.states, Suspended);
    machine.assert_at_most("black hole: suspended after", begin..suspended, T * 2 / 3 + 200 * MS);
    assert_eq!(changes.recv_timeout(LONG).unwrap(), HoldState::InDoubt);
    let in_doubt = Instant::now();
    assert!(!held.is_valid());
    let (valid_until, (_, expired)) = (held.valid_until(), join(&expired));
    figure("black hole: told in doubt before the server's expiry", expired.saturating_duration_since(in_doubt));
    assert!(valid_until < expired, "{:?} too long", valid_until - expired);
    machine.assert_at_most("black hole: told in doubt after valid_until", valid_until..in_doubt, expired - valid_until);

    let lost = expect_state(&scene.states, Lost);
    machine.assert_at_most("black hole: lost after suspended", suspended..lost, T + 500 * MS);
    assert_eq!(changes.recv_timeout(LONG).unwrap(), HoldState::Lost(LostReason::SuspendedTooLong));
    assert!(held.is_lost());
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));

    scene.proxy.pass().unwrap();
    let healed = Instant::now();
    let reconnected = expect_state(&scene.states, Reconnected);
    witness.assert_at_most(&machine, "black hole: fresh session after healing", healed..reconnected, 1500 * MS);
    let again = mutex.lock().unwrap();
    assert!(again.is_valid());
    again.release().unwrap();
}

#[test]
fn one_way_black_holes_are_noticed_like_any_other() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let machine = Machine::watch();
        let scene = scene();
        settle(&scene.client, &scene.states);
        scene.proxy.black_hole(direction);
        let begin = Instant::now();
        let suspended = expect_state(&scene.states, Suspended);
        machine.assert_at_most("one-way black hole: suspended after", begin..suspended, T * 2 / 3 + 200 * MS);
    }
}

#[test]
fn an_untimed_call_in_a_black_hole_ends_when_the_retry_policy_is_exhausted() {
    let machine = Machine::watch();
    let scene = scene_of(T, hasty);
    scene.proxy.black_hole(Direction::Both);
    let begin = Instant::now();
    let result = mutex(&scene.client).acquire();
    assert!(result.as_ref().is_err_and(Error::is_retryable), "{result:?}");
    // The dead connection is noticed after 2T/3; then three retries, each of 200 ms and a wait for a connection of 1 s.
    machine.assert_at_most("black hole: untimed call ends after", since(begin), T * 2 / 3 + 3 * 1200 * MS + 1000 * MS);
}

#[test]
fn an_untimed_call_in_a_black_hole_ends_when_the_session_is_lost() {
    let machine = Machine::watch();
    let scene = scene();
    let policy = SessionFailedRetryPolicy::new(RetryForever::new(100 * MS));
    let client = hasty(scene.builder(T)).retry_policy(policy).build().unwrap();
    start(&client);
    scene.proxy.black_hole(Direction::Both);
    let begin = Instant::now();
    let result = mutex(&client).acquire();
    assert!(matches!(result, Err(Error::SessionExpired { .. })), "{result:?}");
    // Noticed after 2T/3, lost T later; and the wait for a connection that is under way then, of 1 s.
    let limit = T * 2 / 3 + T + 1000 * MS + 500 * MS;
    machine.assert_at_most(
        "black hole: untimed call of a policy that ends with the session, after",
        since(begin),
        limit,
    );
}

#[test]
fn a_release_in_a_black_hole_says_so_in_time_and_is_finished_in_the_background() {
    let machine = Machine::watch();
    let scene = scene();
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    scene.proxy.black_hole(Direction::Both);
    let begin = Instant::now();
    let result = mutex.release();
    machine.assert_at_most("black hole: release ends after", since(begin), T + 200 * MS);
    assert!(result.as_ref().is_err_and(|error| error.is_retryable() || matches!(error, Error::LockLost { .. })));
    if result.is_err_and(|error| error.is_retryable()) {
        // Neither held nor free as far as this process knows: releasing.
        assert!(mutex.is_acquired_in_this_process());
        assert!(!mutex.is_owned_by_current_thread());
    }
    scene.proxy.pass().unwrap();
    wait_for_nodes(&scene.observer, 0);
    eventually("the release is known", || !mutex.is_acquired_in_this_process());
}

#[test]
fn a_queued_waiter_outlasts_a_suspension() {
    let scene = scene_with(LONG);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let client = scene.client.clone();
    let session = client.session_id();
    let waiter = spawn(move || mutex(&client).lock().map(|held| (held.path().to_owned(), held.release())));
    wait_for_nodes(&scene.observer, 2);
    let queued = nodes(&scene.observer);
    scene.proxy.cut();
    scene.proxy.black_hole(Direction::Both);
    expect_state(&scene.states, Suspended);
    // Well within the session, which lives for T without a word.
    std::thread::sleep(T / 3);
    scene.proxy.pass().unwrap();
    expect_state(&scene.states, Reconnected);
    assert_eq!(scene.client.session_id(), session);
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
        let machine = Machine::watch();
        let scene = scene();
        let mutex = mutex(&scene.client);
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        scene.proxy.black_hole(Direction::Both);
        let mut over = Vec::new();
        for timeout in [1000 * MS, 1000 * MS, 1500 * MS, 1500 * MS, 4000 * MS] {
            let begin = Instant::now();
            let result = mutex.acquire_timeout(timeout);
            over.push((since(begin), timeout));
            assert!(matches!(result, Err(Error::ConnectionLoss { .. } | Error::SessionExpired { .. })), "{result:?}");
        }
        machine.assert_over_at_most("black hole: timed call over its deadline", 0.5, over, 50 * MS);
    }

    #[test]
    fn a_timed_waiter_in_a_black_hole_ends_by_its_deadline() {
        let machine = Machine::watch();
        let scene = scene_with(LONG);
        let holder = mutex(&scene.observer);
        holder.acquire().unwrap();
        // Not over before the waiter is seen to wait.
        let timeout = 10_000 * MS;
        let mut over = Vec::new();
        for _ in 0..3 {
            scene.proxy.clear_log();
            let client = scene.client.clone();
            let waiter = spawn(move || {
                let begin = Instant::now();
                let result = mutex(&client).acquire_timeout(timeout);
                (since(begin), result)
            });
            wait_for_nodes(&scene.observer, 2);
            // It sleeps when both its watches are set; the reply to the sync comes after theirs.
            let watches = || scene.proxy.log().iter().filter(|record| record.op == op::GET_DATA).count();
            eventually("it waits", || watches() == 2);
            scene.client.sync().for_path("/").unwrap();
            scene.proxy.black_hole(Direction::Both);
            let (took, result) = join(&waiter).1;
            assert!(!result.unwrap());
            over.push((took, timeout));
            scene.proxy.pass().unwrap();
            wait_for_nodes(&scene.observer, 1);
        }
        machine.assert_over_at_most("black hole: timed waiter over its deadline", 0.5, over, 50 * MS);
    }

    #[test]
    fn a_call_under_way_when_the_network_dies_ends_by_its_deadline() {
        let machine = Machine::watch();
        let scene = scene_with(3 * T);
        let mutex = mutex(&scene.client);
        // A link may be slow: up to 0.3 of the session timeout, 2.7 s, without an answer the time was merely too short.
        let (short, long) = (2000 * MS, T + T / 5);
        let mut over = Vec::new();
        for timeout in [short, long, short, long] {
            eventually("it is connected", || scene.client.is_connected());
            let creates = curator_locks::testing::RequestMatch::creates();
            let fault = scene.proxy.inject(creates, curator_locks::testing::Fault::HoldReply);
            let begin = Instant::now();
            let result = mutex.acquire_timeout(timeout);
            over.push((since(begin), timeout));
            fault.wait_for_hits(1, LONG).unwrap();
            match result {
                Ok(false) => assert_eq!(timeout, short),
                Err(Error::ConnectionLoss { .. }) => assert_eq!(timeout, long),
                result => panic!("{timeout:?}: {result:?}"),
            }
            fault.release();
            wait_for_nodes(&scene.observer, 0);
        }
        machine.assert_over_at_most("in mid-call: over the deadline", 0.5, over, 50 * MS);
        // What the server had made goes, whoever waited for it.
        wait_for_nodes(&scene.observer, 0);
        assert!(mutex.acquire_timeout(LONG).unwrap());
        mutex.release().unwrap();
    }
}
