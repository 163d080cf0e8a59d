//! What a lock costs beside time: requests, threads, memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::{alloc::System, fs, sync::Arc, thread, time::Duration};

use curator_locks::{
    CuratorFramework, InterProcessLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessUnfairMutex,
    testing::{FaultProxy, TestingServer, op},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use support::{
    PATIENCE, await_queue, builder, builder_at,
    child::{self, ChildProcess},
    connect, eventually, mutex, namespace, quick_server,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WAITERS: usize = 1000;

#[test]
fn a_hand_over_between_threads_of_one_client_is_one_delete_and_no_listing() {
    const WAITING: usize = 50;
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server.port())).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let wait = || {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        };
        let waiters: Vec<_> = (0..WAITING).map(|_| scope.spawn(wait)).collect();
        // Each has asked for two watches, and the holder for one, which it does after 100 ms; the server counts a znode
        // once. One that is on its way to the server would count below.
        eventually("all wait, and the holder watches", || {
            let log = proxy.log();
            log.iter().filter(|request| request.op == op::GET_DATA && request.replied.is_some()).count() > 2 * WAITING
                && server.watch_count().unwrap() == WAITING as u64 + 1
        });
        let asked =
            || [op::CREATE, op::GET_CHILDREN, op::GET_DATA, op::EXISTS, op::DELETE].map(|op| proxy.requests(op));
        let heartbeats = || proxy.requests(op::SYNC) + proxy.requests(op::MULTI);
        let (asked_before, heartbeats_before) = (asked(), heartbeats());
        let before = server.packets_received().unwrap();
        mutex.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        let packets = server.packets_received().unwrap() - before;
        let requests: Vec<u64> = asked().iter().zip(asked_before).map(|(after, before)| after - before).collect();
        assert_eq!(requests, [0, 0, 0, 0, WAITING as u64 + 1], "create, list, read, look, delete");
        // The question counts as one.
        let (least, heartbeats) = (WAITING as u64 + 2, heartbeats() - heartbeats_before);
        assert!((least..=least + heartbeats).contains(&packets), "{packets} packets, {heartbeats} heartbeats");
    });
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[test]
fn a_try_of_a_lock_that_is_taken_is_one_packet() {
    const TRIES: u64 = 50;
    let server = TestingServer::start().unwrap();
    let namespace = namespace();
    let (holding, trying) = (connect(builder(&server, &namespace)), connect(builder(&server, &namespace)));
    let held = Locks::new(&holding);
    held.mutex.acquire().unwrap();
    held.unfair.acquire().unwrap();
    held.read_write.write_lock().acquire().unwrap();
    // After 100 ms a holder watches its znode, which would count.
    eventually("the holders' watches", || server.watch_count().unwrap() == 3);
    for lock in Locks::new(&trying).each() {
        let before = server.packets_received().unwrap();
        for _ in 0..TRIES {
            assert!(!lock.acquire_timeout(Duration::ZERO).unwrap());
        }
        // The question counts as one, and heartbeats may come in between.
        let packets = server.packets_received().unwrap() - before - 1;
        assert!((TRIES..=TRIES + 2).contains(&packets), "{packets} packets for {TRIES} tries of {:?}", lock.path());
    }
}

struct Locks {
    mutex: InterProcessMutex,
    unfair: InterProcessUnfairMutex,
    read_write: InterProcessReadWriteLock,
}

impl Locks {
    fn new(client: &CuratorFramework) -> Locks {
        Locks {
            mutex: InterProcessMutex::new(client, "/mutex").unwrap(),
            unfair: InterProcessUnfairMutex::new(client, "/unfair").unwrap(),
            read_write: InterProcessReadWriteLock::new(client, "/rw").unwrap(),
        }
    }

    fn each(&self) -> [&dyn InterProcessLock; 4] {
        [&self.mutex, &self.unfair, self.read_write.read_lock(), self.read_write.write_lock()]
    }
}

#[test]
fn a_client_has_three_threads_and_a_waiter_takes_less_than_4_kib_of_heap() {
    let server = quick_server().start().unwrap();
    let mut child = ChildProcess::start("waiters", &[&server.connect_string()]);
    let (threads, heap) = two_numbers(&child.hear());
    child.tell("queue");
    eventually("all wait", || server.watch_count().unwrap() == WAITERS as u64 + 1);
    child.tell("measure");
    let (threads_with_waiters, heap_with_waiters) = two_numbers(&child.hear());
    let per_waiter = (heap_with_waiters - heap) / WAITERS as i64;
    println!("{threads} threads, {per_waiter} bytes per waiter");
    assert!(threads <= 3, "{threads} threads for one client");
    assert_eq!(threads_with_waiters - threads, WAITERS as i64, "threads besides those that wait");
    assert!(per_waiter <= 4096, "{per_waiter} bytes per waiter");
    child.tell("drain");
    assert_eq!(child.hear(), "drained");
}

fn two_numbers(line: &str) -> (i64, i64) {
    let (one, other) = line.split_once(' ').unwrap();
    (one.parse().unwrap(), other.parse().unwrap())
}

/// A handle of the package without a server tries to connect without a pause.
#[cfg(feature = "zookeeper")]
#[test]
fn a_session_of_the_package_that_looks_for_a_server_first_takes_little_time_while_there_is_none() {
    let ticks = |how: &str| ChildProcess::start("away", &[how]).hear().parse::<u64>().unwrap();
    let (looks, tries) = (ticks("looks first"), ticks("tries at once"));
    println!("hundredths of a second in three seconds: {looks} with a look, {tries} without");
    assert!(looks * 5 < tries, "{looks} and {tries}");
}

/// Says how much of the processors' time three seconds without a server take.
#[cfg(feature = "zookeeper")]
fn away(looks: bool) {
    use std::net::TcpStream;

    use curator_locks::ZooKeeperSessionFactory;
    use zookeeper::{ZkError, ZooKeeper};

    const NOBODY: &str = "127.0.0.1:1";
    let factory = ZooKeeperSessionFactory::connecting(move || {
        if looks {
            TcpStream::connect(NOBODY).map_err(|_| ZkError::ConnectionLoss)?;
        }
        ZooKeeper::connect(NOBODY, Duration::from_secs(10), |_| {})
    });
    let client = builder_at(NOBODY, "away").session_factory(factory).build().unwrap();
    client.start().unwrap();
    let ticks = || {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    thread::sleep(Duration::from_secs(3));
    child::say(&(ticks() - before).to_string());
}

#[test]
fn child_process() {
    let Some((role, arguments)) = child::role() else { return };
    #[cfg(feature = "zookeeper")]
    if role == "away" {
        return away(arguments[0] == "looks first");
    }
    assert_eq!(role, "waiters");
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    // Not with `connect`, which starts a thread of the tests' own.
    let client = builder_at(&arguments[0], "costs").build().unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    let mutex = Arc::new(mutex(&client));
    mutex.acquire().unwrap();
    await_queue(&client, "/locks/m", 1);
    let say = || child::say(&format!("{} {}", threads() - before, live_heap()));
    say();
    assert_eq!(child::listen(), "queue");
    let wait = || {
        let mutex = mutex.clone();
        thread::spawn(move || {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        })
    };
    let waiters: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
    assert_eq!(child::listen(), "measure");
    say();
    assert_eq!(child::listen(), "drain");
    mutex.release().unwrap();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    child::say("drained");
}

/// Bytes that are allocated and not freed.
fn live_heap() -> i64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}
