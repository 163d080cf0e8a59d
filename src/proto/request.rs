//! Every request this crate sends, as data.

use super::{Acl, CreateMode, WatchTable};

/// A request, without its header. Paths are full paths at the server (chroot and namespace included).
#[derive(Clone, PartialEq, Eq)]
pub enum Request {
    /// op 1, 15 (`with_stat`), 19 (container), 21 (TTL). Replied by [`Response::Created`](super::Response::Created).
    Create {
        /// Full path.
        path: String,
        /// The znode's data.
        data: Vec<u8>,
        /// Its ACL.
        acl: Vec<Acl>,
        /// What kind of znode.
        mode: CreateMode,
        /// Ask for the stat too (create2). Container and TTL znodes always answer with it.
        with_stat: bool,
    },
    /// op 2.
    Delete {
        /// Full path.
        path: String,
        /// Expected version, -1 for any.
        version: i32,
    },
    /// op 3.
    Exists {
        /// Full path.
        path: String,
        /// Leave a watch.
        watch: bool,
    },
    /// op 4.
    GetData {
        /// Full path.
        path: String,
        /// Leave a watch.
        watch: bool,
    },
    /// op 5.
    SetData {
        /// Full path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// Expected version, -1 for any.
        version: i32,
    },
    /// op 6.
    GetAcl {
        /// Full path.
        path: String,
    },
    /// op 7.
    SetAcl {
        /// Full path.
        path: String,
        /// The new ACL.
        acl: Vec<Acl>,
        /// Expected ACL version, -1 for any.
        version: i32,
    },
    /// op 8 (names only) or op 12 (`with_stat`).
    GetChildren {
        /// Full path.
        path: String,
        /// Leave a watch.
        watch: bool,
        /// Ask for the parent's stat too (getChildren2).
        with_stat: bool,
    },
    /// op 9.
    Sync {
        /// Full path.
        path: String,
    },
    /// op 11.
    Ping,
    /// op 14: all or nothing.
    Multi(Vec<MultiOp>),
    /// op 18.
    RemoveWatches {
        /// Full path.
        path: String,
        /// Which table.
        table: WatchTable,
    },
    /// op 100.
    Auth {
        /// `digest`, ...
        scheme: String,
        /// The credentials.
        auth: Vec<u8>,
    },
    /// op 101.
    SetWatches {
        /// Events after this transaction are sent at once.
        relative_zxid: i64,
        /// Data watches on znodes that existed.
        data: Vec<String>,
        /// Watches on znodes that did not exist.
        exist: Vec<String>,
        /// Child watches.
        child: Vec<String>,
    },
    /// op 103, ZooKeeper 3.6 and newer.
    GetEphemerals {
        /// Path prefix, `/` for all.
        prefix: String,
    },
    /// op 107, ZooKeeper 3.7 and newer.
    WhoAmI,
    /// op -11.
    CloseSession,
}

/// One operation of a [`Request::Multi`].
#[derive(Clone, PartialEq, Eq)]
pub enum MultiOp {
    /// Create a znode (op 1, 15, 19 or 21 as in [`Request::Create`]).
    Create {
        /// Full path.
        path: String,
        /// The znode's data.
        data: Vec<u8>,
        /// Its ACL.
        acl: Vec<Acl>,
        /// What kind of znode.
        mode: CreateMode,
    },
    /// Delete a znode.
    Delete {
        /// Full path.
        path: String,
        /// Expected version, -1 for any.
        version: i32,
    },
    /// Set a znode's data.
    SetData {
        /// Full path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// Expected version, -1 for any.
        version: i32,
    },
    /// Fail the whole unless the znode has this version (op 13).
    Check {
        /// Full path.
        path: String,
        /// Expected version.
        version: i32,
    },
}
