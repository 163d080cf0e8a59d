//! The network swallows everything and closes nothing.

use std::time::Instant;

use curator_locks::{
    ConnectionState::{Lost, Reconnected, Suspended},
    Error, HoldState, LostReason,
    testing::Direction,
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
    let expired =
        spawn(move || eventually_and_at_once("the server expires the session", || nodes(&observer).is_empty()));

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
