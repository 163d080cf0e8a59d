//! A session over a handle of the `zookeeper` package, version 0.8 (feature `zookeeper`).

mod execute;
mod leftovers;
mod shared;
mod state;
mod worker;

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use ::zookeeper::{ZkResult, ZooKeeper};

use super::{
    api::{Session, SessionConfig, SessionError, SessionFactory, SessionObserver, Submission, Ticket},
    servers::connect_string::ConnectString,
};
use crate::{
    base::{clock, log, panics::caught, threads::spawn},
    error::Result,
};
use shared::HandleShared;
use worker::{Source, Worker};

/// Opens sessions over handles of the `zookeeper` package, for
/// [`Builder::session_factory`](crate::Builder::session_factory) (feature `zookeeper`).
///
/// For programs that hold a `zookeeper::ZooKeeper` already and want their locks in the same session. Everybody else is
/// better served by this crate's own session, which is the default. A lock is as safe here as there, because a
/// watchdog on its own clock stands between the package and the lock: it sends a heartbeat a quarter of the session
/// timeout after the answer to the one before, suspends when nothing was answered for two thirds of it, and notices a session that the package has replaced
/// in silence. It cannot make the package do what it does not:
///
/// | limit of the package | what follows here |
/// |---|---|
/// | a call blocks until the network heals, and cannot be called back | callers end by their deadlines all the same; one thread stays behind for each session given up, until the call returns |
/// | one call at a time returns an answer | requests go out one by one, in order: create and list are two round trips, not one; heartbeats do not overlap, so that locks stay certain up to a round trip of 0.13 of the session timeout, not 0.3, and are in doubt over a slower link |
/// | no `create2` | the stat comes from an `exists` behind the `create` |
/// | `CreateMode::Container` makes a plain znode; no TTL | containers are made as persistent znodes, which stay; TTL modes fail with `Unimplemented` |
/// | no names for many error codes: of a session that the server does not know, of a busy server, of a quota | `Unimplemented`, once the handle was asked whether it still has the session |
/// | no `sync` | a write to a znode of the session's own stands in for it, also as the heartbeat |
/// | no `multi`, no `getEphemerals`, no `whoAmI` | they fail with `Unimplemented`, and so does each acquire of an [`InterProcessUnfairMutex`](crate::InterProcessUnfairMutex); a multi lock acquires and releases its members one by one |
/// | watches are not set again after a reconnect | after one each watch reports a change of the data, or of the children, and is used up, whether there was one or not |
/// | no limit for the size of a request or a reply | [`max_frame_size`](crate::Builder::max_frame_size) is without effect: a request larger than the server takes ends the connection, at each attempt again, which puts the locks in doubt, and fails with `ConnectionLoss` |
/// | `remove_watches` keeps what it should remove | it is not used: a watch given up stays at the server until the znode changes |
/// | the negotiated session timeout, the session's id and password cannot be asked for | the timeout is taken as configured, the id is learned from an ephemeral znode, the password stays unknown |
/// | the session is replaced in silence when it has expired | noticed by the owner of that znode, before any other request is sent |
/// | the handle is dead (`Closed`) when its connection ends later than a session timeout after its own last ping, and it pings only while nothing is sent for two thirds of that time | the heartbeats count as traffic: a connection that ends later than that after the start ends the session, its locks are lost and their holders told; with [`connecting`](ZooKeeperSessionFactory::connecting) another handle is made |
/// | it reconnects without a pause while the server is away, on up to a whole core, until the session timeout has passed since its last ping | none for a handle that has a session; one that [`connecting`](ZooKeeperSessionFactory::connecting) makes after that should not be made before there is a server, see there |
/// | read-only servers | do not serve: there is nothing to prove that the session lives |
/// | it logs the session's password at level `trace` | keep that level off for the target `zookeeper` |
///
/// Configure the client with care:
/// - `session_timeout`: no more than the servers grant, because the package does not say what they grant. With a longer one
///   a holder would learn too late that its lock is in doubt.
/// - `connect_string`: its servers are not used, only its chroot, which goes behind the handle's own.
///
/// Each session keeps one ephemeral znode, `_curator_locks_<uuid>`, in the handle's root or in
/// [`probe_directory`](ZooKeeperSessionFactory::probe_directory).
///
/// One client for each handle. When the client gives its session up or is closed, the session's ephemeral znodes are
/// deleted one by one, as the handle lives on.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use curator_locks::{CuratorFramework, ExponentialBackoffRetry, ZooKeeperSessionFactory};
/// use zookeeper::ZooKeeper;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "testing")]
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # #[cfg(feature = "testing")]
/// # let servers = &server.connect_string();
/// # #[cfg(not(feature = "testing"))]
/// let servers = "127.0.0.1:2181";
/// # if cfg!(not(feature = "testing")) { return Ok(()) }
/// let timeout = Duration::from_secs(10);
/// let handle = Arc::new(ZooKeeper::connect(servers, timeout, |_| {})?);
/// let client = CuratorFramework::builder()
///     .connect_string(servers)
///     .session_timeout(timeout)
///     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
///     .session_factory(ZooKeeperSessionFactory::new(handle.clone()))
///     .build()?;
/// client.start()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZooKeeperSessionFactory {
    source: Source,
    probe_directory: String,
}

impl ZooKeeperSessionFactory {
    /// Opens sessions over this handle. The client never closes it, but dropping its last reference does.
    ///
    /// How long its session has lived is unknown, so a lock is in doubt ([`HoldState::InDoubt`](crate::HoldState)) until
    /// three heartbeats were answered, 11/20 of the session timeout after the start.
    #[must_use]
    pub fn new(handle: Arc<ZooKeeper>) -> ZooKeeperSessionFactory {
        ZooKeeperSessionFactory { source: Source::Given(handle), probe_directory: String::new() }
    }

    /// Opens sessions over handles that `connect` makes, each closed with its session. `connect` runs on a thread of the
    /// session, which calls it again 100 ms later if it fails.
    ///
    /// A handle without a server tries to connect without a pause (measured: 21 to 99 % of a core, all of it on the package's
    /// own thread), and cannot be ended before the session timeout has passed. So `connect` looks first whether there is one,
    /// and fails if not (then: 0.3 %):
    ///
    /// ```
    /// use std::{net::TcpStream, time::Duration};
    /// use curator_locks::ZooKeeperSessionFactory;
    /// use zookeeper::{ZkError, ZooKeeper};
    ///
    /// let factory = ZooKeeperSessionFactory::connecting(|| {
    ///     TcpStream::connect("127.0.0.1:2181").map_err(|_| ZkError::ConnectionLoss)?;
    ///     ZooKeeper::connect("127.0.0.1:2181", Duration::from_secs(10), |_| {})
    /// });
    /// # drop(factory);
    /// ```
    #[must_use]
    pub fn connecting(connect: impl Fn() -> ZkResult<ZooKeeper> + Send + Sync + 'static) -> ZooKeeperSessionFactory {
        ZooKeeperSessionFactory { source: Source::Made(Arc::new(connect)), probe_directory: String::new() }
    }

    /// Sets the directory of the session's own znode, if not the handle's root: an existing path in which the handle
    /// may create and delete.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath).
    pub fn probe_directory(mut self, path: &str) -> Result<ZooKeeperSessionFactory> {
        crate::base::paths::validate_path(path)?;
        self.probe_directory = path.trim_end_matches('/').to_owned();
        Ok(self)
    }
}

impl fmt::Debug for ZooKeeperSessionFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperSessionFactory")
            .field("probe_directory", &self.probe_directory)
            .finish_non_exhaustive()
    }
}

impl SessionFactory for ZooKeeperSessionFactory {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        let shared = Arc::new(HandleShared::new(config, observer));
        let worker = Worker::new(shared.clone(), self.source.clone(), &self.probe_directory);
        // Dropped if a thread cannot be had, which ends the other one.
        let session = Arc::new(ZooKeeperSession { shared: shared.clone() });
        let watchdog = shared.clone();
        spawn("zk-worker", move || {
            // The session has not ended before the worker has let go of the handle. A panic ends it, too: no caller must wait
            // for a thread that is gone.
            caught("the worker of a session over the package zookeeper", || worker.run());
            shared.expired();
            shared.state.lock().is_finished = true;
            shared.news.notify_all();
        })?;
        spawn("zk-watchdog", move || watchdog.watch())?;
        Ok(session)
    }
}

/// One session over a handle.
struct ZooKeeperSession {
    shared: Arc<HandleShared>,
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        // The session has no user any more: its worker cleans up and ends.
        self.shared.end(SessionError::Closed, None);
    }
}

impl Session for ZooKeeperSession {
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        let mut actions = Vec::new();
        let tickets = {
            let mut state = self.shared.state.lock();
            let submit = |submission: Submission| {
                self.shared.config.counters.requested(&submission.request);
                state.submit(submission, &mut actions)
            };
            batch.into_iter().map(submit).collect()
        };
        self.shared.work.notify_all();
        self.shared.carry_out(actions);
        tickets
    }

    fn withdraw(&self, ticket: Ticket) -> bool {
        let taken = {
            let mut state = self.shared.state.lock();
            state.queue.remove(&ticket.0).map(|queued| (queued, state.watches.remove(&ticket.0)))
        };
        // Their contents are dropped here, outside of the lock.
        taken.is_some()
    }

    fn unwatch(&self, ticket: Ticket) {
        let given_up = self.shared.state.lock().watches.remove(&ticket.0);
        drop(given_up);
    }

    fn id(&self) -> i64 {
        self.shared.id()
    }

    fn password(&self) -> Vec<u8> {
        Vec::new()
    }

    fn timeout(&self) -> Duration {
        self.shared.config.session_timeout
    }

    fn connection(&self) -> u64 {
        let state = self.shared.state.lock();
        if state.is_up() { state.connections } else { 0 }
    }

    fn valid_until(&self) -> Option<Instant> {
        let state = self.shared.state.lock();
        if state.ended.is_none() { state.liveness.valid_until() } else { None }
    }

    fn last_error(&self) -> Option<Arc<io::Error>> {
        let state = self.shared.state.lock();
        if state.is_up() { None } else { state.last_error.clone() }
    }

    fn is_ended(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    fn update_hosts(&self, _hosts: &ConnectString) {
        log::warn!("the connect string has changed, but a handle of the package zookeeper keeps its servers");
    }

    fn is_finished(&self) -> bool {
        self.shared.state.lock().is_finished
    }

    fn abandon(&self) {
        self.shared.end(SessionError::Expired, None);
    }

    fn nobody_holds(&self) {
        self.shared.nobody_holds();
    }

    fn close(&self, deadline: Instant) {
        self.shared.end(SessionError::Closed, None);
        let mut state = self.shared.state.lock();
        while !state.is_finished && !self.shared.news.wait_for(&mut state, clock::until(deadline)).timed_out() {}
    }
}
