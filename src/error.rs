//! Errors, structured by who is to blame, and the one table of how to react to them.

use std::{error::Error as _, fmt, io, sync::Arc, time::Duration};

pub use crate::proto::types::ErrorCode;

/// The result of every fallible call of this crate.
///
/// ```
/// use curator_locks::{ConnectString, Result};
///
/// fn port_of_the_first(servers: &str) -> Result<Option<u16>> {
///     Ok(servers.parse::<ConnectString>()?.hosts().first().map(|(_, port)| *port))
/// }
/// assert_eq!(port_of_the_first("zk1:2181,zk2:2182")?, Some(2181));
/// # Ok::<(), curator_locks::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a lock is no longer held although its holder did not release it.
///
/// ```
/// use curator_locks::{HoldState, LostReason};
///
/// /// Whether to go on by queueing again at once; `state` is what `Hold::state` says.
/// fn may_queue_again(state: HoldState) -> bool {
///     match state {
///         HoldState::Lost(LostReason::NodeDeleted | LostReason::Revoked) => false, // somebody wants it so
///         HoldState::Lost(_) => true,
///         _ => false, // it is held, or may be
///     }
/// }
/// assert!(may_queue_again(HoldState::Lost(LostReason::SessionExpired)));
/// assert!(!may_queue_again(HoldState::Lost(LostReason::Revoked)));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LostReason {
    /// The server said that the session has expired.
    #[error("the server expired the session")]
    SessionExpired,
    /// The connection was gone for as long as the session timeout, so the session was given up.
    #[error("the connection was gone for the whole session timeout")]
    SuspendedTooLong,
    /// Somebody deleted the lock's znode while the session lived.
    #[error("somebody deleted the lock's znode")]
    NodeDeleted,
    /// The client was closed while the lock was held.
    #[error("the client was closed")]
    ClientClosed,
    /// Somebody asked for it, and the holder's listener gave it
    /// [back](crate::RevocationRequest::release). [`Hold::revocation`](crate::Hold::revocation) says who and why.
    #[error("somebody asked for it, and it was given back")]
    Revoked,
    /// The hold has lasted as long as [its acquire](crate::AcquireOptions::hold_at_most) allows, so the client gives the
    /// lock back.
    #[error("it was held for as long as its acquire allowed")]
    HeldTooLong,
}

/// Everything that can go wrong, by who is to blame: the caller, the server's answer, the connection, the peer.
///
/// `Display` says what happened, to what, and why. `Debug` says the same behind the variant's name, with all causes, so
/// that `fn main() -> Result<(), Error>` prints what a person can read.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{Error, ErrorCode, InterProcessMutex};
///
/// let error = client.get_data().for_path("/nowhere").expect_err("there is no such znode");
/// assert!(error.is_no_node() && !error.is_node_exists() && !error.is_retryable());
/// assert_eq!(error.code(), Some(ErrorCode::NoNode));
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Clone, thiserror::Error)]
pub enum Error {
    /// A path that ZooKeeper or this recipe cannot use. Java: `IllegalArgumentException`.
    #[error("invalid path {path:?}: {rule}")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// An argument outside its range. Java: `IllegalArgumentException`.
    #[error("invalid {name} {value:?}: {rule}")]
    InvalidArgument {
        /// Which argument.
        name: &'static str,
        /// Its value as given.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// `start` was not called yet. Java: `IllegalStateException`.
    #[error("the client is not started: call start() first")]
    NotStarted,
    /// `start` was called a second time. Java: `IllegalStateException`.
    #[error("the client was started before: start() can be called once")]
    AlreadyStarted,
    /// The recipe was not started yet, or is closed. Java: `IllegalStateException`, or `EOFException` where it waits.
    #[error("{what} at {path} is {state}")]
    NotInUse {
        /// Which recipe.
        what: &'static str,
        /// Its path.
        path: String,
        /// Its state instead.
        state: &'static str,
    },
    /// The client is closed. Java: `CuratorClosedException`.
    #[error("the client is closed: build and start another one")]
    ClientClosed,
    /// The caller does not hold this lock. Java: `IllegalMonitorStateException`.
    #[error("you do not own the lock {path}: {detail}")]
    NotOwner {
        /// The lock's path.
        path: String,
        /// The thread that holds it instead, as far as this process knows.
        detail: String,
    },
    /// The lock was taken away from its holder; what it guards may have another holder by now.
    #[error("the lock {path} was lost: {reason}; stop the guarded work, then acquire again")]
    LockLost {
        /// The lock's path.
        path: String,
        /// The reason of the loss.
        reason: LostReason,
    },
    /// Waiting would never end, because the calling thread waits for itself.
    #[error("waiting for {waiting_for} would never end: this thread already holds {held}")]
    WouldDeadlock {
        /// The lock that the call asked for.
        waiting_for: String,
        /// The lock that the thread holds.
        held: String,
    },
    /// A lock of another kind is held or waited for at the same path, and the client
    /// [refuses](crate::Builder::refuse_mixed_kinds) that: they would not exclude each other.
    #[error("{path} is the path of {found} as well, which this lock does not exclude: give each a path of its own")]
    MixedKinds {
        /// The lock's path.
        path: String,
        /// The lock that is there besides.
        found: &'static str,
    },
    /// More stand in the queue than the [acquire](crate::AcquireOptions::max_queue) allows.
    #[error("{} in front at {path}, more than the acquire allows", contenders(*ahead))]
    Busy {
        /// The lock's path.
        path: String,
        /// How many stand in front, the holder among them.
        ahead: usize,
    },
    /// The lock was not free in time. Only an acquire with
    /// [`timeout_is_error`](crate::AcquireOptions::timeout_is_error) fails so.
    #[error(
        "the time was up before {path} was free{}",
        ahead.map(|ahead| format!(": {} in front", contenders(ahead))).unwrap_or_default()
    )]
    StillTaken {
        /// The path of the lock that was waited for.
        path: String,
        /// How many stood in front when the queue was read last; `None` if it was not read.
        ahead: Option<usize>,
    },
    /// No heartbeat has made the session certain for one session timeout, so that the lock would have been in doubt. Its
    /// place in the queue was given up, so that those behind it need not wait for that. The servers, or the link to them,
    /// are slower than a third of the session timeout, or than what [`min_validity`](crate::AcquireOptions::min_validity)
    /// leaves of it.
    #[error(
        "{path}: no heartbeat has made the session certain{} within {after:?}: the servers answer too late; the lock was not \
         acquired", ahead(*wanted)
    )]
    Uncertain {
        /// The lock's path; of several locks that of the least certain one.
        path: String,
        /// For how long [the acquire](crate::AcquireOptions::min_validity) wanted it to be certain.
        wanted: Duration,
        /// The session timeout.
        after: Duration,
    },
    /// The directory's sequence numbers are nearly used up, and no order is safe beyond that.
    #[error(
        "sequence number {number} of {path} is at or above 2147483647 - 1000000: remove the directory while nobody \
         uses it (it is made anew and counts from 0) or move the lock to another path"
    )]
    SequenceExhausted {
        /// The lock's directory.
        path: String,
        /// The number that the server gave out.
        number: i64,
    },
    /// The call's [`CancelToken`](crate::CancelToken) was cancelled. Java: `InterruptedException`.
    #[error("cancelled while working on {path}")]
    Cancelled {
        /// The path of the call.
        path: String,
    },
    /// The call's time is up. (A timed acquire that finds the lock held returns `false` instead.)
    #[error("{what} did not end within {after:?}")]
    Timeout {
        /// The event that was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The server answered with an error code.
    #[error("{operation} {path}: {code}")]
    Server {
        /// The server's code.
        code: ErrorCode,
        /// The operation, for instance `create`.
        operation: &'static str,
        /// The path as the caller sees it.
        path: String,
    },
    /// The server refused a transaction: nothing of it was carried out.
    #[error("{operation} {path}, operation {index} of the transaction: {code}; nothing was carried out")]
    TransactionFailed {
        /// Which operation failed, counted from 0.
        index: usize,
        /// The kind of operation, for instance `check`.
        operation: &'static str,
        /// Its path as the caller sees it.
        path: String,
        /// The server's code for it.
        code: ErrorCode,
        /// The server's answer to each operation: none to those before the one that failed, and an inconsistency to
        /// those after it.
        codes: Vec<Option<ErrorCode>>,
    },
    /// The connection broke, or never came about.
    #[error("{operation} {path}: {}", describe_loss(operation, *maybe_done, cause.as_deref()))]
    ConnectionLoss {
        /// The operation, for instance `create`.
        operation: &'static str,
        /// The path as the caller sees it.
        path: String,
        /// The client sent a request and got no answer, so it is unknown whether the server carried it out. Otherwise
        /// it sent nothing.
        maybe_done: bool,
        /// Why there is no connection, as far as known: what each server or the operating system said.
        cause: Option<Arc<io::Error>>,
    },
    /// The session ended before the operation did. A new session follows by itself.
    #[error("{operation} {path}: the session expired; what it owned is gone, a new session follows")]
    SessionExpired {
        /// The operation, for instance `create`.
        operation: &'static str,
        /// The path as the caller sees it.
        path: String,
    },
    /// The servers did not accept the credentials, or there are no valid ones: the client is of no use any more.
    #[error("{}: {detail}", describe_auth(scheme))]
    AuthFailed {
        /// The scheme, never the credentials; `sasl` of `Builder::sasl`.
        scheme: String,
        /// The reason, as far as known: with Kerberos the ticket, the keytab, the principal, the clock or the realm.
        detail: String,
    },
    /// A request or reply above the frame limit; it is not tried again.
    #[error(
        "{operation} {path}: {size} bytes in one request or reply are above the limit of {limit}; see max_frame_size(), and \
         jute.maxbuffer of the servers"
    )]
    FrameTooLarge {
        /// The operation, for instance `get_children`.
        operation: &'static str,
        /// The path as the caller sees it.
        path: String,
        /// The size of the frame.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The peer broke the protocol; the connection was ended.
    #[error("protocol violation by the peer: {0}")]
    Protocol(String),
    /// Several locks of one multi lock failed.
    #[error("{} locks failed; the first is the cause, then came: {}", others.len() + 1, list(others))]
    Several {
        /// The first error.
        #[source]
        first: Box<Error>,
        /// The others, in the order in which they came.
        others: Vec<Error>,
    },
    /// The operating system refused something that is not a connection.
    #[error("{what}")]
    Io {
        /// The action that was tried.
        what: String,
        /// The operating system's error.
        #[source]
        source: Arc<io::Error>,
    },
}

fn describe_loss(operation: &str, maybe_done: bool, cause: Option<&io::Error>) -> String {
    let what =
        if maybe_done { "the connection was lost before the answer came" } else { "no connection to the servers" };
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let then = match (operation, maybe_done) {
        ("acquire", _) => "the lock was not acquired",
        ("release", _) => "the client goes on deleting the znode in the background",
        (_, true) => "whether it was carried out is unknown",
        (_, false) => "nothing was sent",
    };
    format!("{what}{cause}; {then}")
}

fn describe_auth(scheme: &str) -> String {
    match scheme {
        "sasl" => "the client could not authenticate itself with SASL".to_owned(),
        _ => format!("the server rejected the authorization of scheme {scheme:?}"),
    }
}

impl Error {
    /// The variant's name; of a server's answer the code's.
    fn kind(&self) -> String {
        let name = match self {
            Error::Server { code, .. } => return format!("{code:?}"),
            Error::InvalidPath { .. } => "InvalidPath",
            Error::InvalidArgument { .. } => "InvalidArgument",
            Error::NotStarted => "NotStarted",
            Error::AlreadyStarted => "AlreadyStarted",
            Error::NotInUse { .. } => "NotInUse",
            Error::ClientClosed => "ClientClosed",
            Error::NotOwner { .. } => "NotOwner",
            Error::LockLost { .. } => "LockLost",
            Error::WouldDeadlock { .. } => "WouldDeadlock",
            Error::SequenceExhausted { .. } => "SequenceExhausted",
            Error::Cancelled { .. } => "Cancelled",
            Error::Timeout { .. } => "Timeout",
            Error::TransactionFailed { .. } => "TransactionFailed",
            Error::MixedKinds { .. } => "MixedKinds",
            Error::Busy { .. } => "Busy",
            Error::StillTaken { .. } => "StillTaken",
            Error::Uncertain { .. } => "Uncertain",
            Error::ConnectionLoss { .. } => "ConnectionLoss",
            Error::SessionExpired { .. } => "SessionExpired",
            Error::AuthFailed { .. } => "AuthFailed",
            Error::FrameTooLarge { .. } => "FrameTooLarge",
            Error::Protocol(_) => "Protocol",
            Error::Several { .. } => "Several",
            Error::Io { .. } => "Io",
        };
        name.to_owned()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.kind())?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, "; caused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

fn ahead(wanted: Duration) -> String {
    if wanted.is_zero() { String::new() } else { format!(" for {wanted:?} ahead") }
}

fn contenders(count: usize) -> String {
    if count == 1 { "1 contender is".to_owned() } else { format!("{count} contenders are") }
}

fn list(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The meaning of an error for the request that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The session is gone; whether the request was carried out before is unknown.
    SessionGone,
    /// Whether it was carried out is unknown.
    Unknown,
    /// The request was not carried out, because the server has too much to do, or answers too late. Later it may be.
    NotNow,
    /// The request was refused, and this says why.
    Final,
}

impl ErrorCode {
    /// The one table of what passes: retries, waits and clean-up all ask it.
    pub(crate) fn meaning(self) -> Meaning {
        match self {
            // A server on its own says so of a session that it has just ended, until it closes the connection.
            ErrorCode::SessionExpired | ErrorCode::UnknownSession => Meaning::SessionGone,
            ErrorCode::ConnectionLoss
            | ErrorCode::OperationTimeout
            | ErrorCode::RequestTimeout
            | ErrorCode::SessionMoved => Meaning::Unknown,
            ErrorCode::ThrottledOp => Meaning::NotNow,
            _ => Meaning::Final,
        }
    }
}

impl Error {
    /// The meaning of this code for the request. This is the one place that decides it.
    pub(crate) fn meaning(&self) -> Meaning {
        match self {
            Error::ConnectionLoss { .. } => Meaning::Unknown,
            Error::SessionExpired { .. } => Meaning::SessionGone,
            Error::Server { code, .. } => code.meaning(),
            Error::Uncertain { .. } => Meaning::NotNow,
            _ => Meaning::Final,
        }
    }

    /// Whether trying again may help: the connection or the session was lost, or the server had too much to do or answered
    /// too late. Nothing was refused for good.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.meaning() != Meaning::Final
    }

    /// Whether every other attempt to queue would end the same way.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Error::FrameTooLarge { .. }
                | Error::SequenceExhausted { .. }
                | Error::ClientClosed
                | Error::AuthFailed { .. }
        )
    }

    /// Whether the server may have carried the request out all the same.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Error::ClientClosed) || matches!(self.meaning(), Meaning::Unknown | Meaning::SessionGone)
    }

    /// Whether the server answered that the znode does not exist.
    #[must_use]
    pub fn is_no_node(&self) -> bool {
        self.code() == Some(ErrorCode::NoNode)
    }

    /// Whether the server answered that the znode exists already.
    #[must_use]
    pub fn is_node_exists(&self) -> bool {
        self.code() == Some(ErrorCode::NodeExists)
    }

    /// The server's code, where the error is a server's answer.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Server { code, .. } | Error::TransactionFailed { code, .. } => Some(*code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
