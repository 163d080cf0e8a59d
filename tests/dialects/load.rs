//! Connections that are cut while the threads of several clients want the same locks: two holds that are valid never overlap.
//!
//! `KEEPER_CUTS` is the number of cuts.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CuratorFramework, Hold, InterProcessMutex, InterProcessReadWriteLock, InterProcessUnfairMutex, LockGuard,
    Result, RetryForever,
    testing::{Dialect, FaultProxy, TestingServer},
};
use parking_lot::Mutex;

use crate::support::{PATIENCE, builder_at, children, connect, eventually, namespace, quick_server};

const SESSION: Duration = Duration::from_secs(3);
const CLIENTS: usize = 3;
const CUTS: usize = 12;

type Lock = fn(&CuratorFramework) -> Box<dyn Fn() -> Result<LockGuard> + Send + Sync>;

const KINDS: [(&str, Lock); 4] = [
    ("mutex", |client| {
        let mutex = InterProcessMutex::new(client, "/m").unwrap();
        Box::new(move || mutex.lock())
    }),
    ("cached", |client| {
        let mutex = InterProcessMutex::new(client, "/c").unwrap().with_caching(Caching::new().max_grants(4));
        Box::new(move || mutex.lock())
    }),
    ("write", |client| {
        let lock = InterProcessReadWriteLock::new(client, "/w").unwrap().write_lock().clone();
        Box::new(move || lock.lock())
    }),
    ("unfair", |client| {
        let lock = InterProcessUnfairMutex::new(client, "/u").unwrap();
        Box::new(move || lock.lock())
    }),
];

/// From when an acquire had returned to when its holder last saw that the lock was its own.
type Held = (Instant, Instant);

#[test]
fn holds_never_overlap_while_connections_are_cut() {
    let cuts = env::var("KEEPER_CUTS").map_or(CUTS, |cuts| cuts.parse().unwrap());
    let server = quick_server().start().unwrap();
    let namespace = namespace();
    let sides: Vec<_> = (0..CLIENTS).map(|_| side(&server, &namespace)).collect();
    let is_over = AtomicBool::new(false);
    let held: [Mutex<Vec<Held>>; KINDS.len()] = Default::default();
    thread::scope(|scope| {
        for (_, client) in &sides {
            for ((_, lock), held) in KINDS.iter().zip(&held) {
                let lock = lock(client);
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        held.lock().extend(hold(&*lock));
                    }
                });
            }
        }
        for cut in 0..cuts {
            let (proxy, client) = &sides[cut % CLIENTS];
            let before = client.session_id();
            // Another thread holds something by now.
            thread::sleep(Duration::from_millis(fastrand::u64(50..400)));
            proxy.cut();
            eventually("it has another session", || client.is_connected() && client.session_id() != before);
        }
        let grants: usize = held.iter().map(|held| held.lock().len()).sum();
        eventually("each kind goes on", || held.iter().map(|held| held.lock().len()).sum::<usize>() > grants + 20);
        is_over.store(true, Ordering::SeqCst);
    });
    for ((kind, _), held) in KINDS.iter().zip(held) {
        let mut held = held.into_inner();
        held.sort();
        let overlaps = held.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
        println!("{kind}: {} holds, {cuts} cuts, {overlaps} overlaps", held.len());
        assert_eq!(overlaps, 0, "{kind}");
    }
    let observer = connect(builder_at(&server.connect_string(), &namespace));
    eventually("nothing is left", || ["/m", "/c", "/w"].iter().all(|path| children(&observer, path).is_empty()));
    for (_, client) in sides {
        client.close();
    }
    observer.close();
}

fn side(server: &TestingServer, namespace: &str) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start_as(server.connect_string(), Dialect::KeeperBefore267).unwrap();
    let builder = builder_at(&proxy.connect_string(), namespace).session_timeout(SESSION).connection_timeout(PATIENCE);
    let client = connect(builder.retry_policy(RetryForever::new(Duration::from_millis(20))));
    (proxy, client)
}

/// Holds the lock for a moment. `None`: it was not to be had.
fn hold(lock: &dyn Fn() -> Result<LockGuard>) -> Option<Held> {
    let guard = lock().ok()?;
    let (begin, until) = (Instant::now(), fastrand::u64(0..8));
    let mut end = begin;
    let hold: &Hold = &guard;
    while hold.is_valid() && begin.elapsed() < Duration::from_millis(until) {
        end = Instant::now();
        thread::yield_now();
    }
    // The last look may lie before the loss.
    let _ = guard.release();
    Some((begin, end))
}
