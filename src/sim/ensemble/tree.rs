//! The znodes of one server, and its sessions: what a snapshot of ZooKeeper holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{code, paths, txn::Create};
use crate::proto::types::{Acl, Stat};

/// The `ephemeralOwner` of a container.
pub(super) const CONTAINER: i64 = i64::MIN;
/// The first byte of a TTL znode's `ephemeralOwner`, and the bits of its time in milliseconds.
const TTL: i64 = 0xff << 56;
const TTL_BITS: i64 = 0xff_ffff_ffff;

/// A znode's kind as its owner tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Persistent,
    Ephemeral,
    Container,
    /// With its time in milliseconds.
    Ttl(i64),
}

impl Kind {
    pub(super) fn of(owner: i64, extended_types: bool) -> Kind {
        match owner {
            0 => Kind::Persistent,
            _ if extended_types && owner & TTL == TTL => Kind::Ttl(owner & TTL_BITS),
            CONTAINER => Kind::Container,
            _ => Kind::Ephemeral,
        }
    }

    /// The owner of a TTL znode. `None`: no znode has such a time.
    pub(super) fn ttl_owner(ttl: i64) -> Option<i64> {
        (1..=TTL_BITS).contains(&ttl).then_some(TTL | ttl)
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
    pub(crate) owner: i64,
}

impl Node {
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
            ephemeral_owner: self.owner,
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
    extended_types: bool,
}

impl Tree {
    pub(super) fn new(extended_types: bool) -> Tree {
        let mut tree = Tree {
            nodes: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            transient: BTreeSet::new(),
            sessions: BTreeMap::new(),
            zxid: 0,
            extended_types,
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

    pub(super) fn kind(&self, node: &Node) -> Kind {
        Kind::of(node.owner, self.extended_types)
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
            owner: create.owner,
            ..Node::default()
        };
        let stat = node.stat();
        match self.kind(&node) {
            Kind::Persistent => {}
            Kind::Ephemeral => {
                self.ephemerals.entry(create.owner).or_default().insert(create.path.clone());
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
        if let Some(paths) = self.ephemerals.get_mut(&node.owner) {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&node.owner);
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

    pub(super) fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Stat, i32> {
        let node = self.node_mut(path)?;
        (node.acl, node.aversion) = (acl.to_vec(), version);
        Ok(node.stat())
    }
}
