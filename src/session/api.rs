//! The trait [`Session`] and the values it takes and gives.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    dialect::Dialect,
    servers::{connect_string::ConnectString, resolver::KnownServers},
    successor::Successor,
};
use crate::{
    base::telemetry::counters::Counters as SessionCounters,
    error,
    proto::{
        request::Request,
        response::Response,
        types::{ErrorCode, EventType},
    },
};

/// The answer to one request.
///
/// ```
/// use curator_locks::unversioned::{Reply, Response, SessionError};
///
/// fn exists(reply: Reply) -> Result<bool, SessionError> {
///     use curator_locks::ErrorCode;
///     match reply {
///         Ok(_) => Ok(true),
///         Err(SessionError::Server(ErrorCode::NoNode)) => Ok(false),
///         Err(error) => Err(error),
///     }
/// }
/// assert!(exists(Ok(Response::Stat(Default::default()))).is_ok_and(|exists| exists));
/// ```
pub type Reply = Result<Response, SessionError>;

/// Receives the answer to one request. Runs on a thread of the session, or on the thread that submits the request (before
/// it has the ticket), abandons or closes the session. Must not block: while it runs, nobody gets a reply.
///
/// ```
/// use curator_locks::unversioned::{OnReply, Response};
///
/// let (tell, told) = crossbeam_channel::bounded(1); // there is room for the reply, so `send` does not block
/// let on_reply: OnReply = Box::new(move |reply| drop(tell.send(reply)));
/// on_reply(Ok(Response::Done)); // as a session calls it
/// assert!(matches!(told.recv(), Ok(Ok(Response::Done))));
/// ```
pub type OnReply = Box<dyn FnOnce(Reply) + Send>;

/// Receives what happens to one watch. Runs on a thread of the session, or on the thread that abandons or closes it. Must
/// not block: while it runs, nobody gets a reply.
///
/// ```
/// use std::sync::Arc;
/// use curator_locks::unversioned::{EventType, WatchEvent, Watcher};
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let watcher: Watcher = Arc::new(move |event: &WatchEvent| drop(tell.send(event.clone())));
/// watcher(&WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 }); // as a session calls it
/// assert!(matches!(told.recv(), Ok(WatchEvent::Node { event: EventType::NodeDeleted, .. })));
/// ```
pub type Watcher = Arc<dyn Fn(&WatchEvent) + Send + Sync>;

/// Receives what happens to the session, in order. Runs on a thread of the session. Must not block: while it runs,
/// nobody gets a reply.
///
/// ```
/// use std::sync::Arc;
/// use curator_locks::unversioned::{SessionEvent, SessionObserver};
///
/// /// Tells `inner` of the same events, but prints them first.
/// fn printing(inner: SessionObserver) -> SessionObserver {
///     Arc::new(move |event: SessionEvent| {
///         println!("{event:?}");
///         inner(event);
///     })
/// }
/// printing(Arc::new(drop))(SessionEvent::Disconnected);
/// ```
pub type SessionObserver = Arc<dyn Fn(SessionEvent) + Send + Sync>;

/// The likely reasons of a server that rejects an authorization.
pub(crate) const NOT_ACCEPTED: &str = "it does not know the scheme, or not these credentials; see authorization()";

/// Why a request has no reply.
///
/// ```
/// use curator_locks::unversioned::SessionError;
///
/// /// Whether the same request may be answered in the same session.
/// fn may_pass(error: &SessionError) -> bool {
///     match error {
///         SessionError::ConnectionLoss(cause) => {
///             println!("was it carried out? {cause:?}");
///             true
///         }
///         _ => false,
///     }
/// }
/// assert!(may_pass(&SessionError::ConnectionLoss(None)) && !may_pass(&SessionError::Expired));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone)]
pub enum SessionError {
    /// The server answered with an error code.
    Server(ErrorCode),
    /// The connection ended before the reply: the outcome is unknown.
    ConnectionLoss(Option<Arc<io::Error>>),
    /// The session has ended: a server said so, or the client gave it up.
    Expired,
    /// The session was closed by this process.
    Closed,
    /// The server rejected the credentials of this scheme, or there are none.
    AuthFailed {
        /// The scheme; `sasl` of SASL.
        scheme: String,
        /// The reason, as far as known.
        detail: String,
    },
    /// The request or its reply is larger than the limit.
    FrameTooLarge {
        /// Size of the frame.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
}

/// An event of a watch.
///
/// ```
/// use curator_locks::unversioned::{EventType, WatchEvent};
///
/// /// Whether the watch has to be set again by a new request.
/// fn is_used_up(event: &WatchEvent) -> bool {
///     matches!(event, WatchEvent::Node { .. } | WatchEvent::Ended)
/// }
/// assert!(is_used_up(&WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 }));
/// assert!(!is_used_up(&WatchEvent::Disconnected)); // the session sets it again
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WatchEvent {
    /// The znode changed. The watch is used up.
    Node {
        /// The kind of change.
        event: EventType,
        /// The number of the connection that reported it, see [`Session::connection`].
        connection: u64,
    },
    /// The connection is gone; the watch waits for the next one.
    Disconnected,
    /// The session goes on over another connection, and the watch was set again.
    Reconnected {
        /// The number of the new connection.
        connection: u64,
    },
    /// The session has ended. The watch is used up.
    Ended,
}

/// An event of a session.
///
/// ```
/// use curator_locks::unversioned::SessionEvent;
///
/// /// Whether a factory has to open another session.
/// fn is_the_end(event: &SessionEvent) -> bool {
///     matches!(event, SessionEvent::Expired | SessionEvent::AuthFailed { .. })
/// }
/// assert!(is_the_end(&SessionEvent::Expired));
/// assert!(!is_the_end(&SessionEvent::Connected { connection: 2, read_only: false }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// A server accepted the session.
    Connected {
        /// The number of the connection, counted from 1.
        connection: u64,
        /// The server can only read.
        read_only: bool,
    },
    /// The connection is gone; the session may live on.
    Disconnected,
    /// The server said that the session has expired. Nothing follows.
    Expired,
    /// The server rejected the credentials of this scheme, or there are none. Nothing follows.
    AuthFailed {
        /// The scheme; `sasl` of SASL.
        scheme: String,
        /// The reason, as far as known.
        detail: String,
    },
}

/// Names one submitted request, and the watch it leaves.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use curator_locks::unversioned::{NativeSessionFactory, SessionConfig, SessionCounters, SessionFactory};
/// use curator_locks::unversioned::{Request, Session, Submission, Ticket};
///
/// # let config = SessionConfig {
/// #     hosts: "127.0.0.1:1".parse()?, // nobody answers there
/// #     known: Arc::default(),
/// #     dialect: None,
/// #     successor: Arc::default(),
/// #     session_timeout: Duration::from_secs(60),
/// #     connection_timeout: Duration::from_secs(5),
/// #     authorizations: Vec::new(),
/// #     quorum_heartbeats: false,
/// #     max_frame_size: 4 << 20,
/// #     max_request_size: 1 << 20,
/// #     counters: Arc::new(SessionCounters::default()),
/// # };
/// # let session = NativeSessionFactory.open(&config, Arc::new(drop))?;
/// let request = Request::Exists { path: "/".into(), watch: false };
/// let tickets: Vec<Ticket> = session.submit(vec![Submission { request, watcher: None, on_reply: Box::new(drop) }]);
/// // No server could be reached so far, and the result is of no interest any more:
/// assert!(session.withdraw(tickets[0]));
/// # session.close(curator_locks::unversioned::now());
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One request, with the receivers of its reply and of its watch's events.
///
/// ```
/// use curator_locks::unversioned::{Request, SessionError, Submission};
///
/// let submission = Submission {
///     request: Request::Delete { path: "/shop/order-17".into(), version: -1 },
///     watcher: None, // a delete leaves no watch
///     on_reply: Box::new(|reply| assert!(matches!(reply, Err(SessionError::Closed)))),
/// };
/// (submission.on_reply)(Err(SessionError::Closed)); // as a session does that is closed first
/// ```
pub struct Submission {
    /// The request.
    pub request: Request,
    /// Told of the events of the watch that the request leaves; required exactly if the request asks for a watch.
    pub watcher: Option<Watcher>,
    /// Called once with the reply, unless the request is withdrawn in time.
    pub on_reply: OnReply,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("request", &self.request).finish_non_exhaustive()
    }
}

/// One ZooKeeper session. All methods return without waiting for the server, but for [`Session::close`].
///
/// The client calls the getters, such as [`Session::connection`] and [`Session::valid_until`], under locks of its own
/// as well: a session must not call anything of the client there.
///
/// ```
/// # #[cfg(not(feature = "testing"))] fn main() {}
/// # #[cfg(feature = "testing")] fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # use curator_locks::unversioned::{SessionConfig, SessionCounters};
/// use std::{sync::Arc, time::Duration};
/// use curator_locks::unversioned::{NativeSessionFactory, Request, Session, SessionFactory, Submission, now};
///
/// # let config = SessionConfig {
/// #     hosts: server.connect_string().parse()?,
/// #     known: Arc::default(),
/// #     dialect: None,
/// #     successor: Arc::default(),
/// #     session_timeout: Duration::from_secs(10),
/// #     connection_timeout: Duration::from_secs(5),
/// #     authorizations: Vec::new(),
/// #     quorum_heartbeats: false,
/// #     max_frame_size: 4 << 20,
/// #     max_request_size: 1 << 20,
/// #     counters: Arc::new(SessionCounters::default()),
/// # };
/// let session: Arc<dyn Session> = NativeSessionFactory.open(&config, Arc::new(|event| println!("{event:?}")))?;
/// let (tell, told) = crossbeam_channel::bounded(1);
/// session.submit(vec![Submission {
///     request: Request::GetData { path: "/".into(), watch: false },
///     watcher: None,
///     on_reply: Box::new(move |reply| drop(tell.send(reply))),
/// }]);
/// println!("{:?}", told.recv()?); // the data, or why there is none
/// session.close(now() + Duration::from_secs(5));
/// # Ok(()) }
/// ```
pub trait Session: Send + Sync + 'static {
    /// Puts requests on the wire, back to back and in this order, or queues them until there is a connection. The
    /// tickets come in the order of the requests.
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket>;

    /// Takes a request back that was not written yet. `true`: it never reaches the server and its `on_reply` is never
    /// called. `false`: it is, or was, on the wire.
    fn withdraw(&self, ticket: Ticket) -> bool;

    /// Gives up the watch that this request left, at the server too if nothing else in this session watches the znode.
    /// Its watcher is not called any more, except for calls already under way.
    fn unwatch(&self, ticket: Ticket);

    /// Whether a watcher is called before the reply to any request that the server carried out after the change is handed
    /// out, as long as the connection stays the same; `false` by default.
    fn tells_in_order(&self) -> bool {
        false
    }

    /// The session's id; 0 before a server gave one.
    fn id(&self) -> i64;

    /// The session's password, as the server gave it; empty where unknown.
    fn password(&self) -> Vec<u8>;

    /// The session timeout: the negotiated one, or before that the one that is asked for.
    fn timeout(&self) -> Duration;

    /// The number of the live connection, counted from 1; 0 while there is none.
    fn connection(&self) -> u64;

    /// Up to here the servers cannot have expired the session; `None` before the first handshake and after the end. No lock
    /// is granted in a session that never says so.
    ///
    /// It assumes a session timeout of at least two of the servers' ticks, which is the same one on all of them, always, a leader that is not cut off from the other
    /// servers (but for [`quorum_heartbeats`](SessionConfig::quorum_heartbeats)), a server that is no observer of another
    /// observer's or follower's (`observerMasterPort`), and clocks that run at one rate. It is a moment of the clock of
    /// [`now`](crate::unversioned::now), which goes on while the system sleeps, as those of the servers do.
    fn valid_until(&self) -> Option<Instant>;

    /// Why the last attempt to connect failed, or the last connection ended; `None` while there is a connection, and
    /// where unknown.
    fn last_error(&self) -> Option<Arc<io::Error>> {
        None
    }

    /// Whether the session has ended, for whatever reason. It says so before its watchers hear of it.
    fn is_ended(&self) -> bool;

    /// Set once the session has ended without its znodes: the servers keep them until it expires or is closed, and the session that
    /// follows has to delete them. Up to this moment, of the clock of [`now`](crate::unversioned::now), a holder may take its
    /// lock for held. `None` by default: the znodes are
    /// gone with the session, or go at once.
    fn left_behind(&self) -> Option<Instant> {
        None
    }

    /// The kind of server that the session lives at; `None`, which is the default, where it is not known.
    fn dialect(&self) -> Option<Dialect> {
        None
    }

    /// Whether the servers may have containers; `true` by default. Where they have none the parents of locks are persistent.
    fn has_containers(&self) -> bool {
        true
    }

    /// Whether the servers are known to take several reads in one request, as ZooKeeper 3.6 and newer do; `false` by default.
    fn reads_together(&self) -> bool {
        false
    }

    /// Replaces the servers, from the next connection on. The session lives on if the new ones know it.
    fn update_hosts(&self, hosts: &ConnectString);

    /// Finds the first of these lists of hosts and ports that names the server of the current connection, by the name or an
    /// address by which it was reached, and tells its index: at once, or later from another thread. `None`, which is the
    /// default: none of them. Without a connection it tells nothing.
    fn locate(&self, lists: [Vec<(String, u16)>; 2], then: Box<dyn FnOnce(Option<usize>) + Send>) {
        drop(lists);
        then(None);
    }

    /// Leaves the current connection for another one, over which the session goes on. Does nothing by default.
    fn reconnect(&self) {}

    /// Whether nothing runs for the session any more: it has ended, and was closed at the server or given up on.
    fn is_finished(&self) -> bool;

    /// Declares the session lost: requests end with [`SessionError::Expired`], watches with [`WatchEvent::Ended`], and
    /// no event follows except one that is under way. In the background the session is taken up once more, only to
    /// close it, so that its znodes go at once; but not before the moment that [`valid_until`](Session::valid_until) has
    /// named, by which a holder may go, or [`nobody_holds`](Session::nobody_holds).
    fn abandon(&self);

    /// Says of a session that has ended that no lock is held in it any more, so that it may be closed at once. Does nothing by
    /// default: then it is closed when no holder can rely on it any more, or not at all. Does not wait for a server.
    fn nobody_holds(&self) {}

    /// Closes the session and waits for the server's confirmation, at most until `deadline` on the clock of
    /// [`now`](crate::unversioned::now). Requests end with
    /// [`SessionError::Closed`], watches with [`WatchEvent::Ended`], and no event follows except one that is under way.
    fn close(&self, deadline: Instant);
}

impl dyn Session {
    /// Whether the session has ended, and taken its ephemeral znodes with it.
    pub(crate) fn has_taken_its_znodes(&self) -> bool {
        self.is_ended() && self.left_behind().is_none()
    }
}

/// The configuration of a session.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use curator_locks::{CuratorFramework, Result, RetryOneTime};
/// use curator_locks::unversioned::{NativeSessionFactory, Session, SessionConfig, SessionFactory, SessionObserver};
///
/// /// Leaves a server that does not answer within a second.
/// struct Impatient;
///
/// impl SessionFactory for Impatient {
///     fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
///         let config = SessionConfig { connection_timeout: Duration::from_secs(1), ..config.clone() };
///         NativeSessionFactory.open(&config, observer)
///     }
/// }
/// let builder = CuratorFramework::builder().connect_string("zk1:2181").session_factory(Impatient);
/// # builder.retry_policy(RetryOneTime::new(Duration::from_secs(1))).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Clone)]
pub struct SessionConfig {
    /// The servers.
    pub hosts: ConnectString,
    /// The knowledge of earlier sessions about the servers, such as the addresses that their names had last, for while the
    /// names do not resolve: one for all sessions of a client. `Arc::default()` knows nothing yet.
    pub known: Arc<KnownServers>,
    /// The kind of server; `None`: a session finds that out.
    pub dialect: Option<Dialect>,
    /// The connection with which the next session begins, if the last one has left one: one for all sessions of a client.
    /// `Arc::default()` has none yet.
    pub successor: Arc<Successor>,
    /// The session timeout to ask for.
    pub session_timeout: Duration,
    /// The longest that one attempt to connect may take.
    pub connection_timeout: Duration,
    /// Scheme and credentials, sent first on every connection.
    pub authorizations: Vec<(String, Vec<u8>)>,
    /// Whether only an answer that a majority of the servers has agreed on proves that the session lives.
    pub quorum_heartbeats: bool,
    /// The largest frame accepted in either direction, in bytes.
    pub max_frame_size: usize,
    /// The largest request sent, in bytes: a server that gets a larger one than it takes ends the connection.
    pub max_request_size: usize,
    /// The counters of the client that the session adds to.
    pub counters: Arc<SessionCounters>,
}

impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<&str> = self.authorizations.iter().map(|(scheme, _)| scheme.as_str()).collect();
        f.debug_struct("SessionConfig")
            .field("hosts", &self.hosts)
            .field("session_timeout", &self.session_timeout)
            .field("connection_timeout", &self.connection_timeout)
            .field("authorization_schemes", &schemes)
            .field("quorum_heartbeats", &self.quorum_heartbeats)
            .field("max_frame_size", &self.max_frame_size)
            .field("max_request_size", &self.max_request_size)
            .finish()
    }
}

/// Opens sessions: at the client's start, and again whenever one is lost.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use curator_locks::{CuratorFramework, Result, RetryOneTime};
/// use curator_locks::unversioned::{NativeSessionFactory, Session, SessionConfig, SessionFactory, SessionObserver};
///
/// /// Prints what happens to the sessions.
/// struct Printing;
///
/// impl SessionFactory for Printing {
///     fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
///         println!("a session with {:?}", config.hosts);
///         NativeSessionFactory.open(config, Arc::new(move |event| {
///             println!("{event:?}");
///             observer(event);
///         }))
///     }
/// }
/// let builder = CuratorFramework::builder().connect_string("zk1:2181").session_factory(Printing);
/// # builder.retry_policy(RetryOneTime::new(Duration::from_secs(1))).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
pub trait SessionFactory: Send + Sync + 'static {
    /// Begins a new session; connecting goes on in the background and is reported to the observer.
    ///
    /// # Errors
    /// Only errors that make a session impossible from the start, for instance if no thread can be had.
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> error::Result<Arc<dyn Session>>;
}
