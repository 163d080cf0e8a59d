//! The state that the threads of a proxy share: the state of the network, the connections, the rules and the log.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    connection::{Direction, Ending, Proxied},
    frame::RequestHeader,
    requests::RequestLog,
    rule::Rule,
};
use crate::session::dialect::Dialect;

/// How long one attempt to reach the server may take. A paused server with a full queue does not even accept.
const CONNECT_POLL: Duration = Duration::from_millis(200);

/// For how long, and how often, the proxy tries a server again that refuses, where it knows nothing of the protocol. A
/// follower tries a leader again for seconds, which may not listen yet. But a connection that the proxy accepts and then
/// ends sends the follower into the next election, and the servers may not find a leader for a long time.
const REFUSED_FOR: Duration = Duration::from_secs(5);
const REFUSED_POLL: Duration = Duration::from_millis(20);

/// The state that all threads of a proxy share.
#[derive(Debug)]
pub(super) struct Relay {
    server: SocketAddr,
    pub(super) framed: bool,
    /// The kind of servers to answer as.
    pub(super) dialect: Dialect,
    pub(super) state: Mutex<Network>,
    /// Notified at every change of the state, and of what rules and connections say under its lock.
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) black_hole: Option<Direction>,
    pub(super) delay: Duration,
    pub(super) accepted: u64,
    /// Each until its threads have ended.
    pub(super) connections: BTreeMap<u64, Arc<Proxied>>,
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) log: RequestLog,
}

impl Network {
    fn swallows(&self, direction: Direction) -> bool {
        self.black_hole.is_some_and(|hole| hole.includes(direction))
    }
}

impl Relay {
    pub(super) fn new(server: SocketAddr, framed: bool, dialect: Dialect) -> Relay {
        Relay { server, framed, dialect, state: Mutex::default(), changed: Condvar::new() }
    }

    /// `false`: not within `timeout`.
    pub(super) fn wait_for_hits(&self, rule: &Rule, hits: u64, timeout: Duration) -> bool {
        self.changed.wait_while_for(&mut self.state.lock(), |_| rule.hits() < hits, timeout);
        rule.hits() >= hits
    }

    /// Numbers and lists a new connection, in one step, or a cut in between would miss it.
    pub(super) fn add_connection(&self, client: TcpStream) -> io::Result<Arc<Proxied>> {
        self.change(|state| {
            state.accepted += 1;
            let connection = Proxied::new(state.accepted, client).map(Arc::new)?;
            state.connections.insert(connection.number, Arc::clone(&connection));
            Ok(connection)
        })
    }

    /// Ends all connections and waits until their sockets are closed. Gives their number.
    pub(super) fn end_all(&self, ending: Ending) -> usize {
        let mut state = self.state.lock();
        let last = state.accepted;
        let ended = state.connections.values().filter(|connection| connection.end(ending)).count();
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.connections.range(..=last).next().is_some());
        ended
    }

    /// Reaches the server, as soon as bytes may go there.
    pub(super) fn connect(&self, connection: &Proxied, client_gone: &AtomicBool) -> io::Result<()> {
        let is_gone = || connection.is_ended() || client_gone.load(Ordering::SeqCst);
        // Nobody's requests must not arrive after a black hole: they could take a session away from its new connection.
        let mut state = self.state.lock();
        if state.swallows(Direction::ToServer) {
            self.changed.wait_while(&mut state, |state| state.swallows(Direction::ToServer) && !is_gone());
            if is_gone() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        drop(state);
        let begin = Instant::now();
        loop {
            match TcpStream::connect_timeout(&self.server, CONNECT_POLL) {
                Ok(server) => return self.change(|_| connection.set_server(server)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !connection.is_ended() => {}
                Err(_) if !self.framed && begin.elapsed() < REFUSED_FOR && !is_gone() => thread::sleep(REFUSED_POLL),
                Err(error) => return Err(error),
            }
        }
    }

    /// When something that arrives now is to be delivered.
    pub(super) fn due(&self) -> Instant {
        Instant::now() + self.state.lock().delay
    }

    /// Waits until something that is due then may be delivered. `false`: the connection was ended meanwhile.
    pub(super) fn await_delivery(&self, connection: &Proxied, direction: Direction, due: Instant) -> bool {
        if due > Instant::now() {
            self.changed.wait_while_until(&mut self.state.lock(), |_| !connection.is_ended(), due);
        }
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.swallows(direction) && !connection.is_ended());
        !connection.is_ended()
    }

    /// Waits until the rule is released or the connection ended.
    pub(super) fn await_release(&self, connection: &Proxied, rule: &Rule) {
        self.changed.wait_while(&mut self.state.lock(), |_| !rule.is_released() && !connection.is_ended());
    }

    /// A test that sees the end of the connection sees the hit too.
    pub(super) fn cut(&self, connection: &Proxied, rule: &Rule) {
        self.change(|_| {
            rule.hit();
            connection.end(Ending::Fin);
        });
    }

    /// Logs a request; gives its place in the log, and the rule that claims it.
    pub(super) fn record(&self, connection: &Proxied, request: &RequestHeader) -> (usize, Option<Arc<Rule>>) {
        let (place, rules) = {
            let mut state = self.state.lock();
            (state.log.add(connection.number, request), state.rules.clone())
        };
        // Without the lock, because a rule calls the test's own code.
        let rule = rules.into_iter().find(|rule| rule.claims(request));
        if rule.is_some() {
            self.state.lock().rules.retain(|rule| !rule.is_used_up());
        }
        (place, rule)
    }

    /// Drops the last reference to the connection, which closes its sockets.
    pub(super) fn forget(&self, number: u64) {
        self.change(|state| drop(state.connections.remove(&number)));
    }

    /// Wakes the waiting threads, so that they look again.
    pub(super) fn change<T>(&self, how: impl FnOnce(&mut Network) -> T) -> T {
        let result = how(&mut self.state.lock());
        self.changed.notify_all();
        result
    }
}
