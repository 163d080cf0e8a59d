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
    Direction, Fault, InjectedFault, RequestMatch, RequestRecord, carry,
    connection::{Connection, Ending},
    frame::RequestHeader,
    requests::RequestLog,
    rule::Rule,
};

/// How long one attempt to reach the server may take. A paused server with a full queue does not even accept.
const CONNECT_POLL: Duration = Duration::from_millis(200);

/// For how long, and how often, a server that refuses is tried again where nothing is known of the protocol. A follower
/// tries a refused leader again for seconds, as that may not listen yet; but a connection that is accepted here and then
/// ended sends it into the next election, and and a leader may not be found for a long time.
const REFUSED_FOR: Duration = Duration::from_secs(5);
const REFUSED_POLL: Duration = Duration::from_millis(20);

/// What all threads of a proxy share.
#[derive(Debug)]
pub(super) struct Relay {
    server: SocketAddr,
    framed: bool,
    state: Mutex<State>,
    /// Notified at every change of the state, and of what rules and connections say under its lock.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    black_hole: Option<Direction>,
    delay: Duration,
    accepted: u64,
    /// Each until its threads have ended.
    connections: BTreeMap<u64, Arc<Connection>>,
    rules: Vec<Arc<Rule>>,
    log: RequestLog,
}

impl State {
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

    pub(super) fn inject(relay: &Arc<Relay>, requests: RequestMatch, fault: Fault) -> InjectedFault {
        let rule = Arc::new(Rule::new(requests, fault));
        relay.change(|state| state.rules.push(Arc::clone(&rule)));
        InjectedFault::new(Arc::clone(relay), rule)
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

    /// Carries a new client's bytes, until both sides have closed or the connection is ended.
    pub(super) fn begin(relay: &Arc<Relay>, client: TcpStream) {
        // Numbered and listed in one step, or a cut in between would miss it.
        let added = relay.change(|state| {
            state.accepted += 1;
            let connection = Connection::new(state.accepted, client).map(Arc::new)?;
            state.connections.insert(connection.number, Arc::clone(&connection));
            Ok::<_, io::Error>(connection)
        });
        let Ok(connection) = added else { return };
        let number = connection.number;
        let this = Arc::clone(relay);
        let thread = thread::Builder::new().name(format!("fault-proxy-{number}")).spawn(move || {
            if let Err(error) = carry::carry(&this, &connection) {
                log::debug!("fault proxy: connection {number}: {error}");
            }
            drop(connection);
            this.forget(number);
        });
        if let Err(error) = thread {
            log::warn!("fault proxy: no thread for connection {number}: {error}");
            relay.forget(number);
        }
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
    pub(super) fn connect(&self, connection: &Connection, client_gone: &AtomicBool) -> io::Result<()> {
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
    pub(super) fn await_delivery(&self, connection: &Connection, direction: Direction, due: Instant) -> bool {
        if due > Instant::now() {
            self.changed.wait_while_until(&mut self.state.lock(), |_| !connection.is_ended(), due);
        }
        self.await_passage(connection, direction)
    }

    /// Waits until the rule is released or the connection ended.
    pub(super) fn await_release(&self, connection: &Connection, rule: &Rule) {
        self.changed.wait_while(&mut self.state.lock(), |_| !rule.is_released() && !connection.is_ended());
    }

    pub(super) fn hit(&self, rule: &Rule) {
        self.change(|_| rule.hit());
    }

    /// Whoever sees the end of the connection sees the hit too.
    pub(super) fn cut(&self, connection: &Connection, rule: &Rule) {
        self.change(|_| {
            rule.hit();
            connection.end(Ending::Fin);
        });
    }

    pub(super) fn end(&self, connection: &Connection, ending: Ending) {
        self.change(|_| connection.end(ending));
    }

    /// Logs a request; gives its place in the log, and the rule that claims it.
    pub(super) fn record(&self, connection: &Connection, request: &RequestHeader) -> (usize, Option<Arc<Rule>>) {
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
    fn await_passage(&self, connection: &Connection, direction: Direction) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.swallows(direction) && !connection.is_ended());
        !connection.is_ended()
    }

    /// Drops the last reference to the connection, which closes its sockets.
    fn forget(&self, number: u64) {
        self.change(|state| drop(state.connections.remove(&number)));
    }

    /// Makes those that wait look again: what they wait for has changed outside of the state.
    pub(super) fn wake(&self) {
        self.change(|_| ());
    }

    fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        let result = how(&mut self.state.lock());
        self.changed.notify_all();
        result
    }
}
