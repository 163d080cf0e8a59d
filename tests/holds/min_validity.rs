//! A lock is granted only with so much time certain.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CuratorFramework, Error, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessUnfairMutex,
};

use crate::{
    MS, T, behind_proxy_for,
    kept::Kept,
    support::{
        self, PATIENCE, eventually,
        machine::{Machine, since},
        mutex,
    },
};

/// A session that outlasts what the machine may do while a lock is held.
const SESSION: Duration = Duration::from_secs(24);

/// Half of the session timeout, which is all that can be had.
const MOST: Duration = Duration::from_secs(12);

/// What a thread may take to look at the clock, beside what the machine keeps it from that.
const SLACK: Duration = Duration::from_millis(200);

fn client() -> CuratorFramework {
    support::connect(support::builder(support::server(), &support::namespace()).session_timeout(SESSION))
}

/// What one thread acquires, in this order.
type Kind = fn(&CuratorFramework) -> Vec<Box<dyn InterProcessLock>>;

const KINDS: [Kind; 5] = [
    |client| vec![Box::new(InterProcessMutex::new(client, "/mutex").unwrap())],
    |client| {
        let read_write = InterProcessReadWriteLock::new(client, "/read-write").unwrap();
        // The one that holds the write lock gets the read lock beside it.
        vec![Box::new(read_write.write_lock().clone()), Box::new(read_write.read_lock().clone())]
    },
    |client| vec![Box::new(InterProcessUnfairMutex::new(client, "/unfair").unwrap())],
    |client| vec![Box::new(InterProcessSemaphoreMutex::new(client, "/semaphore").unwrap())],
    |client| vec![Box::new(InterProcessMultiLock::new(client, ["/multi/a", "/multi/b"]).unwrap())],
];

/// Acquires it with so much certain; how much that was, of so much.
#[track_caller]
fn acquire(machine: &Machine, name: &str, lock: &dyn InterProcessLock, least: Duration) -> Duration {
    // The session may stay uncertain for a while on a machine that does something else.
    let options = AcquireOptions::new().min_validity(least).timeout(PATIENCE);
    let (kept, begin) = (Kept::from_now(), Instant::now());
    assert!(lock.acquire_with(&options).unwrap());
    let took = since(begin);
    let kept = kept.so_far();
    let until = lock.holds().iter().map(Hold::valid_until).min().unwrap();
    let left = until.saturating_duration_since(took.end);
    // What the thread was kept from running after the last look is not the lock's doing.
    let late = machine.lateness(&took).max(kept);
    assert!(left + SLACK + late >= least, "{name}: {left:?} of {least:?}, the machine late by {late:?}");
    left
}

#[test]
fn every_kind_is_granted_with_as_much_certain_as_was_asked_for() {
    let machine = Machine::watch();
    thread::scope(|scope| {
        for kind in KINDS {
            let machine = &machine;
            scope.spawn(move || every_acquire_waits(machine, kind));
        }
    });
}

fn every_acquire_waits(machine: &Machine, kind: Kind) {
    let client = client();
    let mut left = Vec::new();
    let mut acquire = |name: &str, lock: &dyn InterProcessLock| {
        // At any moment between two heartbeats.
        thread::sleep(SESSION.mul_f64(0.275 * fastrand::f64()));
        left.push(acquire(machine, name, lock, MOST));
    };
    for _ in 0..2 {
        let locks = kind(&client);
        for lock in &locks {
            let name = lock.path().unwrap_or("several");
            acquire(name, &**lock);
            if name != "/semaphore" {
                // The same thread once more.
                acquire(name, &**lock);
                lock.release().unwrap();
            }
        }
        locks.iter().rev().for_each(|lock| lock.release().unwrap());
    }
    println!("{left:?} of {MOST:?}");
}

#[test]
fn more_than_can_be_had_is_refused() {
    let client = client();
    let options = AcquireOptions::new().min_validity(MOST + MS);
    for lock in KINDS.iter().flat_map(|kind| kind(&client)) {
        let refused = lock.acquire_with(&options);
        assert!(matches!(refused, Err(Error::InvalidArgument { name: "min_validity", .. })), "{refused:?}");
    }
}

#[test]
fn a_shared_hold_counts_like_any_other() {
    let client = client();
    let (lock, machine): (Arc<dyn InterProcessLock>, _) = (Arc::new(mutex(&client)), Machine::watch());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                acquire(&machine, "shared", &*lock, MOST);
                lock.release().unwrap();
            });
        }
    });
}

mod slow {
    use super::*;

    #[test]
    fn a_lock_whose_session_stays_uncertain_is_given_back() {
        // A busy machine that says nothing for two thirds of it ends the connection.
        let session = 3 * T;
        let (proxy, client) = behind_proxy_for(session);
        let probe = InterProcessMutex::new(&client, "/probe").unwrap();
        let probe = probe.lock().unwrap();
        let lock = mutex(&client);
        // To and fro it leaves a session less than a fifth of its timeout, and the machine most of the two thirds of silence.
        proxy.delay(session / 8);
        eventually("less is certain", || probe.valid_until() < Instant::now() + session / 4);
        let refused = lock.acquire_with(&AcquireOptions::new().min_validity(session / 2));
        assert!(matches!(refused, Err(Error::Uncertain { .. })), "{refused:?}");
        assert!(!lock.is_acquired_in_this_process());
        let in_time = lock.acquire_with(&AcquireOptions::new().min_validity(session / 2).timeout(session));
        assert!(matches!(in_time, Ok(false)), "{in_time:?}");
        proxy.pass().unwrap();
        eventually("nothing is left in the queue", || support::queue(&client, "/locks/m").is_empty());
        assert!(lock.acquire_with(&AcquireOptions::new().min_validity(session / 4).timeout(PATIENCE)).unwrap());
        lock.release().unwrap();
    }

    /// The round trip is a fifth of the session timeout, which leaves a session certain for a quarter of it.
    #[test]
    fn a_lock_over_a_slow_link_is_granted_and_stays_certain() {
        let session = 3 * T;
        let machine = Machine::watch();
        let (proxy, client) = behind_proxy_for(session);
        proxy.delay(session / 10);
        // By then no heartbeat counts any more that was answered quickly.
        let begin = Instant::now();
        eventually("slow for a while", || begin.elapsed() > session);
        let lock = mutex(&client);
        let held = lock.lock().unwrap();
        let begin = Instant::now();
        let mut doubts = 0;
        while begin.elapsed() < session * 3 / 2 {
            doubts += u32::from(!held.is_valid());
            thread::sleep(20 * MS);
        }
        let late = machine.lateness(&since(begin));
        println!("{doubts} times in doubt, the machine late by {late:?}");
        assert!(doubts == 0 || late > session / 8);
        proxy.pass().unwrap();
        held.release().unwrap();
    }
}
