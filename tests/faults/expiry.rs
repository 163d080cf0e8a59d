//! The server expires the session, by a word from outside.

use curator_locks::{
    ConnectionState::{Lost, Reconnected, Suspended},
    Error, HoldState, LostReason,
    testing::expire_session,
};

use super::support::*;

fn expire(scene: &Scene) {
    let (id, password) = (scene.client.session_id(), scene.client.session_password());
    expire_session(&scene.server.connect_string(), id, &password).unwrap();
}

/// Lost, then Reconnected, once each. The server ends the connection first, which shows as Suspended.
fn expect_replacement(scene: &Scene, before: i64) {
    let mut seen = Vec::new();
    while seen.last() != Some(&Reconnected) {
        seen.push(next_state(&scene.states).1);
    }
    seen.retain(|state| *state != Suspended);
    assert_eq!(seen, [Lost, Reconnected]);
    assert_ne!(scene.client.session_id(), before);
    assert!(scene.states.is_empty());
}

#[test]
fn an_idle_client_gets_a_new_session() {
    let scene = scene();
    let before = scene.client.session_id();
    expire(&scene);
    expect_replacement(&scene, before);
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn a_holder_is_told_and_cannot_enter_again() {
    let scene = scene();
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let (sender, told) = crossbeam_channel::unbounded();
    held.on_state_change(move |state| sender.send(state).unwrap());
    let before = scene.client.session_id();
    expire(&scene);
    loop {
        match told.recv_timeout(LONG).unwrap() {
            HoldState::Lost(reason) => break assert_eq!(reason, LostReason::SessionExpired),
            state => assert_eq!(state, HoldState::InDoubt),
        }
    }
    expect_replacement(&scene, before);
    assert!(held.is_lost() && !held.is_valid());
    assert!(held.valid_until() <= std::time::Instant::now());
    assert!(matches!(mutex.acquire(), Err(Error::LockLost { reason: LostReason::SessionExpired, .. })));
    assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::SessionExpired, .. })));
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn a_waiter_queues_again_in_the_new_session_and_is_granted_on_a_node_of_that() {
    let scene = scene();
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let client = scene.client.clone();
    let waiter = spawn(move || {
        let mutex = mutex(&client);
        let held = mutex.lock().unwrap();
        let path = held.path().to_owned();
        let owner = client.check_exists().for_path(&path).unwrap().unwrap().ephemeral_owner;
        (owner, client.session_id(), held.release())
    });
    wait_for_nodes(&scene.observer, 2);
    let before = scene.client.session_id();
    expire(&scene);
    expect_replacement(&scene, before);
    wait_for_nodes(&scene.observer, 2);
    holder.release().unwrap();
    let (owner, session, released) = join(&waiter).1;
    released.unwrap();
    assert_eq!(owner, session);
    assert_ne!(owner, before);
}

/// CURATOR-604: the client gives a session up that the server still has, and the old node comes to the head.
#[test]
fn no_lock_is_granted_on_a_node_of_a_session_given_up() {
    let scene = scene();
    let client = curator_locks::CuratorFramework::builder()
        .connect_string(scene.proxy.connect_string())
        .session_timeout(LONG / 4)
        .connection_timeout(1000 * MS)
        .retry_policy(curator_locks::RetryNTimes::new(20, 200 * MS))
        .simulated_session_expiration_percent(1)
        .build()
        .unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, curator_locks::ConnectionState::Connected);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let waiting = client.clone();
    let waiter = spawn(move || {
        let mutex = mutex(&waiting);
        let held = mutex.lock().unwrap();
        let owner = waiting.check_exists().for_path(held.path()).unwrap().unwrap().ephemeral_owner;
        (owner, waiting.session_id(), held.is_valid(), held.release())
    });
    wait_for_nodes(&scene.observer, 2);
    let before = client.session_id();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&states, Suspended);
    expect_state(&states, Lost);
    holder.release().unwrap();
    // The old session's node is at the head now, and alive at the server.
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.proxy.pass().unwrap();
    expect_state(&states, Reconnected);
    let (owner, session, valid, released) = join(&waiter).1;
    released.unwrap();
    assert!(valid);
    assert_eq!(owner, session);
    assert_ne!(owner, before);
    wait_for_nodes(&scene.observer, 0);
}

#[test]
fn a_session_given_up_is_closed_at_the_server_as_soon_as_it_can_be_reached() {
    let scene = scene_with(LONG);
    let client = curator_locks::CuratorFramework::builder()
        .connect_string(scene.proxy.connect_string())
        .session_timeout(LONG)
        .connection_timeout(1000 * MS)
        .retry_policy(curator_locks::RetryNTimes::new(20, 200 * MS))
        .simulated_session_expiration_percent(1)
        .build()
        .unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, curator_locks::ConnectionState::Connected);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&states, Suspended);
    expect_state(&states, Lost);
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.proxy.pass().unwrap();
    let healed = std::time::Instant::now();
    let gone = wait_for_nodes(&scene.observer, 0);
    assert_at_most("the given up session's node is gone after", gone - healed, 3000 * MS);
    assert!(held.is_lost());
}
