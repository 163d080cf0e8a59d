//! Every reply this crate reads, as data.

use super::types::{Acl, ErrorCode, Stat};

/// The body of a successful reply.
///
/// ```
/// use curator_locks::unversioned::{Reply, Response, SessionError};
///
/// fn length(reply: Reply) -> Result<usize, SessionError> {
///     match reply? {
///         Response::Data { data, .. } => Ok(data.len()),
///         _ => Ok(0), // no request of ours is answered so
///     }
/// }
/// assert_eq!(length(Ok(Response::Data { data: b"EUR".to_vec(), stat: Default::default() })).ok(), Some(3));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Response {
    /// Delete, ping, auth, setWatches, removeWatches, closeSession: nothing but success.
    Done,
    /// Create.
    Created {
        /// The full path, with the sequence number if there is one.
        path: String,
        /// The transaction that has created the znode: the zxid in the header of the reply, which is that of the transaction
        /// that the reply tells of. Of 100,000 creates beside busy writers none was answered with another one, in a
        /// transaction of several operations neither (`tests/dialects/zxids.rs`).
        czxid: i64,
    },
    /// Exists, setData, setACL.
    Stat(Stat),
    /// GetData.
    Data {
        /// The znode's data (a null buffer counts as empty).
        data: Vec<u8>,
        /// Its stat.
        stat: Stat,
    },
    /// GetChildren.
    Children {
        /// The children's names, unordered.
        names: Vec<String>,
        /// The parent's stat, where the request asked for it.
        stat: Option<Stat>,
    },
    /// GetACL.
    Acl {
        /// The entries.
        acl: Vec<Acl>,
        /// The znode's stat.
        stat: Stat,
    },
    /// Sync.
    Synced {
        /// The path given.
        path: String,
    },
    /// Multi: a result for each operation, in order. On failure all are errors, and the first with a code is the cause:
    /// those before it were rolled back (`None`, code 0), those after it have `RuntimeInconsistency`.
    ///
    /// ```
    /// use curator_locks::ErrorCode;
    /// use curator_locks::unversioned::Response;
    ///
    /// // As the servers answer where the second of three operations has failed.
    /// let codes = [None, Some(ErrorCode::BadVersion), Some(ErrorCode::RuntimeInconsistency)];
    /// let results = codes.map(Err::<Response, _>);
    /// assert_eq!(results.iter().position(|result| matches!(result, Err(Some(_)))), Some(1));
    /// ```
    Multi(Vec<Result<Response, Option<ErrorCode>>>),
    /// GetEphemerals.
    Ephemerals(Vec<String>),
    /// WhoAmI: (scheme, user).
    WhoAmI(Vec<(String, String)>),
}
