//! What the tests share: one server for each binary, clients in namespaces of their own, waiting for observed states,
//! limits of time, child processes, connections that can be cut, logs, the heap. Each binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod aside;
pub mod child;
pub mod dialects;
pub mod history;
pub mod lanes;
pub mod logs;
pub mod machine;
pub mod peers;
pub mod raw;
pub mod relay;
pub mod scope;
pub mod session;
mod watchdog;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Builder, CuratorFramework, HoldState, InterProcessMutex, LockGuard, LockInternals, RetryNTimes,
    testing::{TestingServer, TestingServerBuilder, expire_session},
};

/// How long a test waits for what has to happen; generous, because many processes share the machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than any wait, so that a session ends only where a test ends it.
pub const SESSION: Duration = Duration::from_secs(40);

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
    builder_at(&server.connect_string(), namespace)
}

/// The default client of the tests. What is lost must show: no slow re-check comes to the rescue. Requests and watches are counted:
/// the servers' list of themselves is left to the tests that move them.
pub fn builder_at(connect_string: &str, namespace: &str) -> Builder {
    CuratorFramework::builder()
        .connect_string(dialects::wanted(connect_string))
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        .lock_recheck_interval(None)
        .ensemble_tracker(false)
        .namespace(namespace)
}

/// Releases the lock while another object waits for it, which then gets it.
pub fn hand_over(held: LockGuard, one: &InterProcessMutex, other: &InterProcessMutex) {
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.acquire().and_then(|()| other.release()));
        eventually("the other waits", || one.participant_nodes().unwrap().len() == 2);
        held.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// Builds, starts and connects a client.
#[track_caller]
pub fn connect(builder: Builder) -> CuratorFramework {
    watchdog::watch_over();
    let client = builder.build().unwrap();
    start(&client);
    client
}

/// Starts and connects a client.
#[track_caller]
pub fn start(client: &CuratorFramework) {
    client.start().unwrap();
    let is_connected = client.block_until_connected(Some(PATIENCE)).unwrap();
    assert!(is_connected, "not connected: {:?}", client.check_exists().for_path("/"));
}

/// A client of the shared server in a namespace of its own.
pub fn client() -> CuratorFramework {
    client_in(&namespace())
}

/// A client of the shared server in this namespace.
pub fn client_in(namespace: &str) -> CuratorFramework {
    connect(builder(server(), namespace))
}

/// Another client in the same namespace of the shared server.
pub fn another(client: &CuratorFramework) -> CuratorFramework {
    client_in(client.namespace())
}

/// Ends the session of a client of the shared server, as if it had expired there.
pub fn expire(client: &CuratorFramework) {
    expire_at(server(), client);
}

pub fn expire_at(server: &TestingServer, client: &CuratorFramework) {
    let id = client.session_id();
    // The client's own is not known where its session is that of the package `zookeeper`.
    expire_session(&server.connect_string(), id, &password_of(id)).unwrap();
}

/// The password that every server gives to the session with this id: the first bytes of Java's generator of random numbers,
/// with the id and a constant of ZooKeeper's for a seed.
pub fn password_of(session_id: i64) -> [u8; 16] {
    const ZOOKEEPERS: u64 = 0xB341_5C00;
    const JAVAS_FACTOR: u64 = 0x5_DEEC_E66D;
    const JAVAS_SUMMAND: u64 = 0xB;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session_id as u64 ^ ZOOKEEPERS ^ JAVAS_FACTOR) & MASK;
    let mut password = [0; 16];
    for bytes in password.chunks_mut(4) {
        state = state.wrapping_mul(JAVAS_FACTOR).wrapping_add(JAVAS_SUMMAND) & MASK;
        bytes.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    password
}

/// Waits for an observed state, and tells when it was seen.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) -> Instant {
    eventually_or(|| what.to_owned(), is_so)
}

/// The same; if the state does not come, `what` says which one is there.
#[track_caller]
pub fn eventually_or(what: impl FnOnce() -> String, is_so: impl FnMut() -> bool) -> Instant {
    // Most looks ask a server; at 500 a second a few tests that wait would take a processor.
    look_each(what, is_so, Duration::from_millis(20))
}

/// As `eventually`, where the moment counts, or what is seen meanwhile: looks as often at the end as at the begin.
#[track_caller]
pub fn eventually_and_at_once(what: &str, is_so: impl FnMut() -> bool) -> Instant {
    look_each(|| what.to_owned(), is_so, PAUSE)
}

/// The longer it has waited, the longer it pauses between two looks: a fiftieth of that, and so long at most.
#[track_caller]
fn look_each(what: impl FnOnce() -> String, mut is_so: impl FnMut() -> bool, longest: Duration) -> Instant {
    let begin = Instant::now();
    while !is_so() {
        let waited = begin.elapsed();
        assert!(waited < PATIENCE, "not within {PATIENCE:?}: {}", what());
        thread::sleep((waited / 50).clamp(PAUSE, longest));
    }
    Instant::now()
}

/// The names below a path, in no order; none if there is no such path.
pub fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path) {
        Err(error) if error.is_no_node() => Vec::new(),
        result => result.unwrap(),
    }
}

/// Waits until there are so many, and gives them.
#[track_caller]
pub fn await_children(client: &CuratorFramework, path: &str, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    eventually(&format!("{count} in {path}"), || {
        names = children(client, path);
        names.len() == count
    });
    names
}

/// The queue of a lock, the holder first.
pub fn queue(client: &CuratorFramework, path: &str) -> Vec<String> {
    LockInternals::participant_nodes(client, path).unwrap()
}

/// Waits until so many stand in the queue, and gives it.
#[track_caller]
pub fn await_queue(client: &CuratorFramework, path: &str, length: usize) -> Vec<String> {
    let mut nodes = Vec::new();
    eventually(&format!("{length} in the queue of {path}"), || {
        nodes = queue(client, path);
        nodes.len() == length
    });
    nodes
}

/// The ids of the sessions that have a watch on this path, as clients of the shared server see it.
pub fn watchers(client: &CuratorFramework, path: &str) -> Vec<i64> {
    watchers_at(server(), &format!("/{}{path}", client.namespace()))
}

/// The same for a path as the server sees it.
pub fn watchers_at(server: &TestingServer, path: &str) -> Vec<i64> {
    let answer = server.four_letter_word("wchp").unwrap();
    let lines = answer.lines().skip_while(|line| *line != path).skip(1).take_while(|line| line.starts_with('\t'));
    lines.map(|line| i64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap()).collect()
}

/// The next state that is no doubt. A deleted znode leaves the lock in doubt until the server has said that the session lives. A
/// client whose thread comes late hears of both at once, and tells of the loss alone.
#[track_caller]
pub fn after_doubt(next: impl Fn() -> HoldState) -> HoldState {
    let first = next();
    if first == HoldState::InDoubt { next() } else { first }
}

/// The sequence number of a lock's znode.
pub fn sequence(path: &str) -> u64 {
    path[path.len() - 10..].parse().unwrap()
}

pub fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, "/locks/m").unwrap()
}
