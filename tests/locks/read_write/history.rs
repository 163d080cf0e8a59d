//! The read/write lock and the cached mutex under random load: what happened is written down, and checked afterwards.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../../support/mod.rs"]
mod support;

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{Caching, FencingToken, InterProcessMutex, InterProcessReadWriteLock, LockGuard, Result};
use support::{
    PATIENCE, await_children, children,
    scope::{client_in, scope},
};

const PATH: &str = "/lock";
const CLIENTS: usize = 8;
const OPERATIONS: usize = 1_000;

/// One hold, on the clock that all threads share. The lock was held for at least this long.
#[derive(Debug, Clone, Copy)]
struct Hold<T> {
    writes: bool,
    /// The place in the queue: the znode's czxid, a downgraded reader has its writer's.
    token: T,
    from: Instant,
    to: Instant,
}

/// Every writer against everybody: who has the smaller token was out before the other one was in. `Err`: two holds that
/// break this. Readers may do as they like among themselves.
fn check<T: Ord + Copy>(history: &[Hold<T>]) -> Result<(), (Hold<T>, Hold<T>)> {
    for writer in history.iter().filter(|hold| hold.writes) {
        for other in history.iter().filter(|other| other.token != writer.token) {
            let (first, second) = if other.token < writer.token { (other, writer) } else { (writer, other) };
            if first.to > second.from {
                return Err((*first, *second));
            }
        }
    }
    Ok(())
}

#[test]
fn no_reader_is_beside_a_writer_and_the_order_is_kept() {
    let clients: Vec<_> = (0..CLIENTS).map(|_| client_in("history")).collect();
    let start = Barrier::new(CLIENTS);
    let locks: Vec<_> = clients.iter().map(|client| InterProcessReadWriteLock::new(client, PATH).unwrap()).collect();
    let history = history_of(&locks, 1, &start);
    assert_eq!(children(&clients[0], PATH), Vec::<String>::new());
    assert_in_order(&history);
}

/// Two processes that cache, and one that does not.
#[test]
fn no_reader_is_beside_a_writer_among_threads_and_processes_with_caching() {
    const THREADS: usize = 4;
    let clients: Vec<_> = (0..3).map(|_| client_in("cached_read_write")).collect();
    let start = Barrier::new(clients.len() * THREADS);
    let locks: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(k, client)| {
            let lock = InterProcessReadWriteLock::new(client, PATH).unwrap();
            if k == 2 { lock } else { lock.with_caching(Caching::new().max_grants(8)) }
        })
        .collect();
    let history = history_of(&locks, THREADS, &start);
    drop(locks);
    await_children(&clients[0], PATH, 0);
    assert_in_order(&history);
    let local = history.iter().filter(|hold| hold.token.grant() > 1).count();
    println!("{} holds, {local} of them without a znode of their own", history.len());
    assert!(local > history.len() / 20, "{local}");
}

/// What threads of each lock object have seen.
fn history_of(locks: &[InterProcessReadWriteLock], threads: usize, start: &Barrier) -> Vec<Hold<FencingToken>> {
    let operations = CLIENTS * OPERATIONS / (locks.len() * threads) + 1;
    scope(|scope| {
        let threads: Vec<_> = locks
            .iter()
            .flat_map(|lock| std::iter::repeat_n(lock, threads))
            .map(|lock| {
                scope.spawn(move || {
                    start.wait();
                    (0..operations).flat_map(|_| operation(lock)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

fn assert_in_order(history: &[Hold<FencingToken>]) {
    let writers = history.iter().filter(|hold| hold.writes).count();
    assert!(history.len() >= CLIENTS * OPERATIONS && writers > CLIENTS * OPERATIONS / 20);
    assert!(readers_overlap(history), "readers did share the lock, or nothing is proved");
    if let Err((first, second)) = check(history) {
        panic!("not one after the other: {first:?} and {second:?}");
    }
}

/// Each client is a process of two threads, which has the lock for one tenure after the other.
#[test]
fn cached_mutexes_are_held_one_after_the_other_in_the_order_of_their_tokens() {
    const THREADS: usize = 2;
    const EACH: usize = 250;
    let clients: Vec<_> = (0..CLIENTS).map(|_| client_in("cached_history")).collect();
    let start = Barrier::new(CLIENTS * THREADS);
    let history: Vec<Hold<FencingToken>> = scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .flat_map(|client| {
                let mutex =
                    InterProcessMutex::new(client, "/cached").unwrap().with_caching(Caching::new().max_grants(4));
                let start = &start;
                (0..THREADS).map(move |_| {
                    let mutex = mutex.clone();
                    scope.spawn(move || {
                        start.wait();
                        let hold = |_| hold(in_time(mutex.lock_timeout(PATIENCE)), true);
                        (0..EACH).map(hold).collect::<Vec<_>>()
                    })
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(history.len(), CLIENTS * THREADS * EACH);
    let local = history.iter().filter(|hold| hold.token.grant() > 1).count();
    assert!(local > history.len() / 4, "{local} holds were handed over in their process, or nothing is proved");
    if let Err((first, second)) = check(&history) {
        panic!("not one after the other: {first:?} and {second:?}");
    }
}

/// One in ten writes, and of these one in three becomes a reader before it is done.
fn operation(lock: &InterProcessReadWriteLock) -> Vec<Hold<FencingToken>> {
    if fastrand::u8(..10) != 0 {
        return vec![hold(in_time(lock.read_lock().lock_timeout(PATIENCE)), false)];
    }
    let writing = in_time(lock.write_lock().lock_timeout(PATIENCE));
    if fastrand::u8(..3) != 0 {
        return vec![hold(writing, true)];
    }
    let from = Instant::now();
    let reading = in_time(lock.read_lock().lock_timeout(PATIENCE));
    let writes = Hold { from, ..hold(writing, true) };
    // From the moment at which it still was a writer: nobody may be in between.
    let reads = Hold { from, ..hold(reading, false) };
    vec![writes, reads]
}

/// A lock that is not granted fails the test instead of keeping it.
fn in_time(guard: Result<Option<LockGuard>>) -> LockGuard {
    guard.unwrap().expect("granted in time")
}

fn hold(guard: LockGuard, writes: bool) -> Hold<FencingToken> {
    let (from, token) = (Instant::now(), guard.fencing_token());
    thread::yield_now();
    let to = Instant::now();
    guard.release().unwrap();
    Hold { writes, token, from, to }
}

fn readers_overlap<T: Ord + Copy>(history: &[Hold<T>]) -> bool {
    let mut readers: Vec<_> = history.iter().filter(|hold| !hold.writes).collect();
    readers.sort_by_key(|hold| hold.from);
    readers.windows(2).any(|pair| pair[1].from < pair[0].to)
}

#[test]
fn the_checker_finds_a_reader_beside_a_writer_and_a_wrong_order() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let hold = |writes, token, from, to| Hold { writes, token, from: at(from), to: at(to) };
    let good = [hold(false, 1, 0, 10), hold(false, 2, 5, 12), hold(true, 3, 12, 20), hold(false, 4, 20, 30)];
    assert!(check(&good).is_ok());
    assert!(check(&[hold(false, 1, 0, 10), hold(true, 2, 9, 20)]).is_err(), "beside a writer");
    assert!(check(&[hold(true, 1, 0, 10), hold(true, 2, 9, 20)]).is_err(), "two writers");
    assert!(check(&[hold(true, 2, 0, 10), hold(false, 1, 11, 20)]).is_err(), "overtaken by a writer");
    assert!(check(&[hold(false, 2, 0, 10), hold(true, 1, 11, 20)]).is_err(), "overtaken by a reader");
}
