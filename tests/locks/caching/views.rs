//! What the queue view shows of tenures, in their own process and elsewhere.

use std::{sync::mpsc, thread, time::Duration};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, EntryMode, EntryState, InterProcessReadWriteLock, LockKind,
    LockQueue, TenureState,
};

use crate::{
    local::cached_with,
    support::{self, another, eventually, mutex},
};

const PATH: &str = "/locks/m";
const HELD_OR_IDLE: EntryState = EntryState::Cached(TenureState::HeldOrIdle);
const IDLE: EntryState = EntryState::Cached(TenureState::Idle);

/// Idle for longer than any test.
fn lasting() -> Caching {
    Caching::new().keep_idle(Duration::from_secs(3600))
}

fn held_by(threads: usize) -> EntryState {
    EntryState::Cached(TenureState::Held(threads))
}

fn look(client: &CuratorFramework) -> LockQueue {
    LockQueue::inspect(client, PATH).unwrap()
}

fn states(client: &CuratorFramework) -> Vec<EntryState> {
    look(client).entries.iter().map(|entry| entry.state).collect()
}

fn modes(client: &CuratorFramework) -> Vec<(EntryMode, EntryState)> {
    look(client).entries.iter().map(|entry| (entry.mode, entry.state)).collect()
}

#[test]
fn a_tenure_is_held_or_idle_to_others_and_its_own_client_knows_which() {
    let client = support::client();
    let other = another(&client);
    let mutex = cached_with(&client, lasting());
    thread::scope(|scope| {
        let held = mutex.lock().unwrap();
        assert_eq!((states(&client), states(&other)), (vec![held_by(1)], vec![HELD_OR_IDLE]));
        scope.spawn(|| mutex.lock().unwrap().release().unwrap());
        eventually("it waits", || mutex.local_waiters() == 1);
        let (own, others) = (look(&client), look(&other));
        assert_eq!((own.local_waiters, own.entries.len()), (1, 1));
        assert_eq!((others.local_waiters, others.entries.len()), (0, 1));
        assert_eq!(states(&client), [held_by(1)]);
        held.release().unwrap();
    });
    let queue = look(&client);
    assert_eq!((states(&client), states(&other)), (vec![IDLE], vec![HELD_OR_IDLE]));
    // It is taken all the same: a try of another process fails.
    assert!(queue.is_held() && queue.holders().count() == 1 && queue.waiters().count() == 0);
    assert_eq!((queue.kind, queue.local_waiters), (LockKind::Mutex, 0));
    assert!(support::mutex(&other).try_lock().unwrap().is_none());
}

#[test]
fn readers_of_a_tenure_are_counted_and_its_writer_is_one() {
    let client = support::client();
    let other = another(&client);
    let lock = InterProcessReadWriteLock::new(&client, PATH).unwrap().with_caching(lasting());
    thread::scope(|scope| {
        let (reads, reading) = mpsc::channel();
        let (ends, ended) = mpsc::channel::<()>();
        scope.spawn({
            let lock = &lock;
            move || {
                let held = lock.read_lock().lock().unwrap();
                reads.send(()).unwrap();
                // Until the other side has gone.
                let _ = ended.recv();
                held.release().unwrap();
            }
        });
        reading.recv().unwrap();
        let held = lock.read_lock().lock().unwrap();
        assert_eq!(modes(&client), [(EntryMode::Read, held_by(2))]);
        assert_eq!(modes(&other), [(EntryMode::Read, HELD_OR_IDLE)]);
        held.release().unwrap();
        assert_eq!(modes(&client), [(EntryMode::Read, held_by(1))]);
        drop(ends);
    });
    assert_eq!(modes(&client), [(EntryMode::Read, IDLE)]);
    assert_eq!(modes(&other), [(EntryMode::Read, HELD_OR_IDLE)]);

    let writing = lock.write_lock().lock().unwrap();
    assert_eq!(modes(&client), [(EntryMode::Write, held_by(1))]);
    assert_eq!(modes(&other), [(EntryMode::Write, HELD_OR_IDLE)]);
    writing.release().unwrap();
    assert_eq!(modes(&client), [(EntryMode::Write, IDLE)]);
    assert_eq!(modes(&other), [(EntryMode::Write, HELD_OR_IDLE)]);
}

#[test]
fn a_writer_that_goes_on_as_a_reader_holds_by_a_znode_that_nobody_keeps() {
    let client = support::client();
    let other = another(&client);
    let lock = InterProcessReadWriteLock::new(&client, PATH).unwrap().with_caching(lasting());
    let writing = lock.write_lock().lock().unwrap();
    let reading = lock.read_lock().lock().unwrap();
    for (client, expected) in [(&client, held_by(1)), (&other, HELD_OR_IDLE)] {
        let modes = modes(client);
        assert_eq!(modes.len(), 2, "{modes:?}");
        assert!(modes.contains(&(EntryMode::Write, expected)), "{modes:?}");
        assert!(modes.contains(&(EntryMode::Read, EntryState::Holds)), "{modes:?}");
    }
    writing.release().unwrap();
    eventually("the write znode goes with its hold", || modes(&other) == [(EntryMode::Read, EntryState::Holds)]);
    reading.release().unwrap();
    assert_eq!(look(&other).kind, LockKind::Unused);
}

#[test]
fn a_contender_of_a_cached_lock_waits_as_any_other_and_threads_wait_behind_it() {
    let client = support::client();
    let other = another(&client);
    let (lock, cancel) = (cached_with(&client, lasting()), CancelToken::new());
    let options = AcquireOptions::new().cancel_token(&cancel);
    let first = mutex(&other);
    thread::scope(|scope| {
        let held = first.lock().unwrap();
        scope.spawn(|| drop(lock.lock_with(&options)));
        eventually("it queues", || states(&other) == [EntryState::Holds, EntryState::Waits(0)]);
        scope.spawn(|| drop(lock.lock_with(&options)));
        eventually("one waits behind it", || look(&client).local_waiters == 1);
        assert_eq!(states(&client), [EntryState::Holds, EntryState::Waits(0)]);
        assert_eq!(look(&other).local_waiters, 0);
        cancel.cancel();
        held.release().unwrap();
    });
    assert_eq!(look(&client).local_waiters, 0);
}

#[test]
fn what_nobody_keeps_idle_is_held() {
    let client = support::client();
    let other = another(&client);
    let handed_on = cached_with(&client, Caching::new().keep_idle(Duration::ZERO));
    let held = handed_on.lock().unwrap();
    assert_eq!((states(&client), states(&other)), (vec![held_by(1)], vec![EntryState::Holds]));
    held.release().unwrap();
    let plain = mutex(&client);
    let held = plain.lock().unwrap();
    assert_eq!((states(&client), states(&other)), (vec![EntryState::Holds], vec![EntryState::Holds]));
    held.release().unwrap();
}

#[test]
fn names_of_tenures_are_uuids_as_all_others() {
    let client = support::client();
    let locks = [cached_with(&client, lasting()), mutex(&client)];
    let ids = locks.map(|lock| {
        let held = lock.lock().unwrap();
        let name = held.path().rsplit('/').next().unwrap().to_owned();
        held.release().unwrap();
        let (id, rest) = name.strip_prefix("_c_").unwrap().split_at(36);
        assert!(rest.starts_with("-lock-"), "{name}");
        uuid::Uuid::try_parse(id).unwrap()
    });
    for id in ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (8, uuid::Variant::RFC4122), "{id}");
    }
}
