//! Pure parts of this crate for its own fault tests. No part of the API: all of it may change in any release.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    framework::events::connection_state::{ConnectionState, ConnectionStateMachine},
    proto::{connect::ConnectResponse, error::ProtoError, request::Request},
    session::{
        api::{SessionConfig, SessionError, SessionEvent},
        machine::{
            Machine,
            actions::{Action, Actions},
        },
    },
};

/// The contender under every lock, for the model check.
pub mod contender {
    pub use crate::locks::{
        ZNodeNameDriver,
        contender::{machine::Contender, spec::*, unlisted::*},
    };
}

/// What a client reports about its connection, on a clock that the caller moves.
#[derive(Debug)]
pub struct ConnectionStates(ConnectionStateMachine);

impl ConnectionStates {
    /// For a session timeout, of which `percent` may pass without a connection.
    #[must_use]
    pub fn new(timeout: Duration, percent: u8) -> ConnectionStates {
        ConnectionStates(ConnectionStateMachine::new(timeout, percent))
    }

    /// Another session timeout was negotiated.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.0.set_timeout(timeout);
    }

    /// When [`tick`](Self::tick) will raise something.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    /// A server accepted the session.
    pub fn connected(&mut self, read_only: bool, now: Instant) -> Vec<ConnectionState> {
        self.0.connected(read_only, now)
    }

    /// The connection is gone.
    pub fn disconnected(&mut self, now: Instant) -> Vec<ConnectionState> {
        self.0.disconnected(now)
    }

    /// The server said that the session is gone.
    pub fn expired(&mut self, now: Instant) -> Vec<ConnectionState> {
        self.0.expired(now)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<ConnectionState> {
        self.0.tick(now)
    }
}

/// What a [`SessionMachine`] wants done. Requests and watchers are known by the tags given to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The request has its answer: `true` for a reply that is no error.
    Answered(u32, bool),
    /// The request was withdrawn.
    Withdrawn(u32),
    /// The watcher is told something.
    Told(u32),
    /// The watcher is not called any more.
    Forgotten(u32),
    /// The client is told something.
    Raised(SessionEvent),
}

/// The state machine of one session, without socket, thread or clock.
pub struct SessionMachine {
    machine: Machine<u32, u32>,
    happened: Vec<Happened>,
}

impl SessionMachine {
    /// A session that no server knows of yet.
    #[must_use]
    pub fn new(config: SessionConfig, now: Instant) -> SessionMachine {
        SessionMachine { machine: Machine::new(config, now), happened: Vec::new() }
    }

    fn input<T>(&mut self, input: impl FnOnce(&mut Machine<u32, u32>, &mut Actions<u32, u32>) -> T) -> T {
        let mut actions = Vec::new();
        let result = input(&mut self.machine, &mut actions);
        self.happened.extend(actions.into_iter().map(|action| match action {
            Action::Complete(tag, reply) => Happened::Answered(tag, reply.is_ok()),
            Action::DropCompletion(tag) => Happened::Withdrawn(tag),
            Action::Notify(tag, _) => Happened::Told(tag),
            Action::DropWatcher(tag) => Happened::Forgotten(tag),
            Action::Raise(event) => Happened::Raised(event),
        }));
        result
    }

    /// What has happened since the last call.
    pub fn take_happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.happened)
    }

    /// A server answered the handshake.
    ///
    /// # Errors
    /// The answer makes no sense, so the connection has to end.
    pub fn connected(&mut self, response: ConnectResponse, now: Instant) -> Result<(), ProtoError> {
        self.input(|machine, actions| machine.connected(response, now, now, actions))
    }

    /// Takes a request in; gives its ticket. The tag names the request, and its watcher if it leaves a watch.
    pub fn submit(&mut self, request: &Request, tag: u32) -> u64 {
        let watcher = request.leaves_watch().then_some(tag);
        self.input(|machine, actions| machine.submit(request, request.encode(0), tag, watcher, actions))
    }

    /// Takes a request back that was not written yet.
    pub fn withdraw(&mut self, ticket: u64) -> bool {
        self.input(|machine, actions| machine.withdraw(ticket, actions))
    }

    /// Gives the watch of a request up.
    pub fn unwatch(&mut self, ticket: u64) {
        self.input(|machine, actions| machine.unwatch(ticket, actions));
    }

    /// What is to be written now, empty if nothing is.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.machine.has_output() {
            self.machine.take_output(&mut out);
        }
        out
    }

    /// A frame came from the server.
    ///
    /// # Errors
    /// The frame makes no sense, so the connection has to end.
    pub fn frame(&mut self, frame: &[u8], now: Instant) -> Result<(), ProtoError> {
        self.input(|machine, actions| machine.frame(frame, now, actions))
    }

    /// The header of a frame came that is above the limit.
    pub fn frame_too_large(&mut self, xid: i32, size: usize, limit: usize) {
        self.input(|machine, actions| machine.frame_too_large(xid, size, limit, actions));
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.input(|machine, actions| machine.disconnected(None, actions));
    }

    /// Time has passed. `false`: the connection is dead.
    pub fn timer(&mut self, now: Instant) -> bool {
        self.machine.timer(now)
    }

    /// When [`timer`](Self::timer) has something to do.
    #[must_use]
    pub fn next_timer(&self) -> Instant {
        self.machine.next_timer()
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.machine.is_over(now)
    }

    /// The client closes the session.
    pub fn close(&mut self) {
        self.input(|machine, actions| machine.leave(SessionError::Closed, None, actions));
    }
}

impl fmt::Debug for SessionMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionMachine").finish_non_exhaustive()
    }
}
