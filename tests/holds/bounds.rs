//! How long the queue may be, how long a lock is held, and why an acquire has come to nothing.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CuratorFramework, Error, Hold, HoldState, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    InterProcessUnfairMutex, LostReason, RevocationRequest, Revoker, testing::op,
};

use crate::{
    MS, behind_proxy_for,
    kept::Kept,
    support::{
        self, PATIENCE, SESSION, another, await_queue, eventually,
        machine::{Machine, since},
        mutex, queue,
    },
};

const PATH: &str = "/locks/m";

/// Longer than the machine keeps a server from answering.
const IN_TIME: Duration = Duration::from_secs(10);

fn at_most(ahead: usize) -> AcquireOptions {
    AcquireOptions::new().timeout(PATIENCE).max_queue(ahead)
}

#[test]
fn a_lock_with_too_many_in_front_is_busy_and_costs_no_write() {
    let (proxy, client) = behind_proxy_for(SESSION);
    let other = support::connect(support::builder(support::server(), client.namespace()));
    let held = mutex(&other);
    let held = held.lock().unwrap();
    let wanted = mutex(&client);
    let writes = |proxy: &curator_locks::testing::FaultProxy| proxy.requests(op::CREATE);
    let before = writes(&proxy);
    match wanted.acquire_with(&at_most(0)) {
        Err(Error::Busy { path, ahead }) => assert_eq!((path.as_str(), ahead), (PATH, 1)),
        other => panic!("{other:?}"),
    }
    assert_eq!(writes(&proxy), before);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wanted.acquire_with(&at_most(1)).map(|got| got && wanted.release().is_ok()));
        await_queue(&other, PATH, 2);
        let third = mutex(&client);
        assert!(matches!(third.acquire_with(&at_most(1)), Err(Error::Busy { ahead: 2, .. })));
        assert_eq!(queue(&other, PATH).len(), 2);
        held.release().unwrap();
        assert!(waiting.join().unwrap().unwrap(), "who queues stays");
    });
    assert!(mutex(&client).acquire_with(&at_most(0)).unwrap(), "a free lock is never busy");
}

#[test]
fn readers_and_leases_that_need_not_wait_are_not_busy() {
    let client = support::client();
    let other = another(&client);
    let [ours, theirs] = [&client, &other].map(|client| InterProcessReadWriteLock::new(client, "/rw").unwrap());
    let reads = theirs.read_lock().lock().unwrap();
    assert!(ours.read_lock().acquire_with(&at_most(0)).unwrap());
    ours.read_lock().release().unwrap();
    assert!(matches!(ours.write_lock().acquire_with(&at_most(0)), Err(Error::Busy { ahead: 1, .. })));
    reads.release().unwrap();
    let [ours, theirs] = [&client, &other].map(|client| InterProcessSemaphoreV2::new(client, "/s", 2).unwrap());
    let first = theirs.acquire().unwrap();
    let second = ours.acquire_with(1, &at_most(0)).unwrap().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| theirs.acquire().and_then(curator_locks::Lease::close));
        await_queue(&client, "/s/locks", 1);
        let busy = ours.acquire_with(1, &at_most(0));
        assert!(matches!(busy, Err(Error::Busy { ahead: 1, .. })), "{busy:?}");
        first.close().unwrap();
        waiting.join().unwrap().unwrap();
    });
    ours.return_all(second).unwrap();
    let unfair = [&client, &other].map(|client| InterProcessUnfairMutex::new(client, "/u").unwrap());
    let held = unfair[0].lock().unwrap();
    assert!(matches!(unfair[1].acquire_with(&at_most(0)), Err(Error::Busy { ahead: 1, .. })));
    held.release().unwrap();
    assert!(unfair[1].acquire_with(&at_most(0)).unwrap());
}

/// Neither those that hold a lease nor its own znodes.
#[test]
fn in_front_of_the_head_of_a_semaphores_queue_is_nobody() {
    let client = support::client();
    let other = another(&client);
    let semaphore = |client| InterProcessSemaphoreV2::new(client, PATH, 2).unwrap();
    let leases = semaphore(&other).acquire_many(2).unwrap();
    let options = AcquireOptions::new().timeout(IN_TIME).timeout_is_error();
    let ended = semaphore(&client).acquire_with(2, &options);
    assert!(matches!(ended, Err(Error::StillTaken { ahead: None, .. })), "{ended:?}");
    drop(leases);
}

#[test]
fn the_end_of_the_time_says_at_which_path_and_behind_how_many() {
    fn kinds(client: &CuratorFramework) -> Vec<(Box<dyn InterProcessLock>, &'static str, Option<usize>)> {
        vec![
            (Box::new(mutex(client)), PATH, Some(1)),
            (Box::new(InterProcessReadWriteLock::new(client, "/rw").unwrap().write_lock().clone()), "/rw", Some(1)),
            (Box::new(InterProcessUnfairMutex::new(client, "/u").unwrap()), "/u", None),
            // At the head of the queue.
            (Box::new(InterProcessSemaphoreMutex::new(client, "/s").unwrap()), "/s", None),
            (Box::new(InterProcessMultiLock::new(client, ["/a", "/b"]).unwrap()), "/a", Some(1)),
        ]
    }
    let client = support::client();
    let other = another(&client);
    let outlasted = |number: usize| {
        let ((held, ..), (wanted, path, ahead)) = (kinds(&other).remove(number), kinds(&client).remove(number));
        held.acquire().unwrap();
        for timeout in [IN_TIME, Duration::ZERO] {
            let options = AcquireOptions::new().timeout(timeout).timeout_is_error();
            match wanted.acquire_with(&options) {
                Err(Error::StillTaken { path: at, ahead: counted }) => {
                    assert_eq!(at, path);
                    assert!(counted == ahead || counted.is_none(), "{path}: {counted:?}");
                    assert!(timeout.is_zero() || counted == ahead, "{path}: {counted:?}");
                }
                other => panic!("{path}: {other:?}"),
            }
            assert!(!wanted.acquire_timeout(timeout).unwrap(), "who does not ask is told false");
        }
        held.release().unwrap();
        assert!(wanted.acquire_with(&AcquireOptions::new().timeout(PATIENCE).timeout_is_error()).unwrap());
    };
    // Side by side, as all of them wait.
    thread::scope(|scope| {
        let outlasted = &outlasted;
        (0..kinds(&client).len()).for_each(|number| drop(scope.spawn(move || outlasted(number))));
    });
}

#[test]
fn a_job_that_ends_at_once_keeps_its_lock_from_others_for_as_long_as_it_asked_to() {
    const LEAST: Duration = Duration::from_millis(1500);
    let client = support::client();
    let other = another(&client);
    type Make = fn(&CuratorFramework) -> Box<dyn InterProcessLock>;
    let kinds: [Make; 3] = [
        |client| Box::new(mutex(client)),
        |client| Box::new(InterProcessUnfairMutex::new(client, "/u").unwrap()),
        |client| Box::new(InterProcessSemaphoreMutex::new(client, "/s").unwrap()),
    ];
    let machine = Machine::watch();
    thread::scope(|scope| {
        for kind in kinds {
            let (client, other, machine) = (&client, &other, &machine);
            scope.spawn(move || {
                let (ours, theirs) = (kind(client), kind(other));
                let begin = Instant::now();
                assert!(ours.acquire_with(&AcquireOptions::new().hold_at_least(LEAST)).unwrap());
                let (kept, granted, holds) = (Kept::from_now(), Instant::now(), ours.holds());
                ours.release().unwrap();
                let took = since(granted);
                machine.assert_at_most("a release that keeps the lock from others", took, LEAST / 2 + kept.so_far());
                assert!(!ours.is_acquired_in_this_process());
                assert_eq!(holds[0].state(), HoldState::Released);
                if !theirs.acquire_timeout(Duration::ZERO).unwrap() {
                    assert!(theirs.acquire_timeout(PATIENCE).unwrap());
                }
                assert!(begin.elapsed() >= LEAST, "{:?}", begin.elapsed());
                theirs.release().unwrap();
                // A hold that was longer goes at once.
                assert!(ours.acquire_with(&AcquireOptions::new().hold_at_least(5 * MS)).unwrap());
                thread::sleep(10 * MS);
                ours.release().unwrap();
                assert!(theirs.acquire_timeout(Duration::ZERO).unwrap());
                theirs.release().unwrap();
            });
        }
    });
}

#[test]
fn what_ends_a_hold_early_does_not_give_it_to_others_before_the_least_length_is_over() {
    const LEAST: Duration = Duration::from_millis(1500);
    let client = support::client();
    let other = another(&client);
    for reason in [LostReason::HeldTooLong, LostReason::Revoked] {
        let (ours, theirs) = (mutex(&client), mutex(&other));
        ours.on_revocation(RevocationRequest::release);
        let least = AcquireOptions::new().hold_at_least(LEAST);
        let options = if reason == LostReason::Revoked { least } else { least.hold_at_most(LEAST / 10) };
        let begin = Instant::now();
        let held = ours.lock_with(&options).unwrap().unwrap();
        if reason == LostReason::Revoked {
            Revoker::request(&other, held.path(), "the operator", "now").unwrap();
        }
        eventually("its holder is told", || held.state() == HoldState::Lost(reason));
        assert!(theirs.acquire_timeout(PATIENCE).unwrap());
        assert!(begin.elapsed() >= LEAST, "{reason:?}: {:?}", begin.elapsed());
        theirs.release().unwrap();
    }
}

/// The acquire still makes its mark, in several round trips, when a request comes, and its listener gives the lock back.
#[test]
fn a_hold_that_is_given_back_before_its_acquire_returns_stays_for_the_least_length() {
    const LEAST: Duration = Duration::from_secs(6);
    let (proxy, client) = behind_proxy_for(SESSION);
    let other = another(&client);
    let (ours, theirs) = (mutex(&client).with_unclean_deaths(Duration::ZERO), mutex(&other));
    ours.on_revocation(RevocationRequest::release);
    proxy.delay(300 * MS);
    thread::scope(|scope| {
        let begin = Instant::now();
        let acquires = scope.spawn(|| ours.acquire_with(&AcquireOptions::new().hold_at_least(LEAST)));
        let node = await_queue(&other, PATH, 1).remove(0);
        Revoker::request(&other, &node, "the operator", "now").unwrap();
        let _ = acquires.join().unwrap();
        assert!(theirs.acquire_timeout(PATIENCE).unwrap());
        assert!(begin.elapsed() >= LEAST, "{:?}", begin.elapsed());
        theirs.release().unwrap();
    });
}

#[test]
fn a_hold_that_lasts_too_long_is_over_for_its_holder_first_and_then_for_others() {
    const MOST: Duration = Duration::from_millis(600);
    let client = support::client();
    let other = another(&client);
    let (ours, theirs) = (mutex(&client), mutex(&other));
    let begin = Instant::now();
    let held = ours.lock_with(&AcquireOptions::new().hold_at_most(MOST)).unwrap().unwrap();
    let (changes, deadline) = (held.state_changes(), held.deadline(MOST / 2));
    let (is_valid, is_warned) = (held.is_valid(), !deadline.is_empty());
    // Whatever has kept this thread from looking.
    assert!(begin.elapsed() >= MOST / 2 || is_valid && !is_warned);
    assert!(held.valid_until() <= Instant::now() + MOST);
    assert!(theirs.acquire_timeout(PATIENCE).unwrap());
    let (granted, state) = (Instant::now(), held.state());
    assert!(granted >= begin + MOST);
    assert_eq!(state, HoldState::Lost(LostReason::HeldTooLong));
    assert!(deadline.recv_timeout(PATIENCE).is_ok(), "it was warned");
    let last = changes.iter().last();
    assert_eq!(last, Some(HoldState::Lost(LostReason::HeldTooLong)));
    assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::HeldTooLong, .. })));
    theirs.release().unwrap();
    // One that is given back in time is nobody's business any more.
    let begin = Instant::now();
    let held = ours.lock_with(&AcquireOptions::new().hold_at_most(MOST)).unwrap().unwrap();
    let hold = Hold::clone(&held);
    let in_time = held.release().is_ok();
    assert!(in_time || begin.elapsed() >= MOST);
    thread::sleep(MOST);
    assert!(!in_time || hold.state() == HoldState::Released, "{:?}", hold.state());
    let unfair = InterProcessUnfairMutex::new(&client, "/u").unwrap();
    let _held = unfair.lock_with(&AcquireOptions::new().hold_at_most(100 * MS)).unwrap().unwrap();
    let next = InterProcessUnfairMutex::new(&other, "/u").unwrap();
    assert!(next.acquire_timeout(PATIENCE).unwrap());
}

/// A lock of the caller's own that reports no holds.
struct Silent(InterProcessMutex);

impl InterProcessLock for Silent {
    fn acquire(&self) -> Result<(), Error> {
        self.0.acquire()
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.acquire_timeout(timeout)
    }

    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool, Error> {
        self.0.acquire_with(options)
    }

    fn release(&self) -> Result<(), Error> {
        self.0.release()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }
}

#[test]
fn how_long_several_locks_are_held_counts_once_all_are_had() {
    const MOST: Duration = Duration::from_millis(400);
    let (client, paths) = (support::client(), ["/a", "/b"]);
    let other = another(&client);
    let [a, b] = paths.map(|path| InterProcessMutex::new(&other, path).unwrap());
    let both = InterProcessMultiLock::new(&client, paths).unwrap();
    b.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let held = both.lock_with(&AcquireOptions::new().hold_at_most(MOST)).unwrap().unwrap();
            let (now, holds) = (Instant::now(), held.holds().to_vec());
            assert!(holds.iter().all(|hold| hold.valid_until() <= now + MOST));
            eventually("both were held for too long", || holds.iter().all(Hold::is_lost));
            assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::HeldTooLong, .. })));
        });
        await_queue(&other, "/b", 2);
        let node = queue(&other, "/a");
        thread::sleep(2 * MOST);
        assert_eq!(queue(&other, "/a"), node, "it waits for the other one, and holds none yet");
        b.release().unwrap();
        waiter.join().unwrap();
    });
    // One that does not say what it has got.
    let silent =
        InterProcessMultiLock::from_locks([Arc::new(Silent(mutex(&client))) as Arc<dyn InterProcessLock>]).unwrap();
    assert!(silent.acquire_with(&AcquireOptions::new().hold_at_most(MOST)).unwrap());
    assert!(mutex(&other).acquire_timeout(PATIENCE).unwrap(), "it is held for too long");
    // Whose acquire comes to nothing has held nothing.
    b.acquire().unwrap();
    let least = AcquireOptions::new().timeout(MOST).hold_at_least(Duration::from_secs(3600));
    assert!(both.lock_with(&least).unwrap().is_none());
    assert!(a.acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn a_timed_acquire_that_waits_for_itself_says_so_at_once() {
    let client = support::client();
    let [one, two] = [(); 2].map(|()| InterProcessMutex::new(&client, PATH).unwrap());
    let held = one.lock().unwrap();
    let refused = two.acquire_timeout(Duration::from_secs(3600));
    assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "{refused:?}");
    held.release().unwrap();
}

#[test]
fn a_member_that_reports_no_holds_keeps_nothing_where_the_acquire_comes_to_nothing() {
    let client = support::client();
    let other = another(&client);
    let held = InterProcessMutex::new(&other, "/b").unwrap();
    held.acquire().unwrap();
    let locks: [Arc<dyn InterProcessLock>; 2] =
        [Arc::new(Silent(mutex(&client))), Arc::new(InterProcessMutex::new(&client, "/b").unwrap())];
    let both = InterProcessMultiLock::from_locks(locks).unwrap();
    let least = AcquireOptions::new().timeout(Duration::ZERO).hold_at_least(Duration::from_secs(3600));
    assert!(!both.acquire_with(&least).unwrap());
    await_queue(&other, PATH, 0);
}
