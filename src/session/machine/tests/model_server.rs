//! A server as far as one connection sees it: znodes, watches, and a queue in each direction.

use std::collections::{BTreeSet, VecDeque};

use super::*;

/// A znode, or what is left of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) exists: bool,
    /// When it last came, went or was set.
    pub(super) mzxid: i64,
    /// When its children last changed, or it came or went.
    pub(super) pzxid: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Toggle,
    Set,
    Children,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) nodes: [Node; 3],
    zxid: i64,
    arrived: VecDeque<Frame>,
    pub(super) sent: VecDeque<Vec<u8>>,
    pub(super) data: BTreeSet<usize>,
    pub(super) child: BTreeSet<usize>,
    pub(super) closed: bool,
}

pub(super) fn path_of(node: usize) -> String {
    format!("/{node}")
}

fn node_of(path: &str) -> Option<usize> {
    path.strip_prefix('/').and_then(|number| number.parse().ok())
}

impl Server {
    pub(super) fn disconnected(&mut self) {
        let Server { nodes, zxid, closed, .. } = std::mem::take(self);
        *self = Server { nodes, zxid, closed, ..Server::default() };
    }

    pub(super) fn arrive(&mut self, frames: Vec<Frame>) {
        self.arrived.extend(frames);
    }

    pub(super) fn change(&mut self, index: usize, change: Change) {
        self.zxid += 1;
        let node = &mut self.nodes[index];
        match change {
            Change::Toggle => {
                *node = Node { exists: !node.exists, mzxid: self.zxid, pzxid: self.zxid };
                let event = if node.exists { server::CREATED } else { server::DELETED };
                let deleted = !node.exists;
                let watched = self.data.remove(&index);
                // One event, whichever of the two watches there is.
                if watched | (deleted && self.child.remove(&index)) {
                    self.notify(event, index);
                }
            }
            Change::Set if node.exists => {
                node.mzxid = self.zxid;
                if self.data.remove(&index) {
                    self.notify(server::CHANGED, index);
                }
            }
            Change::Children if node.exists => {
                node.pzxid = self.zxid;
                if self.child.remove(&index) {
                    self.notify(server::CHILDREN_CHANGED, index);
                }
            }
            Change::Set | Change::Children => {}
        }
    }

    fn notify(&mut self, event: i32, index: usize) {
        self.sent.push_back(server::notification(event, &path_of(index)));
    }

    /// Carries out the next request. `false`: there is none.
    pub(super) fn process(&mut self) -> bool {
        let Some(frame) = self.arrived.pop_front() else { return false };
        let mut err = 0;
        match frame.op {
            server::SET_WATCHES => self.set_watches(&frame),
            server::REMOVE_WATCHES => {
                let table = if frame.table() == 2 { &mut self.data } else { &mut self.child };
                if !table.remove(&node_of(&frame.path()).unwrap()) {
                    err = -121;
                }
            }
            server::EXISTS | server::GET_DATA | server::GET_CHILDREN => err = self.read(&frame),
            server::CLOSE => self.closed = true,
            _ => {}
        }
        self.sent.push_back(server::answer(&frame, self.zxid, err));
        true
    }

    fn read(&mut self, frame: &Frame) -> i32 {
        let index = node_of(&frame.path()).unwrap();
        let exists = self.nodes[index].exists;
        if frame.watch() && (exists || frame.op == server::EXISTS) {
            let table = if frame.op == server::GET_CHILDREN { &mut self.child } else { &mut self.data };
            table.insert(index);
        }
        if exists { 0 } else { server::NO_NODE }
    }

    fn set_watches(&mut self, frame: &Frame) {
        let (seen, [data, exist, child]) = frame.set_watches();
        for index in data.iter().filter_map(|path| node_of(path)) {
            match self.nodes[index] {
                Node { exists: false, .. } => self.notify(server::DELETED, index),
                Node { mzxid, .. } if mzxid > seen => self.notify(server::CHANGED, index),
                _ => drop(self.data.insert(index)),
            }
        }
        for index in exist.iter().filter_map(|path| node_of(path)) {
            if self.nodes[index].exists {
                self.notify(server::CREATED, index);
            } else {
                self.data.insert(index);
            }
        }
        for index in child.iter().filter_map(|path| node_of(path)) {
            match self.nodes[index] {
                Node { exists: false, .. } => self.notify(server::DELETED, index),
                Node { pzxid, .. } if pzxid > seen => self.notify(server::CHILDREN_CHANGED, index),
                _ => drop(self.child.insert(index)),
            }
        }
    }
}
