//! Transactions, and what each does to a server's tree and whom it tells.

use std::collections::BTreeSet;

use super::{
    ConnId, code, paths,
    tree::{Kind, Tree},
    watches::Watches,
};
use crate::proto::types::{Acl, Stat};

/// A znode to be made, as decided by the leader.
#[derive(Debug, Clone)]
pub(crate) struct Create {
    pub(crate) path: String,
    pub(super) data: Vec<u8>,
    pub(super) acl: Vec<Acl>,
    pub(crate) kind: Kind,
    /// The parent's count of creates afterwards.
    pub(super) created: i32,
}

#[derive(Debug, Clone)]
pub(crate) enum Txn {
    Create(Create),
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    Check,
    Multi(Vec<Txn>),
    /// A multi that was refused: a code for each operation.
    FailedMulti(Vec<i32>),
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession {
        paths: Vec<String>,
    },
    /// A refused request takes a number as well.
    Error(i32),
}

/// A transaction with its number.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    /// In milliseconds, by the leader's clock.
    pub(super) time: i64,
    pub(crate) session: i64,
    pub(crate) txn: Txn,
    /// The request that it answers.
    pub(super) origin: Option<Origin>,
}

/// A request, as the server that has got it knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) server: usize,
    pub(super) conn: ConnId,
    pub(super) number: u64,
}

/// What a transaction came to.
#[derive(Debug, Clone)]
pub(super) enum Applied {
    Failed(i32),
    Created { path: String, stat: Stat },
    Stat(Stat),
    Done,
    Multi(Vec<Applied>),
}

/// A watch event on its way.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: i32,
    pub(super) path: String,
    /// Who may read the znode is told.
    pub(super) acl: Vec<Acl>,
    pub(super) conns: BTreeSet<ConnId>,
}

pub(super) const CREATED: i32 = 1;
pub(super) const DELETED: i32 = 2;
pub(super) const CHANGED: i32 = 3;
pub(super) const CHILDREN_CHANGED: i32 = 4;

/// Where a transaction is carried out: one server's tree and watches.
pub(super) struct Replay<'a> {
    pub(super) tree: &'a mut Tree,
    pub(super) watches: &'a mut Watches,
    pub(super) events: Vec<Event>,
}

impl Replay<'_> {
    pub(super) fn apply(&mut self, entry: &Entry) -> Applied {
        let applied = self.step(entry, &entry.txn);
        self.tree.zxid = entry.zxid.max(self.tree.zxid);
        applied
    }

    fn step(&mut self, entry: &Entry, txn: &Txn) -> Applied {
        let result = match txn {
            Txn::Create(create) => self.create(entry, create),
            Txn::Delete { path } => self.delete(path, entry.zxid).map(|()| Applied::Done),
            Txn::SetData { path, data, version } => self.set_data(entry, path, data, *version),
            Txn::SetAcl { path, acl, version } => self.tree.set_acl(path, acl, *version).map(Applied::Stat),
            Txn::Check => Ok(Applied::Done),
            Txn::Multi(txns) => Ok(Applied::Multi(txns.iter().map(|txn| self.step(entry, txn)).collect())),
            Txn::FailedMulti(codes) => Ok(Applied::Multi(codes.iter().map(|code| Applied::Failed(*code)).collect())),
            Txn::CreateSession { timeout_ms } => {
                self.tree.sessions.insert(entry.session, *timeout_ms);
                Ok(Applied::Done)
            }
            Txn::CloseSession { paths } => {
                self.close_session(entry, paths);
                Ok(Applied::Done)
            }
            Txn::Error(code) => Err(*code),
        };
        result.unwrap_or_else(Applied::Failed)
    }

    fn create(&mut self, entry: &Entry, create: &Create) -> Result<Applied, i32> {
        let stat = self.tree.create(create, entry.zxid, entry.time)?;
        let conns = self.watches.data.take(&create.path);
        self.tell(CREATED, &create.path, create.acl.clone(), conns);
        self.tell_parent(&create.path);
        Ok(Applied::Created { path: create.path.clone(), stat })
    }

    fn delete(&mut self, path: &str, zxid: i64) -> Result<(), i32> {
        let node = self.tree.delete(path, zxid)?;
        // One event, also for who has both watches.
        let conns = &self.watches.data.take(path) | &self.watches.children.take(path);
        self.tell(DELETED, path, node.acl, conns);
        self.tell_parent(path);
        Ok(())
    }

    fn set_data(&mut self, entry: &Entry, path: &str, data: &[u8], version: i32) -> Result<Applied, i32> {
        let stat = self.tree.set_data(path, data, version, entry.zxid, entry.time)?;
        let acl = self.acl_of(path);
        let conns = self.watches.data.take(path);
        self.tell(CHANGED, path, acl, conns);
        Ok(Applied::Stat(stat))
    }

    /// Deletes what the leader knew of, and what this server knows of besides.
    fn close_session(&mut self, entry: &Entry, paths: &[String]) {
        let known: Vec<String> = self.tree.ephemerals(entry.session).cloned().collect();
        for path in paths.iter().chain(known.iter().filter(|path| !paths.contains(path))) {
            let _ = self.delete(path, entry.zxid);
        }
        self.tree.sessions.remove(&entry.session);
    }

    fn tell_parent(&mut self, path: &str) {
        let parent = match paths::parent(path) {
            Some("") | None => "/",
            Some(parent) => parent,
        };
        let conns = self.watches.children.take(parent);
        self.tell(CHILDREN_CHANGED, parent, self.acl_of(parent), conns);
    }

    fn acl_of(&self, path: &str) -> Vec<Acl> {
        self.tree.node(path).map(|node| node.acl.clone()).unwrap_or_default()
    }

    fn tell(&mut self, kind: i32, path: &str, acl: Vec<Acl>, conns: BTreeSet<ConnId>) {
        if !conns.is_empty() {
            self.events.push(Event { kind, path: path.to_owned(), acl, conns });
        }
    }
}

impl Applied {
    pub(super) fn code(&self) -> i32 {
        if let Applied::Failed(code) = self { *code } else { code::OK }
    }
}
