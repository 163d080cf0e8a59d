//! The table of connection states: what raises which, on a clock that the tests move.

use std::time::{Duration, Instant};

use curator_locks::{
    ConnectionState::{self, Connected, Lost, ReadOnly, Reconnected, Suspended},
    hooks::ConnectionStates,
};

use super::scene::*;

/// The session timeout.
const LIMIT: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
enum Input {
    /// A server took the session up.
    Up,
    /// A server that can only read did.
    ReadOnlyUp,
    Down,
    Expired,
    /// A moment before a suspension has lasted the session timeout.
    Early,
    Due,
}

use Input::{Down, Due, Early, Expired, ReadOnlyUp, Up};

fn feed(states: &mut ConnectionStates, input: Input, now: Instant) -> Vec<ConnectionState> {
    match input {
        Up => states.connected(false, now),
        ReadOnlyUp => states.connected(true, now),
        Down => states.disconnected(now),
        Expired => states.expired(now),
        Early => states.tick(now + LIMIT - Duration::from_nanos(1)),
        Due => states.tick(now + LIMIT),
    }
}

/// Feeds one input after the other; each raises exactly what stands beside it.
fn assert_rows(name: &str, rows: &[&[(Input, &[ConnectionState])]]) {
    for row in rows {
        let now = Instant::now();
        let mut states = ConnectionStates::new(LIMIT, 100);
        let mut raised_so_far = Vec::new();
        for (input, expected) in *row {
            let raised = feed(&mut states, *input, now);
            raised_so_far.extend(raised.iter().copied());
            assert_eq!(raised, *expected, "{name}: {input:?} in {row:?}");
        }
        figure(name, raised_so_far);
    }
}

#[test]
fn connected_is_raised_by_the_first_connection_and_once_in_a_clients_life() {
    assert_rows(
        "CONNECTED",
        &[
            &[(Up, &[Connected]), (Up, &[]), (Down, &[Suspended]), (Up, &[Reconnected])],
            // Whatever came before the first connection.
            &[(Down, &[Suspended]), (Up, &[Connected]), (Up, &[])],
            &[(Expired, &[Lost]), (Up, &[Connected]), (Expired, &[Lost]), (Up, &[Reconnected])],
            &[(ReadOnlyUp, &[ReadOnly]), (Up, &[Connected]), (ReadOnlyUp, &[ReadOnly]), (Up, &[Reconnected])],
        ],
    );
}

#[test]
fn suspended_is_raised_by_a_lost_connection_unless_it_is_suspended_or_lost_already() {
    assert_rows(
        "SUSPENDED",
        &[
            &[(Up, &[Connected]), (Down, &[Suspended]), (Down, &[])],
            &[(Up, &[Connected]), (Expired, &[Lost]), (Down, &[])],
            &[(Up, &[Connected]), (Down, &[Suspended]), (Up, &[Reconnected]), (Down, &[Suspended])],
            &[(ReadOnlyUp, &[ReadOnly]), (Down, &[Suspended])],
        ],
    );
}

#[test]
fn lost_is_raised_by_the_servers_word_once() {
    assert_rows(
        "LOST, by the server",
        &[
            &[(Up, &[Connected]), (Expired, &[Lost]), (Expired, &[])],
            &[(Up, &[Connected]), (Down, &[Suspended]), (Expired, &[Lost]), (Due, &[])],
            &[(ReadOnlyUp, &[ReadOnly]), (Expired, &[Lost])],
        ],
    );
}

#[test]
fn lost_is_raised_by_a_suspension_as_long_as_the_session_timeout() {
    assert_rows(
        "LOST, by the clock",
        &[
            &[(Up, &[Connected]), (Down, &[Suspended]), (Early, &[]), (Due, &[Lost]), (Due, &[]), (Expired, &[])],
            // Not while there is a connection, nor once there is one again.
            &[(Up, &[Connected]), (Due, &[]), (Down, &[Suspended]), (Up, &[Reconnected]), (Due, &[])],
            &[(Down, &[Suspended]), (Due, &[Lost]), (Up, &[Connected])],
        ],
    );
}

#[test]
fn reconnected_is_raised_by_a_connection_after_suspended_lost_or_read_only() {
    assert_rows(
        "RECONNECTED",
        &[
            &[(Up, &[Connected]), (Down, &[Suspended]), (Up, &[Reconnected]), (Up, &[])],
            &[(Up, &[Connected]), (Expired, &[Lost]), (Up, &[Reconnected]), (Up, &[])],
            &[(Up, &[Connected]), (Down, &[Suspended]), (Due, &[Lost]), (Up, &[Reconnected])],
            &[(Up, &[Connected]), (ReadOnlyUp, &[ReadOnly]), (Up, &[Reconnected])],
        ],
    );
}

#[test]
fn read_only_is_raised_by_a_server_that_can_only_read_and_counts_as_connected() {
    assert_rows(
        "READ_ONLY",
        &[
            &[(ReadOnlyUp, &[ReadOnly]), (ReadOnlyUp, &[])],
            &[(Up, &[Connected]), (Down, &[Suspended]), (ReadOnlyUp, &[ReadOnly]), (Due, &[])],
            &[(Up, &[Connected]), (Expired, &[Lost]), (ReadOnlyUp, &[ReadOnly]), (Up, &[Reconnected])],
        ],
    );
    let connected = [Connected, Suspended, Reconnected, Lost, ReadOnly].map(ConnectionState::is_connected);
    assert_eq!(connected, [true, false, true, false, true]);
}

#[test]
fn the_timer_of_lost_runs_from_suspended_by_the_negotiated_timeout_and_the_percentage() {
    for percent in [1, 33, 50, 100] {
        let now = Instant::now();
        let mut states = ConnectionStates::new(Duration::from_secs(999), percent);
        states.connected(false, now);
        states.set_timeout(LIMIT);
        assert_eq!(states.next_deadline(), None);
        states.disconnected(now);
        // Further failures do not prolong it.
        states.disconnected(now + LIMIT / 200);
        let limit = LIMIT * u32::from(percent) / 100;
        assert_eq!(states.next_deadline(), Some(now + limit), "{percent} %");
        assert_eq!(states.tick(now + limit - Duration::from_nanos(1)), [], "{percent} %");
        assert_eq!(states.tick(now + limit), [Lost], "{percent} %");
        figure(&format!("LOST after SUSPENDED, {percent} % of {LIMIT:?}"), limit);
    }
}

#[test]
fn no_state_is_raised_twice_in_a_row_whatever_comes() {
    let inputs = [Up, ReadOnlyUp, Down, Expired, Early, Due];
    let sequences = inputs.len().pow(6);
    for mut code in 0..sequences {
        let now = Instant::now();
        let mut states = ConnectionStates::new(LIMIT, 100);
        let mut raised = Vec::new();
        for _ in 0..6 {
            raised.extend(feed(&mut states, inputs[code % inputs.len()], now));
            code /= inputs.len();
        }
        assert!(raised.windows(2).all(|pair| pair[0] != pair[1]), "{raised:?}");
        assert!(raised.iter().filter(|state| **state == Connected).count() <= 1, "{raised:?}");
    }
    figure("sequences of six inputs", sequences);
}
