//! A server, a fault proxy in front of it, clients on either side, and waiting for what can be observed.

use std::{
    fmt::Debug,
    ops::{Deref, Range},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, unbounded};
use curator_locks::{
    Builder, ConnectionState, CreateMode, CuratorFramework, InterProcessMutex, RetryNTimes,
    testing::{FaultProxy, TestingServer},
};

use crate::support::{self, PATIENCE, builder_at, namespace, quick_server, raw::RawClient};
pub use crate::support::{
    await_children, children, eventually, eventually_and_at_once,
    machine::{Machine, since},
    start,
};

/// The session timeout of most tests.
pub const T: Duration = Duration::from_secs(3);
pub const MS: Duration = Duration::from_millis(1);
/// Longer than anything here takes, on a machine that is busy.
pub const LONG: Duration = PATIENCE;
pub const LOCK: &str = "/locks/one";

/// What a client said about its connection, and when.
pub type States = Receiver<(Instant, ConnectionState)>;

/// A server: of this test alone, or of all that neither stop it nor count what is in it.
pub enum Served {
    Shared(&'static TestingServer),
    Own(Box<TestingServer>),
}

impl Deref for Served {
    type Target = TestingServer;

    fn deref(&self) -> &TestingServer {
        match self {
            Served::Shared(server) => server,
            Served::Own(server) => server,
        }
    }
}

pub struct Scene {
    pub server: Served,
    pub proxy: FaultProxy,
    /// Behind the proxy.
    pub client: CuratorFramework,
    pub states: States,
    /// Not behind the proxy, with a long session.
    pub observer: CuratorFramework,
    namespace: String,
}

impl Scene {
    /// Another client behind the proxy, to be configured further.
    pub fn builder(&self, session_timeout: Duration) -> Builder {
        builder_of(&self.proxy.connect_string(), session_timeout).namespace(&self.namespace)
    }
}

/// A server, a client behind a proxy, and an observer with a connection of its own.
pub fn scene() -> Scene {
    scene_with(T)
}

pub fn scene_with(session_timeout: Duration) -> Scene {
    scene_of(session_timeout, |builder| builder)
}

/// As `scene_with`, with a client that is configured further.
pub fn scene_of(session_timeout: Duration, configure: fn(Builder) -> Builder) -> Scene {
    scene_at(Served::Shared(support::server()), session_timeout, configure)
}

/// As `scene_with`, and the server serves nobody else.
pub fn scene_alone(session_timeout: Duration) -> Scene {
    scene_alone_of(session_timeout, |builder| builder)
}

/// As `scene_alone`, with a client that is configured further.
pub fn scene_alone_of(session_timeout: Duration, configure: fn(Builder) -> Builder) -> Scene {
    scene_at(Served::Own(Box::new(quick_server().start().unwrap())), session_timeout, configure)
}

fn scene_at(server: Served, session_timeout: Duration, configure: fn(Builder) -> Builder) -> Scene {
    let namespace = namespace();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let builder = builder_of(&proxy.connect_string(), session_timeout).namespace(&namespace);
    let client = configure(builder).build().unwrap();
    let states = states_of(&client);
    let observer = builder_of(&server.connect_string(), LONG).namespace(&namespace).build().unwrap();
    start(&client);
    start(&observer);
    assert_eq!(next_state(&states).1, ConnectionState::Connected);
    Scene { server, proxy, client, states, observer, namespace }
}

/// Its calls outlast a machine that stands still.
pub fn builder_of(connect_string: &str, session_timeout: Duration) -> Builder {
    builder_at(connect_string, "").session_timeout(session_timeout).retry_policy(RetryNTimes::new(50, 200 * MS))
}

/// Its calls end soon without a connection.
pub fn hasty(builder: Builder) -> Builder {
    builder.connection_timeout(1000 * MS).retry_policy(RetryNTimes::new(3, 200 * MS))
}

pub fn client_of(connect_string: &str, session_timeout: Duration) -> CuratorFramework {
    builder_of(connect_string, session_timeout).build().unwrap()
}

/// Makes the lock's directory, to stay: the first create of a contender is carried out then.
pub fn make_directory(client: &CuratorFramework) {
    client.create().creating_parents_if_needed().with_mode(CreateMode::Persistent).for_path(LOCK).unwrap();
}

pub fn states_of(client: &CuratorFramework) -> States {
    let (sender, states) = unbounded();
    client.add_connection_state_listener(move |_, state| {
        let _ = sender.send((Instant::now(), state));
    });
    states
}

pub fn next_state(states: &States) -> (Instant, ConnectionState) {
    states.recv_timeout(LONG).expect("a connection state")
}

/// Right before a fault: what a machine that stood still has done to the connection is over, and no longer among the
/// states.
pub fn settle(client: &CuratorFramework, states: &States) {
    eventually("it is connected", || client.is_connected());
    let mut last = ConnectionState::Connected;
    while !states.is_empty() || !last.is_connected() {
        last = next_state(states).1;
    }
}

/// Waits for this state as the very next one.
pub fn expect_state(states: &States, expected: ConnectionState) -> Instant {
    let (at, state) = next_state(states);
    assert_eq!(state, expected);
    at
}

pub fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, LOCK).unwrap()
}

/// The contenders' znodes, as the server has them.
pub fn nodes(observer: &CuratorFramework) -> Vec<String> {
    children(observer, LOCK)
}

/// Until as many contenders stand in the queue.
#[track_caller]
pub fn wait_for_nodes(observer: &CuratorFramework, count: usize) -> Instant {
    await_children(observer, LOCK, count);
    Instant::now()
}

/// A thread that asks a server all the time. What its answers take too long is the server's doing, of which the threads
/// of a [`Machine`] see nothing.
pub struct Witness {
    asked: Arc<Mutex<Vec<Range<Instant>>>>,
    has_ended: Arc<AtomicBool>,
}

impl Witness {
    /// Between two questions, and for an answer that is in time.
    const PAUSE: Duration = Duration::from_millis(20);

    pub fn of(server: &TestingServer) -> Witness {
        let (asked, has_ended) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (address, seen, ended) = (server.connect_string(), asked.clone(), has_ended.clone());
        std::thread::spawn(move || {
            let mut connection = None;
            while !ended.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let client = connection.take().map_or_else(|| RawClient::connect(&address, LONG), Ok);
                connection = client.and_then(|mut client| client.exists("/").map(|_| client)).ok();
                seen.lock().unwrap().push(since(begin));
                std::thread::sleep(Witness::PAUSE);
            }
        });
        Witness { asked, has_ended }
    }

    /// As [`Machine::assert_at_most`], beside what the server was late by at the same time, too.
    #[track_caller]
    pub fn assert_at_most(&self, machine: &Machine, what: &str, took: Range<Instant>, limit: Duration) {
        let is_over = || self.asked.lock().unwrap().last().is_some_and(|last| last.end >= took.end);
        eventually("the server answers", is_over);
        let late = |asked: &Range<Instant>| {
            let due = asked.start + Witness::PAUSE;
            asked.end.min(took.end).saturating_duration_since(due.max(took.start))
        };
        let late: Duration = self.asked.lock().unwrap().iter().map(late).sum();
        figure(&format!("{what}, the server late by"), late);
        machine.assert_over_at_most(what, 0.0, vec![(took, late)], limit);
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

pub fn figure(name: &str, value: impl Debug) {
    println!("{name}: {value:?}");
}

/// Runs something on a thread of its own, and hands out its result when it is there.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<(Instant, T)> {
    let (sender, result) = unbounded();
    std::thread::spawn(move || {
        let value = run();
        let _ = sender.send((Instant::now(), value));
    });
    result
}

/// The result of a spawned thread.
pub fn join<T>(result: &Receiver<(Instant, T)>) -> (Instant, T) {
    result.recv_timeout(LONG).expect("the thread ends")
}

/// Runs a test in a process of its own, because it counts what its process uses. Its name is that of the test.
pub fn alone(name: &str, run: impl FnOnce()) {
    const ALONE: &str = "FAULTS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args([name, "--exact", "--nocapture"]).env(ALONE, "yes").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {}\n{out}\n{err}", output.status);
}
