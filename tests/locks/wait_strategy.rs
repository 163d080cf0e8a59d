//! The ways to wait: each keeps every rule of the lock. That the first one does, which watches the predecessor and is the
//! default, is the contract of locks (`tests/contract`).
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, CuratorFramework, Error, InterProcessMutex, InterProcessReadWriteLock, WaitStrategy,
    testing::TestingServer,
};
use support::{
    PATIENCE, await_children, builder, connect, eventually, expire,
    scope::{client_in, closed_by_failure, scope},
    server, watchers,
};

const PATH: &str = "/lock";
/// Long enough for a call that would not wait to be done, and short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

/// So long that a waiter which only polls would run into the limit of these tests.
const SELDOM: WaitStrategy = WaitStrategy::Poll(Duration::from_secs(3600));

/// One module for each strategy, with every rule in it.
macro_rules! every_rule {
    ($($module:ident: $strategy:expr;)*) => {
        $(mod $module {
            use super::*;

            fn setup(rule: &str) -> Setup {
                Setup { namespace: format!("{}-{rule}", stringify!($module)), strategy: $strategy }
            }

            #[test]
            fn threads_and_clients_exclude_each_other() {
                exclusion(&setup("exclusion"));
            }

            #[test]
            fn waiters_are_granted_in_the_order_of_the_queue() {
                order(&setup("order"));
            }

            #[test]
            fn a_timed_wait_ends_at_its_time() {
                timeout(&setup("timeout"));
            }

            #[test]
            fn a_cancelled_wait_ends_at_once() {
                cancellation(&setup("cancel"));
            }

            #[test]
            fn closing_the_client_ends_the_wait() {
                close(&setup("close"));
            }

            #[test]
            fn a_waiter_gets_the_lock_when_the_holders_session_expires() {
                holder_expires(&setup("holder"));
            }

            #[test]
            fn a_waiter_whose_own_session_expires_queues_again() {
                waiter_expires(&setup("waiter"));
            }

            #[test]
            fn a_waiter_whose_node_is_deleted_queues_again() {
                node_deleted(&setup("deleted"));
            }

            #[test]
            fn readers_and_writers_exclude_each_other() {
                read_write(&setup("read-write"));
            }
        })*
    };
}

every_rule! {
    parent: WaitStrategy::WatchParent;
    poll: WaitStrategy::Poll(Duration::from_millis(5));
}

struct Setup {
    namespace: String,
    strategy: WaitStrategy,
}

impl Setup {
    fn client(&self) -> CuratorFramework {
        client_in(&self.namespace)
    }

    fn mutex(&self, client: &CuratorFramework) -> InterProcessMutex {
        InterProcessMutex::new(client, PATH).unwrap().with_wait_strategy(self.strategy)
    }
}

fn exclusion(setup: &Setup) {
    let clients = [setup.client(), setup.client(), setup.client()];
    let inside = AtomicUsize::new(0);
    scope(|scope| {
        for client in &clients {
            let shared = setup.mutex(client);
            let inside = &inside;
            scope.spawn(move || {
                thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            for _ in 0..20 {
                                let held = shared.lock().unwrap();
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                thread::yield_now();
                                inside.fetch_sub(1, Ordering::SeqCst);
                                held.release().unwrap();
                            }
                        });
                    }
                });
            });
        }
    });
    nothing_left(&clients[0]);
}

fn order(setup: &Setup) {
    const WAITERS: usize = 6;
    let clients = [setup.client(), setup.client()];
    let mutexes = [setup.mutex(&clients[0]), setup.mutex(&clients[1])];
    let (events, granted) = mpsc::channel();
    let held = mutexes[0].lock().unwrap();
    scope(|scope| {
        for waiter in 0..WAITERS {
            let (events, mutex) = (events.clone(), &mutexes[waiter % 2]);
            scope.spawn(move || {
                let held = mutex.lock().unwrap();
                events.send(waiter).unwrap();
                held.release().unwrap();
            });
            await_children(&clients[0], PATH, waiter + 2);
        }
        assert!(granted.try_recv().is_err());
        held.release().unwrap();
        for waiter in 0..WAITERS {
            assert_eq!(granted.recv_timeout(PATIENCE), Ok(waiter));
        }
    });
    nothing_left(&clients[0]);
}

fn timeout(setup: &Setup) {
    let clients = [setup.client(), setup.client()];
    let (holder, waiter) = (setup.mutex(&clients[0]), setup.mutex(&clients[1]));
    let held = holder.lock().unwrap();
    let start = Instant::now();
    assert!(!waiter.acquire_timeout(SHORT).unwrap());
    assert!(start.elapsed() >= SHORT);
    assert!(waiter.try_lock().unwrap().is_none());
    // Only the holder's.
    await_children(&clients[0], PATH, 1);
    held.release().unwrap();
    assert!(waiter.acquire_timeout(Duration::ZERO).unwrap());
    waiter.release().unwrap();
    nothing_left(&clients[0]);
}

fn cancellation(setup: &Setup) {
    let clients = [setup.client(), setup.client()];
    let (holder, waiter) = (setup.mutex(&clients[0]), setup.mutex(&clients[1]));
    let held = holder.lock().unwrap();
    let token = CancelToken::new();
    scope(|scope| {
        let waits = scope.spawn(|| waiter.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        await_children(&clients[0], PATH, 2);
        token.cancel();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    await_children(&clients[0], PATH, 1);
    held.release().unwrap();
    nothing_left(&clients[0]);
}

fn close(setup: &Setup) {
    let clients = [setup.client(), setup.client()];
    let (holder, waiter) = (setup.mutex(&clients[0]), setup.mutex(&clients[1]));
    let held = holder.lock().unwrap();
    scope(|scope| {
        let waits = scope.spawn(|| waiter.acquire());
        await_children(&clients[0], PATH, 2);
        clients[1].close();
        assert!(matches!(waits.join().unwrap(), Err(Error::ClientClosed)));
    });
    await_children(&clients[0], PATH, 1);
    held.release().unwrap();
    nothing_left(&clients[0]);
}

fn holder_expires(setup: &Setup) {
    let (one, two) = (client_in(&setup.namespace), setup.client());
    let (holder, waiter) = (setup.mutex(&one), setup.mutex(&two));
    let held = holder.lock().unwrap();
    let old = held.path().to_owned();
    scope(|scope| {
        let waits = scope.spawn(|| {
            let held = waiter.lock().unwrap();
            let token = held.fencing_token();
            held.release().unwrap();
            token
        });
        await_children(&two, PATH, 2);
        expire(&one);
        assert!(waits.join().unwrap() > held.fencing_token());
    });
    assert!(two.check_exists().for_path(&old).unwrap().is_none());
    eventually("the holder knows", || held.is_lost());
    drop(held);
    nothing_left(&two);
}

fn waiter_expires(setup: &Setup) {
    let (one, two) = (setup.client(), client_in(&setup.namespace));
    let (holder, waiter) = (setup.mutex(&one), setup.mutex(&two));
    let held = holder.lock().unwrap();
    let first = held.path().to_owned();
    requeues(&one, &holder, &waiter, &first, || expire(&two), || held.release().unwrap());
}

fn node_deleted(setup: &Setup) {
    let (one, two) = (setup.client(), setup.client());
    let (holder, waiter) = (setup.mutex(&one), setup.mutex(&two));
    let held = holder.lock().unwrap();
    let first = held.path().to_owned();
    let delete = || {
        let nodes = holder.participant_nodes().unwrap();
        let node = nodes.iter().find(|node| **node != first).unwrap();
        one.delete().for_path(node).unwrap();
    };
    requeues(&one, &holder, &waiter, &first, delete, || held.release().unwrap());
}

/// The waiter's node goes, and it comes back with another one while the lock is still held.
fn requeues(
    client: &CuratorFramework,
    holder: &InterProcessMutex,
    waiter: &InterProcessMutex,
    held: &str,
    fault: impl FnOnce(),
    release: impl FnOnce(),
) {
    let node = || holder.participant_nodes().unwrap().into_iter().find(|node| node != held);
    scope(|scope| {
        let waits = scope.spawn(|| waiter.acquire().and_then(|()| waiter.release()));
        await_children(client, PATH, 2);
        let old = node();
        fault();
        eventually("the waiter queues again", || node().is_some_and(|node| Some(node) != old));
        assert!(!waits.is_finished());
        release();
        waits.join().unwrap().unwrap();
    });
    nothing_left(client);
}

fn read_write(setup: &Setup) {
    let clients = [setup.client(), setup.client(), setup.client()];
    let (readers, writers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let lock = InterProcessReadWriteLock::new(client, PATH).unwrap().with_wait_strategy(setup.strategy);
                for round in 0..20 {
                    if round % 4 == 0 {
                        let held = lock.write_lock().lock().unwrap();
                        assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(readers.load(Ordering::SeqCst), 0);
                        writers.fetch_sub(1, Ordering::SeqCst);
                        held.release().unwrap();
                    } else {
                        let held = lock.read_lock().lock().unwrap();
                        readers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        readers.fetch_sub(1, Ordering::SeqCst);
                        held.release().unwrap();
                    }
                }
            });
        }
    });
    nothing_left(&clients[0]);
}

/// No znode of anybody, and no watch either.
fn nothing_left(client: &CuratorFramework) {
    await_children(client, PATH, 0);
    let path = format!("/{}{PATH}", client.namespace());
    eventually("no watch is left", || {
        let watched = server().four_letter_word("wchp").unwrap();
        !watched.lines().any(|line| line == path || line.starts_with(&format!("{path}/")))
    });
}

#[test]
fn waiters_of_all_strategies_queue_together() {
    let client = client_in("mixed");
    let strategies =
        [WaitStrategy::WatchParent, WaitStrategy::Poll(Duration::from_millis(5)), WaitStrategy::WatchPredecessor];
    let mutexes =
        strategies.map(|strategy| InterProcessMutex::new(&client, PATH).unwrap().with_wait_strategy(strategy));
    let (events, granted) = mpsc::channel();
    let held = mutexes[0].lock().unwrap();
    scope(|scope| {
        for waiter in 0..9 {
            let (events, mutex) = (events.clone(), &mutexes[waiter % 3]);
            scope.spawn(move || {
                let held = mutex.lock().unwrap();
                events.send(waiter).unwrap();
                held.release().unwrap();
            });
            await_children(&client, PATH, waiter + 2);
        }
        held.release().unwrap();
        for waiter in 0..9 {
            assert_eq!(granted.recv_timeout(PATIENCE), Ok(waiter));
        }
    });
    nothing_left(&client);
}

#[test]
fn a_poller_between_two_looks_ends_with_its_time_its_token_and_its_client() {
    let seldom = Setup { namespace: "seldom".into(), strategy: SELDOM };
    for rule in [timeout, cancellation, close] {
        // The lock is granted at once to whoever comes first, so only the waiter waits.
        rule(&seldom);
    }
}

#[test]
fn a_poller_between_two_looks_notices_the_end_of_its_session_and_of_its_node() {
    let (one, two) = (client_in("seldom-end"), client_in("seldom-end"));
    let holder = InterProcessMutex::new(&one, PATH).unwrap();
    let waiter = InterProcessMutex::new(&two, PATH).unwrap().with_wait_strategy(SELDOM);
    let held = holder.lock().unwrap();
    let token = CancelToken::new();
    let node = || holder.participant_nodes().unwrap().into_iter().find(|node| node != held.path());
    let other = |old: &Option<String>| node().is_some_and(|node| Some(&node) != old.as_ref());
    scope(|scope| {
        let waits = scope.spawn(|| waiter.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        await_children(&one, PATH, 2);
        let first = node();
        expire(&two);
        eventually("queued again in the next session", || other(&first));
        let second = node();
        let watched = || watchers(&one, second.as_ref().unwrap()).contains(&two.session_id());
        eventually("it watches its own node", watched);
        one.delete().for_path(second.as_ref().unwrap()).unwrap();
        eventually("queued again with another node", || other(&second));
        token.cancel();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    held.release().unwrap();
    nothing_left(&one);
}

#[test]
fn each_strategy_has_the_watches_it_says_and_leaves_none() {
    // Of its own, because only the number of all watches at the server shows those on a directory.
    let server = TestingServer::start().unwrap();
    let client = || closed_by_failure(connect(builder(&server, "watches")));
    let (one, two) = (client(), client());
    let holder = InterProcessMutex::new(&one, PATH).unwrap();
    let waiters = [
        (WaitStrategy::WatchPredecessor, 2, "the predecessor, itself"),
        (WaitStrategy::WatchParent, 1, "the directory"),
        (SELDOM, 1, "itself"),
    ];
    for (strategy, watches, which) in waiters {
        let waiter = InterProcessMutex::new(&two, PATH).unwrap().with_wait_strategy(strategy);
        let held = holder.lock().unwrap();
        eventually("the holder watches its node", || server.watch_count().unwrap() == 1);
        let token = CancelToken::new();
        scope(|scope| {
            let waits = scope.spawn(|| waiter.acquire_with(&AcquireOptions::new().cancel_token(&token)));
            let seen = within(PATIENCE, || server.watch_count().unwrap() == 1 + watches);
            token.cancel();
            assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
            assert!(seen, "{strategy:?} watches {which}");
        });
        eventually("the waiter leaves no watch", || server.watch_count().unwrap() == 1);
        held.release().unwrap();
        eventually("the holder leaves no watch", || server.watch_count().unwrap() == 0);
    }
}

#[test]
fn a_release_asks_nothing_of_those_who_poll_and_a_list_of_each_who_watches_the_parent() {
    const WAITERS: usize = 8;
    // Of its own, because only the number of all watches at the server shows those on a directory.
    let server = TestingServer::start().unwrap();
    let client = || closed_by_failure(connect(builder(&server, "costs")));
    for strategy in [SELDOM, WaitStrategy::WatchParent] {
        let (one, others) = (client(), [(); WAITERS].map(|()| client()));
        let held = InterProcessMutex::new(&one, PATH).unwrap().lock().unwrap();
        let (token, granted) = (CancelToken::new(), AtomicUsize::new(0));
        let (done, ends) = crossbeam_channel::bounded::<()>(0);
        let options = AcquireOptions::new().cancel_token(&token);
        let reads = || others.iter().map(|client| client.metrics().requests.read).sum::<u64>();
        scope(|scope| {
            for client in &others {
                let (options, granted, ends) = (&options, &granted, &ends);
                scope.spawn(move || {
                    let waiter = InterProcessMutex::new(client, PATH).unwrap().with_wait_strategy(strategy);
                    if let Ok(Some(_held)) = waiter.lock_with(options) {
                        granted.fetch_add(1, Ordering::SeqCst);
                        let _ = ends.recv();
                    }
                });
            }
            await_children(&one, PATH, WAITERS + 1);
            // The last arrival has fired the watches of before, so these are the last, with the holder's own.
            eventually("all wait", || server.watch_count().unwrap() == WAITERS as u64 + 1);
            let before = reads();
            held.release().unwrap();
            let (seen, asked) = if strategy == SELDOM {
                (await_children(&one, PATH, WAITERS).len() == WAITERS, reads() - before)
            } else {
                let all_have_read = || granted.load(Ordering::SeqCst) == 1 && reads() - before >= WAITERS as u64;
                (within(PATIENCE, all_have_read), reads() - before)
            };
            token.cancel();
            drop(done);
            assert!(seen && (strategy != SELDOM || asked == 0), "{strategy:?}: {asked} requests");
        });
        await_children(&one, PATH, 0);
    }
}

/// Whether a state was observed in time.
fn within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
