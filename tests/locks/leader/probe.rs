//! Leaders that the tests drive.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use curator_locks::{
    Acl, AclProvider, CloseMode, CuratorFramework, Error, LeaderLatch, LeaderLatchListener, LeaderSelector,
    LeaderSelectorListener, Leadership, RetryOneTime,
    testing::{FaultProxy, TestingServer},
};

use crate::{
    leaving::left,
    support::{self, PATIENCE},
};

pub const PATH: &str = "/leaders/one";

/// A session that faults end, and no moment in which this machine runs a process late.
pub const SHORT: Duration = Duration::from_secs(8);

/// A call of `take_leadership` that is under way. It returns when this is dropped.
pub struct Term {
    pub leadership: Leadership,
    _returns: Sender<()>,
}

/// How `take_leadership` ends.
pub type LeaderResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Hands its terms to the test.
pub struct Probe {
    terms: Sender<Term>,
    failures: Sender<Error>,
    /// Returns when it is asked to, and not only when the test lets it.
    is_obedient: bool,
}

impl LeaderSelectorListener for Probe {
    fn take_leadership(&self, _client: &CuratorFramework, leadership: &Leadership) -> LeaderResult {
        let (_returns, told) = bounded(0);
        let _ = self.terms.send(Term { leadership: leadership.clone(), _returns });
        if !self.is_obedient {
            let _ = told.recv();
            return Ok(());
        }
        select! {
            recv(told) -> _ => {}
            recv(leadership.cancelled()) -> _ => {}
        }
        Ok(())
    }

    fn queueing_failed(&self, _client: &CuratorFramework, error: &Error) {
        let _ = self.failures.send(error.clone());
    }
}

pub struct Terms {
    pub terms: Receiver<Term>,
    pub failures: Receiver<Error>,
}

impl Terms {
    #[track_caller]
    pub fn next(&self) -> Term {
        self.terms.recv_timeout(PATIENCE).expect("it never leads")
    }
}

pub fn probe(is_obedient: bool) -> (Probe, Terms) {
    let (terms, terms_of) = unbounded();
    let (failures, failures_of) = unbounded();
    (Probe { terms, failures, is_obedient }, Terms { terms: terms_of, failures: failures_of })
}

/// A selector that returns when it is asked to.
pub fn selector(client: &CuratorFramework) -> (LeaderSelector, Terms) {
    let (probe, terms) = probe(true);
    (LeaderSelector::new(client, PATH, probe).unwrap(), terms)
}

/// One that does not.
pub fn stubborn(client: &CuratorFramework) -> (LeaderSelector, Terms) {
    let (probe, terms) = probe(false);
    (LeaderSelector::new(client, PATH, probe).unwrap(), terms)
}

/// A client behind a proxy of its own, with a short session.
pub fn behind_proxy(server: &TestingServer, namespace: &str) -> (FaultProxy, curator_locks::Builder) {
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let builder = support::builder_at(&proxy.connect_string(), namespace)
        .session_timeout(SHORT)
        .connection_timeout(Duration::from_secs(2));
    (proxy, builder)
}

/// A server that is stopped, and a client of it that is started.
pub fn without_server() -> (TestingServer, CuratorFramework) {
    let server = TestingServer::start().unwrap();
    server.stop().unwrap();
    // Long enough for a handshake.
    let builder = support::builder_at(&server.connect_string(), "").connection_timeout(Duration::from_millis(500));
    let client = builder.retry_policy(RetryOneTime::new(Duration::from_millis(10))).build().unwrap();
    client.start().unwrap();
    (server, client)
}

/// Nobody may create below the path.
struct Guarded;

impl AclProvider for Guarded {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        path.ends_with(PATH).then(Acl::read_unsafe)
    }
}

/// Makes the path so that nobody may queue there, until the client that is returned deletes it.
pub fn forbid_queueing(client: &CuratorFramework) -> CuratorFramework {
    let admin = support::connect(support::builder(support::server(), client.namespace()).acl_provider(Guarded));
    admin.create().creating_parents_if_needed().for_path(PATH).unwrap();
    admin
}

/// What a latch's listener was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Leads,
    Ends,
}

pub struct Teller(pub Sender<Told>);

impl LeaderLatchListener for Teller {
    fn is_leader(&self, leadership: &Leadership) {
        assert!(!leadership.path().is_empty());
        let _ = self.0.send(Told::Leads);
    }

    fn not_leader(&self) {
        let _ = self.0.send(Told::Ends);
    }
}

pub struct News(Receiver<Told>);

impl News {
    #[track_caller]
    pub fn next(&self) -> Told {
        self.0.recv_timeout(PATIENCE).expect("it is told nothing")
    }
}

impl std::ops::Deref for News {
    type Target = Receiver<Told>;

    fn deref(&self) -> &Receiver<Told> {
        &self.0
    }
}

/// A latch whose close tells nobody.
pub fn latch(client: &CuratorFramework) -> (LeaderLatch, News) {
    let (tell, told) = unbounded();
    let latch = LeaderLatch::new(client, PATH).unwrap();
    latch.add_listener(Teller(tell));
    (latch, News(told))
}

/// Closes it, as it was made.
#[track_caller]
pub fn close(client: &CuratorFramework, latch: &LeaderLatch) {
    left(client, latch.our_path(), latch.close()).unwrap();
}

/// One whose close does.
pub fn notifying(client: &CuratorFramework) -> (LeaderLatch, News) {
    let (latch, told) = latch(client);
    (latch.with_close_mode(CloseMode::NotifyLeader), told)
}
