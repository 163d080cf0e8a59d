//! The znodes of one server, and its sessions: what a snapshot of ZooKeeper holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{code, paths, txn::Create};
use crate::proto::types::{Acl, Stat};

/// The longest time of a TTL znode, in milliseconds: what has room beside the mark of its kind.
const LONGEST_TTL: i64 = 0xff_ffff_ffff;

/// What ends a znode, apart from a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    #[default]
    Persistent,
    /// The end of this session.
    Ephemeral(i64),
    /// That it was used, and is empty.
    Container,
    /// That it is empty, and nobody has changed it for so many milliseconds.
    Ttl(i64),
}

impl Kind {
    /// `None`: no znode has such a time.
    pub(super) fn ttl(time: i64) -> Option<Kind> {
        (1..=LONGEST_TTL).contains(&time).then_some(Kind::Ttl(time))
    }

    /// What clients get to see: containers and TTL znodes have no owner.
    fn owner(self) -> i64 {
        if let Kind::Ephemeral(session) = self { session } else { 0 }
    }
}

/// A znode.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) children: BTreeSet<String>,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// How many children were ever created; the sequence numbers are taken from it.
    pub(crate) created: i32,
    pub(crate) aversion: i32,
    pub(crate) kind: Kind,
}

impl Node {
    /// The session of an ephemeral znode; 0 for others.
    pub(crate) fn owner(&self) -> i64 {
        self.kind.owner()
    }

    pub(super) fn stat(&self) -> Stat {
        let children = i32::try_from(self.children.len()).unwrap();
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates and deletes, of which only the creates are counted.
            cversion: self.created.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: self.kind.owner(),
            data_length: i32::try_from(self.data.len()).unwrap(),
            num_children: children,
            pzxid: self.pzxid,
        }
    }
}

/// The znodes and sessions after some transaction.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// By path; the root's is empty.
    nodes: BTreeMap<String, Node>,
    ephemerals: BTreeMap<i64, BTreeSet<String>>,
    /// Containers and TTL znodes.
    pub(super) transient: BTreeSet<String>,
    /// Sessions with their timeouts in milliseconds.
    pub(crate) sessions: BTreeMap<i64, i32>,
    pub(crate) zxid: i64,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let mut tree = Tree {
            nodes: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            transient: BTreeSet::new(),
            sessions: BTreeMap::new(),
            zxid: 0,
        };
        let open = Node { acl: Acl::open_unsafe(), ..Node::default() };
        tree.nodes.insert(String::new(), Node { children: ["zookeeper".into()].into(), ..open.clone() });
        let children = ["config".into(), "quota".into()].into();
        tree.nodes.insert("/zookeeper".into(), Node { children, ..open.clone() });
        tree.nodes.insert("/zookeeper/config".into(), Node { acl: Acl::read_unsafe(), ..open.clone() });
        tree.nodes.insert("/zookeeper/quota".into(), open);
        tree
    }

    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path == "/" { "" } else { path })
    }

    fn node_mut(&mut self, path: &str) -> Result<&mut Node, i32> {
        self.nodes.get_mut(if path == "/" { "" } else { path }).ok_or(code::NO_NODE)
    }

    /// All znodes with their paths, `/zookeeper` among them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (if path.is_empty() { "/" } else { path.as_str() }, node))
    }

    /// The ephemeral znodes of a session.
    pub(crate) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &String> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    pub(super) fn create(&mut self, create: &Create, zxid: i64, time: i64) -> Result<Stat, i32> {
        let parent = self.node_mut(paths::parent(&create.path).ok_or(code::NO_NODE)?)?;
        if !parent.children.insert(paths::name(&create.path).to_owned()) {
            return Err(code::NODE_EXISTS);
        }
        let count = if create.created == -1 { parent.created.wrapping_add(1) } else { create.created };
        if count > parent.created {
            (parent.created, parent.pzxid) = (count, zxid);
        }
        let node = Node {
            data: create.data.clone(),
            acl: create.acl.clone(),
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            kind: create.kind,
            ..Node::default()
        };
        let stat = node.stat();
        match create.kind {
            Kind::Persistent => {}
            Kind::Ephemeral(session) => {
                self.ephemerals.entry(session).or_default().insert(create.path.clone());
            }
            Kind::Container | Kind::Ttl(_) => {
                self.transient.insert(create.path.clone());
            }
        }
        self.nodes.insert(create.path.clone(), node);
        Ok(stat)
    }

    pub(super) fn delete(&mut self, path: &str, zxid: i64) -> Result<Node, i32> {
        let parent = self.node_mut(paths::parent(path).ok_or(code::NO_NODE)?)?;
        parent.children.remove(paths::name(path));
        parent.pzxid = zxid.max(parent.pzxid);
        let node = self.nodes.remove(path).ok_or(code::NO_NODE)?;
        self.transient.remove(path);
        if let Some(paths) = self.ephemerals.get_mut(&node.kind.owner()) {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&node.kind.owner());
            }
        }
        Ok(node)
    }

    pub(super) fn set_data(
        &mut self,
        path: &str,
        data: &[u8],
        version: i32,
        zxid: i64,
        time: i64,
    ) -> Result<Stat, i32> {
        let node = self.node_mut(path)?;
        node.data = data.to_vec();
        (node.mtime, node.mzxid, node.version) = (time, zxid, version);
        Ok(node.stat())
    }

    /// The znode has had so many children.
    pub(super) fn set_created(&mut self, path: &str, created: i32) {
        if let Ok(node) = self.node_mut(path) {
            node.created = created;
        }
    }

    pub(super) fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Stat, i32> {
        let node = self.node_mut(path)?;
        (node.acl, node.aversion) = (acl.to_vec(), version);
        Ok(node.stat())
    }
}
