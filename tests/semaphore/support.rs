//! What these tests share: one server, clients with a namespace of their own, waiting for an observed state.
#![allow(dead_code, unreachable_pub)]

use std::{
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{CuratorFramework, ExponentialBackoffRetry, testing::TestingServer};

/// Long enough for a machine under load; nothing waits for it unless it fails.
pub const LONG: Duration = Duration::from_secs(20);

pub fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    SERVER.get_or_init(|| TestingServer::start().unwrap())
}

/// A client of the shared server in the test's own namespace.
pub fn client(namespace: &str) -> CuratorFramework {
    client_of(&server().connect_string(), namespace, Duration::from_secs(20))
}

pub fn client_of(connect_string: &str, namespace: &str, session_timeout: Duration) -> CuratorFramework {
    let client = CuratorFramework::builder()
        .connect_string(connect_string)
        .namespace(namespace)
        .session_timeout(session_timeout)
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(50), 8))
        .build()
        .unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(LONG)).unwrap());
    client
}

/// The children's names; none if there is no such znode.
pub fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path) {
        Err(error) if error.is_no_node() => Vec::new(),
        result => result.unwrap(),
    }
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
