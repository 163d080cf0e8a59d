//! What the cases have of the machine and of the servers: real ones. In the simulator (`src/sim/contract`) the same cases
//! have what it calls by the same names.

pub(crate) use std::thread::{Scope, ScopedJoinHandle as ScopedThread, scope, sleep};
use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
#[cfg(feature = "zookeeper")]
use curator_locks::ZooKeeperSessionFactory;
pub(crate) use curator_locks::testing::{Direction, Fault, FaultProxy, InjectedFault, RequestMatch, op};
use curator_locks::{Builder, CuratorFramework, testing::TestingServer};

pub(crate) use crate::{
    leaving::left,
    support::{
        PATIENCE, SESSION, builder_at,
        child::{ChildProcess, race},
        connect, eventually,
        history::shared_clock,
        machine::{Machine, since},
        namespace,
    },
};
use crate::{
    subject::Sessions,
    support::{self, child, dialects, expire_at, watchers_at},
};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn elapsed(begin: Instant) -> Duration {
    begin.elapsed()
}

/// A scope, as it starts threads here and in the simulator.
pub(crate) trait Start<'scope> {
    fn start<T: Send + 'scope>(&'scope self, run: impl FnOnce() -> T + Send + 'scope) -> ScopedThread<'scope, T>;
}

impl<'scope> Start<'scope> for Scope<'scope, '_> {
    fn start<T: Send + 'scope>(&'scope self, run: impl FnOnce() -> T + Send + 'scope) -> ScopedThread<'scope, T> {
        self.spawn(run)
    }
}

/// Has a client's sessions be those of the lock under test.
pub(crate) fn configured(sessions: Sessions, address: &str, session: Duration, builder: Builder) -> Builder {
    let _ = session;
    match sessions {
        Sessions::Own => builder,
        Sessions::At(dialect) => builder.connect_string(dialects::address(address, dialect)),
        #[cfg(feature = "zookeeper")]
        Sessions::Package => {
            let to = address.to_owned();
            builder.session_factory(ZooKeeperSessionFactory::connecting(move || {
                zookeeper::ZooKeeper::connect(&to, session, |_: zookeeper::WatchedEvent| {})
            }))
        }
    }
}

/// The server of a case.
#[derive(Clone, Copy)]
pub(crate) struct Server(&'static TestingServer);

/// As long as it lives, no other case has the server that is restarted.
pub(crate) type Turn = MutexGuard<'static, ()>;

impl Server {
    pub(crate) fn shared() -> Server {
        Server(support::server())
    }

    /// One for all cases that restart it, for one of them at a time.
    pub(crate) fn restartable() -> (Turn, Server) {
        static TURN: Mutex<()> = Mutex::new(());
        static SERVER: OnceLock<TestingServer> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let server = SERVER.get_or_init(|| support::quick_server().start().unwrap());
        if !server.is_running() {
            // The case before has failed.
            server.restart().unwrap();
        }
        (turn, Server(server))
    }

    pub(crate) fn stop(self) {
        self.0.stop().unwrap();
    }

    pub(crate) fn restart(self) {
        self.0.restart().unwrap();
    }

    pub(crate) fn connect_string(self) -> String {
        self.0.connect_string()
    }

    pub(crate) fn proxy(self) -> FaultProxy {
        FaultProxy::start(self.0.connect_string()).unwrap()
    }

    /// The ids of the sessions that have a watch on this path.
    pub(crate) fn watchers(self, path: &str) -> Vec<i64> {
        watchers_at(self.0, path)
    }

    /// Ends the client's session, as if it had expired.
    pub(crate) fn expire(self, client: &CuratorFramework) {
        expire_at(self.0, client);
    }

    /// Whether it knows the session, of which a connection may go on to tell for 10 s.
    pub(crate) fn has_session(self, id: &str) -> bool {
        let dump = self.0.four_letter_word("dump").unwrap();
        dump.split("Connections dump").next().is_some_and(|sessions| sessions.contains(id))
    }
}

/// The parent of a child process, for the child.
pub(crate) struct Parent;

impl Parent {
    pub(crate) fn say(&self, what: &str) {
        child::say(what);
    }

    /// The next line from it; without one, the process ends.
    pub(crate) fn listen(&self) -> String {
        child::listen()
    }
}
