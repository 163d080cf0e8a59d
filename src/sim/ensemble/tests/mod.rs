//! What one server alone cannot show: lag, leaders cut off, elections, lost tails, pauses. The rest is in `sim::conformance`.

mod elections;
mod faults;
mod history;
mod sessions;

use std::{collections::BTreeMap, time::Duration};

use super::{ConnId, Ensemble, EnsembleConfig, Output};
use crate::proto::{
    connect::{ConnectRequest, ConnectResponse},
    header::{XID_PING, decode_header},
    request::Request,
    response::Response,
    types::{Acl, CreateMode, ErrorCode, Notification},
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How long an answer may take before a test takes it for lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// A client with one connection.
#[derive(Debug, Clone)]
struct Client {
    conn: ConnId,
    session: i64,
    password: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Done(Response),
    Refused(ErrorCode),
    /// The connection ended.
    Ended,
    /// Nothing came.
    Silence,
}

#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    has_ended: bool,
}

/// An ensemble, its clients and the time.
struct Run {
    ensemble: Ensemble,
    now: Duration,
    streams: BTreeMap<ConnId, Stream>,
    xid: i32,
    /// Events that have come, with their connection.
    events: Vec<(ConnId, Notification)>,
    last_zxid: i64,
    out: Vec<Output>,
}

impl Run {
    fn new(config: EnsembleConfig, seed: u64) -> Run {
        Run {
            ensemble: Ensemble::new(config, seed),
            now: Duration::ZERO,
            streams: BTreeMap::new(),
            xid: 0,
            events: Vec::new(),
            last_zxid: 0,
            out: Vec::new(),
        }
    }

    fn three(seed: u64) -> Run {
        Run::new(EnsembleConfig::default(), seed)
    }

    fn leader(&self) -> usize {
        self.ensemble.leader().unwrap()
    }

    fn followers(&self) -> Vec<usize> {
        let leader = self.leader();
        (0..self.ensemble.servers()).filter(|server| *server != leader).collect()
    }

    /// Does something to the servers.
    fn act(&mut self, what: impl FnOnce(&mut Ensemble, Duration, &mut Vec<Output>)) {
        what(&mut self.ensemble, self.now, &mut self.out);
        self.deliver();
    }

    fn deliver(&mut self) {
        for output in std::mem::take(&mut self.out) {
            match output {
                Output::Send { conn, bytes } => self.streams.get_mut(&conn).unwrap().bytes.extend(bytes),
                Output::Close { conn } => self.streams.get_mut(&conn).unwrap().has_ended = true,
            }
        }
    }

    /// Lets time pass.
    fn after(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Goes on to what happens next. `false`: nothing happens by then.
    fn step(&mut self, end: Duration) -> bool {
        let Some(wake) = self.ensemble.next_wake().filter(|wake| *wake <= end) else { return false };
        self.now = wake.max(self.now);
        self.act(Ensemble::tick);
        true
    }

    /// Waits until something holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Run) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while !holds(self) {
            assert!(self.step(end), "in vain: {what}; {:#?}", self.ensemble);
        }
    }

    fn connect(&mut self, server: usize, timeout: Duration, of: Option<&Client>) -> Option<Client> {
        self.connect_seen(server, timeout, of, 0)
    }

    /// `None`: the server ended the connection, or knows no such session.
    fn connect_seen(&mut self, server: usize, timeout: Duration, of: Option<&Client>, zxid: i64) -> Option<Client> {
        let conn = self.ensemble.connect(server, self.now)?;
        self.streams.insert(conn, Stream::default());
        let request = ConnectRequest {
            last_zxid_seen: zxid,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
            session_id: of.map_or(0, |client| client.session),
            password: of.map_or_else(|| vec![0; 16], |client| client.password.clone()),
            read_only: false,
        };
        self.write(conn, &request.encode());
        let response = ConnectResponse::decode(&self.frame(conn).ok()?).unwrap();
        let client = Client { conn, session: response.session_id, password: response.password };
        (client.session != 0).then_some(client)
    }

    /// A client with a session of 6 s.
    fn client(&mut self, server: usize) -> Client {
        self.connect(server, Duration::from_secs(6), None).unwrap()
    }

    fn write(&mut self, conn: ConnId, bytes: &[u8]) {
        self.act(|ensemble, now, out| ensemble.receive(conn, bytes, now, out));
    }

    /// The next frame of a connection.
    fn frame(&mut self, conn: ConnId) -> Result<Vec<u8>, Answer> {
        let end = self.now + PATIENCE;
        loop {
            let stream = self.streams.get_mut(&conn).unwrap();
            if let Some(length) = stream.bytes.first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                return Ok(stream.bytes.drain(..4 + length).skip(4).collect());
            }
            if stream.has_ended {
                return Err(Answer::Ended);
            }
            if !self.step(end) {
                self.now = end;
                return Err(Answer::Silence);
            }
        }
    }

    fn send(&mut self, client: &Client, request: &Request) {
        self.xid += 1;
        let bytes = request.encode(self.xid);
        self.write(client.conn, &bytes);
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, client: &Client, request: &Request) -> Answer {
        self.send(client, request);
        let xid = if *request == Request::Ping { XID_PING } else { self.xid };
        loop {
            let frame = match self.frame(client.conn) {
                Ok(frame) => frame,
                Err(answer) => return answer,
            };
            let (header, body) = decode_header(&frame).unwrap();
            if header.xid == -1 {
                self.events.push((client.conn, Notification::decode(body).unwrap()));
                continue;
            }
            self.last_zxid = header.zxid;
            if header.xid != xid {
                continue; // the answer to a request that had none in time
            }
            return match header.err {
                0 => Answer::Done(Response::decode(request.op_code(), header.zxid, body).unwrap()),
                code => Answer::Refused(code.into()),
            };
        }
    }

    fn create(&mut self, client: &Client, path: &str) -> Answer {
        self.ask(client, &create(path, CreateMode::Persistent))
    }

    fn exists(&mut self, client: &Client, path: &str) -> bool {
        matches!(self.ask(client, &Request::Exists { path: path.into(), watch: false }), Answer::Done(_))
    }

    fn sync(&mut self, client: &Client) -> Answer {
        self.ask(client, &Request::Sync { path: "/".into() })
    }
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create { path: path.into(), data: Vec::new(), acl: Acl::open_unsafe(), mode }
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(_))
}
