//! What the threads of a proxy share: the state of the network, the connections, the rules and the log.

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
    requests::{RequestLog, RequestRecord},
    rule::Rule,
};

/// How long one attempt to reach the server may take. A paused server with a full queue does not even accept.
const CONNECT_POLL: Duration = Duration::from_millis(200);

/// For how long, and how often, the proxy tries a server again that refuses, where it knows nothing of the protocol. A
/// follower tries a leader again for seconds, which may not listen yet. But a connection that the proxy accepts and then
/// ends sends the follower into the next election, and the servers may not find a leader for a long time.
const REFUSED_FOR: Duration = Duration::from_secs(5);
const REFUSED_POLL: Duration = Duration::from_millis(20);

/// What all threads of a proxy share.
#[derive(Debug)]
pub(super) struct Relay {
    server: SocketAddr,
    framed: bool,
    state: Mutex<Network>,
    /// Notified at every change of the state, and of what rules and connections say under its lock.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Network {
    black_hole: Option<Direction>,
    delay: Duration,
    accepted: u64,
    /// Each until its threads have ended.
    connections: BTreeMap<u64, Arc<Proxied>>,
    rules: Vec<Arc<Rule>>,
    log: RequestLog,
}

impl Network {
    fn swallows(&self, direction: Direction) -> bool {
        self.black_hole.is_some_and(|hole| hole.includes(direction))
    }
}

impl Relay {
    pub(super) fn new(server: SocketAddr, framed: bool) -> Relay {
        Relay { server, framed, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn set_network(&self, black_hole: Option<Direction>, delay: Duration) {
        self.change(|state| (state.black_hole, state.delay) = (black_hole, delay));
    }

    pub(super) fn set_black_hole(&self, direction: Direction) {
        self.change(|state| {
            let both = state.black_hole.is_some_and(|before| before != direction);
            state.black_hole = Some(if both { Direction::Both } else { direction });
        });
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    pub(super) fn connections(&self) -> u64 {
        self.state.lock().accepted
    }

    pub(super) fn open_connections(&self) -> usize {
        self.state.lock().connections.len()
    }

    pub(super) fn count_requests(&self, op: i32) -> u64 {
        self.state.lock().log.count(op)
    }

    pub(super) fn log(&self) -> Vec<RequestRecord> {
        self.state.lock().log.records()
    }

    pub(super) fn clear_log(&self) {
        self.state.lock().log.clear();
    }

    pub(super) fn add_rule(&self, rule: Arc<Rule>) {
        self.change(|state| state.rules.push(rule));
    }

    pub(super) fn release(&self, rule: &Rule) {
        self.change(|state| {
            rule.release();
            state.rules.retain(|rule| !rule.is_used_up());
        });
    }

    /// `false`: not within `timeout`.
    pub(super) fn wait_for_hits(&self, rule: &Rule, hits: u64, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        !self.changed.wait_while_for(&mut state, |_| rule.hits() < hits, timeout).timed_out()
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
        // Nobody's requests must not arrive after a black hole: they could take a session away from its new connection.
        if self.is_black_hole(Direction::ToServer) {
            let is_gone = || connection.is_ended() || client_gone.load(Ordering::SeqCst);
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| state.swallows(Direction::ToServer) && !is_gone());
            drop(state);
            if is_gone() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        let is_gone = || connection.is_ended() || client_gone.load(Ordering::SeqCst);
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
        self.await_passage(connection, direction)
    }

    /// Waits until the rule is released or the connection ended.
    pub(super) fn await_release(&self, connection: &Proxied, rule: &Rule) {
        self.changed.wait_while(&mut self.state.lock(), |_| !rule.is_released() && !connection.is_ended());
    }

    pub(super) fn hit(&self, rule: &Rule) {
        self.change(|_| rule.hit());
    }

    /// Whoever sees the end of the connection sees the hit too.
    pub(super) fn cut(&self, connection: &Proxied, rule: &Rule) {
        self.change(|_| {
            rule.hit();
            connection.end(Ending::Fin);
        });
    }

    pub(super) fn end(&self, connection: &Proxied, ending: Ending) {
        self.change(|_| connection.end(ending));
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

    pub(super) fn record_reply(&self, place: usize, error: i32) {
        self.state.lock().log.replied(place, error);
    }

    pub(super) fn is_framed(&self) -> bool {
        self.framed
    }

    fn is_black_hole(&self, direction: Direction) -> bool {
        self.state.lock().swallows(direction)
    }

    /// `false`: the connection was ended meanwhile.
    fn await_passage(&self, connection: &Proxied, direction: Direction) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.swallows(direction) && !connection.is_ended());
        !connection.is_ended()
    }

    /// Drops the last reference to the connection, which closes its sockets.
    pub(super) fn forget(&self, number: u64) {
        self.change(|state| drop(state.connections.remove(&number)));
    }

    /// Makes those that wait look again: what they wait for has changed outside of the state.
    pub(super) fn wake(&self) {
        self.change(|_| ());
    }

    fn change<T>(&self, how: impl FnOnce(&mut Network) -> T) -> T {
        let result = how(&mut self.state.lock());
        self.changed.notify_all();
        result
    }
}
