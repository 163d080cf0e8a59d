//! Ensembles of three that lose servers, one by one and all together.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Builder, ConnectionState, CuratorFramework, FixedEnsembleProvider, HoldState, InterProcessMutex,
    InterProcessSemaphoreV2, RetryForever, RetryNTimes, testing::TestingCluster,
};

use crate::support::{PATIENCE, eventually};

const SESSION: Duration = Duration::from_secs(4);

/// Between two turns of a contender: locks still go round without a pause, and servers get a processor to start on.
pub const REST: Duration = Duration::from_millis(5);

fn cluster() -> TestingCluster {
    // A server that stands still for a while stays in the quorum.
    let builder = TestingCluster::builder(3).tick_time(Duration::from_millis(250)).sync_limit(40);
    let cluster = builder.start().unwrap();
    cluster.wait_for_leader(PATIENCE).unwrap();
    cluster
}

fn client(builder: Builder) -> CuratorFramework {
    let client = builder
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(1))
        .namespace("ensemble")
        .build()
        .unwrap();
    client.start().unwrap();
    client
}

/// Set when the test is over, also when it has failed: threads of a scope are waited for.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Contenders that take turns with two locks until the end.
#[derive(Default)]
struct Turns {
    ends: AtomicBool,
    mutex: Lane,
    semaphore: Lane,
}

/// The holds of one lock: from when each was granted to when its holder last knew that it holds.
#[derive(Default)]
struct Lane(Mutex<Vec<(Instant, Instant)>>);

impl Lane {
    /// One hold. That of a session that is lost may overlap with the next one's only when its holder knows.
    fn hold(&self, state: impl Fn() -> HoldState) {
        let from = Instant::now();
        thread::yield_now();
        // The clock comes first: what is held later was held then.
        let to = Instant::now();
        if state() == HoldState::Held {
            self.0.lock().unwrap().push((from, to));
        }
    }

    fn grants(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until the lock was granted so often again.
    fn await_turns(&self, what: &str, count: usize) {
        let before = self.grants();
        eventually(what, || self.grants() >= before + count);
    }

    fn check(&self) {
        let mut holds = self.0.lock().unwrap();
        holds.sort_unstable();
        assert!(holds.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two holders: {holds:?}");
    }
}

impl Turns {
    fn take(&self, client: &CuratorFramework) {
        let mutex = InterProcessMutex::new(client, "/mutex").unwrap();
        let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 1).unwrap();
        while !self.ends.load(Ordering::SeqCst) {
            // While there is no quorum, calls fail when the retry policy is exhausted.
            if let Ok(Some(held)) = mutex.lock_timeout(PATIENCE) {
                self.mutex.hold(|| held.state());
                let _ = held.release();
            }
            if let Ok(Some(lease)) = semaphore.acquire_timeout(PATIENCE) {
                self.semaphore.hold(|| lease.state());
                let _ = lease.close();
            }
            thread::sleep(REST);
        }
    }

    fn go_on(&self, what: &str) {
        self.mutex.await_turns(&format!("the mutex goes round {what}"), 30);
        self.semaphore.await_turns(&format!("the semaphore goes round {what}"), 30);
    }
}

#[test]
fn locks_go_round_while_servers_are_killed_one_by_one_and_stop_only_without_a_quorum() {
    let cluster = cluster();
    let servers = cluster.connect_string();
    let retry = || RetryNTimes::new(3, Duration::from_millis(50));
    let new_client = |_| client(CuratorFramework::builder().connect_string(&servers).retry_policy(retry()));
    let clients: Vec<CuratorFramework> = (0..8).map(new_client).collect();
    let turns = Turns::default();
    thread::scope(|scope| {
        let _ends = Ends(&turns.ends);
        for client in &clients {
            scope.spawn(|| turns.take(client));
        }
        turns.go_on("over three servers");
        for server in cluster.servers() {
            server.kill().unwrap();
            turns.go_on("over two servers");
            server.restart().unwrap();
        }
        let (one, other) = (&cluster.servers()[0], &cluster.servers()[1]);
        one.kill().unwrap();
        other.kill().unwrap();
        eventually("all sessions are lost", || {
            clients.iter().all(|client| client.connection_state() == Some(ConnectionState::Lost))
        });
        let lost = Instant::now();
        thread::sleep(Duration::from_millis(500));
        for lane in [&turns.mutex, &turns.semaphore] {
            assert!(lane.0.lock().unwrap().iter().all(|(from, _)| *from < lost), "granted without a quorum");
        }
        one.restart().unwrap();
        turns.go_on("over two of three servers again");
    });
    turns.mutex.check();
    turns.semaphore.check();
}

#[test]
fn one_holds_and_none_when_the_ensemble_dies_and_one_again_on_the_ensemble_that_the_provider_names() {
    let old = cluster();
    let provider = FixedEnsembleProvider::new(old.connect_string());
    let (holders, holds, ends) = (AtomicUsize::new(0), Lane::default(), AtomicBool::new(false));
    let retry = || RetryForever::new(Duration::from_millis(100));
    let new_client = |_| client(CuratorFramework::builder().ensemble_provider(provider.clone()).retry_policy(retry()));
    let clients: Vec<CuratorFramework> = (0..10).map(new_client).collect();
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        for client in &clients {
            scope.spawn(|| {
                let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 1).unwrap();
                while !ends.load(Ordering::SeqCst) {
                    let Ok(Some(lease)) = semaphore.acquire_timeout(SESSION) else { continue };
                    holders.fetch_add(1, Ordering::SeqCst);
                    while !ends.load(Ordering::SeqCst) && lease.is_valid() {
                        holds.hold(|| lease.state());
                        thread::sleep(Duration::from_millis(1));
                    }
                    holders.fetch_sub(1, Ordering::SeqCst);
                    let _ = lease.close();
                }
            });
        }
        let is_held = || holders.load(Ordering::SeqCst) == 1;
        eventually("one holds", is_held);
        old.servers()[0].kill().unwrap();
        eventually("one holds over two servers", is_held);
        old.kill_all().unwrap();
        eventually("none holds", || holders.load(Ordering::SeqCst) == 0);
        let before = holds.grants();
        let new = cluster();
        provider.set_connection_string(new.connect_string());
        eventually("one holds again", || holds.grants() > before && is_held());
        ends.store(true, Ordering::SeqCst);
        eventually("none holds in the end", || holders.load(Ordering::SeqCst) == 0);
        clients.iter().for_each(CuratorFramework::close);
    });
    holds.check();
}
