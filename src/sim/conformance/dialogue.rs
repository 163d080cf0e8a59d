//! Carries a row out, on the model or on real servers, and writes down what comes back: without what may differ.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
    time::Duration,
};

use super::script::{self, Open, Step, Wire};
use crate::proto::{
    connect::{ConnectRequest, ConnectResponse},
    header::{XID_AUTH, XID_PING, XID_SET_WATCHES, decode_header},
    op,
    response::Response,
    types::{Notification, Stat},
};

/// How long an answer may take, by the clock of the servers.
const PATIENCE: Duration = Duration::from_secs(20);

/// What comes out of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    Frame(Vec<u8>),
    End,
    Nothing,
}

/// Servers, as one row sees them.
pub(super) trait Servers {
    /// Connects to a server: a number, `leader`, or the first or second `follower`.
    fn connect(&mut self, at: &str) -> usize;
    fn write(&mut self, conn: usize, bytes: &[u8]);
    fn read(&mut self, conn: usize, grace: Duration) -> Came;
    fn hang_up(&mut self, conn: usize);
    /// Cuts a server off from the others, not from its clients.
    fn cut_off(&mut self, at: &str);
    /// Since some moment.
    fn now(&self) -> Duration;
    /// Lets time pass.
    fn pass(&mut self, time: Duration);
}

/// The server that a row calls so.
pub(super) fn named(at: &str, leader: usize, servers: usize) -> usize {
    let mut followers = (0..servers).filter(|server| *server != leader);
    match at {
        "leader" => leader,
        "follower" => followers.next().unwrap(),
        "other" => followers.nth(1).unwrap(),
        number => number.parse().unwrap(),
    }
}

/// What the row's names stand for on the wire.
#[derive(Debug, Default)]
pub(super) struct Names {
    directory: String,
    /// The transaction from which others are counted.
    base: i64,
    mark: i64,
}

impl Names {
    /// A path in the row's directory; behind `~` from the root, behind `!` as it stands there.
    pub(super) fn path(&self, word: &str) -> String {
        match word.split_at_checked(1) {
            Some(("~" | "!", rest)) => rest.replace("\\0", "\0"),
            _ if word == "/" => self.directory.clone(),
            _ => format!("{}{word}", self.directory).replace("\\0", "\0"),
        }
    }

    pub(super) fn zxid(&self, word: &str) -> i64 {
        match word {
            "mark" => self.mark,
            number => self.base + number.parse::<i64>().unwrap(),
        }
    }
}

/// A client.
#[derive(Debug)]
struct Client {
    conn: usize,
    session: i64,
    password: Vec<u8>,
    xid: i32,
    is_open: bool,
    /// Requests without a reply: xid, operation, and how the step wrote it.
    asked: VecDeque<(i32, i32)>,
}

pub(super) struct Dialogue<'a, S> {
    servers: &'a mut S,
    names: Names,
    clients: BTreeMap<String, Client>,
    /// Session ids, by the name of the client that began it.
    sessions: BTreeMap<i64, String>,
    last_zxid: i64,
    transcript: Vec<String>,
}

impl<'a, S: Servers> Dialogue<'a, S> {
    /// Carries out a row in a directory of its own: what came, line by line.
    pub(super) fn play(servers: &'a mut S, directory: &str, script: &str) -> Vec<String> {
        let names = Names { directory: format!("/{directory}"), ..Names::default() };
        let (clients, sessions) = (BTreeMap::new(), BTreeMap::new());
        let mut dialogue = Dialogue { servers, names, clients, sessions, last_zxid: 0, transcript: Vec::new() };
        dialogue.prepare();
        for (name, step) in script::parse(script) {
            dialogue.step(&name, &step);
        }
        dialogue.clear();
        dialogue.transcript
    }

    fn prepare(&mut self) {
        self.step("director", &Step::Open(Open { at: "0".into(), timeout_ms: 30_000, ..Open::default() }));
        self.step("director", &Step::Ask(vec!["create /".into()]));
        self.names.base = self.last_zxid;
        self.transcript.clear();
    }

    /// Whatever is still to come, then the end of every session.
    fn clear(&mut self) {
        let names: Vec<String> = self.clients.keys().filter(|name| *name != "director").cloned().collect();
        for name in &names {
            self.step(name, &Step::Events);
        }
        let mut closed = Vec::new();
        for name in &names {
            let Client { session, is_open, .. } = self.clients[name];
            match is_open {
                // The end of the session ends all of its connections.
                true if closed.contains(&session) => self.await_one(name),
                true => self.ask(name, &["close".into()]),
                false => continue,
            }
            closed.push(session);
        }
        self.ask("director", &["close".into()]);
        for name in names.iter().map(String::as_str).chain(["director"]).collect::<Vec<_>>() {
            let conn = self.clients[name].conn;
            self.servers.hang_up(conn);
        }
    }

    fn step(&mut self, name: &str, step: &Step) {
        match step {
            Step::Open(open) => self.open(name, open),
            Step::Ask(requests) => self.ask(name, requests),
            Step::Events if self.clients[name].is_open => self.ask(name, &["sync /".into()]),
            Step::Events => {}
            Step::Await => self.await_one(name),
            Step::Cut => {
                let client = self.clients.get_mut(name).unwrap();
                client.is_open = false;
                self.servers.hang_up(client.conn);
            }
            Step::Mark => self.names.mark = self.last_zxid,
            Step::Bytes(bytes) => {
                self.servers.write(self.clients[name].conn, bytes);
                self.await_one(name);
            }
        }
    }

    fn say(&mut self, name: &str, what: impl AsRef<str>) {
        self.transcript.push(format!("{name}: {}", what.as_ref()));
    }

    fn open(&mut self, name: &str, open: &Open) {
        let former = open.resume.as_ref().map(|former| &self.clients[former]);
        let (session, mut password) =
            former.map_or((0, vec![0; 16]), |former| (former.session, former.password.clone()));
        if open.wrong_password {
            password[0] ^= 1;
        }
        let request = ConnectRequest {
            last_zxid_seen: if open.zxid == 0 { 0 } else { self.last_zxid + open.zxid },
            timeout_ms: open.timeout_ms,
            session_id: session,
            password,
            read_only: false,
        };
        let mut bytes = request.encode();
        if open.is_old {
            bytes.pop();
            bytes[3] -= 1;
        }
        let conn = self.servers.connect(&open.at);
        self.servers.write(conn, &bytes);
        let client = Client { conn, session, password: Vec::new(), xid: 0, is_open: true, asked: VecDeque::new() };
        self.clients.insert(name.to_owned(), client);
        match self.servers.read(conn, PATIENCE) {
            Came::Frame(frame) => self.connected(name, open, &frame),
            Came::End => self.ended(name),
            Came::Nothing => self.say(name, "no answer"),
        }
    }

    fn connected(&mut self, name: &str, open: &Open, frame: &[u8]) {
        let response = ConnectResponse::decode(frame).unwrap();
        let client = self.clients.get_mut(name).unwrap();
        let asked_for = std::mem::replace(&mut client.session, response.session_id);
        client.password = response.password;
        let kind = match response.session_id {
            0 => "no session",
            id if id == asked_for => "the same session",
            _ => "a new session",
        };
        self.sessions.entry(response.session_id).or_insert_with(|| name.to_owned());
        self.say(name, format!("{kind}, {} ms, {} bytes", response.timeout_ms, frame.len()));
        if response.session_id == 0 {
            self.await_one(name);
        }
        let _ = open;
    }

    fn ended(&mut self, name: &str) {
        self.clients.get_mut(name).unwrap().is_open = false;
        self.say(name, "the end");
    }

    fn ask(&mut self, name: &str, requests: &[String]) {
        let mut bytes = Vec::new();
        let mut last = String::new();
        for text in requests {
            let wire = script::request(text, &self.names);
            let client = self.clients.get_mut(name).unwrap();
            bytes.extend(frame(client, &wire));
            last.clone_from(text);
        }
        self.servers.write(self.clients[name].conn, &bytes);
        while !self.clients[name].asked.is_empty() && self.clients[name].is_open {
            self.read(name);
        }
        if last == "close" && self.clients[name].is_open {
            self.await_one(name);
        }
    }

    /// Reads whatever comes next.
    fn await_one(&mut self, name: &str) {
        self.read(name);
    }

    fn read(&mut self, name: &str) {
        match self.servers.read(self.clients[name].conn, PATIENCE) {
            Came::Frame(frame) => self.came(name, &frame),
            Came::End => self.ended(name),
            Came::Nothing => {
                self.clients.get_mut(name).unwrap().asked.clear();
                self.say(name, "nothing comes");
            }
        }
    }

    fn came(&mut self, name: &str, frame: &[u8]) {
        let (header, body) = decode_header(frame).unwrap();
        if header.xid == -1 {
            let event = Notification::decode(body).unwrap();
            let path = self.path(&event.path);
            return self.say(name, format!("{:?} {path} (state {}, zxid {})", event.event, event.state, header.zxid));
        }
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        let client = self.clients.get_mut(name).unwrap();
        let place = client.asked.iter().position(|(xid, _)| *xid == header.xid);
        let op_code = place.and_then(|place| client.asked.remove(place)).map_or(0, |(_, op_code)| op_code);
        let what = match header.err {
            0 => self.body(op_code, header.zxid, body),
            code => format!("error {code}, {} bytes", body.len()),
        };
        let (xid, zxid) = (header.xid, self.zxid(header.zxid));
        self.say(name, format!("{xid} {zxid} {what}"));
    }

    fn path(&self, path: &str) -> String {
        path.replace(&self.names.directory, "")
    }

    /// A transaction, counted from the row's begin.
    fn zxid(&self, zxid: i64) -> String {
        if zxid <= 0 { zxid.to_string() } else { format!("{:+}", zxid - self.names.base) }
    }

    fn body(&self, op_code: i32, zxid: i64, body: &[u8]) -> String {
        if matches!(op_code, 17 | script::SET_WATCHES2 | op::CHECK) {
            return format!("done, {} bytes", body.len());
        }
        match Response::decode(op_code, zxid, body) {
            Ok(response) => self.response(&response) + &self.stat_of_create(op_code, body),
            Err(error) => format!("{error} in {body:?}"),
        }
    }

    /// The stat behind the path of a created znode, which no client needs.
    fn stat_of_create(&self, op_code: i32, body: &[u8]) -> String {
        const STAT: usize = 68;
        let has_stat = matches!(op_code, op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL);
        let stat = body.len().checked_sub(STAT).filter(|_| has_stat).and_then(|at| body.get(at..));
        match stat.map(|stat| Response::decode(op::EXISTS, 0, stat)) {
            Some(Ok(Response::Stat(stat))) => format!(" {}", self.stat(&stat)),
            _ => String::new(),
        }
    }

    fn response(&self, response: &Response) -> String {
        match response {
            Response::Done => "done".into(),
            Response::Created { path, czxid } => format!("created {} by {}", self.path(path), self.zxid(*czxid)),
            Response::Stat(stat) => self.stat(stat),
            Response::Data { data, stat } => {
                format!("data {:?} {}", String::from_utf8_lossy(data).replace(&"x".repeat(100), "X"), self.stat(stat))
            }
            Response::Children { names, stat } => format!("children {:?} {}", sorted(names), self.maybe_stat(*stat)),
            Response::Acl { acl, stat } => {
                let entries: Vec<_> =
                    acl.iter().map(|entry| format!("{}:{}:{}", entry.scheme, entry.id, entry.perms)).collect();
                format!("acl {entries:?} {}", self.stat(stat))
            }
            Response::Synced { path } => format!("synced {}", self.path(path)),
            Response::Multi(results) => results.iter().fold("multi".to_owned(), |text, result| match result {
                Ok(response) => format!("{text} | {}", self.response(response)),
                Err(code) => format!("{text} | error {}", code.map_or(0, i32::from)),
            }),
            Response::Ephemerals(paths) => {
                format!("ephemerals {:?}", sorted(paths).iter().map(|path| self.path(path)).collect::<Vec<_>>())
            }
            Response::WhoAmI(users) => {
                format!(
                    "I am {:?}",
                    sorted(&users.iter().map(|(scheme, user)| format!("{scheme}:{user}")).collect::<Vec<_>>())
                )
            }
        }
    }

    fn maybe_stat(&self, stat: Option<Stat>) -> String {
        stat.map_or_else(String::new, |stat| self.stat(&stat))
    }

    fn stat(&self, stat: &Stat) -> String {
        if stat.czxid == 0 {
            return "[the root, which all rows share]".into();
        }
        let [czxid, mzxid, pzxid] = [stat.czxid, stat.mzxid, stat.pzxid].map(|zxid| self.zxid(zxid));
        let mut text = format!("[c{czxid} m{mzxid} p{pzxid} v{} cv{} av{}", stat.version, stat.cversion, stat.aversion);
        let _ = write!(text, " {} bytes, {} children", stat.data_length, stat.num_children);
        match (stat.ephemeral_owner, self.sessions.get(&stat.ephemeral_owner)) {
            (0, _) => {}
            (i64::MIN, _) => text.push_str(", container"),
            (_, Some(name)) => text.push_str(&format!(", of {name}")),
            (other, None) => text.push_str(&format!(", owner {other:x}")),
        }
        text + "]"
    }
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

/// The request's frame, with the xid that its operation has.
fn frame(client: &mut Client, wire: &Wire) -> Vec<u8> {
    let xid = match wire.op {
        op::PING => XID_PING,
        op::AUTH => XID_AUTH,
        op::SET_WATCHES | script::SET_WATCHES2 => XID_SET_WATCHES,
        _ => {
            client.xid += 1;
            client.xid
        }
    };
    let xid = wire.xid.unwrap_or(xid);
    client.asked.push_back((xid, wire.op));
    let body = [&xid.to_be_bytes()[..], &wire.op.to_be_bytes(), &wire.body].concat();
    [&i32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}
