//! Lock objects that are configured: each `with_` method of each kind makes another one, and clones stay as they were.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use curator_locks::{
    AcquireOptions, Caching, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex,
    WaitStrategy,
};
use support::{
    PATIENCE, await_queue, children, namespace, queue,
    scope::{client_in, scope},
};

const OTHERS: &str = "the clone's";
const NO_DELAY: Duration = Duration::ZERO;

/// A waiter by this reads the queue once in a test.
const SELDOM: WaitStrategy = WaitStrategy::Poll(Duration::from_secs(3600));

type Locks = Vec<Box<dyn InterProcessLock>>;

/// A lock, and what was made of its clone: one lock each, or a read lock and a write lock.
struct Case {
    kind: &'static str,
    path: String,
    original: Locks,
    configured: Locks,
}

fn one(lock: impl InterProcessLock + 'static) -> Locks {
    vec![Box::new(lock)]
}

fn halves(lock: &InterProcessReadWriteLock) -> Locks {
    vec![Box::new(lock.read_lock().clone()), Box::new(lock.write_lock().clone())]
}

/// Each kind has the method, and a directory of its own.
macro_rules! cases {
    ($client:ident, $method:ident($argument:expr), $($kind:ident: $as_locks:expr),*) => {
        vec![$({
            let path = format!("/{}", stringify!($kind));
            let original = $kind::new($client, &path).unwrap();
            let configured = original.clone().$method($argument);
            let as_locks = $as_locks;
            Case { kind: stringify!($kind), path, original: as_locks(original), configured: as_locks(configured) }
        }),*]
    };
}

/// What is there of each hold of these locks: `look` is given its znode's path.
fn while_held<T>(locks: &Locks, mut look: impl FnMut(&str) -> T) -> Vec<T> {
    let looked = locks.iter().map(|lock| {
        let holds = lock.acquire_holds(&AcquireOptions::new().timeout(PATIENCE)).unwrap().expect("no timeout");
        let looked = look(holds[0].path());
        lock.release_holds(&holds).unwrap();
        looked
    });
    looked.collect()
}

#[track_caller]
fn assert_only_the_configured_one<T>(cases: Vec<Case>, look: impl Fn(&Case, &str) -> T, before: T, after: T)
where
    T: PartialEq + std::fmt::Debug,
{
    for case in cases {
        let all = |locks: &Locks, expected: &T| {
            while_held(locks, |node| look(&case, node)).iter().all(|seen| seen == expected)
        };
        assert!(all(&case.original, &before), "{}: the original has changed", case.kind);
        assert!(all(&case.configured, &after), "{}: the configured one is not as it was asked for", case.kind);
        assert!(all(&case.original, &before), "{}: the original changes with the use of the other one", case.kind);
    }
}

#[test]
fn with_lock_data_changes_no_clone() {
    let client = &client_in(&namespace());
    client.create().creating_parents_if_needed().for_path("/default").unwrap();
    let default = client.get_data().for_path("/default").unwrap();
    let cases = cases!(client, with_lock_data(OTHERS), InterProcessMutex: one, InterProcessUnfairMutex: one,
        InterProcessSemaphoreMutex: one, InterProcessReadWriteLock: |lock| halves(&lock));
    // Behind the line that marks an unfair lock's attempt.
    let last_line = |data: Vec<u8>| data.rsplit(|byte| *byte == b'\n').next().unwrap().to_vec();
    let data = |_: &Case, node: &str| last_line(client.get_data().for_path(node).unwrap());
    assert_only_the_configured_one(cases, data, default, OTHERS.into());
}

#[test]
fn with_unclean_deaths_changes_no_clone() {
    let client = &client_in(&namespace());
    let cases = cases!(client, with_unclean_deaths(NO_DELAY), InterProcessMutex: one, InterProcessUnfairMutex: one,
        InterProcessSemaphoreMutex: one, InterProcessReadWriteLock: |lock| halves(&lock));
    let marks = |case: &Case, _: &str| children(client, &format!("{}~holders", case.path)).len();
    assert_only_the_configured_one(cases, marks, 0, 1);

    let semaphore = InterProcessSemaphoreV2::new(client, "/s", 1).unwrap();
    let configured = semaphore.clone().with_unclean_deaths(NO_DELAY);
    for (semaphore, marks) in [(&semaphore, 0), (&configured, 1), (&semaphore, 0)] {
        let lease = semaphore.acquire().unwrap();
        assert_eq!(children(client, "/s~holders").len(), marks);
        semaphore.return_lease(lease).unwrap();
    }
}

#[test]
fn with_caching_changes_no_clone() {
    let client = &client_in(&namespace());
    let cases = cases!(client, with_caching(Caching::new()), InterProcessMutex: one,
        InterProcessReadWriteLock: |lock| halves(&lock));
    for case in cases {
        for locks in [&case.original, &case.configured] {
            while_held(locks, |_| ());
        }
        assert_eq!(queue(client, &case.path).len(), 1, "{}: the configured one keeps its lock", case.kind);
        while_held(&case.original, |_| ());
        assert_eq!(queue(client, &case.path), Vec::<String>::new(), "{}: the original keeps nothing", case.kind);
    }
    let multi = InterProcessMultiLock::new(client, ["/m"]).unwrap();
    let configured = multi.clone().with_caching(Caching::new()).unwrap();
    let (multi, configured) = (one(multi), one(configured));
    while_held(&configured, |_| ());
    assert_eq!(queue(client, "/m").len(), 1);
    while_held(&multi, |_| ());
    assert_eq!(queue(client, "/m"), Vec::<String>::new());
}

#[test]
fn with_wait_strategy_changes_no_clone() {
    let client = &client_in(&namespace());
    let cases = cases!(client, with_wait_strategy(SELDOM), InterProcessMutex: one,
        InterProcessReadWriteLock: |lock| halves(&lock));
    for case in cases {
        let in_front = InterProcessReadWriteLock::new(client, &case.path).unwrap();
        for waits in &case.original {
            scope(|scope| {
                let held = in_front.write_lock().lock().unwrap();
                let waiter = scope.spawn(|| waits.acquire_timeout(PATIENCE).unwrap().then(|| waits.release().unwrap()));
                await_queue(client, &case.path, 2);
                held.release().unwrap();
                assert_eq!(waiter.join().unwrap(), Some(()), "{}: the original polls", case.kind);
            });
        }
    }
}

#[test]
fn a_configured_clone_is_another_contender_that_waits_for_what_its_thread_holds() {
    let client = client_in(&namespace());
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    let (clone, configured) = (mutex.clone(), mutex.clone().with_lock_data(OTHERS));
    let held = mutex.lock().unwrap();
    assert!(clone.is_owned_by_current_thread() && clone.try_lock().unwrap().is_some());
    assert!(!configured.is_owned_by_current_thread() && configured.try_lock().unwrap().is_none());
    assert!(matches!(configured.acquire(), Err(Error::WouldDeadlock { .. })));
    held.release().unwrap();
    configured.acquire().unwrap();
    configured.release().unwrap();
}
