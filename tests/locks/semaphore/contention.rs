//! Many threads and clients.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use curator_locks::{CuratorFramework, InterProcessSemaphoreV2, Lease};

use crate::support::{PATIENCE, children, client_in, eventually};

/// How many leases are held in this process, and were at most.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Held {
    fn add(&self, count: usize) -> usize {
        let now = self.now.fetch_add(count, Ordering::SeqCst) + count;
        self.most.fetch_max(now, Ordering::SeqCst);
        now
    }

    /// Before they are given back, or the next holder could be counted first.
    fn sub(&self, count: usize) {
        self.now.fetch_sub(count, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn assert_nothing_left(client: &CuratorFramework) {
    eventually("nothing is left", || {
        children(client, "/s/leases").is_empty() && children(client, "/s/locks").is_empty()
    });
}

#[test]
fn two_clients_that_begin_at_the_same_time_never_both_hold_too_many() {
    let clients = [client_in("begin"), client_in("begin"), client_in("begin")];
    let held = Held::default();
    let barrier = std::sync::Barrier::new(clients.len());
    thread::scope(|scope| {
        for (k, client) in clients.iter().enumerate() {
            let (held, barrier) = (&held, &barrier);
            scope.spawn(move || {
                for round in 0..100 {
                    // A new object and a new path, so that nobody queues at first.
                    let semaphore = InterProcessSemaphoreV2::new(client, &format!("/s{round}"), 2).unwrap();
                    barrier.wait();
                    let leases = semaphore.acquire_many(1 + (k + round) % 2).unwrap();
                    assert!(held.add(leases.len()) <= 2);
                    held.sub(leases.len());
                    semaphore.return_all(leases).unwrap();
                    barrier.wait();
                }
            });
        }
    });
}

#[test]
fn ten_clients_with_random_quantities_never_exceed_the_leases() {
    const LEASES: usize = 25;
    let held = Held::default();
    let clients: Vec<CuratorFramework> = (0..10).map(|_| client_in("random")).collect();
    thread::scope(|scope| {
        for (k, client) in clients.iter().enumerate() {
            let held = &held;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(k as u64);
                let semaphore = InterProcessSemaphoreV2::new(client, "/s", LEASES).unwrap();
                for _ in 0..30 {
                    let count = random.usize(1..=LEASES);
                    let leases = semaphore.acquire_many_timeout(count, PATIENCE).unwrap().expect("no timeout");
                    assert!(held.add(leases.len()) <= LEASES);
                    held.sub(leases.len());
                    semaphore.return_all(leases).unwrap();
                }
            });
        }
    });
    assert_nothing_left(&clients[0]);
}

#[test]
fn ten_clients_of_five_leases_reach_five_and_never_more() {
    const LEASES: usize = 5;
    let held = Held::default();
    let clients: Vec<CuratorFramework> = (0..2 * LEASES).map(|_| client_in("peak")).collect();
    thread::scope(|scope| {
        for client in &clients {
            let held = &held;
            scope.spawn(move || {
                let semaphore = InterProcessSemaphoreV2::new(client, "/s", LEASES).unwrap();
                let lease = semaphore.acquire_timeout(PATIENCE).unwrap().unwrap();
                assert!(held.add(1) <= LEASES);
                // The first five hold until all five do, so the peak does not depend on timing.
                eventually("five hold a lease", || held.most() == LEASES);
                held.sub(1);
                lease.close().unwrap();
            });
        }
    });
    assert_eq!(held.most(), LEASES);
    assert_nothing_left(&clients[0]);
}

#[test]
fn ten_threads_of_one_object_take_turns() {
    let client = client_in("turns");
    let held = Held::default();
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let lease = semaphore.acquire().unwrap();
                    assert_eq!(held.add(1), 1);
                    held.sub(1);
                    lease.close().unwrap();
                }
            });
        }
    });
    assert_nothing_left(&client);
}

mod slow {
    use super::*;

    #[test]
    fn two_clients_that_take_both_of_two_leases_never_wait_for_each_other() {
        const ROUNDS: usize = 1000;
        let clients = [client_in("both"), client_in("both")];
        let held = Held::default();
        thread::scope(|scope| {
            for client in &clients {
                let held = &held;
                scope.spawn(move || {
                    let semaphore = InterProcessSemaphoreV2::new(client, "/s", 2).unwrap();
                    for round in 0..ROUNDS {
                        let leases = semaphore.acquire_many_timeout(2, PATIENCE).unwrap();
                        let leases = leases.unwrap_or_else(|| panic!("timed out in round {round}"));
                        assert_eq!(leases.len(), 2);
                        assert_eq!(held.add(2), 2);
                        held.sub(2);
                        semaphore.return_all(leases).unwrap();
                    }
                });
            }
        });
        assert_nothing_left(&clients[0]);
    }

    #[test]
    fn leases_given_back_in_random_chunks_by_another_thread_serve_a_hundred_threads() {
        const LEASES: usize = 11;
        const THREADS: usize = 100;
        let client = client_in("chunks");
        let held = Held::default();
        let semaphore = InterProcessSemaphoreV2::new(&client, "/s", LEASES).unwrap();
        let pool: Mutex<Vec<Lease>> = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let lease = semaphore.acquire_timeout(PATIENCE).unwrap().unwrap();
                    assert!(held.add(1) <= LEASES);
                    pool.lock().unwrap().push(lease);
                });
            }
            let mut returned = 0;
            let mut random = fastrand::Rng::with_seed(11);
            while returned < THREADS {
                let chunk = random.usize(1..=LEASES).min(THREADS - returned);
                eventually("there are enough to give back", || pool.lock().unwrap().len() >= chunk);
                let leases: Vec<Lease> = pool.lock().unwrap().drain(..chunk).collect();
                held.sub(chunk);
                semaphore.return_all(leases).unwrap();
                returned += chunk;
            }
        });
        assert_nothing_left(&client);
    }
}
