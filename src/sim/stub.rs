//! A server that does what a lock needs and no more, until the modelled ensemble takes its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::proto::op;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnId(u64);

pub(crate) enum Output {
    Send { conn: ConnId, bytes: Vec<u8> },
    Close { conn: ConnId },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EnsembleConfig {}

#[derive(Default)]
struct Node {
    data: Vec<u8>,
    czxid: i64,
    version: i32,
    owner: i64,
    next: i32,
}

struct Session {
    timeout: Duration,
    heard: Duration,
    conn: Option<ConnId>,
}

#[derive(Default)]
pub(crate) struct Ensemble {
    zxid: i64,
    conns: u64,
    sessions: BTreeMap<i64, Session>,
    of_conn: BTreeMap<ConnId, i64>,
    input: BTreeMap<ConnId, Vec<u8>>,
    nodes: BTreeMap<String, Node>,
    watches: BTreeSet<(String, ConnId)>,
}

const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
const TICK: Duration = Duration::from_millis(500);

impl Ensemble {
    pub(crate) fn new(_config: EnsembleConfig, _seed: u64) -> Ensemble {
        let mut made = Ensemble::default();
        made.nodes.insert(String::new(), Node::default());
        made
    }

    pub(crate) fn servers(&self) -> usize {
        3
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    pub(crate) fn connect(&mut self, _server: usize, _now: Duration) -> Option<ConnId> {
        self.conns += 1;
        self.input.insert(ConnId(self.conns), Vec::new());
        Some(ConnId(self.conns))
    }

    pub(crate) fn disconnected(&mut self, conn: ConnId, _now: Duration, _out: &mut Vec<Output>) {
        self.input.remove(&conn);
        self.watches.retain(|(_, watching)| *watching != conn);
        if let Some(session) = self.of_conn.remove(&conn).and_then(|id| self.sessions.get_mut(&id))
            && session.conn == Some(conn)
        {
            session.conn = None;
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.sessions.values().map(|session| session.heard + session.timeout + TICK).min()
    }

    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        let over = self.sessions.iter().filter(|(_, session)| session.heard + session.timeout + TICK <= now);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id, out);
        }
    }

    fn end(&mut self, id: i64, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for path in
            self.nodes.iter().filter(|(_, node)| node.owner == id).map(|(path, _)| path.clone()).collect::<Vec<_>>()
        {
            self.delete(&path, out);
        }
        if let Some(conn) = session.conn {
            self.of_conn.remove(&conn);
            self.input.remove(&conn);
            out.push(Output::Close { conn });
        }
    }

    pub(crate) fn receive(&mut self, conn: ConnId, bytes: &[u8], now: Duration, out: &mut Vec<Output>) {
        let Some(input) = self.input.get_mut(&conn) else { return };
        input.extend_from_slice(bytes);
        while let Some(input) = self.input.get_mut(&conn) {
            let Some(length) = input.first_chunk::<4>().map(|four| u32::from_be_bytes(*four) as usize) else { return };
            if input.len() < 4 + length {
                return;
            }
            let frame: Vec<u8> = input.drain(..4 + length).skip(4).collect();
            match self.of_conn.get(&conn).copied() {
                None => self.shake_hands(conn, &frame, now, out),
                Some(session) => self.request(conn, session, &frame, now, out),
            }
        }
    }

    fn shake_hands(&mut self, conn: ConnId, frame: &[u8], now: Duration, out: &mut Vec<Output>) {
        let mut reader = Reader(frame);
        let (_, _, timeout, asked) = (reader.int(), reader.long(), reader.int(), reader.long());
        let timeout = Duration::from_millis(timeout.max(1000) as u64);
        let id = if asked == 0 { 0x1000 + self.sessions.len() as i64 + self.zxid * 16 } else { asked };
        if asked != 0 && !self.sessions.contains_key(&asked) {
            out.push(Output::Send {
                conn,
                bytes: framed(&[&int(0)[..], &int(0), &long(0), &buffer(&[0; 16]), &[0]].concat()),
            });
            return out.push(Output::Close { conn });
        }
        self.zxid += 1;
        let before = self.sessions.insert(id, Session { timeout, heard: now, conn: Some(conn) });
        if let Some(old) = before.and_then(|before| before.conn) {
            self.of_conn.remove(&old);
            self.input.remove(&old);
            out.push(Output::Close { conn: old });
        }
        self.of_conn.insert(conn, id);
        let millis = int(timeout.as_millis() as i32);
        out.push(Output::Send {
            conn,
            bytes: framed(&[&int(0)[..], &millis, &long(id), &buffer(&[7; 16]), &[0]].concat()),
        });
    }

    fn request(&mut self, conn: ConnId, session: i64, frame: &[u8], now: Duration, out: &mut Vec<Output>) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.heard = now;
        }
        let mut reader = Reader(frame);
        let (xid, operation) = (reader.int(), reader.int());
        let answer = self.answer(conn, session, operation, &mut reader, out);
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (error, Vec::new()),
        };
        let reply = [&int(xid)[..], &long(self.zxid), &int(error), &body].concat();
        out.push(Output::Send { conn, bytes: framed(&reply) });
        if operation == op::CLOSE_SESSION {
            self.end(session, out);
        }
    }

    fn answer(
        &mut self,
        conn: ConnId,
        session: i64,
        operation: i32,
        reader: &mut Reader<'_>,
        out: &mut Vec<Output>,
    ) -> Result<Vec<u8>, i32> {
        match operation {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
                let (path, data) = (reader.string(), reader.bytes());
                for _ in 0..reader.int() {
                    let _ = (reader.int(), reader.string(), reader.string());
                }
                let flags = reader.int();
                let made = self.create(&path, data, if flags & 1 == 1 { session } else { 0 }, flags & 2 == 2, out)?;
                let stat = if operation == op::CREATE { Vec::new() } else { self.stat(&made)? };
                Ok([string(&made), stat].concat())
            }
            op::DELETE => {
                let path = reader.string();
                if !self.nodes.contains_key(&path) {
                    return Err(NO_NODE);
                }
                self.zxid += 1;
                self.delete(&path, out);
                Ok(Vec::new())
            }
            op::EXISTS | op::GET_DATA => {
                let (path, watches) = (reader.string(), reader.byte() == 1);
                let is_there = self.nodes.contains_key(&path);
                if watches && (is_there || operation == op::EXISTS) {
                    self.watches.insert((path.clone(), conn));
                }
                let stat = self.stat(&path)?;
                let data = self.nodes.get(&path).map(|node| buffer(&node.data)).unwrap_or_default();
                Ok(if operation == op::EXISTS { stat } else { [data, stat].concat() })
            }
            op::GET_CHILDREN | op::GET_CHILDREN2 => {
                let path = reader.string();
                let stat = self.stat(&path)?;
                let children = self.children(&path);
                let mut body = int(children.len() as i32).to_vec();
                body.extend(children.iter().flat_map(|child| string(child)));
                Ok(if operation == op::GET_CHILDREN { body } else { [body, stat].concat() })
            }
            op::SYNC => Ok(string(&reader.string())),
            op::PING | op::SET_WATCHES | op::CLOSE_SESSION => Ok(Vec::new()),
            op::REMOVE_WATCHES => {
                self.watches.remove(&(reader.string(), conn));
                Ok(Vec::new())
            }
            _ => Err(-6),
        }
    }

    fn create(
        &mut self,
        path: &str,
        data: Vec<u8>,
        owner: i64,
        is_sequential: bool,
        out: &mut Vec<Output>,
    ) -> Result<String, i32> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let above = self.nodes.get_mut(parent).ok_or(NO_NODE)?;
        let path = if is_sequential { format!("{path}{:010}", above.next) } else { path.to_owned() };
        above.next += 1;
        if self.nodes.contains_key(&path) {
            return Err(NODE_EXISTS);
        }
        self.zxid += 1;
        self.nodes.insert(path.clone(), Node { data, czxid: self.zxid, owner, ..Node::default() });
        self.tell(&path, 1, out);
        Ok(path)
    }

    fn delete(&mut self, path: &str, out: &mut Vec<Output>) {
        self.nodes.remove(path);
        self.tell(path, 2, out);
    }

    fn tell(&mut self, path: &str, event: i32, out: &mut Vec<Output>) {
        let told: Vec<_> = self.watches.iter().filter(|(watched, _)| watched == path).cloned().collect();
        for watch in told {
            let body = [&int(-1)[..], &long(-1), &int(0), &int(event), &int(3), &string(path)].concat();
            out.push(Output::Send { conn: watch.1, bytes: framed(&body) });
            self.watches.remove(&watch);
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let path = path.trim_end_matches('/');
        let below = self.nodes.keys().filter_map(|other| other.strip_prefix(path)?.strip_prefix('/'));
        below.filter(|name| !name.contains('/') && !name.is_empty()).map(str::to_owned).collect()
    }

    fn stat(&self, path: &str) -> Result<Vec<u8>, i32> {
        let node = self.nodes.get(path.trim_end_matches('/')).ok_or(NO_NODE)?;
        let (zxid, zero) = (long(node.czxid), long(0));
        let parts = [&zxid[..], &zxid, &zero, &zero, &int(node.version), &int(0), &int(0), &long(node.owner)];
        let rest = [&int(node.data.len() as i32)[..], &int(self.children(path).len() as i32), &zxid];
        Ok([parts.concat(), rest.concat()].concat())
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn int(&mut self) -> i32 {
        self.take(4).try_into().map_or(0, i32::from_be_bytes)
    }

    fn long(&mut self) -> i64 {
        self.take(8).try_into().map_or(0, i64::from_be_bytes)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.int();
        self.take(usize::try_from(length).unwrap_or(0)).to_vec()
    }

    fn string(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap_or_default()
    }
}

fn int(value: i32) -> [u8; 4] {
    value.to_be_bytes()
}

fn long(value: i64) -> [u8; 8] {
    value.to_be_bytes()
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&int(bytes.len() as i32)[..], bytes].concat()
}

fn string(text: &str) -> Vec<u8> {
    buffer(text.as_bytes())
}

fn framed(body: &[u8]) -> Vec<u8> {
    buffer(body)
}
