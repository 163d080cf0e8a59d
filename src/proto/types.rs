//! The data that requests and replies carry.

use std::fmt;

/// The kind of znode that `create` makes.
///
/// ```
/// use curator_locks::CreateMode;
///
/// assert!(CreateMode::EphemeralSequential.is_sequential() && CreateMode::EphemeralSequential.is_ephemeral());
/// assert!(!CreateMode::Container.is_ephemeral());
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CreateMode {
    /// The znode stays until it is deleted.
    #[default]
    Persistent,
    /// The server deletes it when the session ends.
    Ephemeral,
    /// The znode stays until it is deleted; the server appends a 10-digit sequence number to the name.
    PersistentSequential,
    /// The server deletes it when the session ends, and appends a 10-digit sequence number to the name.
    EphemeralSequential,
    /// The server deletes it some time after its last child is gone.
    Container,
    /// The server deletes it when it has no child and nobody has changed it for this many milliseconds.
    PersistentWithTtl(i64),
    /// As `PersistentWithTtl`, with a sequence number.
    PersistentSequentialWithTtl(i64),
}

impl CreateMode {
    /// Whether the server appends a sequence number to the name.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialWithTtl(_)
        )
    }

    /// Whether the znode ends with the session.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }
}

/// A znode's metadata.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::Stat;
///
/// let path = client.create().for_path_and_data("/currency", "EUR")?;
/// let stat: Stat = client.check_exists().for_path(&path)?.ok_or("it is gone")?;
/// assert_eq!((stat.version, stat.data_length, stat.num_children), (0, 3, 0));
/// assert_eq!(stat.ephemeral_owner, 0); // it outlives the session
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stat {
    /// The transaction that created the znode.
    pub czxid: i64,
    /// The transaction that last changed its data.
    pub mzxid: i64,
    /// When it was created, in milliseconds since the epoch, by the server's clock.
    pub ctime: i64,
    /// When its data last changed, in milliseconds since the epoch, by the server's clock.
    pub mtime: i64,
    /// How often its data changed.
    pub version: i32,
    /// How often its children changed.
    pub cversion: i32,
    /// How often its ACL changed.
    pub aversion: i32,
    /// The id of the session that owns it, 0 if it is not ephemeral.
    pub ephemeral_owner: i64,
    /// The length of its data in bytes.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The transaction that last changed its children.
    pub pzxid: i64,
}

/// Permission bits of an [`Acl`].
///
/// ```
/// use curator_locks::{Acl, perms};
///
/// let staff = Acl { perms: perms::READ | perms::WRITE | perms::CREATE, scheme: "digest".into(), id: "staff:hash".into() };
/// assert_eq!(staff.perms & perms::DELETE, 0);
/// assert_eq!(perms::ALL, staff.perms | perms::DELETE | perms::ADMIN);
/// ```
pub mod perms {
    /// Read the data and list the children.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// assert_eq!(Acl::read_unsafe()[0].perms, perms::READ); // whoever only looks at the queue of a lock needs this
    /// ```
    pub const READ: i32 = 1;
    /// Set the data.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// let editors = Acl { perms: perms::READ | perms::WRITE, scheme: "ip".into(), id: "10.0.0.0/8".into() };
    /// assert_eq!(editors.perms & perms::WRITE, perms::WRITE);
    /// ```
    pub const WRITE: i32 = 2;
    /// Create children. Each contender for a lock needs it on the lock's directory.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// let mut acl = Acl::creator_all();
    /// acl.push(Acl { perms: perms::READ | perms::CREATE, scheme: "ip".into(), id: "10.0.0.0/8".into() }); // may queue
    /// assert_eq!(acl[1].perms & perms::CREATE, perms::CREATE);
    /// ```
    pub const CREATE: i32 = 4;
    /// Delete children. It counts on the parent: each holder needs it on the lock's directory, to release the lock.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// let lock_users = perms::READ | perms::CREATE | perms::DELETE; // on a lock's directory
    /// let acl = vec![Acl { perms: lock_users, scheme: "sasl".into(), id: "checkout".into() }];
    /// assert_eq!(acl[0].perms & perms::DELETE, perms::DELETE);
    /// ```
    pub const DELETE: i32 = 8;
    /// Set the ACL.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// let all_but_the_acl = perms::ALL & !perms::ADMIN;
    /// let acl = vec![Acl { perms: all_but_the_acl, scheme: "world".into(), id: "anyone".into() }];
    /// assert_eq!(acl[0].perms & perms::ADMIN, 0);
    /// ```
    pub const ADMIN: i32 = 16;
    /// All of them.
    ///
    /// ```
    /// use curator_locks::{Acl, perms};
    ///
    /// assert_eq!(Acl::open_unsafe()[0].perms, perms::ALL); // everybody
    /// assert_eq!(Acl::creator_all()[0].perms, perms::ALL); // whoever has made it
    /// ```
    pub const ALL: i32 = 31;
}

/// One entry of a znode's access control list.
///
/// ```
/// use curator_locks::{Acl, perms};
///
/// let mut acl = Acl::read_unsafe(); // everybody may read ...
/// acl.extend(Acl::creator_all()); // ... and whoever made it may do all
/// assert_eq!([acl[0].perms, acl[1].perms], [perms::READ, perms::ALL]);
/// assert_eq!(Acl::open_unsafe()[0].scheme, "world");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The permissions, see [`perms`].
    pub perms: i32,
    /// How the client is identified: `world`, `auth`, `digest`, `ip`, `x509`, ...
    pub scheme: String,
    /// The identity; its meaning depends on the scheme.
    pub id: String,
}

/// Without what stands behind the user's name: the hash of a password can be tried out, and builders end up in logs.
impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_harmless = matches!(self.scheme.as_str(), "world" | "auth" | "ip" | "x509" | "sasl");
        let user = if is_harmless { None } else { Some(self.id.split_once(':').map_or("", |(user, _)| user)) };
        let id = user.map_or_else(|| self.id.clone(), |user| format!("{user}:***"));
        f.debug_struct("Acl").field("perms", &self.perms).field("scheme", &self.scheme).field("id", &id).finish()
    }
}

impl Acl {
    /// Everybody may do everything.
    #[must_use]
    pub fn open_unsafe() -> Vec<Acl> {
        vec![Acl { perms: perms::ALL, scheme: "world".into(), id: "anyone".into() }]
    }

    /// The creator of the znode may do everything; needs an authorization.
    #[must_use]
    pub fn creator_all() -> Vec<Acl> {
        vec![Acl { perms: perms::ALL, scheme: "auth".into(), id: String::new() }]
    }

    /// Everybody may read.
    #[must_use]
    pub fn read_unsafe() -> Vec<Acl> {
        vec![Acl { perms: perms::READ, scheme: "world".into(), id: "anyone".into() }]
    }
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// A server's error code.
        ///
        /// ```
        /// use curator_locks::ErrorCode;
        ///
        /// assert_eq!(ErrorCode::from(-101), ErrorCode::NoNode);
        /// assert_eq!(i32::from(ErrorCode::NoNode), -101);
        /// assert_eq!(ErrorCode::NoNode.to_string(), "no such znode");
        /// ```
        #[non_exhaustive]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// A code that this crate has no name for.
            Other(i32),
        }

        /// The code for a number on the wire (0 is success and has none).
        impl From<i32> for ErrorCode {
            fn from(code: i32) -> ErrorCode {
                match code {
                    $($code => ErrorCode::$name,)*
                    other => ErrorCode::Other(other),
                }
            }
        }

        /// The number on the wire.
        impl From<ErrorCode> for i32 {
            fn from(code: ErrorCode) -> i32 {
                match code {
                    $(ErrorCode::$name => $code,)*
                    ErrorCode::Other(code) => code,
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(ErrorCode::$name => f.write_str($text),)*
                    ErrorCode::Other(code) => write!(f, "error code {code}"),
                }
            }
        }
    };
}

error_codes! {
    /// The server failed internally.
    SystemError = -1, "the server failed internally";
    /// The server found its data inconsistent.
    RuntimeInconsistency = -2, "the server found an inconsistency";
    /// The server found its data inconsistent.
    DataInconsistency = -3, "the server found inconsistent data";
    /// The server lost a connection it needed.
    ConnectionLoss = -4, "the server lost a connection it needed";
    /// The server could not encode or decode.
    MarshallingError = -5, "the server could not decode the request";
    /// The server does not implement the operation.
    Unimplemented = -6, "the server does not implement this operation";
    /// The operation took too long at the server.
    OperationTimeout = -7, "the operation timed out at the server";
    /// The server found the arguments bad.
    BadArguments = -8, "the server found the arguments bad";
    /// The session does not exist.
    UnknownSession = -12, "the server does not know the session";
    /// The ensemble has no quorum yet for a new configuration.
    NewConfigNoQuorum = -13, "no quorum of the new configuration is connected";
    /// Another reconfiguration is under way.
    ReconfigInProgress = -14, "another reconfiguration is under way";
    /// The znode does not exist.
    NoNode = -101, "no such znode";
    /// The ACL forbids it.
    NoAuth = -102, "the ACL of the znode does not allow it; check authorization() and the ACL provider";
    /// The version given is not the znode's.
    BadVersion = -103, "the znode has another version";
    /// Ephemeral znodes cannot have children.
    NoChildrenForEphemerals = -108, "ephemeral znodes cannot have children";
    /// The znode exists already.
    NodeExists = -110, "the znode exists already";
    /// The znode has children.
    NotEmpty = -111, "the znode has children";
    /// The server has expired the session.
    SessionExpired = -112, "the server expired the session";
    /// A callback given is invalid.
    InvalidCallback = -113, "invalid callback";
    /// The ACL given is invalid.
    InvalidAcl = -114, "the server found the ACL invalid";
    /// The credentials were rejected.
    AuthFailed = -115, "the server rejected the credentials";
    /// The session went on at another server.
    SessionMoved = -118, "the session moved to another server";
    /// The server is read-only.
    NotReadOnly = -119, "the server is read-only and cannot do this";
    /// An ephemeral znode of a local session.
    EphemeralOnLocalSession = -120, "ephemeral znode on a local session";
    /// There is no such watch.
    NoWatcher = -121, "there is no such watch";
    /// The request was rejected because the server is overloaded.
    RequestTimeout = -122, "the request timed out at the server";
    /// Reconfiguration is disabled.
    ReconfigDisabled = -123, "reconfiguration is disabled";
    /// The session has been closed, and a SASL authentication is required.
    SessionClosedRequireSaslAuth = -124, "the server requires SASL authentication";
    /// A quota is exceeded.
    QuotaExceeded = -125, "a quota is exceeded";
    /// The server throttles.
    ThrottledOp = -127, "the server is overloaded and throttles";
}

/// The change of a watched znode.
///
/// ```
/// use curator_locks::unversioned::EventType;
///
/// assert_eq!(EventType::from(2), EventType::NodeDeleted);
/// assert_eq!(EventType::from(77), EventType::Other(77)); // a newer server's
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The znode was created.
    NodeCreated,
    /// The znode was deleted.
    NodeDeleted,
    /// The znode's data changed.
    NodeDataChanged,
    /// A child was created or deleted.
    NodeChildrenChanged,
    /// The znode's data watch was removed at the server.
    DataWatchRemoved,
    /// The znode's child watch was removed at the server.
    ChildWatchRemoved,
    /// A type that this crate has no name for.
    Other(i32),
}

/// The type for a number on the wire.
impl From<i32> for EventType {
    fn from(event_type: i32) -> EventType {
        match event_type {
            1 => EventType::NodeCreated,
            2 => EventType::NodeDeleted,
            3 => EventType::NodeDataChanged,
            4 => EventType::NodeChildrenChanged,
            5 => EventType::DataWatchRemoved,
            6 => EventType::ChildWatchRemoved,
            other => EventType::Other(other),
        }
    }
}

/// A notification from the server: one watched znode, one thing that happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notification {
    /// The kind of change.
    pub event: EventType,
    /// The session state that the server puts beside it (3 = connected); informative only.
    pub state: i32,
    /// The znode's full path at the server.
    pub path: String,
}

/// Which of the server's two watch tables an entry is in, as the wire has it.
///
/// ```
/// use curator_locks::unversioned::{Request, WatchTable};
///
/// // What Session::unwatch of a `get_children` sends.
/// let request = Request::RemoveWatches { path: "/locks/order-42".into(), table: WatchTable::Children };
/// assert_eq!(request.operation(), "remove_watches");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchTable {
    /// Watches left by `exists` and `get_data`.
    Data = 2,
    /// Watches left by `get_children`.
    Children = 1,
}
