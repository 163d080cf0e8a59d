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
    support::{
        self, PATIENCE, eventually,
        machine::{Machine, ProcessorWaits, since},
        mutex,
    },
};

/// Half of the session timeout, which is all that can be had.
const MOST: Duration = Duration::from_millis(1500);

/// What a thread may take to look at the clock, beside what the machine keeps it from that.
const SLACK: Duration = Duration::from_millis(200);

fn kinds(client: &CuratorFramework) -> Vec<Box<dyn InterProcessLock>> {
    let read_write = InterProcessReadWriteLock::new(client, "/read-write").unwrap();
    vec![
        Box::new(InterProcessMutex::new(client, "/mutex").unwrap()),
        Box::new(read_write.write_lock().clone()),
        // The one that holds the write lock gets the read lock beside it.
        Box::new(read_write.read_lock().clone()),
        Box::new(InterProcessUnfairMutex::new(client, "/unfair").unwrap()),
        Box::new(InterProcessSemaphoreMutex::new(client, "/semaphore").unwrap()),
        Box::new(InterProcessMultiLock::new(client, ["/multi/a", "/multi/b"]).unwrap()),
    ]
}

/// Acquires it with so much certain; how much that was, of so much.
#[track_caller]
fn acquire(machine: &Machine, name: &str, lock: &dyn InterProcessLock, least: Duration) -> Duration {
    // The session may stay uncertain for a while on a machine that does something else.
    let options = AcquireOptions::new().min_validity(least).timeout(PATIENCE);
    let (waits, begin) = (ProcessorWaits::of_this_thread(), Instant::now());
    let before = waits.total();
    assert!(lock.acquire_with(&options).unwrap());
    let took = since(begin);
    let waited = waits.total().zip(before).map_or(Duration::ZERO, |(after, before)| after - before);
    let until = lock.holds().iter().map(Hold::valid_until).min().unwrap();
    let left = until.saturating_duration_since(took.end);
    // What the thread was kept from running after the last look is not the lock's doing.
    let late = machine.lateness(&took).max(waited);
    assert!(left + SLACK + late >= least, "{name}: {left:?} of {least:?}, the machine late by {late:?}");
    left
}

#[test]
fn every_kind_is_granted_with_as_much_certain_as_was_asked_for() {
    let client = support::connect(support::builder(support::server(), &support::namespace()).session_timeout(T));
    let machine = Machine::watch();
    let mut least = Duration::MAX;
    for _ in 0..8 {
        let locks = kinds(&client);
        for lock in &locks {
            let name = lock.path().unwrap_or("several");
            least = least.min(acquire(&machine, name, &**lock, MOST));
            thread::sleep(50 * MS);
            if name != "/semaphore" {
                // The same thread once more.
                acquire(&machine, name, &**lock, MOST);
                lock.release().unwrap();
            }
        }
        locks.iter().rev().for_each(|lock| lock.release().unwrap());
    }
    println!("at least {least:?} of {MOST:?}");
}

#[test]
fn more_than_can_be_had_is_refused() {
    let client = support::connect(support::builder(support::server(), &support::namespace()).session_timeout(T));
    let options = AcquireOptions::new().min_validity(MOST + MS);
    for lock in kinds(&client) {
        let refused = lock.acquire_with(&options);
        assert!(matches!(refused, Err(Error::InvalidArgument { name: "min_validity", .. })), "{refused:?}");
    }
}

#[test]
fn a_lock_whose_session_stays_uncertain_is_given_back() {
    // A busy machine that says nothing for two thirds of it ends the connection.
    let session = 3 * T;
    let (proxy, client) = behind_proxy_for(session);
    let probe = InterProcessMutex::new(&client, "/probe").unwrap();
    let probe = probe.lock().unwrap();
    let lock = mutex(&client);
    // Longer than a heartbeat that proves something may take.
    proxy.delay(session / 8);
    eventually("less is certain", || probe.valid_until() < Instant::now() + session / 4);
    let refused = lock.acquire_with(&AcquireOptions::new().min_validity(session / 2));
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    assert!(!lock.is_acquired_in_this_process());
    let in_time = lock.acquire_with(&AcquireOptions::new().min_validity(session / 2).timeout(session));
    assert!(matches!(in_time, Ok(false)), "{in_time:?}");
    proxy.pass().unwrap();
    eventually("nothing is left in the queue", || support::queue(&client, "/locks/m").is_empty());
    assert!(lock.acquire_with(&AcquireOptions::new().min_validity(session / 2).timeout(PATIENCE)).unwrap());
    lock.release().unwrap();
}

#[test]
fn a_shared_hold_counts_like_any_other() {
    let client = support::connect(support::builder(support::server(), &support::namespace()).session_timeout(T));
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
