//! The connection states that a client reports, and when.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// A change of a client's connection. Java: `ConnectionState`.
///
/// ```
/// use curator_locks::ConnectionState;
///
/// assert!(ConnectionState::Reconnected.is_connected());
/// assert!(!ConnectionState::Suspended.is_connected()); // the session may live, and so may its locks
/// assert_eq!(ConnectionState::Lost.to_string(), "LOST");
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// The client has its first connection; raised once.
    Connected,
    /// The connection is gone, and the session may live: whether a lock is still held is unknown for now.
    Suspended,
    /// There is a connection again, after any of the other states.
    Reconnected,
    /// The session is gone, and with it every lock that was held. The client opens a new session by itself.
    Lost,
}

impl ConnectionState {
    /// Whether there is a connection in this state.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(self, ConnectionState::Connected | ConnectionState::Reconnected)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionState::Connected => "CONNECTED",
            ConnectionState::Suspended => "SUSPENDED",
            ConnectionState::Reconnected => "RECONNECTED",
            ConnectionState::Lost => "LOST",
        })
    }
}

/// Says in which connection states the client tells a leader that it leads no more. Java: `ConnectionStateErrorPolicy`.
///
/// Under any policy, a leader is told at [`Hold::valid_until`](crate::Hold::valid_until) at the latest.
///
/// ```
/// use curator_locks::{ConnectionState, ConnectionStateErrorPolicy};
///
/// assert!(ConnectionStateErrorPolicy::Standard.is_error_state(ConnectionState::Suspended));
/// assert!(!ConnectionStateErrorPolicy::Session.is_error_state(ConnectionState::Suspended));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ConnectionStateErrorPolicy {
    /// As soon as the connection is gone, and when the session is lost. Java: `StandardConnectionStateErrorPolicy`.
    #[default]
    Standard,
    /// When the session is lost. Java: `SessionConnectionStateErrorPolicy`.
    Session,
}

impl ConnectionStateErrorPolicy {
    /// Whether a leader should not lead in this state.
    #[must_use]
    pub fn is_error_state(self, state: ConnectionState) -> bool {
        match state {
            ConnectionState::Lost => true,
            ConnectionState::Suspended => self == ConnectionStateErrorPolicy::Standard,
            ConnectionState::Connected | ConnectionState::Reconnected => false,
        }
    }
}

/// Turns the events of sessions into the states to raise. Java: `ConnectionStateManager`.
///
/// Pure: the caller passes the time in, and must not pass on events of a session that it has replaced.
#[derive(Debug)]
pub(crate) struct ConnectionStateMachine {
    current: Option<ConnectionState>,
    /// CONNECTED is raised instead of the first RECONNECTED, whatever came before.
    was_connected: bool,
    /// When SUSPENDED began; set exactly in that state.
    suspended_at: Option<Instant>,
    timeout: Duration,
    /// 1..=100
    percent: u8,
}

impl ConnectionStateMachine {
    /// `timeout` is the session timeout asked for, `percent` (1..=100, else the nearest) how much of it SUSPENDED may
    /// last.
    pub(crate) fn new(timeout: Duration, percent: u8) -> ConnectionStateMachine {
        ConnectionStateMachine {
            current: None,
            was_connected: false,
            suspended_at: None,
            timeout,
            percent: percent.clamp(1, 100),
        }
    }

    /// The state raised last.
    pub(crate) fn current(&self) -> Option<ConnectionState> {
        self.current
    }

    /// Replaces the session timeout: the negotiated one once it is known, the configured one for a new session.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// When [`tick`](Self::tick) would raise LOST, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.suspended_at?.checked_add(self.longest_suspension())
    }

    /// A server accepted the session.
    pub(crate) fn connected(&mut self, now: Instant) -> Option<ConnectionState> {
        if self.current.is_some_and(ConnectionState::is_connected) {
            return None;
        }
        self.raise(if self.was_connected { ConnectionState::Reconnected } else { ConnectionState::Connected }, now)
    }

    /// The connection is gone, or a background operation gave up on it.
    pub(crate) fn disconnected(&mut self, now: Instant) -> Option<ConnectionState> {
        match self.current {
            Some(ConnectionState::Suspended | ConnectionState::Lost) => None,
            _ => self.raise(ConnectionState::Suspended, now),
        }
    }

    /// The server said that the session is gone.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<ConnectionState> {
        if self.current == Some(ConnectionState::Lost) { None } else { self.raise(ConnectionState::Lost, now) }
    }

    /// Time has passed. After a LOST from here the caller replaces the session.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<ConnectionState> {
        let suspended_for = now.saturating_duration_since(self.suspended_at?);
        if suspended_for >= self.longest_suspension() { self.raise(ConnectionState::Lost, now) } else { None }
    }

    /// The one place that changes the state.
    fn raise(&mut self, state: ConnectionState, now: Instant) -> Option<ConnectionState> {
        self.current = Some(state);
        self.suspended_at = (state == ConnectionState::Suspended).then_some(now);
        self.was_connected |= state.is_connected();
        self.current
    }

    /// Divided first, so that no timeout overflows.
    fn longest_suspension(&self) -> Duration {
        match self.percent {
            100.. => self.timeout,
            percent => (self.timeout / 100).saturating_mul(percent.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    use Input::{Connects, Disconnected, DueTick, EarlyTick, Expired};

    use super::*;
    use crate::base::clock;

    const TIMEOUT: Duration = Duration::from_secs(4);

    #[derive(Debug, Clone, Copy)]
    enum Input {
        Connects,
        Disconnected,
        Expired,

        /// Just before a suspension is too long.
        EarlyTick,
        /// When a suspension is too long.
        DueTick,
    }

    const INPUTS: [Input; 5] = [Connects, Disconnected, Expired, EarlyTick, DueTick];

    fn feed(machine: &mut ConnectionStateMachine, input: Input, now: Instant) -> Option<ConnectionState> {
        match input {
            Connects => machine.connected(now),
            Disconnected => machine.disconnected(now),
            Expired => machine.expired(now),
            EarlyTick => machine.tick(now + TIMEOUT - Duration::from_nanos(1)),
            DueTick => machine.tick(now + TIMEOUT),
        }
    }

    fn after(inputs: &[Input], now: Instant) -> ConnectionStateMachine {
        let mut machine = ConnectionStateMachine::new(TIMEOUT, 100);
        for &input in inputs {
            feed(&mut machine, input, now);
        }
        machine
    }

    /// The event that each input raises in each state. A state is named by the inputs that lead to it; `was_connected`
    /// makes two of SUSPENDED and LOST.
    #[test]
    fn every_input_in_every_state_raises_exactly_this() {
        type Row<'a> = (&'a [Input], Option<ConnectionState>, [Option<ConnectionState>; 5]);
        let [c, s, r, l, none] = [Some(Connected), Some(Suspended), Some(Reconnected), Some(Lost), None];
        #[rustfmt::skip]
        let table: [Row<'_>; 7] = [
            // reached by                              state  connects discon expired early due
            (&[],                                      none, [c,       s,    l,    none, none]),
            (&[Disconnected],                          s,    [c,       none, l,    none, l]),
            (&[Expired],                               l,    [c,       none, none, none, none]),
            (&[Connects],                              c,    [none,    s,    l,    none, none]),
            (&[Connects, Disconnected],                s,    [r,       none, l,    none, l]),
            (&[Connects, Expired],                     l,    [r,       none, none, none, none]),
            (&[Connects, Disconnected, Connects],      r,    [none,    s,    l,    none, none]),
        ];
        let now = clock::now();
        for (way, state, raised) in table {
            for (input, expected) in INPUTS.into_iter().zip(raised) {
                let mut machine = after(way, now);
                assert_eq!(machine.current(), state, "after {way:?}");
                assert_eq!(feed(&mut machine, input, now), expected, "{input:?} after {way:?}");
                assert_eq!(machine.current(), expected.or(state), "{input:?} after {way:?}");
                assert_eq!(machine.next_deadline().is_some(), machine.current() == s, "{input:?} after {way:?}");
            }
        }
    }

    #[test]
    fn a_lost_session_is_lost_once_and_then_reconnected() {
        let now = clock::now();
        let mut machine = after(&[Connects, Disconnected], now);
        assert_eq!(feed(&mut machine, DueTick, now), Some(Lost));
        assert_eq!(feed(&mut machine, Expired, now), None);
        assert_eq!(feed(&mut machine, Disconnected, now), None);
        assert_eq!(feed(&mut machine, DueTick, now), None);
        assert_eq!(feed(&mut machine, Connects, now), Some(Reconnected));
    }

    #[test]
    fn the_timer_runs_from_the_first_disconnect() {
        let start = clock::now();
        let second = Duration::from_secs(1);
        let mut machine = after(&[Connects], start);
        assert_eq!(machine.next_deadline(), None);
        machine.disconnected(start + second);
        machine.disconnected(start + 3 * second);
        assert_eq!(machine.next_deadline(), Some(start + second + TIMEOUT));
        assert_eq!(machine.tick(start), None, "a clock that seems to go back does no harm");
        assert_eq!(machine.tick(start + 4 * second), None);
        assert_eq!(machine.tick(start + 5 * second), Some(Lost));
        assert_eq!(machine.next_deadline(), None);
    }

    #[test]
    fn a_reconnect_stops_the_timer_and_the_next_disconnect_starts_it_anew() {
        let start = clock::now();
        let second = Duration::from_secs(1);
        let mut machine = after(&[Connects, Disconnected], start);
        machine.connected(start + second);
        assert_eq!(machine.tick(start + 10 * second), None);
        machine.disconnected(start + 10 * second);
        assert_eq!(machine.next_deadline(), Some(start + 10 * second + TIMEOUT));
    }

    #[test]
    fn the_percentage_shortens_the_suspension() {
        let now = clock::now();
        for (percent, limit) in
            [(100, TIMEOUT), (50, TIMEOUT / 2), (1, TIMEOUT / 100), (0, TIMEOUT / 100), (255, TIMEOUT)]
        {
            let mut machine = ConnectionStateMachine::new(TIMEOUT, percent);
            machine.disconnected(now);
            assert_eq!(machine.next_deadline(), Some(now + limit), "{percent} %");
            assert_eq!(machine.tick(now + limit - Duration::from_nanos(1)), None, "{percent} %");
            assert_eq!(machine.tick(now + limit), Some(Lost), "{percent} %");
        }
    }

    #[test]
    fn the_negotiated_timeout_counts_also_when_suspended_already() {
        let now = clock::now();
        let mut machine = after(&[Connects, Disconnected], now);
        machine.set_timeout(TIMEOUT * 2);
        assert_eq!(machine.next_deadline(), Some(now + TIMEOUT * 2));
        assert_eq!(feed(&mut machine, DueTick, now), None);
        machine.set_timeout(Duration::ZERO);
        assert_eq!(machine.tick(now), Some(Lost));
    }

    #[test]
    fn an_endless_timeout_never_ends_and_never_overflows() {
        let now = clock::now();
        for percent in [1, 99, 100] {
            let mut machine = ConnectionStateMachine::new(Duration::MAX, percent);
            machine.disconnected(now);
            assert_eq!(machine.tick(now + TIMEOUT), None);
            assert!(machine.next_deadline().is_none_or(|deadline| deadline > now + TIMEOUT));
        }
    }

    #[test]
    fn connected_is_raised_once_over_every_sequence_of_inputs() {
        let now = clock::now();
        // All sequences of six inputs, as numbers to the base seven.
        for mut code in 0..INPUTS.len().pow(6) {
            let mut machine = ConnectionStateMachine::new(TIMEOUT, 100);
            let mut raised = Vec::new();
            for _ in 0..6 {
                let input = INPUTS.into_iter().nth(code % INPUTS.len());
                raised.extend(input.and_then(|input| feed(&mut machine, input, now)));
                code /= INPUTS.len();
            }
            assert!(raised.iter().filter(|state| **state == Connected).count() <= 1, "{raised:?}");
            assert!(raised.iter().zip(raised.iter().skip(1)).all(|(one, next)| one != next), "{raised:?}");
            let connected = raised.iter().position(|state| *state == Connected);
            let reconnected = raised.iter().position(|state| *state == Reconnected);
            assert!(reconnected.is_none() || connected < reconnected, "{raised:?}");
            assert_eq!(raised.last().copied(), machine.current());
        }
    }

    #[test]
    fn states_know_whether_they_are_connected() {
        for (state, connected, shown) in [
            (Connected, true, "CONNECTED"),
            (Suspended, false, "SUSPENDED"),
            (Reconnected, true, "RECONNECTED"),
            (Lost, false, "LOST"),
        ] {
            assert_eq!(state.is_connected(), connected);
            assert_eq!(state.to_string(), shown);
        }
    }
}
