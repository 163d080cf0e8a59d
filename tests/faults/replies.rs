//! The server has done it, and nobody hears of it; or has not, and nobody knows.

use std::time::{Duration, Instant};

use curator_locks::{
    ConnectionState::{Reconnected, Suspended},
    Error,
    testing::{Direction, Fault, RequestMatch, expire_session, op},
};

use super::support::*;

fn lock_nodes() -> RequestMatch {
    RequestMatch::creates().path(|path| path.contains("-lock-"))
}

fn one_node_that_works(scene: &Scene) {
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    let names = nodes(&scene.observer);
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(mutex.lock_path().unwrap(), format!("{LOCK}/{}", names[0]));
    mutex.release().unwrap();
    assert_eq!(nodes(&scene.observer), [""; 0]);
}

#[test]
fn a_create_whose_reply_is_lost_makes_one_node() {
    let scene = scene();
    let fault = scene.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    one_node_that_works(&scene);
    assert_eq!(fault.hits(), 1);
}

#[test]
fn a_create_whose_reply_is_lost_twice_in_a_row_makes_one_node() {
    let scene = scene();
    let fault = scene.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    // The second time the search is cut off, not the create: it is found by the third.
    let search =
        scene.proxy.inject(RequestMatch::op(op::SYNC).path(|path| path.ends_with(LOCK)), Fault::CutInsteadOfReply);
    one_node_that_works(&scene);
    assert_eq!((fault.hits(), search.hits()), (1, 1));
}

#[test]
fn a_create_that_never_arrived_is_made_anew_and_its_lost_reply_too() {
    let scene = scene();
    let never = scene.proxy.inject(lock_nodes(), Fault::CutInsteadOfRequest);
    let lost = scene.proxy.inject(lock_nodes().skip(1), Fault::CutInsteadOfReply);
    one_node_that_works(&scene);
    figure("creates cut off", never.hits() + lost.hits());
    assert_eq!(never.hits(), 1);
}

#[test]
fn a_create_whose_reply_is_lost_with_the_session_is_made_anew_in_the_next() {
    // Long enough for the client not to give the silent connection up by itself.
    let scene = scene_with(LONG / 2);
    let first = scene.client.session_id();
    // So that the directory is there, and the one request is the create.
    one_node_that_works(&scene);
    scene.proxy.black_hole(Direction::ToClient);
    let client = scene.client.clone();
    let locked = spawn(move || {
        let mutex = mutex(&client);
        let held = mutex.lock().unwrap();
        let path = held.path().to_owned();
        assert!(held.is_valid());
        held.release().unwrap();
        path
    });
    wait_for_nodes(&scene.observer, 1);
    let orphan = nodes(&scene.observer);
    expire_session(&scene.server.connect_string(), first, &scene.client.session_password()).unwrap();
    // The reply dies with its connection.
    scene.proxy.reset();
    scene.proxy.pass().unwrap();
    let path = join(&locked).1;
    assert_ne!(scene.client.session_id(), first);
    assert!(!path.ends_with(&orphan[0]), "granted on a znode of the session before");
    wait_for_nodes(&scene.observer, 0);
}

#[test]
fn a_create_whose_caller_gave_up_leaves_nothing() {
    let scene = scene();
    let mutex = mutex(&scene.client);
    for fault in [Fault::CutInsteadOfReply, Fault::CutAfterRequest, Fault::CutInsteadOfRequest] {
        scene.proxy.inject(lock_nodes(), fault);
        scene.proxy.delay(100 * MS);
        let result = mutex.acquire_timeout(150 * MS);
        assert!(matches!(result, Ok(false) | Err(Error::ConnectionLoss { .. })), "{result:?}");
        scene.proxy.delay(Duration::ZERO);
        wait_until("the client is connected", || scene.client.is_connected());
        wait_for_nodes(&scene.observer, 0);
    }
}

#[test]
fn a_delete_whose_reply_is_lost_is_a_release() {
    let scene = scene();
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    let fault = scene.proxy.inject(RequestMatch::op(op::DELETE), Fault::CutInsteadOfReply);
    mutex.release().unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(!mutex.is_acquired_in_this_process());
    assert_eq!(nodes(&scene.observer), [""; 0]);
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
}

#[test]
fn a_delete_that_never_arrived_is_repeated_and_the_node_goes_soon_after_the_reconnect() {
    let scene = scene();
    let mutex = shared(mutex(&scene.client));
    for dropped in [false, true] {
        let (inner, states) = (mutex.clone(), &scene.states);
        let held = mutex.lock().unwrap();
        let fault = scene.proxy.inject(RequestMatch::op(op::DELETE), Fault::CutInsteadOfRequest);
        if dropped {
            // In the background from the start.
            drop(held);
        } else {
            held.release().unwrap();
        }
        fault.wait_for_hits(1, LONG).unwrap();
        expect_state(states, Suspended);
        let reconnected = expect_state(states, Reconnected);
        let gone = wait_for_nodes(&scene.observer, 0);
        assert_at_most("node gone after the reconnect", gone.saturating_duration_since(reconnected), 1000 * MS);
        wait_until("nothing is held", || !inner.is_acquired_in_this_process());
    }
}

#[test]
fn a_release_whose_retries_are_exhausted_is_finished_after_the_network_is_back() {
    let scene = scene_with(LONG / 2);
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&scene.states, Suspended);
    let result = mutex.release();
    assert!(matches!(result, Err(Error::ConnectionLoss { .. })), "{result:?}");
    assert!(mutex.is_acquired_in_this_process() && !mutex.is_owned_by_current_thread());
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.proxy.pass().unwrap();
    let reconnected = expect_state(&scene.states, Reconnected);
    let gone = wait_for_nodes(&scene.observer, 0);
    assert_at_most("node gone after the reconnect", gone.saturating_duration_since(reconnected), 1000 * MS);
    // A second release waits for what the first has begun.
    mutex.release().unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    let begin = Instant::now();
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    figure("acquired again after", begin.elapsed());
}
