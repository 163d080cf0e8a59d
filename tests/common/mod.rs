//! What the tests share: a server, clients in namespaces of their own, waiting for observed states, child processes.
#![allow(dead_code, unreachable_pub)]

pub mod child;
pub mod raw;

use std::{
    sync::{
        Once, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Builder, CuratorFramework, InterProcessMutex, LockInternals, RetryNTimes,
    testing::{TestingServer, TestingServerBuilder},
};

/// How long a test waits for what has to happen; generous, because many processes share the machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// No binary of tests takes so long.
const LONGEST_RUN: Duration = Duration::from_secs(600);

/// A server that sessions down to 500 ms can be had from, and that removes empty containers within moments.
pub fn quick_server() -> TestingServerBuilder {
    TestingServer::builder()
        .tick_time(Duration::from_millis(100))
        .min_session_timeout(Duration::from_millis(500))
        .container_check_interval(Duration::from_millis(100))
}

/// One server for all tests that neither stop it nor count what it does. It goes with the process.
pub fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    SERVER.get_or_init(|| quick_server().start().unwrap())
}

/// A namespace that no other test uses.
pub fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A client of the server in this namespace, to be configured further.
pub fn builder(server: &TestingServer, namespace: &str) -> Builder {
    builder_for(&server.connect_string(), namespace)
}

pub fn builder_for(connect_string: &str, namespace: &str) -> Builder {
    CuratorFramework::builder()
        .connect_string(connect_string)
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        .namespace(namespace)
}

/// Ends the process if a test hangs: threads of a scope are waited for even when the test has failed.
fn watch_over() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        thread::spawn(|| {
            thread::sleep(LONGEST_RUN);
            eprintln!("the tests did not end within {LONGEST_RUN:?}");
            std::process::exit(101);
        });
    });
}

/// Builds, starts and connects a client.
pub fn connect(builder: Builder) -> CuratorFramework {
    watch_over();
    let client = builder.build().unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap(), "no connection");
    client
}

/// A client of the shared server in a namespace of its own.
pub fn client() -> CuratorFramework {
    connect(builder(server(), &namespace()))
}

/// Another client in the same namespace of the shared server.
pub fn another(client: &CuratorFramework) -> CuratorFramework {
    connect(builder(server(), client.namespace()))
}

/// Waits for an observed state.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The queue of a lock, the holder first.
pub fn queue(client: &CuratorFramework, path: &str) -> Vec<String> {
    LockInternals::participant_nodes(client, path).unwrap()
}

/// Waits until so many stand in the queue, and gives it.
#[track_caller]
pub fn await_queue(client: &CuratorFramework, path: &str, length: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let nodes = queue(client, path);
        if nodes.len() == length {
            return nodes;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {length} in the queue {nodes:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The sequence number of a lock's znode.
pub fn sequence(path: &str) -> u64 {
    path[path.len() - 10..].parse().unwrap()
}

pub fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, "/locks/m").unwrap()
}

/// Nanoseconds on the clock that all processes of this machine share.
pub fn shared_clock() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// One hold of a lock.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    pub token: i64,
    pub sequence: u64,
    /// On the shared clock: after the acquire returned, and before the release was called.
    pub from: u64,
    pub to: u64,
}

/// Never two holders, and grants in the order of the queue.
#[track_caller]
pub fn check_history(mut holds: Vec<Hold>) {
    holds.sort_by_key(|hold| hold.from);
    for pair in holds.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two holders: {pair:?}");
        assert!(pair[0].sequence < pair[1].sequence, "out of order: {pair:?}");
        assert!(pair[0].token < pair[1].token, "fencing tokens do not grow: {pair:?}");
    }
}
