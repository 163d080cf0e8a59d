//! The server goes away and comes back while a lock is held and waited for.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{ConnectionState, Error, HoldState, LostReason, testing::TestingServer};

use crate::support::{
    PATIENCE, await_queue, builder, connect, eventually,
    machine::{Machine, since},
    mutex, quick_server,
};

#[test]
fn a_release_while_the_server_is_away_ends_when_it_is_back_within_the_session() {
    let server = TestingServer::start().unwrap();
    // It waits as long as the server takes to start.
    let client = connect(builder(&server, "restart").session_timeout(PATIENCE).connection_timeout(PATIENCE));
    let held = mutex(&client);
    held.acquire().unwrap();
    server.stop().unwrap();
    eventually("the connection is gone", || !client.is_connected());
    thread::scope(|scope| {
        scope.spawn(|| server.restart().unwrap());
        held.release().unwrap();
    });
    await_queue(&client, "/locks/m", 0);
    assert!(!held.is_acquired_in_this_process());
}

#[test]
fn without_a_server_the_holder_is_in_doubt_and_then_lost_and_the_waiter_queues_in_the_next_session() {
    let machine = Machine::watch();
    let server = quick_server().start().unwrap();
    // Longer than this machine lets a process stand still.
    let session = Duration::from_secs(15);
    let holding = connect(builder(&server, "restart").session_timeout(session));
    let waiting = connect(builder(&server, "restart").session_timeout(session));
    let (held, wanted) = (mutex(&holding), mutex(&waiting));
    let guard = held.lock().unwrap();
    let changes = guard.state_changes();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = wanted.lock().unwrap();
            assert!(!guard.is_lost());
            guard.path().to_owned()
        });
        let before = await_queue(&holding, "/locks/m", 2);
        server.stop().unwrap();
        let stopped = Instant::now();
        // It may have been in doubt before.
        let told: Vec<HoldState> = std::iter::from_fn(|| changes.recv_timeout(PATIENCE).ok()).collect();
        assert!(told.ends_with(&[HoldState::InDoubt, HoldState::Lost(LostReason::SuspendedTooLong)]), "{told:?}");
        machine.assert_at_most("lost", since(stopped), session * 2);
        assert!(guard.is_lost() && !guard.is_valid() && guard.valid_until() < Instant::now());
        eventually("its client says so", || holding.connection_state() == Some(ConnectionState::Lost));
        assert!(matches!(held.acquire(), Err(Error::LockLost { .. })), "a re-entry into a lost lock");
        assert!(matches!(guard.release(), Err(Error::LockLost { reason: LostReason::SuspendedTooLong, .. })));
        assert!(!waiter.is_finished());
        server.restart().unwrap();
        let path = waiter.join().unwrap();
        assert!(!before.contains(&path), "granted a znode of a session that is lost");
    });
    held.acquire().unwrap();
    held.release().unwrap();
}
