//! Every request this crate sends, as data.

use std::fmt;

use super::{
    op,
    types::{Acl, CreateMode, WatchTable},
};

/// A request, without its header. Paths are full paths at the server (chroot and namespace included).
///
/// ```
/// use curator_locks::unversioned::{Request, WatchTable};
///
/// let read = Request::GetData { path: "/shop/currency".into(), watch: true };
/// assert_eq!(read.watch_table(), Some(WatchTable::Data)); // so its submission has a watcher
/// assert_eq!((read.operation(), read.op_code()), ("get_data", 4));
///
/// let secret = Request::Auth { scheme: "digest".into(), auth: b"shop:pass".to_vec() };
/// assert!(!format!("{secret:?}").contains("pass")); // requests end up in logs
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// op 1, 19 (container), 21 (TTL). Replied by [`Response::Created`](super::response::Response::Created).
    ///
    /// Never op 15 (create2), which many servers that are not ZooKeeper do not know: the stat that it is answered with tells
    /// a lock nothing that the reply to op 1 does not.
    Create {
        /// Full path.
        path: String,
        /// The znode's data.
        data: Vec<u8>,
        /// Its ACL.
        acl: Vec<Acl>,
        /// The kind of znode.
        mode: CreateMode,
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
    /// op 13, only within a [`Multi`](Request::Multi): fails the whole unless the znode has this version.
    Check {
        /// Full path.
        path: String,
        /// Expected version, -1 for any.
        version: i32,
    },
    /// op 14: all or nothing. Holds creates, deletes, writes of data and checks. Or op 22, ZooKeeper 3.6 and newer: holds reads of data
    /// and of children without watches, each with its own result.
    ///
    /// ```
    /// use curator_locks::unversioned::Request;
    ///
    /// let check = Request::Check { path: "/config".into(), version: 7 };
    /// let write = Request::SetData { path: "/config/currency".into(), data: b"EUR".to_vec(), version: -1 };
    /// let both = Request::Multi(vec![check, write]); // or neither
    /// assert_eq!(both.path(), "/config"); // what errors and logs name
    /// ```
    Multi(Vec<Request>),
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

impl Request {
    /// The operation's number on the wire.
    #[must_use]
    pub fn op_code(&self) -> i32 {
        self.named().0
    }

    /// The operation's name, as errors and logs give it.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.named().1
    }

    fn named(&self) -> (i32, &'static str) {
        match self {
            Request::Create { mode, .. } => (mode.op_code(), "create"),
            Request::Delete { .. } => (op::DELETE, "delete"),
            Request::Exists { .. } => (op::EXISTS, "exists"),
            Request::GetData { .. } => (op::GET_DATA, "get_data"),
            Request::SetData { .. } => (op::SET_DATA, "set_data"),
            Request::GetAcl { .. } => (op::GET_ACL, "get_acl"),
            Request::SetAcl { .. } => (op::SET_ACL, "set_acl"),
            Request::GetChildren { with_stat: false, .. } => (op::GET_CHILDREN, "get_children"),
            Request::GetChildren { with_stat: true, .. } => (op::GET_CHILDREN2, "get_children"),
            Request::Sync { .. } => (op::SYNC, "sync"),
            Request::Ping => (op::PING, "ping"),
            Request::Check { .. } => (op::CHECK, "check"),
            Request::Multi(ops) if !ops.is_empty() && ops.iter().all(Request::is_read_of_multi) => {
                (op::MULTI_READ, "multi_read")
            }
            Request::Multi(_) => (op::MULTI, "multi"),
            Request::RemoveWatches { .. } => (op::REMOVE_WATCHES, "remove_watches"),
            Request::Auth { .. } => (op::AUTH, "auth"),
            Request::SetWatches { .. } => (op::SET_WATCHES, "set_watches"),
            Request::GetEphemerals { .. } => (op::GET_EPHEMERALS, "get_ephemerals"),
            Request::WhoAmI => (op::WHO_AM_I, "who_am_i"),
            Request::CloseSession => (op::CLOSE_SESSION, "close_session"),
        }
    }

    /// Whether it may stand in a multi of reads.
    pub(crate) fn is_read_of_multi(&self) -> bool {
        let (Request::GetData { watch, .. } | Request::GetChildren { watch, with_stat: false, .. }) = self else {
            return false;
        };
        !watch
    }

    /// The path that errors and logs give: of a multi the first operation's, empty where there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Request::Create { path, .. }
            | Request::Delete { path, .. }
            | Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::SetData { path, .. }
            | Request::GetAcl { path }
            | Request::SetAcl { path, .. }
            | Request::GetChildren { path, .. }
            | Request::Sync { path }
            | Request::Check { path, .. }
            | Request::RemoveWatches { path, .. }
            | Request::GetEphemerals { prefix: path } => path,
            Request::Multi(ops) => ops.first().map_or("", Request::path),
            Request::Ping
            | Request::Auth { .. }
            | Request::SetWatches { .. }
            | Request::WhoAmI
            | Request::CloseSession => "",
        }
    }

    /// Which table of watches the request leaves one in; `None` if it leaves none. Which watch it leaves depends on the
    /// reply.
    #[must_use]
    pub fn watch_table(&self) -> Option<WatchTable> {
        match self {
            Request::Exists { watch: true, .. } | Request::GetData { watch: true, .. } => Some(WatchTable::Data),
            Request::GetChildren { watch: true, .. } => Some(WatchTable::Children),
            _ => None,
        }
    }
}

/// Lengths in place of data and credentials: requests end up in logs.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct(self.operation());
        if !self.path().is_empty() {
            out.field("path", &self.path());
        }
        match self {
            Request::Create { data, acl, mode, .. } => {
                out.field("data_len", &data.len()).field("acl_len", &acl.len()).field("mode", mode)
            }
            Request::Delete { version, .. } | Request::Check { version, .. } => out.field("version", version),
            Request::Exists { watch, .. } | Request::GetData { watch, .. } => out.field("watch", watch),
            Request::SetData { data, version, .. } => out.field("data_len", &data.len()).field("version", version),
            Request::SetAcl { acl, version, .. } => out.field("acl_len", &acl.len()).field("version", version),
            Request::GetChildren { watch, with_stat, .. } => out.field("watch", watch).field("with_stat", with_stat),
            Request::Multi(ops) => out.field("ops", ops),
            Request::RemoveWatches { table, .. } => out.field("table", table),
            Request::Auth { scheme, auth } => out.field("scheme", scheme).field("auth_len", &auth.len()),
            Request::SetWatches { relative_zxid, data, exist, child } => out
                .field("relative_zxid", relative_zxid)
                .field("data_len", &data.len())
                .field("exist_len", &exist.len())
                .field("child_len", &child.len()),
            Request::GetAcl { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::GetEphemerals { .. }
            | Request::WhoAmI
            | Request::CloseSession => &mut out,
        }
        .finish()
    }
}
