//! What a client reports about its connection, and when.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// What happened to a client's connection. Java: `ConnectionState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// The first connection of this client came about; raised once.
    Connected,
    /// The connection is gone, the session may live: whether a held lock is still held is unknown for now.
    Suspended,
    /// There is a connection again, after any of the other states.
    Reconnected,
    /// The session is gone, and with it every lock that was held: a new session follows by itself.
    Lost,
    /// Connected to a server that can only read, because it has no quorum.
    ReadOnly,
}

impl ConnectionState {
    /// Whether there is a connection in this state, if only a read-only one.
    #[must_use]
    pub fn is_connected(self) -> bool {
        match self {
            ConnectionState::Connected | ConnectionState::Reconnected | ConnectionState::ReadOnly => true,
            ConnectionState::Suspended | ConnectionState::Lost => false,
        }
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionState::Connected => "CONNECTED",
            ConnectionState::Suspended => "SUSPENDED",
            ConnectionState::Reconnected => "RECONNECTED",
            ConnectionState::Lost => "LOST",
            ConnectionState::ReadOnly => "READ_ONLY",
        })
    }
}

/// Turns what happens to sessions into the states to raise, in order. Java: `ConnectionStateManager`.
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
    pub(crate) fn connected(&mut self, read_only: bool, now: Instant) -> Vec<ConnectionState> {
        match self.current {
            Some(ConnectionState::ReadOnly) if read_only => Vec::new(),
            Some(ConnectionState::Connected | ConnectionState::Reconnected) if !read_only => Vec::new(),
            _ if read_only => self.raise(ConnectionState::ReadOnly, now),
            _ if self.was_connected => self.raise(ConnectionState::Reconnected, now),
            _ => self.raise(ConnectionState::Connected, now),
        }
    }

    /// The connection is gone, or a background operation gave up on it.
    pub(crate) fn disconnected(&mut self, now: Instant) -> Vec<ConnectionState> {
        match self.current {
            Some(ConnectionState::Suspended | ConnectionState::Lost) => Vec::new(),
            _ => self.raise(ConnectionState::Suspended, now),
        }
    }

    /// The server said that the session is gone.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<ConnectionState> {
        match self.current {
            Some(ConnectionState::Lost) => Vec::new(),
            _ => self.raise(ConnectionState::Lost, now),
        }
    }

    /// The caller has put a new session in the place of the old one. Before the first state there was nothing to lose.
    pub(crate) fn replaced(&mut self, now: Instant) -> Vec<ConnectionState> {
        match self.current {
            None | Some(ConnectionState::Lost) => Vec::new(),
            _ => self.raise(ConnectionState::Lost, now),
        }
    }

    /// Time has passed. After a LOST from here the caller replaces the session.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<ConnectionState> {
        match self.suspended_at {
            Some(since) if now.saturating_duration_since(since) >= self.longest_suspension() => {
                self.raise(ConnectionState::Lost, now)
            }
            _ => Vec::new(),
        }
    }

    /// The one place that changes the state.
    fn raise(&mut self, state: ConnectionState, now: Instant) -> Vec<ConnectionState> {
        self.current = Some(state);
        self.suspended_at = (state == ConnectionState::Suspended).then_some(now);
        self.was_connected |= matches!(state, ConnectionState::Connected | ConnectionState::Reconnected);
        vec![state]
    }

    /// Divided first, so that no timeout overflows.
    fn longest_suspension(&self) -> Duration {
        match self.percent {
            100.. => self.timeout,
            percent => (self.timeout / 100).saturating_mul(percent.into()),
        }
    }
}
