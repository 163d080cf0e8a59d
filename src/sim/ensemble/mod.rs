//! A modelled ensemble of ZooKeeper servers: plain, single threaded, driven by events; times count from the begin of the run,
//! and all randomness comes from one seed. What it answers is compared with a real server's, request by request
//! (`sim::conformance`).
//!
//! A request goes from `requests` (frames, handshakes, the queue of a connection) to the leader's `prep`, and as a
//! transaction (`txn`) through `leader`, `follower` and `commits` into each server's `tree`, from where `watches` tell of it.
//! `reads` answers. `election` finds a leader, `tracker` keeps the sessions, `faults` and `admin` are what a test does to it,
//! `looks` what it may see.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod acl;
mod admin;
mod code;
mod commits;
pub(crate) mod config;
mod connection;
mod election;
pub(crate) mod faults;
mod follower;
mod leader;
mod links;
pub(crate) mod looks;
mod paths;
mod prep;
mod reads;
mod requests;
mod server;
#[cfg(test)]
mod tests;
mod tracker;
mod tree;
mod txn;
mod watches;
mod wire;

use std::{collections::BTreeMap, mem, time::Duration};

use self::{
    config::Span,
    connection::Connection,
    links::{Links, Message},
    looks::Journal,
    server::Server,
};
pub(crate) use self::{
    config::{Dialect, EnsembleConfig},
    connection::ConnId,
    server::Throttle,
    tree::Tree,
    txn::{Entry, Txn},
    wire::Output,
};

/// What happens at a server at some time; void if the server's life is another one by then.
#[derive(Debug)]
struct Happening {
    server: usize,
    life: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Bytes {
        conn: ConnId,
        bytes: Vec<u8>,
    },
    Hangs {
        conn: ConnId,
    },
    /// A throttled request goes on.
    Request {
        conn: ConnId,
        frame: Vec<u8>,
    },
    Message {
        from: usize,
        message: Message,
    },
    /// The log has reached the disk up to this transaction.
    Logged {
        zxid: i64,
    },
    /// The next committed transaction is due.
    Commit,
    LeaderTick,
    ExpiryTick,
    ExpireOne,
    Containers,
    Vote,
    /// A server that joins a leader has had its time.
    Joins,
    /// A follower looks when it has last heard of its leader.
    LeaderTimeout,
    Idle,
}

/// The threads of a server that wake one by one after a pause.
const THREADS: usize = 4;

impl What {
    fn thread(&self) -> usize {
        match self {
            What::Bytes { .. } | What::Hangs { .. } | What::Request { .. } | What::Idle => 0,
            What::Message { .. } | What::Logged { .. } | What::Commit => 1,
            What::ExpiryTick | What::ExpireOne | What::Containers => 2,
            What::LeaderTick | What::Vote | What::Joins | What::LeaderTimeout => 3,
        }
    }
}

/// One, three or five servers.
#[derive(Debug)]
pub(crate) struct Ensemble {
    config: EnsembleConfig,
    random: fastrand::Rng,
    now: Duration,
    servers: Vec<Server>,
    conns: BTreeMap<ConnId, Connection>,
    next_conn: u64,
    links: Links,
    happenings: BTreeMap<(Duration, u64), Happening>,
    next_happening: u64,
    out: Vec<Output>,
    /// How far each server's clock is from the begin of the run, within a tick.
    phases: Vec<Duration>,
    /// The server that wins the next election among equals.
    preferred: Option<usize>,
    journal: Journal,
}

impl Ensemble {
    /// All servers run, and one of them leads.
    pub(crate) fn new(config: EnsembleConfig, seed: u64) -> Ensemble {
        let mut random = fastrand::Rng::with_seed(seed);
        let server = |index| Server::new(index, random.i64(0..1 << 40));
        let servers = (0..config.servers).map(server).collect();
        let tick = u64::try_from(config.tick.as_micros()).unwrap();
        let phases = (0..config.servers).map(|_| Duration::from_micros(random.u64(0..tick))).collect();
        let mut ensemble = Ensemble {
            links: Links::new(config.servers),
            config,
            random,
            now: Duration::ZERO,
            servers,
            conns: BTreeMap::new(),
            next_conn: 0,
            happenings: BTreeMap::new(),
            next_happening: 0,
            out: Vec::new(),
            phases,
            preferred: None,
            journal: Journal::default(),
        };
        ensemble.begin();
        ensemble
    }

    /// How many servers there are.
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Connects to a server. `None`: nobody listens.
    pub(crate) fn connect(&mut self, server: usize, now: Duration) -> Option<ConnId> {
        self.now = now.max(self.now);
        if !self.servers[server].is_up {
            return None;
        }
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.conns.insert(conn, Connection::new(server, self.now));
        self.journal.counters.connections += 1;
        Some(conn)
    }

    /// Bytes of the client's stream have come, cut anywhere.
    pub(crate) fn receive(&mut self, conn: ConnId, bytes: &[u8], now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        if let Some(connection) = self.conns.get(&conn) {
            let server = connection.server;
            self.meets(server, What::Bytes { conn, bytes: bytes.to_vec() });
        }
        self.finish(out);
    }

    /// The client's end of the connection is gone.
    pub(crate) fn disconnected(&mut self, conn: ConnId, now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        if let Some(connection) = self.conns.get(&conn) {
            let server = connection.server;
            self.meets(server, What::Hangs { conn });
        }
        self.finish(out);
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.happenings.first_key_value().map(|((at, _), _)| *at)
    }

    /// Does everything that is due.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        self.finish(out);
    }

    /// Lets everything happen that is due by `now`.
    fn advance(&mut self, now: Duration) {
        while let Some(due) = self.happenings.first_entry().filter(|due| due.key().0 <= now) {
            self.now = due.key().0.max(self.now);
            let ((_, number), happening) = due.remove_entry();
            self.happen(number, happening);
        }
        self.now = now.max(self.now);
    }

    /// Ends a call from outside: what is due by now happens, and the outputs are handed over.
    fn finish(&mut self, out: &mut Vec<Output>) {
        self.advance(self.now);
        out.append(&mut self.out);
    }

    fn happen(&mut self, number: u64, happening: Happening) {
        let server = &mut self.servers[happening.server];
        if happening.life != server.life {
            return;
        }
        // Behind what it has missed, and which its thread finds when it wakes up. With its number it stays in front of what
        // comes from the same server at just that moment.
        let wakes = server.wakes[happening.what.thread()];
        if wakes > self.now {
            self.happenings.insert((wakes, number), happening);
            return;
        }
        if server.is_paused {
            return server.missed.push((number, happening));
        }
        self.dispatch(happening.server, happening.what);
    }

    /// Happens now, or once the server goes on.
    fn meets(&mut self, server: usize, what: What) {
        let life = self.servers[server].life;
        let number = self.number();
        self.happen(number, Happening { server, life, what });
    }

    fn at(&mut self, at: Duration, server: usize, what: What) {
        let happening = Happening { server, life: self.servers[server].life, what };
        self.schedule(at, happening);
    }

    fn schedule(&mut self, at: Duration, happening: Happening) {
        let number = self.number();
        self.happenings.insert((at, number), happening);
    }

    fn number(&mut self) -> u64 {
        self.next_happening += 1;
        self.next_happening
    }

    fn after(&mut self, span: &Span, server: usize, what: What) {
        let at = self.now + self.pick(span);
        self.at(at, server, what);
    }

    fn dispatch(&mut self, server: usize, what: What) {
        match what {
            What::Bytes { conn, bytes } => self.bytes(conn, &bytes),
            What::Hangs { conn } => self.forget(conn),
            What::Request { conn, frame } => self.request(conn, &frame, false),
            What::Message { from, message } => self.message(server, from, message),
            What::Logged { zxid } => self.logged(server, zxid),
            What::Commit => self.commit_next(server),
            What::LeaderTick => self.leader_tick(server),
            What::ExpiryTick => self.expiry_tick(server),
            What::ExpireOne => self.expire_one(server),
            What::Containers => self.remove_containers(server),
            What::Vote => self.vote(server),
            What::Joins => self.joins_no_longer(server),
            What::LeaderTimeout => self.leader_timeout(server),
            What::Idle => self.close_idle(server),
        }
    }

    /// A moment within a span.
    fn pick(&mut self, span: &Span) -> Duration {
        let [from, to] = [span.start(), span.end()].map(|end| u64::try_from(end.as_nanos()).unwrap());
        Duration::from_nanos(if from < to { self.random.u64(from..=to) } else { from })
    }

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        if self.conns.contains_key(&conn) {
            self.out.push(Output::Send { conn, bytes });
        }
    }

    /// The server ends the connection.
    fn end(&mut self, conn: ConnId) {
        if self.conns.contains_key(&conn) {
            self.out.push(Output::Close { conn });
            self.forget(conn);
        }
    }

    fn forget(&mut self, conn: ConnId) {
        let Some(connection) = self.conns.remove(&conn) else { return };
        let server = &mut self.servers[connection.server];
        server.watches.forget(conn);
        if server.connected.get(&connection.session) == Some(&conn) {
            server.connected.remove(&connection.session);
        }
    }

    /// Ends all connections of a server.
    fn end_all(&mut self, server: usize) {
        let of_server = |(conn, connection): (&ConnId, &Connection)| (connection.server == server).then_some(*conn);
        let conns: Vec<ConnId> = self.conns.iter().filter_map(of_server).collect();
        for conn in conns {
            self.end(conn);
        }
    }

    /// The servers' wall clock in milliseconds: what znodes are dated with.
    fn wall_clock(&self) -> i64 {
        1_700_000_000_000 + i64::try_from(self.now.as_millis()).unwrap()
    }

    fn take<T: Default>(place: &mut T) -> T {
        mem::take(place)
    }
}
