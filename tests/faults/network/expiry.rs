//! The server expires the session, by a word from outside.

use std::time::{Duration, Instant};

use curator_locks::{
    ConnectionState::{Lost, Reconnected, Suspended},
    CuratorFramework, HoldState, InterProcessMutex, InterProcessSemaphoreV2, LostReason,
    testing::{Fault, RequestMatch},
};

use super::scene::*;
use crate::support::expire_at;

fn expire(scene: &Scene) {
    expire_at(&scene.server, &scene.client);
}

/// Lost once, then Reconnected. The server ends the connection first, which shows as Suspended; a client that is back
/// before the server has closed the session is Reconnected for a moment.
fn expect_replacement(scene: &Scene, before: i64) {
    let mut seen = Vec::new();
    while !seen.ends_with(&[Lost, Reconnected]) {
        seen.push(next_state(&scene.states).1);
    }
    seen.retain(|state| ![Suspended, Reconnected].contains(state));
    assert_eq!(seen, [Lost]);
    assert_ne!(scene.client.session_id(), before);
    assert!(scene.states.is_empty());
}

#[test]
fn expired_while_idle_a_client_gets_a_new_session() {
    let scene = scene_with(LONG);
    let before = scene.client.session_id();
    expire(&scene);
    let begin = Instant::now();
    expect_replacement(&scene, before);
    figure("expired while idle: a new session after", begin.elapsed());
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn a_lock_that_lies_idle_keeps_nothing_of_a_session_that_has_expired() {
    alone("expiry::a_lock_that_lies_idle_keeps_nothing_of_a_session_that_has_expired", || {
        let scene = scene_alone(LONG);
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut locks = Vec::new();
        let mut in_a_session = |path: &str| {
            let mutex = InterProcessMutex::new(&scene.client, path).unwrap();
            for _ in 0..3 {
                mutex.acquire().unwrap();
                mutex.release().unwrap();
            }
            locks.push(mutex);
            let before = scene.client.session_id();
            expire(&scene);
            expect_replacement(&scene, before);
            // What answers has opened all that a session needs.
            scene.client.sync().for_path("/").unwrap();
        };
        in_a_session("/idle/first");
        let before = open();
        for number in 0..10 {
            in_a_session(&format!("/idle/{number}"));
        }
        eventually("as few descriptors as before", || open() <= before);
    });
}

/// What happened between the grant and the moment when the holder asks to be told is told, too.
#[test]
fn expired_before_the_holder_listens_it_is_told_all_the_same() {
    let scene = scene_with(LONG);
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let before = scene.client.session_id();
    expire(&scene);
    expect_replacement(&scene, before);
    assert_eq!(held.state(), HoldState::Lost(LostReason::SessionExpired));
    let begin = Instant::now();
    let (sender, told) = crossbeam_channel::unbounded();
    held.on_state_change(move |state| sender.send(state).unwrap());
    let changes = held.state_changes();
    for told in [&*changes, &told] {
        assert_eq!(told.recv_timeout(LONG).unwrap(), HoldState::Lost(LostReason::SessionExpired));
        assert!(told.is_empty());
    }
    figure("expired before the holder listens: told after", begin.elapsed());
}

/// The create is applied, the session is expired before its reply comes: no lock on what that session had made.
#[test]
fn expired_in_mid_create_it_is_made_anew_in_the_new_session() {
    let scene = scene_with(LONG / 2);
    make_directory(&scene.observer);
    let before = scene.client.session_id();
    let creates = RequestMatch::creates().path(|path| path.contains("-lock-"));
    let fault = scene.proxy.inject(creates, Fault::HoldReply);
    let client = scene.client.clone();
    let locked = spawn(move || {
        let mutex = mutex(&client);
        let held = mutex.lock().unwrap();
        let owner = client.check_exists().for_path(held.path()).unwrap().unwrap().ephemeral_owner;
        (owner, held.path().to_owned(), held.release())
    });
    fault.wait_for_hits(1, LONG).unwrap();
    let orphan = nodes(&scene.observer);
    expire(&scene);
    // What is held back with the reply is the end of the connection, too.
    scene.proxy.cut();
    let begin = Instant::now();
    expect_replacement(&scene, before);
    let (owner, path, released) = join(&locked).1;
    figure("expired in mid-create: acquired and released after", begin.elapsed());
    released.unwrap();
    assert_eq!(owner, scene.client.session_id());
    assert!(!path.ends_with(&orphan[0]), "granted on a znode of the session before");
    wait_for_nodes(&scene.observer, 0);
}

/// A client that gives its session up at once.
fn hasty_client(scene: &Scene, session_timeout: Duration) -> (CuratorFramework, States) {
    let client = scene
        .builder(session_timeout)
        .retry_policy(curator_locks::RetryNTimes::new(20, 200 * MS))
        .simulated_session_expiration_percent(1)
        .build()
        .unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, curator_locks::ConnectionState::Connected);
    (client, states)
}

fn lose(scene: &Scene, states: &States) {
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(states, Suspended);
    expect_state(states, Lost);
    scene.proxy.pass().unwrap();
    expect_state(states, Reconnected);
}

/// A lock of a session that is given up.
fn given_up(scene: &Scene, session_timeout: Duration) -> InterProcessMutex {
    let (client, states) = hasty_client(scene, session_timeout);
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    lose(scene, &states);
    mutex
}

#[test]
fn the_znode_of_a_session_given_up_goes_as_soon_as_its_holder_lets_go() {
    let machine = Machine::watch();
    let scene = scene_with(LONG);
    let witness = Witness::of(&scene.server);
    let mutex = given_up(&scene, LONG);
    assert_eq!(nodes(&scene.observer).len(), 1, "its holder may work on until then");
    let released = Instant::now();
    mutex.release().unwrap_err();
    let gone = wait_for_nodes(&scene.observer, 0);
    witness.assert_at_most(&machine, "the given up session's node is gone after", released..gone, 3000 * MS);
}

#[test]
fn the_znode_of_a_session_given_up_stays_while_its_holder_may_rely_on_it() {
    let machine = Machine::watch();
    let scene = scene_with(T);
    let witness = Witness::of(&scene.server);
    let before = Instant::now();
    let mutex = given_up(&scene, T);
    let gone = wait_for_nodes(&scene.observer, 0);
    // From the create of the session on it is certain for 0.95 of its timeout.
    assert!(gone >= before + T * 19 / 20, "gone after {:?}", gone - before);
    witness.assert_at_most(&machine, "the given up session's node is gone after", before..gone, T + 3000 * MS);
    mutex.release().unwrap_err();
}

/// The waiter's place at the head of the semaphore's queue is nobody's hold.
#[test]
fn a_session_given_up_in_which_nothing_is_held_is_closed_at_once() {
    let machine = Machine::watch();
    let scene = scene_with(LONG);
    let witness = Witness::of(&scene.server);
    let (client, states) = hasty_client(&scene, LONG);
    let semaphore = |client: &CuratorFramework| InterProcessSemaphoreV2::new(client, LOCK, 1).unwrap();
    let lease = semaphore(&scene.observer).acquire().unwrap();
    let waiting = client.clone();
    let waiter = spawn(move || drop(semaphore(&waiting).acquire().unwrap()));
    eventually("it waits", || children(&scene.observer, &format!("{LOCK}/leases")).len() == 2);
    lose(&scene, &states);
    let released = Instant::now();
    drop(lease);
    let (served, ()) = join(&waiter);
    witness.assert_at_most(&machine, "served after", released..served, 3000 * MS);
}
