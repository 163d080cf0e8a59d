//! The operation codes of requests.
//!
//! ```
//! use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};
//!
//! # let server = curator_locks::testing::TestingServer::start()?;
//! let proxy = FaultProxy::start(server.connect_string())?;
//! let lists = RequestMatch::ops([op::GET_CHILDREN, op::GET_CHILDREN_2]);
//! let fault = proxy.inject(lists, Fault::DropReply);
//! assert_eq!(proxy.requests(op::CREATE) + fault.hits(), 0); // nobody is connected so far
//! # Ok::<(), curator_locks::testing::TestingError>(())
//! ```

/// Each with an example of a fault, so that what a test breaks with it can be read there.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $fault:literal: $effect:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};
        ///
        /// let proxy = FaultProxy::start("127.0.0.1:2181")?;
        #[doc = concat!("proxy.inject(RequestMatch::op(op::", stringify!($name), "), Fault::", $fault, "); // ", $effect)]
        #[doc = concat!("assert_eq!(proxy.requests(op::", stringify!($name), "), 0); // so far")]
        /// # Ok::<(), curator_locks::testing::TestingError>(())
        /// ```
        pub const $name: i32 = $code;
    )*};
}

operations! {
    /// create: `create` without protection. A lock's own znode comes with [`CREATE_2`]; for all kinds there is
    /// [`RequestMatch::creates`](super::RequestMatch::creates).
    CREATE = 1, "CutInsteadOfReply": "is the znode there?";
    /// delete: a release.
    DELETE = 2, "DropReply": "the release does not know how it went";
    /// exists: `check_exists`, and the watch of a znode that may be missing.
    EXISTS = 3, "CutAfterRequest": "is the watch there?";
    /// getData: `get_data`, and the watch on a predecessor.
    GET_DATA = 4, "Refuse(-101)": "`NoNode`: the predecessor went in between";
    /// setData: `set_data`, a revocation.
    SET_DATA = 5, "Refuse(-103)": "`BadVersion`: somebody else wrote first";
    /// getACL: `get_acl`.
    GET_ACL = 6, "Refuse(-102)": "`NoAuth`";
    /// setACL: `set_acl`.
    SET_ACL = 7, "Refuse(-114)": "`InvalidAcl`";
    /// getChildren: the list of a lock's directory.
    GET_CHILDREN = 8, "HoldReply": "the list is old when it comes";
    /// sync: `sync`, and the heartbeat of this crate's sessions, but for those behind a reconnect or a silence.
    SYNC = 9, "HoldRequest": "no heartbeat gets through";
    /// ping: the heartbeat at a read-only server, and of other clients.
    PING = 11, "HoldReply": "no heartbeat is answered";
    /// getChildren2: getChildren with the parent's stat.
    GET_CHILDREN_2 = 12, "HoldReply": "the list is old when it comes";
    /// check: only ever inside of a [`MULTI`].
    CHECK = 13, "DropRequest": "hits nothing: a proxy sees the multi";
    /// multi: `transaction`, and heartbeats behind a reconnect or a silence, which are about the root.
    MULTI = 14, "CutInsteadOfReply": "was it carried out?";
    /// create2: a create that asks for the stat, as that of a lock's own znode does.
    CREATE_2 = 15, "CutInsteadOfReply": "is the znode there?";
    /// removeWatches: a wait that ended before its turn came.
    REMOVE_WATCHES = 18, "DropRequest": "the watch stays at the server";
    /// createContainer: a lock's directory, and other missing parents.
    CREATE_CONTAINER = 19, "Refuse(-6)": "`Unimplemented`, as an old server says";
    /// createTTL: a create with a time to live.
    CREATE_TTL = 21, "Refuse(-6)": "`Unimplemented`, as servers say by default";
    /// multiRead: several reads of another client.
    MULTI_READ = 22, "DropReply": "that client waits in vain";
    /// auth: the credentials, first on each connection.
    AUTH = 100, "Refuse(-115)": "`AuthFailed`";
    /// setWatches: the watches, set again after a reconnect.
    SET_WATCHES = 101, "HoldRequest": "no event comes meanwhile";
    /// sasl: a step of another client's authentication.
    SASL = 102, "DropReply": "that client waits in vain";
    /// getEphemerals: what a session owns.
    GET_EPHEMERALS = 103, "Refuse(-6)": "`Unimplemented`, as an old server says";
    /// setWatches2: setWatches of other clients, with persistent watches.
    SET_WATCHES_2 = 105, "HoldRequest": "no event comes meanwhile";
    /// addWatch: another client's persistent watch.
    ADD_WATCH = 106, "DropRequest": "it is not set";
    /// whoAmI: as whom the server knows the client.
    WHO_AM_I = 107, "Refuse(-6)": "`Unimplemented`, as an old server says";
    /// closeSession: the end of a session that was closed.
    CLOSE_SESSION = -11, "DropRequest": "the session expires instead";
}
