//! What the tests of the locks share: one server for each test binary, one namespace for each test.
#![allow(dead_code, reason = "each test binary uses a part")]

#[path = "../testing/raw.rs"]
mod raw;

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::OnceLock,
    thread::{self, Scope},
    time::{Duration, Instant},
};

use curator_locks::{CuratorFramework, RetryNTimes, testing::TestingServer};

/// Longer than any wait in these tests, so that only what is stuck runs into it.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Long enough for a call that would not wait to be done, and short enough to be waited for.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    SERVER.get_or_init(|| TestingServer::builder().tick_time(Duration::from_millis(200)).start().unwrap())
}

/// A connected client, in the test's own namespace.
pub(crate) fn client(namespace: &str) -> CuratorFramework {
    client_with_timeout(namespace, Duration::from_secs(20))
}

pub(crate) fn client_with_timeout(namespace: &str, session_timeout: Duration) -> CuratorFramework {
    client_of(server(), namespace, session_timeout)
}

pub(crate) fn client_of(server: &TestingServer, namespace: &str, session_timeout: Duration) -> CuratorFramework {
    let client = CuratorFramework::builder()
        .connect_string(server.connect_string())
        .session_timeout(session_timeout)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        // What is lost must show: no slow re-check comes to the rescue.
        .lock_recheck_interval(None)
        .namespace(namespace)
        .build()
        .unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(LONG)).unwrap());
    CLIENTS.with_borrow_mut(|clients| clients.push(client.clone()));
    client
}

thread_local! {
    /// The clients of this test.
    static CLIENTS: RefCell<Vec<CuratorFramework>> = const { RefCell::new(Vec::new()) };
}

/// `thread::scope` for threads that wait for locks: if the test fails meanwhile, its clients are closed, so that all
/// threads end and the test does, too.
pub(crate) fn scope<'env, T>(test: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    thread::scope(|scope| match catch_unwind(AssertUnwindSafe(|| test(scope))) {
        Ok(value) => value,
        Err(panic) => {
            CLIENTS.with_borrow(|clients| clients.iter().for_each(CuratorFramework::close));
            resume_unwind(panic)
        }
    })
}

/// Waits for an observed state.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The names of the children, in no order; none if there is no such znode.
pub(crate) fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path) {
        Ok(names) => names,
        Err(error) if error.is_no_node() => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn eventually_queued(client: &CuratorFramework, path: &str, contenders: usize) {
    eventually(&format!("{contenders} contenders in {path}"), || children(client, path).len() == contenders);
}

/// The ids of the sessions that have a watch on this path, as clients see it.
pub(crate) fn watchers(client: &CuratorFramework, path: &str) -> Vec<i64> {
    let path = format!("/{}{path}", client.namespace());
    let answer = server().four_letter_word("wchp").unwrap();
    let lines = answer.lines().skip_while(|line| *line != path).skip(1).take_while(|line| line.starts_with('\t'));
    lines.map(|line| i64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap()).collect()
}

/// Ends the client's session at the server, as if it had expired there.
pub(crate) fn expire(client: &CuratorFramework) {
    let (id, password) = (client.session_id(), client.session_password());
    // Both connections are of one session, and the server closes the older one: the client's, or this one when the client
    // has come back before the request.
    eventually("the session is closed", || {
        let connect = || raw::RawClient::resume(&server().connect_string(), Duration::from_secs(20), id, &password);
        let Ok(mut raw) = connect() else { return false };
        raw.session_id == 0 || (raw.send(-11, &[]).is_ok() && raw.receive().is_ok())
    });
}
