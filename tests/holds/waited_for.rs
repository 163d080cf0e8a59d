//! Whom a hold has waited for, and for how long.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, Revoker,
    WaitStrategy, WaitedFor,
};

use crate::support::{
    self, another, await_queue, eventually,
    logs::{catch_logs, has_logged},
    scope::{client_in, scope},
    watchers,
};

const PATH: &str = "/locks/w";

type Lock = Arc<dyn InterProcessLock>;
/// Makes a lock of a client, with these data.
type Make = fn(&CuratorFramework, &str) -> Lock;

fn mutex(client: &CuratorFramework, data: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, PATH).unwrap().with_lock_data(data)
}

fn read_write(client: &CuratorFramework, data: &str) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap().with_lock_data(data)
}

fn unfair(client: &CuratorFramework, data: &str) -> InterProcessUnfairMutex {
    InterProcessUnfairMutex::new(client, PATH).unwrap().with_lock_data(data)
}

fn semaphore_mutex(client: &CuratorFramework, data: &str) -> InterProcessSemaphoreMutex {
    InterProcessSemaphoreMutex::new(client, PATH).unwrap().with_lock_data(data)
}

/// Acquires the lock and gives it back. Returns whom each of its holds has waited for.
fn acquire(lock: &dyn InterProcessLock) -> Vec<Option<WaitedFor>> {
    let holds = lock.acquire_holds(&AcquireOptions::new()).unwrap().unwrap();
    lock.release_holds(&holds).unwrap();
    holds.iter().map(|hold| hold.waited_for().cloned()).collect()
}

/// Two clients of one namespace, which are closed if the test fails.
fn clients() -> (CuratorFramework, CuratorFramework) {
    let namespace = support::namespace();
    (client_in(&namespace), client_in(&namespace))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

#[test]
fn it_names_the_contender_in_front_its_session_its_data_and_the_time() {
    let kinds: [(&str, Make, Make); 6] = [
        ("mutex", |one, data| Arc::new(mutex(one, data)), |two, data| Arc::new(mutex(two, data))),
        (
            "writer behind reader",
            |one, data| Arc::new(read_write(one, data).read_lock().clone()),
            |two, data| Arc::new(read_write(two, data).write_lock().clone()),
        ),
        (
            "reader behind writer",
            |one, data| Arc::new(read_write(one, data).write_lock().clone()),
            |two, data| Arc::new(read_write(two, data).read_lock().clone()),
        ),
        ("unfair", |one, data| Arc::new(unfair(one, data)), |two, data| Arc::new(unfair(two, data))),
        (
            "cached",
            |one, data| Arc::new(mutex(one, data).with_caching(Caching::new())),
            |two, data| Arc::new(mutex(two, data).with_caching(Caching::new())),
        ),
        (
            "member of a multi lock",
            |one, data| Arc::new(mutex(one, data)),
            |two, data| Arc::new(InterProcessMultiLock::from_locks([Arc::new(mutex(two, data)) as Lock]).unwrap()),
        ),
    ];
    for (kind, holder, waiter) in kinds {
        let (one, two) = clients();
        let (holder, waiter) = (holder(&one, "holder"), waiter(&two, "waiter"));
        let held = holder.acquire_holds(&AcquireOptions::new()).unwrap().unwrap();
        assert_eq!(held[0].waited_for(), None, "{kind}");
        // Somebody's request to give it back is none of its data.
        Revoker::request(&one, held[0].path(), "the operator", "at noon").unwrap();
        let begin = Instant::now();
        let (paused, waited) = scope(|scope| {
            let waits = scope.spawn(|| acquire(&*waiter));
            eventually("it watches", || watchers(&one, held[0].path()).contains(&two.session_id()));
            let watches = Instant::now();
            thread::sleep(Duration::from_millis(30));
            let paused = watches.elapsed();
            holder.release_holds(&held).unwrap();
            (paused, waits.join().unwrap())
        });
        let [Some(waited)] = &waited[..] else { panic!("{kind}: {waited:?}") };
        assert_eq!((waited.path.as_str(), waited.session), (held[0].path(), Some(one.session_id())), "{kind}");
        assert_eq!(waited.data.as_deref(), Some(b"holder".as_slice()), "{kind}");
        assert!(paused <= waited.time && waited.time <= begin.elapsed(), "{kind}: {waited:?}, {paused:?}");
    }
}

#[test]
fn the_last_one_in_front_counts_and_the_time_is_that_of_all() {
    catch_logs(log::LevelFilter::Debug);
    let (one, two) = clients();
    let three = client_in(one.namespace());
    let cancel = CancelToken::new();
    let held = mutex(&one, "first").lock().unwrap();
    let begin = Instant::now();
    let waited = scope(|scope| {
        let gives_up = scope.spawn(|| mutex(&two, "second").acquire_with(&AcquireOptions::new().cancel_token(&cancel)));
        let second = await_queue(&one, PATH, 2).pop().unwrap();
        let waits = scope.spawn(|| acquire(&mutex(&three, "third")));
        let third = await_queue(&one, PATH, 3).pop().unwrap();
        let waits_for = |other: &str| has_logged(&[&format!(": {} waits for {}", name_of(&third), name_of(other))]);
        eventually("it waits for the second", || waits_for(&second));
        let waits_by_now = Instant::now();
        cancel.cancel();
        gives_up.join().unwrap().unwrap_err();
        eventually("it waits for the first", || waits_for(held.path()));
        let path = held.path().to_owned();
        let at_least = waits_by_now.elapsed();
        held.release().unwrap();
        let Some(waited) = waits.join().unwrap().remove(0) else { panic!("nobody was in front") };
        assert_eq!((waited.path.as_str(), waited.data.as_deref()), (path.as_str(), Some(b"first".as_slice())));
        assert!(at_least <= waited.time && waited.time <= begin.elapsed(), "{waited:?}, {at_least:?}");
        waited
    });
    assert_eq!(waited.session, Some(one.session_id()));
}

#[test]
fn of_a_lease_the_name_is_known_and_of_a_waiter_for_one_all() {
    catch_logs(log::LevelFilter::Debug);
    let (one, two) = clients();
    let three = client_in(one.namespace());
    let held = semaphore_mutex(&one, "first").lock().unwrap();
    scope(|scope| {
        let second = scope.spawn(|| acquire(&semaphore_mutex(&two, "second")));
        eventually("it counts the leases", || has_logged(&[&format!(" waits for {}", name_of(held.path()))]));
        let place = await_queue(&one, &format!("{PATH}/locks"), 1).pop().unwrap();
        let third = scope.spawn(|| acquire(&semaphore_mutex(&three, "third")));
        eventually("it queues", || watchers(&one, &place).contains(&three.session_id()));
        let lease = held.path().to_owned();
        held.release().unwrap();
        let [Some(waited)] = &second.join().unwrap()[..] else { panic!("nobody was in front") };
        assert_eq!((waited.path.as_str(), waited.session, waited.data.clone()), (lease.as_str(), None, None));
        assert_eq!(waited.to_string(), name_of(&lease));
        let [Some(waited)] = &third.join().unwrap()[..] else { panic!("nobody was in front") };
        assert_eq!((waited.path.as_str(), waited.session), (place.as_str(), Some(two.session_id())));
        assert_eq!(waited.data.as_deref(), Some(b"second".as_slice()));
    });
    let leases = InterProcessSemaphoreV2::new(&one, "/locks/free", 2).unwrap();
    assert!(leases.acquire_many(2).unwrap().iter().all(|lease| lease.waited_for().is_none()));
}

#[test]
fn a_waiter_that_does_not_watch_the_one_in_front_knows_its_name() {
    catch_logs(log::LevelFilter::Debug);
    for strategy in [WaitStrategy::WatchParent, WaitStrategy::Poll(Duration::from_millis(5))] {
        let (one, two) = clients();
        let held = mutex(&one, "holder").lock().unwrap();
        scope(|scope| {
            let waits = scope.spawn(|| acquire(&mutex(&two, "waiter").with_wait_strategy(strategy)));
            eventually("it waits", || has_logged(&[&format!(" waits for {}", name_of(held.path()))]));
            let path = held.path().to_owned();
            held.release().unwrap();
            let [Some(waited)] = &waits.join().unwrap()[..] else { panic!("nobody was in front") };
            assert_eq!((waited.path.as_str(), waited.session, waited.data.clone()), (path.as_str(), None, None));
            assert!(waited.time > Duration::ZERO);
        });
    }
}

#[test]
fn a_reentry_has_what_the_first_hold_has_and_of_a_tenure_only_the_first_hold_has_it() {
    let (one, two) = clients();
    let cached = mutex(&two, "waiter").with_caching(Caching::new());
    let held = mutex(&one, "holder").lock().unwrap();
    scope(|scope| {
        let first = scope.spawn(|| {
            let held = cached.lock().unwrap();
            let again = cached.lock().unwrap();
            let waited = [&held, &again].map(|held| held.waited_for().cloned());
            eventually("another thread waits here", || cached.local_waiters() == 1);
            drop((held, again));
            waited
        });
        eventually("it watches", || watchers(&one, held.path()).contains(&two.session_id()));
        let second = scope.spawn(|| cached.lock().unwrap().waited_for().cloned());
        let path = held.path().to_owned();
        held.release().unwrap();
        let [waited, again] = first.join().unwrap();
        assert_eq!(waited.as_ref().map(|waited| waited.path.as_str()), Some(path.as_str()));
        assert_eq!(again, waited);
        assert_eq!(second.join().unwrap(), None, "it waited for a thread of its process");
    });
}

#[test]
fn each_member_of_a_multi_lock_has_its_own() {
    let (one, two) = clients();
    let taken = InterProcessMutex::new(&one, "/locks/b").unwrap().with_lock_data("holder").lock().unwrap();
    let all = InterProcessMultiLock::new(&two, ["/locks/a", "/locks/b", "/locks/c"]).unwrap();
    let waited = scope(|scope| {
        let waits = scope.spawn(|| acquire(&all));
        eventually("it watches", || watchers(&one, taken.path()).contains(&two.session_id()));
        taken.release().unwrap();
        waits.join().unwrap()
    });
    let data = |of: &Option<WaitedFor>| of.as_ref().map(|of| of.data.clone().unwrap());
    assert_eq!(waited.iter().map(data).collect::<Vec<_>>(), [None, Some(b"holder".to_vec()), None]);
}

#[test]
fn the_log_says_of_whom() {
    catch_logs(log::LevelFilter::Debug);
    let one = support::client();
    let two = another(&one);
    let held = mutex(&one, "billing\non host-17").lock().unwrap();
    scope(|scope| {
        let waits = scope.spawn(|| acquire(&mutex(&two, "waiter")));
        let session = format!("{:#x}", one.session_id());
        let who = format!(" waits for {} of session {session} (billing\\non host-17)", name_of(held.path()));
        eventually("it waits", || has_logged(&[&who]));
        held.release().unwrap();
        waits.join().unwrap();
    });
}
