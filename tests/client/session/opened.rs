//! A session with what it tells, and requests that wait for their replies.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use curator_locks::{
    Acl, CreateMode, ZooKeeperSessionFactory,
    unversioned::{
        NativeSessionFactory, Reply, Request, Response, Session, SessionConfig, SessionError, SessionEvent,
        SessionFactory, Submission, Ticket, WatchEvent, Watcher,
    },
};
use zookeeper::ZooKeeper;

use crate::support::{PATIENCE, namespace, server};

/// Longer than any case: a handle of the package gives itself up where its connection ends later than this after its start.
pub(crate) const LONG: Duration = Duration::from_secs(40);

/// For a session whose servers answer. Some cases leave one behind whose servers do not.
const CLOSING: Duration = Duration::from_secs(2);

/// Whose session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Native,
    /// Over a handle of the package `zookeeper`.
    Package,
}

impl Kind {
    /// A session whose connection is there, in a directory of its own.
    pub(crate) fn open(self, address: &str, timeout: Duration) -> Opened {
        let opened = self.begin(address, timeout, &[]);
        opened.await_connection(1);
        opened.ask(create(&opened.root, CreateMode::Persistent)).unwrap();
        opened
    }

    /// A session that may have no connection yet, with these credentials.
    pub(crate) fn begin(self, address: &str, timeout: Duration, credentials: &[(&str, &str)]) -> Opened {
        let config = SessionConfig {
            hosts: address.parse().unwrap(),
            known: Arc::default(),
            dialect: Some(curator_locks::Dialect::ZooKeeper),
            successor: Arc::default(),
            session_timeout: timeout,
            connection_timeout: Duration::from_secs(10),
            authorizations: credentials.iter().map(|(scheme, auth)| ((*scheme).into(), (*auth).into())).collect(),
            quorum_heartbeats: false,
            max_frame_size: 4 << 20,
            max_request_size: 4 << 20,
            counters: Arc::default(),
        };
        let (tell, events) = unbounded();
        let observer = Arc::new(move |event| drop(tell.send(event)));
        let session = match self {
            Kind::Native => NativeSessionFactory.open(&config, observer),
            Kind::Package => {
                let to = address.to_owned();
                let connect = move || ZooKeeper::connect(&to, timeout, |_| {});
                ZooKeeperSessionFactory::connecting(connect).open(&config, observer)
            }
        };
        Opened { session: session.unwrap(), events, root: format!("/{}", namespace()), closes: true }
    }
}

pub(crate) struct Opened {
    pub(crate) session: Arc<dyn Session>,
    pub(crate) events: Receiver<SessionEvent>,
    /// Where its case may do as it likes.
    root: String,
    closes: bool,
}

/// Closed before the proxy goes that it connects through, as in `locks::connecting`.
impl Drop for Opened {
    fn drop(&mut self) {
        if self.closes {
            self.session.close(Instant::now() + CLOSING);
        }
    }
}

impl Opened {
    /// A path in its directory.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Drops the session, and does not close it.
    pub(crate) fn let_go(mut self) {
        self.closes = false;
    }

    #[track_caller]
    pub(crate) fn next_event(&self) -> SessionEvent {
        self.events.recv_timeout(PATIENCE).expect("no event of the session")
    }

    #[track_caller]
    pub(crate) fn await_connection(&self, connection: u64) {
        assert_eq!(self.next_event(), SessionEvent::Connected { connection, read_only: false });
    }

    pub(crate) fn submit(&self, requests: Vec<Request>) -> Vec<Pending> {
        let (submissions, replies): (Vec<_>, Vec<_>) = requests.into_iter().map(submission).unzip();
        let tickets = self.session.submit(submissions);
        let pending = tickets.into_iter().zip(replies);
        pending.map(|(ticket, reply)| Pending { ticket, reply }).collect()
    }

    pub(crate) fn send(&self, request: Request) -> Pending {
        self.submit(vec![request]).remove(0)
    }

    #[track_caller]
    pub(crate) fn ask(&self, request: Request) -> Reply {
        self.send(request).wait()
    }

    /// Sends a request that leaves a watch.
    pub(crate) fn send_watching(&self, request: Request) -> (Pending, Watch) {
        let (tell, told) = unbounded();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| drop(tell.send(event.clone())));
        let (submission, reply) = submission(request);
        let ticket = self.session.submit(vec![Submission { watcher: Some(watcher), ..submission }]).remove(0);
        (Pending { ticket, reply }, Watch { ticket, told })
    }

    /// Leaves a watch, and has its reply.
    #[track_caller]
    pub(crate) fn watch(&self, request: Request) -> Watch {
        let (reply, watch) = self.send_watching(request);
        let reply = reply.wait();
        assert!(matches!(&reply, Ok(_) | Err(SessionError::Server(_))), "{reply:?}");
        watch
    }
}

/// A request that was submitted.
pub(crate) struct Pending {
    pub(crate) ticket: Ticket,
    pub(crate) reply: Receiver<Reply>,
}

impl Pending {
    #[track_caller]
    pub(crate) fn wait(&self) -> Reply {
        self.reply.recv_timeout(PATIENCE).expect("no reply")
    }

    /// Waits until its callback is dropped, which must not have been called.
    #[track_caller]
    pub(crate) fn await_nothing(&self) {
        assert!(matches!(self.reply.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)), "it was answered");
    }
}

/// What one watcher is told.
pub(crate) struct Watch {
    pub(crate) ticket: Ticket,
    told: Receiver<WatchEvent>,
}

impl Watch {
    #[track_caller]
    pub(crate) fn next(&self) -> WatchEvent {
        self.told.recv_timeout(PATIENCE).expect("no event of the watch")
    }

    /// What it was told by now.
    pub(crate) fn so_far(&self) -> Vec<WatchEvent> {
        self.told.try_iter().collect()
    }

    /// Waits until its watcher is dropped, and gives what it was told.
    #[track_caller]
    pub(crate) fn rest(&self) -> Vec<WatchEvent> {
        let mut told = Vec::new();
        loop {
            match self.told.recv_timeout(PATIENCE) {
                Ok(event) => told.push(event),
                Err(RecvTimeoutError::Disconnected) => return told,
                Err(RecvTimeoutError::Timeout) => panic!("the watcher is kept: {told:?}"),
            }
        }
    }
}

fn submission(request: Request) -> (Submission, Receiver<Reply>) {
    let (tell, reply) = unbounded();
    (Submission { request, watcher: None, on_reply: Box::new(move |reply| drop(tell.send(reply))) }, reply)
}

pub(crate) fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create { path: path.into(), data: Vec::new(), acl: Acl::open_unsafe(), mode }
}

pub(crate) fn exists(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: false }
}

pub(crate) fn read(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: false }
}

pub(crate) fn write(path: &str, data: impl Into<Vec<u8>>) -> Request {
    Request::SetData { path: path.into(), data: data.into(), version: -1 }
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

/// A session of this crate that looks at what the one under test does.
pub(crate) fn observer() -> Opened {
    Kind::Native.open(&server().connect_string(), LONG)
}

/// Whether the znode is there, as this session sees it.
#[track_caller]
pub(crate) fn is_there(observer: &Opened, path: &str) -> bool {
    match observer.ask(exists(path)) {
        Ok(Response::Stat(_)) => true,
        Err(SessionError::Server(curator_locks::ErrorCode::NoNode)) => false,
        other => panic!("{other:?}"),
    }
}
