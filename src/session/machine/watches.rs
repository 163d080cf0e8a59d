//! The znodes that this session watches, for which watchers, and the requests that this takes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    base::collections::HashMap,
    proto::{
        request::Request,
        types::{EventType, WatchTable},
    },
};

/// The stage of one watcher's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arming {
    /// The request that leaves the watch is queued or on the wire.
    Requested,
    /// The server has the watch, on a znode that exists.
    Armed,
    /// The server has the watch, on a znode that does not exist (left by `exists`).
    ArmedOnAbsence,
    /// Given up while the request was on the wire.
    GivenUp,
}

struct Entry<W> {
    ticket: u64,
    stage: Arming,
    watcher: W,
}

struct WatchedNode<W> {
    entries: Vec<Entry<W>>,
    /// The server has a watch of this connection on the znode, as far as replies and events tell.
    at_server: bool,
}

/// The watches of one session. `W` is called when a watch fires.
///
/// `removeWatches` takes every watch of the connection on a znode, also one whose registration is still on its way.
/// So a requested watch counts as a watcher, and the decision to remove is made under the lock that orders requests.
pub(crate) struct Watches<W> {
    nodes: HashMap<(WatchTable, Arc<str>), WatchedNode<W>>,
    by_ticket: BTreeMap<u64, (WatchTable, Arc<str>)>,
}

impl<W: Clone> Watches<W> {
    pub(crate) fn new() -> Self {
        Watches { nodes: HashMap::default(), by_ticket: BTreeMap::new() }
    }

    /// Books a watch whose request is being submitted.
    pub(crate) fn request(&mut self, ticket: u64, table: WatchTable, path: &str, watcher: W) {
        let key = (table, Arc::<str>::from(path));
        let node =
            self.nodes.entry(key.clone()).or_insert_with(|| WatchedNode { entries: Vec::new(), at_server: false });
        node.entries.push(Entry { ticket, stage: Arming::Requested, watcher });
        self.by_ticket.insert(ticket, key);
    }

    /// The server answered the request that leaves the watch.
    pub(crate) fn armed(&mut self, ticket: u64, on_absence: bool) -> Option<(W, Option<Request>)> {
        let key = self.by_ticket.get(&ticket)?.clone();
        let node = self.nodes.get_mut(&key)?;
        node.at_server = true;
        let entry = node.entries.iter_mut().find(|entry| entry.ticket == ticket)?;
        if entry.stage == Arming::GivenUp {
            return self.forget(ticket);
        }
        entry.stage = if on_absence { Arming::ArmedOnAbsence } else { Arming::Armed };
        None
    }

    /// The watcher is not interested any more.
    pub(crate) fn give_up(&mut self, ticket: u64) -> Option<(W, Option<Request>)> {
        let key = self.by_ticket.get(&ticket)?;
        let entry = self.nodes.get_mut(key)?.entries.iter_mut().find(|entry| entry.ticket == ticket)?;
        if matches!(entry.stage, Arming::Requested | Arming::GivenUp) {
            // Only the reply tells whether there is something to remove.
            entry.stage = Arming::GivenUp;
            return None;
        }
        self.forget(ticket)
    }

    /// There is no such watch, or no interest in it: the server refused the request, or it was never sent. Returns the watcher,
    /// which must not be dropped under the lock that orders requests, as that may run any code; and a `removeWatches` that
    /// the server has to be sent, after everything submitted so far.
    pub(crate) fn forget(&mut self, ticket: u64) -> Option<(W, Option<Request>)> {
        let key = self.by_ticket.remove(&ticket)?;
        let node = self.nodes.get_mut(&key)?;
        let index = node.entries.iter().position(|entry| entry.ticket == ticket)?;
        let watcher = node.entries.remove(index).watcher;
        if !node.entries.is_empty() {
            // The last of them decides, also one that was given up and whose reply is still to come.
            return Some((watcher, None));
        }
        let removal = node.at_server.then(|| Request::RemoveWatches { path: key.1.to_string(), table: key.0 });
        self.nodes.remove(&key);
        Some((watcher, removal))
    }

    /// Takes out the watchers that an event uses up.
    pub(crate) fn fire(&mut self, event: EventType, path: &str) -> Vec<W> {
        let tables: &[WatchTable] = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => &[WatchTable::Data],
            EventType::NodeChildrenChanged => &[WatchTable::Children],
            EventType::NodeDeleted => &[WatchTable::Data, WatchTable::Children],
            EventType::DataWatchRemoved | EventType::ChildWatchRemoved | EventType::Other(_) => &[],
        };
        let mut fired = Vec::new();
        for table in tables {
            let key = (*table, Arc::from(path));
            let Some(node) = self.nodes.get_mut(&key) else { continue };
            node.at_server = false;
            // A watch that is only requested was registered after this event, or its reply would be here already.
            for entry in
                node.entries.extract_if(.., |entry| matches!(entry.stage, Arming::Armed | Arming::ArmedOnAbsence))
            {
                self.by_ticket.remove(&entry.ticket);
                fired.push(entry.watcher);
            }
            if node.entries.is_empty() {
                self.nodes.remove(&key);
            }
        }
        fired
    }

    /// The connection is gone, and with it the server's side of every watch.
    pub(crate) fn disconnected(&mut self) {
        for node in self.nodes.values_mut() {
            node.at_server = false;
        }
    }

    /// The paths to set again on a new connection, which from then on count as set. With each path the list of
    /// `setWatches` in which it belongs: 0 for data, 1 for exist, 2 for child.
    pub(crate) fn rearm(&mut self) -> Vec<(String, usize)> {
        let mut rearm = Vec::new();
        for ((table, path), node) in &mut self.nodes {
            let armed = |stage| node.entries.iter().any(|entry| entry.stage == stage);
            let list = match table {
                WatchTable::Data if armed(Arming::Armed) => 0,
                WatchTable::Data if armed(Arming::ArmedOnAbsence) => 1,
                WatchTable::Children if armed(Arming::Armed) => 2,
                _ => continue,
            };
            rearm.push((path.to_string(), list));
            node.at_server = true;
        }
        rearm
    }

    /// Every watcher that still waits, for news of the session.
    pub(crate) fn watchers(&self) -> Vec<W> {
        let entries = self.nodes.values().flat_map(|node| &node.entries);
        entries.filter(|entry| entry.stage != Arming::GivenUp).map(|entry| entry.watcher.clone()).collect()
    }

    /// Takes out every watcher, at the end of the session, and says whether it was given up.
    pub(crate) fn end(&mut self) -> Vec<(W, bool)> {
        self.by_ticket.clear();
        let entries = self.nodes.drain().flat_map(|(_, node)| node.entries);
        entries.map(|entry| (entry.watcher, entry.stage == Arming::GivenUp)).collect()
    }

    /// How many watches are booked, in whatever stage.
    pub(crate) fn len(&self) -> usize {
        self.by_ticket.len()
    }
}
