//! The limit: one socket, no threads, and the very requests that this crate sends.

use std::{
    collections::{HashSet, VecDeque},
    io::{Read, Write},
    net::TcpStream,
};

use curator_locks::{
    Acl, CreateMode,
    unversioned::{
        Request, Response,
        wire::{ConnectRequest, FrameBuffer, Notification, XID_NOTIFICATION, decode_header},
    },
};

use super::side::{Outcome, Side, now, unknown};

/// How many lists a multi lock sends as one request.
const READS: usize = 64;

/// What lies in the znodes of all sides that put something there.
pub const DATA: &[u8] = b"127.0.0.1";

/// A session with nothing around it: no heartbeat, no retry. It never idles, so it does not expire.
pub struct Socket {
    stream: TcpStream,
    buffer: FrameBuffer,
    next_xid: i32,
    /// Requests whose replies are to come.
    in_flight: VecDeque<Request>,
    output: Vec<u8>,
}

pub enum Incoming {
    Reply(Outcome<Response>),
    Event(String),
}

impl Socket {
    pub fn connect(address: &str) -> Outcome<Socket> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (buffer, in_flight) = (FrameBuffer::new(16 << 20), VecDeque::new());
        let mut socket = Socket { stream, buffer, next_xid: 1, in_flight, output: Vec::new() };
        let (timeout_ms, password) = (60_000, vec![0; 16]);
        let handshake = ConnectRequest { last_zxid_seen: 0, timeout_ms, session_id: 0, password, read_only: false };
        socket.stream.write_all(&handshake.encode())?;
        while socket.buffer.next_frame()?.is_none() {
            socket.fill()?;
        }
        Ok(socket)
    }

    fn fill(&mut self) -> Outcome<()> {
        match self.stream.read(self.buffer.space())? {
            0 => Err("the server closed the connection".into()),
            count => {
                self.buffer.filled(count);
                Ok(())
            }
        }
    }

    /// To be written with the next `flush`.
    fn put(&mut self, request: Request) {
        self.output.extend(request.encode(self.next_xid));
        self.next_xid += 1;
        self.in_flight.push_back(request);
    }

    fn flush(&mut self) -> Outcome<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// What is in the buffer, without reading.
    fn buffered(&mut self) -> Outcome<Option<Incoming>> {
        let Some(frame) = self.buffer.next_frame()? else { return Ok(None) };
        let (header, body) = decode_header(frame)?;
        if header.xid == XID_NOTIFICATION {
            return Ok(Some(Incoming::Event(Notification::decode(body)?.path)));
        }
        let request = self.in_flight.pop_front().ok_or("a reply to nothing")?;
        if header.err != 0 {
            return Ok(Some(Incoming::Reply(Err(format!("{request:?}: error {}", header.err).into()))));
        }
        Ok(Some(Incoming::Reply(Ok(Response::decode(request.op_code(), header.zxid, body)?))))
    }

    fn next(&mut self) -> Outcome<Incoming> {
        loop {
            if let Some(incoming) = self.buffered()? {
                return Ok(incoming);
            }
            self.fill()?;
        }
    }

    fn reply(&mut self) -> Outcome<Response> {
        loop {
            if let Incoming::Reply(reply) = self.next()? {
                return reply;
            }
        }
    }

    fn event(&mut self, path: &str) -> Outcome<()> {
        loop {
            match self.next()? {
                Incoming::Event(changed) if changed == path => return Ok(()),
                Incoming::Event(_) => {}
                Incoming::Reply(reply) => drop(reply?),
            }
        }
    }

    fn ask(&mut self, request: Request) -> Outcome<Response> {
        self.put(request);
        self.flush()?;
        self.reply()
    }

    fn make_directory(&mut self, path: &str) -> Outcome<()> {
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            let path = path.get(..end).unwrap_or_default();
            // It may be there already.
            let _ = self.ask(create(path.to_owned(), Vec::new(), CreateMode::Persistent));
        }
        Ok(())
    }

    /// Creates and lists in one write, as a mutex does.
    pub fn enter(&mut self, directory: &str, name: &str) -> Outcome<String> {
        self.put(contender(directory, name));
        self.put(list(directory));
        self.flush()?;
        let path = created(self.reply()?)?;
        self.reply()?;
        Ok(path)
    }

    /// Creates in an empty directory, as the unfair lock does.
    fn enter_alone(&mut self, directory: &str, name: &str) -> Outcome<String> {
        let node = unique(directory, name);
        loop {
            match self.ask(sole(directory, &node))? {
                Response::Multi(results) if results.iter().all(Result::is_ok) => return Ok(node),
                // The server has removed the empty container.
                Response::Multi(_) => self.make_directory(directory)?,
                other => return Err(format!("not the reply to a transaction: {other:?}").into()),
            }
        }
    }

    /// Creates in all directories in one transaction and lists them in the same write, as a multi lock does.
    fn enter_all(&mut self, directories: &[String]) -> Outcome<Vec<String>> {
        self.put(Request::Multi(directories.iter().map(|directory| contender(directory, "lock-")).collect()));
        let lists: Vec<_> = directories.chunks(READS).map(|part| part.iter().map(|one| list(one)).collect()).collect();
        let count = lists.len();
        lists.into_iter().for_each(|part| self.put(Request::Multi(part)));
        self.flush()?;
        let Response::Multi(results) = self.reply()? else { return Err("not the reply to a transaction".into()) };
        (0..count).try_for_each(|_| self.reply().map(drop))?;
        results
            .into_iter()
            .map(|result| created(result.map_err(|code| format!("in a transaction: {code:?}"))?))
            .collect()
    }

    pub fn leave(&mut self, path: String) -> Outcome<()> {
        self.ask(delete(path)).map(drop)
    }
}

fn create(path: String, data: Vec<u8>, mode: CreateMode) -> Request {
    Request::Create { path, data, acl: Acl::open_unsafe(), mode }
}

/// The paths of a multi lock of this kind, `multi-10` for instance.
pub fn several(kind: &str, path: &str) -> Option<Vec<String>> {
    let count: u8 = kind.strip_prefix("multi-")?.parse().ok()?;
    Some((0..count).map(|k| format!("{path}-{}{}", char::from(b'a' + k / 26), char::from(b'a' + k % 26))).collect())
}

/// As long as the name of a contender's znode.
fn unique(directory: &str, name: &str) -> String {
    format!("{directory}/_c_00000000-0000-0000-0000-000000000000-{name}")
}

fn contender(directory: &str, name: &str) -> Request {
    create(unique(directory, name), DATA.to_vec(), CreateMode::EphemeralSequential)
}

/// A znode in a directory that fails unless it is the only one.
fn sole(directory: &str, node: &str) -> Request {
    Request::Multi(vec![
        delete(directory.to_owned()),
        create(directory.to_owned(), Vec::new(), CreateMode::Container),
        create(node.to_owned(), DATA.to_vec(), CreateMode::Ephemeral),
    ])
}

fn list(directory: &str) -> Request {
    Request::GetChildren { path: directory.to_owned(), watch: false, with_stat: false }
}

fn delete(path: String) -> Request {
    Request::Delete { path, version: -1 }
}

fn watch(path: &str) -> Request {
    Request::GetData { path: path.to_owned(), watch: true }
}

fn created(response: Response) -> Outcome<String> {
    match response {
        Response::Created { path, .. } => Ok(path),
        other => Err(format!("not the reply to a create: {other:?}").into()),
    }
}

#[derive(Default)]
pub struct BareSocket {
    address: String,
    own: Vec<Socket>,
    queue: Option<Queue>,
    /// Where the directories of many paths are.
    made: HashSet<String>,
}

impl Side for BareSocket {
    fn answer(&mut self, words: &[&str]) -> Outcome<Vec<u64>> {
        match *words {
            ["connect", address] => {
                self.address = address.to_owned();
                Ok(Vec::new())
            }
            ["cycles", kind, path, count] => {
                let mut socket = Socket::connect(&self.address)?;
                let times = cycles(&mut socket, kind, path, count.parse()?)?;
                socket.ask(Request::CloseSession)?;
                Ok(times)
            }
            ["queue", "shared", path, count, "held"] => {
                let sockets = vec![Socket::connect(&self.address)?];
                self.queue = Some(Queue::start(sockets, path, count.parse()?)?);
                Ok(Vec::new())
            }
            ["queue", "own", path, count, "held"] => {
                let count: usize = count.parse()?;
                while self.own.len() <= count {
                    self.own.push(Socket::connect(&self.address)?);
                }
                self.queue = Some(Queue::start(self.own.drain(..=count).collect(), path, count)?);
                Ok(Vec::new())
            }
            ["drain"] => {
                let (times, sockets) = self.queue.take().ok_or("no queue")?.drain()?;
                if sockets.len() > 1 {
                    self.own.extend(sockets);
                }
                Ok(times)
            }
            ["forget"] => {
                for mut socket in self.own.drain(..) {
                    socket.ask(Request::CloseSession)?;
                }
                Ok(Vec::new())
            }
            [kind @ ("many" | "many_unlisted"), prefix, paths, in_flight, millis] => {
                let mut socket = Socket::connect(&self.address)?;
                let directories: Vec<_> = (0..paths.parse()?).map(|index: usize| format!("{prefix}/{index}")).collect();
                if self.made.insert(prefix.to_owned()) {
                    directories.iter().try_for_each(|directory| socket.make_directory(directory))?;
                }
                let counts = many(&mut socket, kind == "many", &directories, in_flight.parse()?, millis.parse()?)?;
                socket.ask(Request::CloseSession)?;
                Ok(counts)
            }
            _ => Err(unknown(words)),
        }
    }
}

fn cycles(socket: &mut Socket, kind: &str, path: &str, count: usize) -> Outcome<Vec<u64>> {
    if let Some(directories) = several(kind, path) {
        directories.iter().try_for_each(|directory| socket.make_directory(directory))?;
        let mut cycle = || {
            let begin = now()?;
            let nodes = socket.enter_all(&directories)?;
            socket.ask(Request::Multi(nodes.into_iter().map(delete).collect()))?;
            Ok(now()? - begin)
        };
        return (0..count).map(|_| cycle()).collect();
    }
    let name = match kind {
        "mutex" | "mutex_in_turn" | "mutex_unlisted" => "lock-",
        "unfair" | "create_and_delete" => "lock",
        "read" => "__READ__",
        "write" => "__WRIT__",
        "semaphore" | "semaphore_mutex" => "lease-",
        _ => return Err(unknown(&["cycles", kind])),
    };
    let (leases, locks, holder) = (format!("{path}/leases"), format!("{path}/locks"), format!("{path}/lock/holder"));
    let is_semaphore = kind.starts_with("semaphore");
    let directories = match kind {
        _ if is_semaphore => vec![leases.as_str(), &locks],
        "unfair" => vec![holder.as_str()],
        _ => vec![path],
    };
    for directory in directories {
        socket.make_directory(directory)?;
    }
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = now()?;
        let node = match kind {
            "create_and_delete" => {
                created(socket.ask(create(format!("{path}/{name}"), DATA.to_vec(), CreateMode::Ephemeral))?)?
            }
            "unfair" => socket.enter_alone(&holder, name)?,
            "mutex_in_turn" => {
                let node = created(socket.ask(contender(path, name))?)?;
                socket.ask(list(path))?;
                node
            }
            "mutex_unlisted" => created(socket.ask(contender(path, name))?)?,
            _ if is_semaphore => {
                for request in [contender(&leases, name), list(&leases), list(&locks)] {
                    socket.put(request);
                }
                socket.flush()?;
                let node = created(socket.reply()?)?;
                socket.reply()?;
                socket.reply()?;
                node
            }
            _ => socket.enter(path, name)?,
        };
        socket.leave(node)?;
        times.push(now()? - begin);
    }
    Ok(times)
}

/// Contenders in one queue, the holder first. Either all of them on one socket, or each on its own.
struct Queue {
    sockets: Vec<Socket>,
    directory: String,
    nodes: Vec<String>,
}

impl Queue {
    fn start(mut sockets: Vec<Socket>, directory: &str, waiters: usize) -> Outcome<Queue> {
        let all = sockets.len();
        let mut nodes: Vec<String> = Vec::with_capacity(waiters + 1);
        for index in 0..=waiters {
            let socket = sockets.get_mut(index % all).ok_or("no socket")?;
            if index == 0 {
                socket.make_directory(directory)?;
            }
            let node = socket.enter(directory, "lock-")?;
            if let Some(predecessor) = nodes.last() {
                socket.put(watch(predecessor));
                socket.put(watch(&node));
                socket.flush()?;
                socket.reply()?;
                socket.reply()?;
            }
            nodes.push(node);
        }
        Ok(Queue { sockets, directory: directory.to_owned(), nodes })
    }

    fn drain(mut self) -> Outcome<(Vec<u64>, Vec<Socket>)> {
        let all = self.sockets.len();
        let mut times = vec![now()?];
        let mut previous: Option<&String> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            let socket = self.sockets.get_mut(index % all).ok_or("no socket")?;
            if let Some(previous) = previous {
                socket.event(previous)?;
                if index > 1 && all > 1 {
                    // It was not the holder when it was found, and was not granted here: another look.
                    socket.put(list(&self.directory));
                    socket.flush()?;
                    while !matches!(socket.reply()?, Response::Children { .. }) {}
                }
                times.push(now()?);
            }
            socket.put(delete(node.clone()));
            socket.flush()?;
            previous = Some(node);
        }
        for socket in &mut self.sockets {
            while !socket.in_flight.is_empty() {
                socket.reply()?;
            }
        }
        Ok((times, self.sockets))
    }
}

/// Cycles over many paths, so many at a time: requests that become due together go out together.
fn many(
    socket: &mut Socket,
    is_listed: bool,
    directories: &[String],
    in_flight: usize,
    millis: u64,
) -> Outcome<Vec<u64>> {
    let mut next_paths: Vec<_> =
        (0..in_flight).map(|slot| directories.iter().skip(slot).step_by(in_flight).cycle()).collect();
    // The slot of each request on the wire.
    let mut slots = VecDeque::new();
    let mut begin_cycle = |socket: &mut Socket, slots: &mut VecDeque<usize>, slot: usize| -> Outcome<()> {
        let directory = next_paths.get_mut(slot).and_then(Iterator::next).ok_or("no path")?;
        socket.put(contender(directory, "lock-"));
        slots.push_back(slot);
        if is_listed {
            socket.put(list(directory));
            slots.push_back(slot);
        }
        Ok(())
    };
    let begin = now()?;
    let end = begin + millis * 1_000_000;
    for slot in 0..in_flight {
        begin_cycle(socket, &mut slots, slot)?;
    }
    let (mut cycles, mut nodes) = (0, vec![String::new(); in_flight]);
    socket.flush()?;
    while !slots.is_empty() {
        socket.fill()?;
        while let Some(incoming) = socket.buffered()? {
            let Incoming::Reply(reply) = incoming else { continue };
            let slot = slots.pop_front().ok_or("a reply to nothing")?;
            match reply? {
                Response::Created { path, .. } if is_listed => *nodes.get_mut(slot).ok_or("no slot")? = path,
                Response::Created { path, .. } => {
                    socket.put(delete(path));
                    slots.push_back(slot);
                }
                Response::Children { .. } => {
                    let node = nodes.get_mut(slot).map(std::mem::take).ok_or("no slot")?;
                    socket.put(delete(node));
                    slots.push_back(slot);
                }
                _ => {
                    cycles += 1;
                    if now()? < end {
                        begin_cycle(socket, &mut slots, slot)?;
                    }
                }
            }
        }
        socket.flush()?;
    }
    Ok(vec![cycles, now()? - begin])
}
