//! One client: its session, its connection, what is on the wire, and its watches.

use std::collections::VecDeque;

use curator_locks::unversioned::{
    EventType, Request,
    contender::{Leftover, WatchId},
};

use super::server::{Answer, Change, Tree, Znode, changes_nothing};

/// Where an answer goes: the thread, and the place among the answers that it waits for.
pub type Slot = (usize, usize);

/// Whose watch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Of a contender; the thread is named first.
    Contender(usize, WatchId),
    /// Of a holder, by its znode's czxid.
    Holder(usize, i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Watched {
    pub owner: Owner,
    pub path: String,
    pub is_on_children: bool,
    /// The reply to its request has come.
    pub is_armed: bool,
    /// Nothing has used it up at the server.
    pub is_at_server: bool,
}

/// A request on its way, or waiting for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sent {
    pub request: Request,
    /// Nobody: the thread has stopped waiting.
    pub slot: Option<Slot>,
    pub watch: Option<Owner>,
}

/// What is on its way back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    Reply(Option<Slot>, Option<Owner>, Answer),
    Event(String, EventType),
    /// An event from before the reconnect.
    Missed(String, EventType),
}

/// A follower that does not follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lag {
    pub tree: Tree,
    pub pending: VecDeque<Change>,
}

/// A clean-up of the background.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    pub session: i64,
    pub directory: usize,
    pub leftover: Leftover,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    pub session: i64,
    /// The client knows that the session has ended, and has no other yet.
    pub is_ended: bool,
    /// 0 while there is none.
    pub connection: u64,
    connections: u64,
    /// Not served yet; while there is no connection, not sent either.
    pub requests: VecDeque<Sent>,
    /// Of connections that have ended, with their session. A server may carry them out until the session has another one.
    pub ghosts: VecDeque<(i64, Request)>,
    pub inbound: VecDeque<Message>,
    pub watches: Vec<Watched>,
    pub lag: Option<Lag>,
    /// How many session timeouts have passed.
    pub clock: u8,
    /// `valid_until` is still to come.
    pub is_valid: bool,
    /// A server heard of the session within the last session timeout, so that none can have expired it.
    pub is_touched: bool,
    /// The znodes that were granted a lock in this process.
    pub granted: Vec<String>,
    pub jobs: VecDeque<Job>,
}

impl Client {
    pub fn new(session: i64) -> Client {
        Client {
            session,
            is_ended: false,
            connection: 1,
            connections: 1,
            requests: VecDeque::new(),
            ghosts: VecDeque::new(),
            inbound: VecDeque::new(),
            watches: Vec::new(),
            lag: None,
            clock: 0,
            is_valid: true,
            is_touched: true,
            granted: Vec::new(),
            jobs: VecDeque::new(),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connection != 0 && !self.is_ended
    }

    /// Whether nothing is on the wire.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.inbound.is_empty()
    }

    pub fn watch(&mut self, owner: Owner, request: &Request) {
        let (path, is_on_children) = match request {
            Request::GetChildren { path, .. } => (path, true),
            Request::GetData { path, .. } | Request::Exists { path, .. } => (path, false),
            _ => return,
        };
        let path = path.clone();
        self.watches.push(Watched { owner, path, is_on_children, is_armed: false, is_at_server: false });
    }

    /// Whoever is not named any more is not told any more. That the server keeps the watch a while changes nothing.
    pub fn unwatch(&mut self, is_wanted: impl Fn(Owner) -> bool) {
        self.watches.retain(|watch| is_wanted(watch.owner));
    }

    fn watched(&mut self, owner: Owner) -> Option<&mut Watched> {
        self.watches.iter_mut().find(|watch| watch.owner == owner)
    }

    /// The server has carried a request out that leaves a watch.
    pub fn left_watch(&mut self, owner: Option<Owner>, answer: &Answer) {
        if let Some(watch) = owner.filter(|_| answer.is_ok()).and_then(|owner| self.watched(owner)) {
            watch.is_at_server = true;
        }
    }

    /// The reply to such a request is here.
    pub fn watch_answered(&mut self, owner: Owner, is_ok: bool) {
        match self.watched(owner) {
            Some(watch) if is_ok => watch.is_armed = true,
            _ => self.watches.retain(|watch| watch.owner != owner),
        }
    }

    /// What the client's server sees.
    pub fn sees<'a>(&'a self, leader: &'a Tree) -> &'a Tree {
        self.lag.as_ref().map_or(leader, |lag| &lag.tree)
    }

    /// A change happens: at once, or later where the client's server lags behind.
    pub fn hear(&mut self, change: &Change) {
        match &mut self.lag {
            Some(lag) => lag.pending.push_back(change.clone()),
            None => self.tell(change),
        }
    }

    /// The client's server learns of one more change.
    pub fn catch_up(&mut self) {
        let Some(lag) = &mut self.lag else { return };
        let change = lag.pending.pop_front();
        if let Some(change) = &change {
            lag.tree.apply(change);
        }
        if lag.pending.is_empty() {
            self.lag = None;
        }
        if let Some(change) = &change {
            self.tell(change);
        }
    }

    pub fn catch_up_wholly(&mut self) {
        while self.lag.is_some() {
            self.catch_up();
        }
    }

    /// The server uses watches up and sends the events, if there is a connection.
    fn tell(&mut self, change: &Change) {
        let mut told: Vec<String> = Vec::new();
        for watch in self.watches.iter_mut().filter(|watch| watch.is_at_server) {
            let Some(event) = change.reports(&watch.path, watch.is_on_children) else { continue };
            watch.is_at_server = false;
            if self.connection != 0 && !told.contains(&watch.path) {
                told.push(watch.path.clone());
                self.inbound.push_back(Message::Event(watch.path.clone(), event));
            }
        }
    }

    /// Takes out the watches that an event uses up.
    pub fn fire(&mut self, path: &str, event: EventType) -> Vec<Owner> {
        let is_hit = |watch: &Watched| {
            let is_of_kind =
                event == EventType::NodeDeleted || watch.is_on_children == (event == EventType::NodeChildrenChanged);
            watch.is_armed && !watch.is_at_server && watch.path == path && is_of_kind
        };
        let owners = self.watches.iter().filter(|watch| is_hit(watch)).map(|watch| watch.owner).collect();
        self.watches.retain(|watch| !is_hit(watch));
        owners
    }

    /// The thread does not wait for answers any more.
    pub fn forget_slots(&mut self, t: usize) {
        let of_requests = self.requests.iter_mut().map(|sent| &mut sent.slot);
        let of_replies = self.inbound.iter_mut().filter_map(|message| match message {
            Message::Reply(slot, ..) => Some(slot),
            Message::Event(..) | Message::Missed(..) => None,
        });
        for slot in of_requests.chain(of_replies) {
            *slot = slot.filter(|(of, _)| *of != t);
        }
    }

    /// The connection is gone. Hands out whose answers will not come: some are lost, and what was not served yet may still
    /// be.
    pub fn cut(&mut self) -> Vec<Option<Slot>> {
        self.connection = 0;
        let session = self.session;
        let unserved = std::mem::take(&mut self.requests);
        let writes = unserved.iter().filter(|sent| !changes_nothing(&sent.request) && !is_sync(&sent.request));
        self.ghosts.extend(writes.map(|sent| (session, sent.request.clone())));
        // What was asked for is not there; what was there is set again later.
        self.watches.retain(|watch| watch.is_armed);
        let unread = std::mem::take(&mut self.inbound).into_iter().filter_map(|message| match message {
            Message::Reply(slot, ..) => Some(slot),
            Message::Event(..) | Message::Missed(..) => None,
        });
        unread.chain(unserved.into_iter().map(|sent| sent.slot)).collect()
    }

    /// How many missed events will come after a reconnect.
    pub fn missed(&self) -> usize {
        self.missed_paths().len()
    }

    fn missed_paths(&self) -> Vec<(String, bool)> {
        let mut paths: Vec<(String, bool)> = Vec::new();
        for watch in self.watches.iter().filter(|watch| watch.is_armed && !watch.is_at_server) {
            if !paths.iter().any(|(path, _)| *path == watch.path) {
                paths.push((watch.path.clone(), watch.is_on_children));
            }
        }
        paths
    }

    /// The session goes on over another connection; the missed events come in the order with this number.
    pub fn reconnect(&mut self, leader: &Tree, order: usize) {
        self.connections += 1;
        self.connection = self.connections;
        // Those of an earlier session the servers may still carry out.
        let session = self.session;
        self.ghosts.retain(|(of, _)| *of != session);
        self.is_touched = true;
        let mut paths = self.missed_paths();
        let mut rest = order;
        while !paths.is_empty() {
            let (path, is_on_children) = paths.remove(rest % paths.len());
            rest /= paths.len() + 1;
            let event = match self.sees(leader).has(&path) {
                false => EventType::NodeDeleted,
                true if is_on_children => EventType::NodeChildrenChanged,
                true => EventType::NodeDataChanged,
            };
            self.inbound.push_back(Message::Missed(path, event));
        }
    }

    /// The session has ended. Hands out what was never sent.
    pub fn end(&mut self) -> Vec<Option<Slot>> {
        self.is_ended = true;
        self.connection = 0;
        self.lag = None;
        self.inbound.clear();
        self.jobs.clear();
        std::mem::take(&mut self.requests).into_iter().map(|sent| sent.slot).collect()
    }

    pub fn renew(&mut self) {
        self.session += 1;
        self.is_ended = false;
        (self.connection, self.connections) = (1, 1);
        (self.is_valid, self.is_touched) = (true, true);
    }

    /// What the next clean-up deletes now.
    pub fn clean(&mut self, leader: &Tree) -> Vec<String> {
        self.jobs.pop_front().map(|job| job.find(leader)).unwrap_or_default()
    }
}

impl Job {
    fn find(&self, tree: &Tree) -> Vec<String> {
        let Some(directory) = tree.directory(self.directory) else { return Vec::new() };
        // By its name alone, as the real one.
        let is_left = |znode: &&Znode| match &self.leftover {
            Leftover::Node(node) => znode.name == node.name,
            Leftover::Doubt(prefix) => znode.name.starts_with(prefix.as_str()),
        };
        directory.znodes.iter().filter(is_left).map(|znode| znode.name.clone()).collect()
    }
}

fn is_sync(request: &Request) -> bool {
    matches!(request, Request::Sync { .. })
}
