//! Ensembles that are replaced server by server under load.

use std::{
    env,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    ConnectionState, ConnectionStateErrorPolicy, CuratorFramework, Error, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LeaderLatch, Lease, LockGuard, Result, RetryNTimes,
    testing::{TestingCluster, TestingServer},
};

use super::ensembles::{Ends, REST};
use crate::support::{
    PATIENCE, eventually,
    machine::{Machine, since},
    raw::heartbeats,
};

const SESSION: Duration = Duration::from_secs(9);

const CLIENTS: usize = 6;

/// How many ensembles are replaced; `MOVES=20` is the long run.
fn moves() -> usize {
    env::var("MOVES").map_or(1, |moves| moves.parse().unwrap())
}

/// A client that counts how often it has lost its session. Every other one has a chroot: the servers' list is outside of it.
fn client(cluster: &TestingCluster, number: usize, losses: &'static AtomicUsize) -> CuratorFramework {
    let chroot = if number.is_multiple_of(2) { "" } else { "/moving" };
    let client = CuratorFramework::builder()
        .connect_string(format!("{}{chroot}", cluster.connect_string()))
        .create_chroot(true)
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(3))
        .retry_policy(RetryNTimes::new(100, Duration::from_millis(100)))
        .connection_state_error_policy(ConnectionStateErrorPolicy::Session)
        .lock_recheck_interval(None)
        .namespace(if chroot.is_empty() { "moving/locks" } else { "locks" })
        .build()
        .unwrap();
    client.add_connection_state_listener(move |_, state| {
        if state == ConnectionState::Lost {
            losses.fetch_add(1, Ordering::SeqCst);
        }
    });
    client.start().unwrap();
    client
}

/// Whether one of these sessions has a connection with the server. One that does not serve has none.
fn serves_one_of(server: &TestingServer, sessions: &[i64]) -> bool {
    let connections = server.four_letter_word("cons").unwrap_or_default();
    sessions.iter().any(|session| connections.contains(&format!(",sid=0x{session:x},")))
}

/// Waits for a third of the session timeout, and until nobody is connected with the server; when somebody was last.
fn last_seen_at(server: &TestingServer, sessions: &[i64]) -> Instant {
    let begin = Instant::now();
    let mut last = begin;
    eventually("nobody is connected with a server that was removed", || {
        let is_seen = serves_one_of(server, sessions);
        if is_seen {
            last = Instant::now();
        }
        thread::sleep(Duration::from_millis(20));
        begin.elapsed() > SESSION / 3 && !is_seen
    });
    last
}

/// A release whose connection goes, as the servers elect a leader, is finished in the background.
fn released(result: Result<()>) {
    assert!(matches!(result, Ok(()) | Err(Error::ConnectionLoss { .. })), "{result:?}");
}

/// Takes a lock and gives it back. `false`: the machine keeps all from running, and the servers answered too late for one.
fn turn<T>(machine: &Machine, acquire: impl FnOnce() -> Result<T>, release: impl FnOnce(T) -> Result<()>) -> bool {
    let begin = Instant::now();
    match acquire() {
        Ok(held) => {
            released(release(held));
            true
        }
        Err(Error::Uncertain { .. }) => {
            let late = machine.lateness(&(begin..Instant::now()));
            assert!(late >= SESSION / 10, "uncertain, and the machine was late by {late:?}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Takes a lock of each kind and gives it back, until the end.
fn load(client: &CuratorFramework, machine: &Machine, ends: &AtomicBool, turns: &AtomicUsize) {
    let mutex = InterProcessMutex::new(client, "/load/mutex").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client, "/load/semaphore", 2).unwrap();
    let read_write = InterProcessReadWriteLock::new(client, "/load/read-write").unwrap();
    while !ends.load(Ordering::SeqCst) {
        let had = [
            turn(machine, || mutex.lock(), LockGuard::release),
            turn(machine, || semaphore.acquire(), Lease::close),
            turn(machine, || read_write.write_lock().lock(), LockGuard::release),
        ];
        turns.fetch_add(had.iter().all(|had| *had).into(), Ordering::SeqCst);
        thread::sleep(REST);
    }
}

fn replace_all() {
    static LOSSES: AtomicUsize = AtomicUsize::new(0);
    let cluster = TestingCluster::builder(3).spares(3).tick_time(Duration::from_millis(250)).start().unwrap();
    cluster.wait_for_leader(PATIENCE).unwrap();
    let clients: Vec<CuratorFramework> = (0..CLIENTS).map(|number| client(&cluster, number, &LOSSES)).collect();
    let holder = |number: usize| &clients[number];
    let mutex = InterProcessMutex::new(holder(0), "/held/mutex").unwrap().lock().unwrap();
    let plain = InterProcessSemaphoreMutex::new(holder(1), "/held/plain").unwrap().lock().unwrap();
    let readers = [2, 3].map(|number| {
        InterProcessReadWriteLock::new(holder(number), "/held/read").unwrap().read_lock().lock().unwrap()
    });
    let lease = InterProcessSemaphoreV2::new(holder(4), "/held/semaphore", 1).unwrap().acquire().unwrap();
    let latch = LeaderLatch::new(holder(5), "/held/leader").unwrap();
    latch.start().unwrap();
    latch.await_leadership().unwrap();
    let candidate = latch.our_path();
    let sessions: Vec<i64> = clients.iter().map(CuratorFramework::session_id).collect();
    let (machine, ends, turns) = (Machine::watch(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        for client in &clients {
            scope.spawn(|| load(client, &machine, &ends, &turns));
        }
        for removed in 0..3 {
            let server = &cluster.servers()[removed];
            eventually("all are connected", || clients.iter().all(CuratorFramework::is_connected));
            // A client needs the answers of several servers to leave. This one stays, and shows how late they come.
            let machine = Machine::watch().and(heartbeats(cluster.servers()[removed + 1].connect_string()));
            cluster.reconfigure(&[removed + 3], &[removed]).unwrap();
            let begin = Instant::now();
            let left = begin..last_seen_at(server, &sessions);
            machine.assert_at_most("the last client left a removed server", left, SESSION / 3);
            server.stop().unwrap();
            let before = turns.load(Ordering::SeqCst);
            eventually("locks go round", || turns.load(Ordering::SeqCst) >= before + 10);
        }
    });
    eventually("all are connected", || clients.iter().all(CuratorFramework::is_connected));
    eventually("every lock is kept", || {
        mutex.is_valid() && plain.is_valid() && readers.iter().all(|held| held.is_valid()) && lease.is_valid()
    });
    // Its term may have ended in doubt while the servers elected a leader of their own; its znode stands.
    eventually("the leader leads", || latch.has_leadership());
    assert_eq!(latch.our_path(), candidate);
    let now: Vec<i64> = clients.iter().map(CuratorFramework::session_id).collect();
    assert_eq!((now, LOSSES.load(Ordering::SeqCst)), (sessions, 0));
    println!("{} turns of each lock under way", turns.load(Ordering::SeqCst));
    latch.close().unwrap();
    for client in &clients {
        client.close();
    }
}

#[test]
fn a_rolling_change_of_all_servers_costs_no_session_and_no_lock() {
    for number in 1..=moves() {
        let begin = Instant::now();
        replace_all();
        println!("ensemble {number} replaced in {:?}", since(begin).end - begin);
    }
}
