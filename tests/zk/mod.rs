//! What the tests of the classical locks share: one server for each test binary, a namespace for each client.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{CuratorFramework, RetryNTimes, testing::TestingServer};

/// Longer than anything here takes, so that a session ends only where a test ends it.
pub(crate) const SESSION: Duration = Duration::from_secs(40);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    SERVER.get_or_init(|| TestingServer::start().unwrap())
}

/// A namespace that no other test has.
pub(crate) fn namespace() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn client(namespace: &str) -> CuratorFramework {
    client_of(server(), namespace, SESSION)
}

pub(crate) fn client_of(server: &TestingServer, namespace: &str, session_timeout: Duration) -> CuratorFramework {
    client_at(&server.connect_string(), namespace, session_timeout)
}

pub(crate) fn client_at(address: &str, namespace: &str, session_timeout: Duration) -> CuratorFramework {
    let client = CuratorFramework::builder()
        .connect_string(address)
        .namespace(namespace)
        .session_timeout(session_timeout)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(100, Duration::from_millis(20)))
        .build()
        .unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    client
}

/// Waits for an observed state.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The names below a path; none if there is no such path.
pub(crate) fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path) {
        Ok(names) => names,
        Err(error) if error.is_no_node() => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}
