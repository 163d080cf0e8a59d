//! How the leader turns a request into a transaction: against the znodes as they will be once everything under way is
//! carried out.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    acl::{self, Id},
    code, paths,
    reads::place_in_a_hash_set,
    tracker::Tracker,
    tree::{Kind, Node, Tree},
    txn::{Create, Txn},
    wire::{Call, NewNode},
};
use crate::proto::{
    op,
    types::{Acl, perms},
};

/// A znode as a transaction under way will leave it. `None`: deleted.
#[derive(Debug)]
struct Change {
    zxid: i64,
    path: String,
    node: Option<Meta>,
}

#[derive(Debug, Clone)]
struct Meta {
    acl: Vec<Acl>,
    version: i32,
    created: i32,
    aversion: i32,
    kind: Kind,
    children: i32,
}

impl From<&Node> for Meta {
    fn from(node: &Node) -> Meta {
        Meta {
            acl: node.acl.clone(),
            version: node.version,
            created: node.created,
            aversion: node.aversion,
            kind: node.kind,
            children: i32::try_from(node.children.len()).unwrap(),
        }
    }
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    changes: VecDeque<Arc<Change>>,
    by_path: BTreeMap<String, Arc<Change>>,
}

impl Outstanding {
    fn push(&mut self, zxid: i64, path: &str, node: Option<Meta>) {
        let change = Arc::new(Change { zxid, path: path.to_owned(), node });
        self.changes.push_back(Arc::clone(&change));
        self.by_path.insert(path.to_owned(), change);
    }

    /// The leader has carried out everything up to this transaction.
    pub(super) fn applied(&mut self, zxid: i64) {
        while let Some(change) = self.changes.pop_front_if(|change| change.zxid <= zxid) {
            if self.by_path.get(&change.path).is_some_and(|latest| Arc::ptr_eq(latest, &change)) {
                self.by_path.remove(&change.path);
            }
        }
    }

    /// The latest changes of these paths and of their parents.
    fn of(&self, calls: &[Call]) -> Vec<Arc<Change>> {
        let paths = calls.iter().flat_map(|call| [Some(call.path()), paths::parent(call.path())]).flatten();
        paths.filter_map(|path| self.by_path.get(path).cloned()).collect()
    }

    /// Takes the changes of a refused multi back.
    fn roll_back(&mut self, zxid: i64, before: Vec<Arc<Change>>) {
        while let Some(change) = self.changes.pop_back_if(|change| change.zxid == zxid) {
            self.by_path.remove(&change.path);
        }
        let Some(first) = self.changes.front().map(|change| change.zxid) else { return };
        for change in before.into_iter().filter(|change| change.zxid >= first) {
            self.by_path.insert(change.path.clone(), change);
        }
    }
}

/// One request before the leader.
pub(super) struct Prep<'a> {
    pub(super) tree: &'a Tree,
    pub(super) tracker: &'a mut Tracker,
    pub(super) outstanding: &'a mut Outstanding,
    pub(super) extended_types: bool,
    pub(super) zxid: i64,
    pub(super) now: std::time::Duration,
    pub(super) session: i64,
    /// The server that speaks for the session.
    pub(super) owner: usize,
    pub(super) ids: &'a [Id],
}

impl Prep<'_> {
    pub(super) fn prepare(&mut self, call: &Call) -> Txn {
        self.decide(call).unwrap_or_else(Txn::Error)
    }

    fn decide(&mut self, call: &Call) -> Result<Txn, i32> {
        match call {
            Call::Create(new) => self.create(new),
            Call::Delete { path, version } => self.delete(path, *version),
            Call::SetData { path, data, version } => self.set_data(path, data, *version),
            Call::SetAcl { path, acl, version } => self.set_acl(path, acl, *version),
            Call::Check { path, version } => self.check(path, *version),
            Call::Multi(calls) => Ok(self.multi(calls)),
            Call::CreateSession { timeout_ms } => self.create_session(*timeout_ms),
            Call::CloseSession => Ok(self.close_session()),
            Call::DeleteContainer { path } => self.delete_container(path),
            _ => Err(code::MARSHALLING),
        }
    }

    fn node(&self, path: &str) -> Result<Meta, i32> {
        match self.outstanding.by_path.get(path) {
            Some(change) => change.node.clone().ok_or(code::NO_NODE),
            None => self.tree.node(path).map(Meta::from).ok_or(code::NO_NODE),
        }
    }

    fn may(&self, acl: &[Acl], perms: i32) -> Result<(), i32> {
        if acl::may(acl, perms, self.ids) { Ok(()) } else { Err(code::NO_AUTH) }
    }

    fn check_session(&mut self) -> Result<(), i32> {
        self.tracker.check(self.session, self.owner)
    }

    fn create(&mut self, new: &NewNode) -> Result<Txn, i32> {
        let flags = new.flags;
        self.check_mode(new)?;
        self.check_session()?;
        let parent_path = paths::parent(&new.path).ok_or(code::BAD_ARGUMENTS)?;
        let acl = acl::settle(&new.acl, self.ids)?;
        let mut parent = self.node(parent_path)?;
        self.may(&parent.acl, perms::CREATE)?;
        let mut path = new.path.clone();
        if matches!(flags, 2 | 3 | 6) {
            path.push_str(&format!("{:010}", parent.created));
        }
        valid(&path)?;
        if self.node(&path).is_ok() {
            return Err(code::NODE_EXISTS);
        }
        if matches!(parent.kind, Kind::Ephemeral(_)) {
            return Err(code::NO_CHILDREN_FOR_EPHEMERALS);
        }
        parent.created = parent.created.wrapping_add(1);
        parent.children += 1;
        let created = parent.created;
        self.outstanding.push(self.zxid, parent_path, Some(parent));
        // The kind in the making goes by the flags, the znode that is made by the operation.
        let under_way = self.kind_of(if flags == 4 { op::CREATE_CONTAINER } else { new.op }, new);
        let meta = Meta { acl: acl.clone(), version: 0, created: 0, aversion: 0, kind: under_way, children: 0 };
        self.outstanding.push(self.zxid, &path, Some(meta));
        let kind = self.kind_of(new.op, new);
        Ok(Txn::Create(Create { path, data: new.data.clone(), acl, kind, created }))
    }

    fn check_mode(&self, new: &NewNode) -> Result<(), i32> {
        let is_ttl = matches!(new.flags, 5 | 6);
        if !(0..=6).contains(&new.flags) {
            Err(code::BAD_ARGUMENTS)
        } else if is_ttl && !self.extended_types {
            Err(code::UNIMPLEMENTED)
        } else if if is_ttl { Kind::ttl(new.ttl).is_none() } else { new.ttl >= 0 } {
            Err(code::BAD_ARGUMENTS)
        } else {
            Ok(())
        }
    }

    fn kind_of(&self, op_code: i32, new: &NewNode) -> Kind {
        match op_code {
            op::CREATE_CONTAINER => Kind::Container,
            op::CREATE_TTL => Kind::ttl(new.ttl).unwrap_or_default(),
            _ if matches!(new.flags, 1 | 3) => Kind::Ephemeral(self.session),
            _ => Kind::Persistent,
        }
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Txn, i32> {
        self.check_session()?;
        let parent_path = deletable(path)?;
        let parent = self.node(parent_path)?;
        self.may(&parent.acl, perms::DELETE)?;
        let node = self.node(path)?;
        next_version(node.version, version)?;
        if node.children > 0 {
            return Err(code::NOT_EMPTY);
        }
        Ok(self.deleted(path, parent_path, parent))
    }

    fn deleted(&mut self, path: &str, parent_path: &str, mut parent: Meta) -> Txn {
        parent.children -= 1;
        self.outstanding.push(self.zxid, parent_path, Some(parent));
        self.outstanding.push(self.zxid, path, None);
        Txn::Delete { path: path.to_owned() }
    }

    fn delete_container(&mut self, path: &str) -> Result<Txn, i32> {
        let parent_path = deletable(path)?;
        let node = self.node(path)?;
        if node.children > 0 {
            return Err(code::NOT_EMPTY);
        }
        if matches!(node.kind, Kind::Ephemeral(_)) {
            return Err(code::BAD_VERSION);
        }
        let parent = self.node(parent_path)?;
        Ok(self.deleted(path, parent_path, parent))
    }

    fn set_data(&mut self, path: &str, data: &[u8], version: i32) -> Result<Txn, i32> {
        self.check_session()?;
        valid(path)?;
        let mut node = self.node(path)?;
        self.may(&node.acl, perms::WRITE)?;
        let version = next_version(node.version, version)?;
        node.version = version;
        self.outstanding.push(self.zxid, path, Some(node));
        Ok(Txn::SetData { path: path.to_owned(), data: data.to_vec(), version })
    }

    fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Txn, i32> {
        self.check_session()?;
        valid(path)?;
        let acl = acl::settle(acl, self.ids)?;
        let mut node = self.node(path)?;
        self.may(&node.acl, perms::ADMIN)?;
        let version = next_version(node.aversion, version)?;
        node.aversion = version;
        // As in ZooKeeper, the old list counts until this is carried out.
        self.outstanding.push(self.zxid, path, Some(node));
        Ok(Txn::SetAcl { path: path.to_owned(), acl, version })
    }

    fn check(&mut self, path: &str, version: i32) -> Result<Txn, i32> {
        self.check_session()?;
        valid(path)?;
        let node = self.node(path)?;
        self.may(&node.acl, perms::READ)?;
        next_version(node.version, version)?;
        Ok(Txn::Check)
    }

    fn multi(&mut self, calls: &[Call]) -> Txn {
        let before = self.outstanding.of(calls);
        let mut txns = Vec::new();
        for call in calls {
            match self.decide(call) {
                Ok(txn) => txns.push(txn),
                Err(code) => {
                    self.outstanding.roll_back(self.zxid, before);
                    let mut codes = vec![code::RUNTIME_INCONSISTENCY; calls.len()];
                    codes[..txns.len()].fill(code::OK);
                    codes[txns.len()] = code;
                    return Txn::FailedMulti(codes);
                }
            }
        }
        Txn::Multi(txns)
    }

    fn create_session(&mut self, timeout_ms: i32) -> Result<Txn, i32> {
        self.tracker.track(self.session, timeout_ms, self.now);
        self.tracker.check(self.session, self.owner)?;
        self.tracker.set_owner(self.session, self.owner);
        Ok(Txn::CreateSession { timeout_ms })
    }

    fn close_session(&mut self) -> Txn {
        let mut paths: Vec<String> = self.tree.ephemerals(self.session).cloned().collect();
        for change in &self.outstanding.changes {
            match &change.node {
                None => paths.retain(|path| *path != change.path),
                Some(node) if node.kind == Kind::Ephemeral(self.session) && !paths.contains(&change.path) => {
                    paths.push(change.path.clone());
                }
                Some(_) => {}
            }
        }
        paths.sort_by_key(|path| place_in_a_hash_set(path));
        for path in &paths {
            if let Some(parent) = paths::parent(path) {
                // The count of children stays, as in ZooKeeper, until this is carried out.
                let meta = self.node(parent).ok();
                self.outstanding.push(self.zxid, parent, meta);
            }
            self.outstanding.push(self.zxid, path, None);
        }
        self.tracker.set_closing(self.session);
        Txn::CloseSession { paths }
    }
}

fn valid(path: &str) -> Result<(), i32> {
    if paths::is_valid(path) { Ok(()) } else { Err(code::BAD_ARGUMENTS) }
}

fn deletable(path: &str) -> Result<&str, i32> {
    paths::parent(path).filter(|_| !paths::is_special(path)).ok_or(code::BAD_ARGUMENTS)
}

fn next_version(current: i32, expected: i32) -> Result<i32, i32> {
    if expected == -1 || expected == current { Ok(current.wrapping_add(1)) } else { Err(code::BAD_VERSION) }
}
