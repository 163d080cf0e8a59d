//! While nobody else wants the lock.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CancelToken, CuratorFramework, Error, FencingToken, HoldState, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex,
    testing::{FaultProxy, RequestRecord, TestingServer, op},
};

use crate::support::{
    self, PATIENCE, another, await_queue, builder, builder_at, connect, eventually, namespace, queue,
};

const PATH: &str = "/locks/m";

/// Longer than any wait: an idle lock goes only for the reason that a test gives.
const FOR_EVER: Duration = Duration::from_secs(3600);

pub(crate) fn caching() -> Caching {
    Caching::new().keep_idle(FOR_EVER)
}

pub(crate) fn cached(client: &CuratorFramework) -> InterProcessMutex {
    cached_with(client, caching())
}

pub(crate) fn cached_with(client: &CuratorFramework, caching: Caching) -> InterProcessMutex {
    InterProcessMutex::new(client, PATH).unwrap().with_caching(caching)
}

/// Waits until the server has so many watches, and the client knows that: what is answered later comes later.
pub(crate) fn await_watches(server: &TestingServer, client: &CuratorFramework, count: u64) {
    eventually("the watches", || server.watch_count().unwrap() == count);
    client.check_exists().for_path(PATH).unwrap();
}

/// What the server receives meanwhile is the question, a heartbeat now and then, and each `max_tenure` a look who else waits.
pub(crate) fn costs_no_request(server: &TestingServer, work: impl FnOnce()) {
    costs_at_most(server, 1, || {
        work();
        0
    });
}

/// The same for so many locks, and as many requests as the work tells.
fn costs_at_most(server: &TestingServer, locks: u128, work: impl FnOnce() -> u128) {
    // The sessions of these tests have no heartbeats closer to each other.
    const HEARTBEATS: Duration = Duration::from_secs(5);
    const LOOKS: Duration = Duration::from_millis(50);
    let before = server.packets_received().unwrap();
    let begin = Instant::now();
    let allowed = work();
    let packets = u128::from(server.packets_received().unwrap() - before);
    let times = |interval: Duration| 1 + begin.elapsed().as_millis() / interval.as_millis();
    let most = 1 + allowed + times(HEARTBEATS) + locks * times(LOOKS);
    println!("{:?}, {packets} packets, {most} at most", begin.elapsed());
    assert!((1..=most).contains(&packets), "{packets} packets, {most} at most");
}

/// One of two threads that pass the lock to each other by the znode `first`, until that goes because of a rival of whom the
/// process has heard. Gives its first grant by another znode.
pub(crate) fn pass_on(mutex: &InterProcessMutex, first: &str) -> (String, FencingToken) {
    loop {
        let held = mutex.lock().unwrap();
        if held.path() != first {
            let grant = (held.path().to_owned(), held.fencing_token());
            held.release().unwrap();
            return grant;
        }
        eventually("the other one waits", || mutex.local_waiters() == 1);
        held.release().unwrap();
    }
}

#[test]
fn an_uncontended_cycle_costs_no_request() {
    const CYCLES: usize = 10_000;
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()).session_timeout(Duration::from_secs(60)));
    let mutex = cached(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    // On the znode and on the directory.
    await_watches(&server, &client, 2);
    costs_no_request(&server, || {
        for _ in 0..CYCLES {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        }
    });
}

#[test]
fn a_hand_over_between_threads_costs_no_request_and_goes_in_order() {
    const WAITING: usize = 50;
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server.port())).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).lock_recheck_interval(None));
    let mutex = cached(&client);
    let (says, said) = mpsc::channel();
    mutex.acquire().unwrap();
    await_watches(&server, &client, 2);
    let asked = || [op::CREATE, op::GET_DATA, op::EXISTS, op::DELETE].map(|op| proxy.requests(op)).iter().sum::<u64>();
    let before = asked();
    thread::scope(|scope| {
        for k in 0..WAITING {
            let (mutex, says) = (&mutex, says.clone());
            scope.spawn(move || {
                let held = mutex.lock().unwrap();
                says.send((k, held.fencing_token())).unwrap();
                held.release().unwrap();
            });
            eventually("it waits", || mutex.local_waiters() == k + 1);
        }
        assert_eq!(queue(&client, PATH).len(), 1);
        mutex.release().unwrap();
    });
    drop(says);
    let said: Vec<(usize, FencingToken)> = said.iter().collect();
    assert!(said.iter().map(|(k, _)| *k).eq(0..WAITING), "{said:?}");
    assert!(said.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].1.value() == pair[1].1.value()), "{said:?}");
    assert_eq!(asked() - before, 0);
}

#[test]
fn each_hold_has_a_state_and_a_token_of_its_own() {
    let client = support::client();
    let mutex = cached(&client);
    let first = mutex.lock().unwrap();
    let (path, token, changes) = (first.path().to_owned(), first.fencing_token(), first.state_changes());
    let outlives = mutex.hold().unwrap();
    first.release().unwrap();
    assert_eq!((outlives.state(), changes.recv_timeout(PATIENCE)), (HoldState::Released, Ok(HoldState::Released)));
    assert!(changes.recv_timeout(PATIENCE).is_err());
    let second = mutex.lock().unwrap();
    assert_eq!((second.path(), second.state(), outlives.state()), (&*path, HoldState::Held, HoldState::Released));
    assert!(second.valid_until() > Instant::now() && outlives.valid_until() <= Instant::now());
    assert!(second.fencing_token() > token && second.fencing_token().value() == token.value());
    assert_eq!((token.grant(), second.fencing_token().grant()), (1, 2));
    second.release().unwrap();
}

#[test]
fn a_thread_may_enter_again_and_only_the_holder_may_release() {
    let client = support::client();
    let mutex = cached(&client);
    for _ in 0..3 {
        mutex.acquire().unwrap();
        mutex.acquire().unwrap();
        assert!(mutex.is_owned_by_current_thread());
        mutex.release().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
                assert!(!mutex.acquire_timeout(Duration::ZERO).unwrap());
                assert!(!mutex.acquire_timeout(Duration::from_millis(20)).unwrap());
            });
        });
        mutex.release().unwrap();
        assert!(!mutex.is_acquired_in_this_process());
        assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
    }
}

#[test]
fn a_thread_that_would_wait_for_its_own_hold_through_another_object_is_told() {
    let client = support::client();
    let (one, other) = (cached(&client), cached(&client));
    for _ in 0..2 {
        one.acquire().unwrap();
        assert!(matches!(other.acquire(), Err(Error::WouldDeadlock { .. })));
        one.release().unwrap();
        other.acquire().unwrap();
        other.release().unwrap();
    }
}

#[test]
fn who_gives_up_waiting_leaves_the_others_their_turn() {
    let client = support::client();
    let mutex = cached(&client);
    mutex.acquire().unwrap();
    let cancel = CancelToken::new();
    let options = curator_locks::AcquireOptions::new().cancel_token(&cancel);
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| mutex.acquire_with(&options));
        eventually("it waits", || mutex.local_waiters() == 1);
        let timed_out = scope.spawn(|| mutex.acquire_timeout(Duration::from_millis(50)));
        let waits = scope.spawn(|| {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        });
        assert!(!timed_out.join().unwrap().unwrap());
        cancel.cancel();
        assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled { .. })));
        eventually("one waits", || mutex.local_waiters() == 1);
        mutex.release().unwrap();
        waits.join().unwrap();
    });
    assert!(matches!(mutex.acquire_with(&options), Err(Error::Cancelled { .. })));
    assert!(mutex.try_lock().unwrap().is_some());
}

#[test]
fn an_idle_lock_goes_after_its_time_and_not_before() {
    const IDLE: Duration = Duration::from_millis(400);
    let client = support::client();
    let mutex = cached_with(&client, Caching::new().keep_idle(IDLE));
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    thread::sleep(IDLE / 2);
    mutex.acquire().unwrap();
    let held = Instant::now();
    mutex.release().unwrap();
    await_queue(&client, PATH, 0);
    assert!(held.elapsed() >= IDLE, "{:?}", held.elapsed());
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn without_time_to_be_idle_the_lock_only_goes_from_thread_to_thread() {
    let client = support::client();
    let mutex = cached_with(&client, Caching::new().keep_idle(Duration::ZERO));
    mutex.acquire().unwrap();
    let node = queue(&client, PATH);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let held = mutex.lock().unwrap();
            (held.path().to_owned(), held.release())
        });
        eventually("it waits", || mutex.local_waiters() == 1);
        mutex.release().unwrap();
        let (path, released) = waits.join().unwrap();
        released.unwrap();
        assert_eq!(node, [path]);
    });
    await_queue(&client, PATH, 0);
}

#[test]
fn an_idle_lock_goes_with_its_object() {
    let client = support::client();
    let mutex = cached(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    assert_eq!(queue(&client, PATH).len(), 1);
    drop(mutex);
    await_queue(&client, PATH, 0);
}

#[test]
fn a_multi_lock_of_cached_locks_costs_no_request_either() {
    const CYCLES: usize = 1_000;
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()));
    let cached = |path| {
        let mutex = InterProcessMutex::new(&client, path).unwrap().with_caching(caching());
        Arc::new(mutex) as Arc<dyn InterProcessLock>
    };
    let both = InterProcessMultiLock::from_locks([cached("/a"), cached("/b")]).unwrap();
    both.acquire().unwrap();
    both.release().unwrap();
    await_watches(&server, &client, 4);
    // Where the machine stops it between the two, it asks whether the first one is held for certain by then.
    const STOPPED: Duration = Duration::from_millis(20);
    costs_at_most(&server, 2, || {
        let mut stops = 0;
        for _ in 0..CYCLES {
            let begin = Instant::now();
            let held = both.lock().unwrap();
            stops += u128::from(begin.elapsed() >= STOPPED);
            assert!(held.is_valid());
            held.release().unwrap();
        }
        // One for both, and one for each of the two.
        3 * stops
    });
}

#[test]
fn a_multi_lock_of_paths_caches_all_its_mutexes() {
    let client = support::client();
    let both = InterProcessMultiLock::new(&client, ["/b", "/a"]).unwrap().with_caching(caching()).unwrap();
    let paths = |held: &curator_locks::MultiLockGuard| {
        held.holds().iter().map(|hold| hold.path().to_owned()).collect::<Vec<_>>()
    };
    let held = both.lock().unwrap();
    let first = paths(&held);
    held.release().unwrap();
    let held = both.lock().unwrap();
    assert_eq!(paths(&held), first);
    assert!(held.holds().iter().all(|hold| hold.fencing_token().grant() == 2));
    held.release().unwrap();
    let others = another(&client);
    assert!(InterProcessMultiLock::new(&others, ["/a", "/b"]).unwrap().acquire_timeout(PATIENCE).unwrap());
    let of_locks = InterProcessMultiLock::from_locks([Arc::new(cached(&client)) as Arc<dyn InterProcessLock>]).unwrap();
    assert!(matches!(of_locks.with_caching(Caching::new()), Err(Error::InvalidArgument { .. })));
}

#[test]
fn the_terms_of_an_acquire_hold_for_a_wait_in_the_process_too() {
    let client = support::client();
    let mutex = cached(&client);
    let says_so = |timeout| curator_locks::AcquireOptions::new().timeout(timeout).timeout_is_error();
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for timeout in [Duration::ZERO, Duration::from_millis(50)] {
                let result = mutex.acquire_with(&says_so(timeout));
                assert!(matches!(result, Err(Error::StillTaken { .. })), "{timeout:?}: {result:?}");
            }
        });
    });
    thread::scope(|scope| {
        let waits = scope.spawn(|| mutex.acquire().and_then(|()| mutex.release()));
        eventually("it waits", || mutex.local_waiters() == 1);
        let others = scope.spawn(|| {
            let options = curator_locks::AcquireOptions::new().timeout(Duration::from_millis(50)).max_queue(1);
            let result = mutex.acquire_with(&options);
            assert!(matches!(result, Err(Error::Busy { ahead: 2, .. })), "{result:?}");
            let options = options.max_queue(2);
            assert!(!mutex.acquire_with(&options).unwrap());
        });
        others.join().unwrap();
        eventually("one waits", || mutex.local_waiters() == 1);
        mutex.release().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// One mark would stand for all holds of a tenure: each would hear of the same death, and nobody of a panic.
#[test]
fn a_cached_lock_does_not_listen_for_unclean_deaths() {
    let client = support::client();
    let mutex = cached(&client).with_unclean_deaths(Duration::ZERO);
    assert!(matches!(mutex.acquire(), Err(Error::InvalidArgument { .. })));
    assert!(!mutex.is_acquired_in_this_process());
}

#[test]
fn a_guard_that_outlives_its_lock_gives_it_back() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server.port())).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let mutex = cached(&client);
    let held = mutex.lock().unwrap();
    await_watches(&server, &client, 2);
    drop(mutex);
    let node = held.path().to_owned();
    assert!(held.is_valid());
    held.release().unwrap();
    await_queue(&client, PATH, 0);
    // Nobody asks who has deleted the znode.
    thread::sleep(Duration::from_millis(300));
    let is_about = |request: &RequestRecord| request.path.as_ref().is_some_and(|path| path.ends_with(&node));
    assert!(!proxy.log().iter().any(|request| request.op == op::SYNC && is_about(request)));
}
