//! How a lock is acquired, and how not.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use curator_locks::{Acl, AcquireOptions, CancelToken, Error, ErrorCode, RetryPolicy, RetrySleeper};

use super::super::{
    seam::{
        Fault, InjectedFault, Machine, PATIENCE, RequestMatch, Start, elapsed, eventually, now, op, scope, since, sleep,
    },
    subject::{Queue, Subject},
    world::World,
};
use super::Waiter;

/// For what does not wait, on a machine that is shared, whose server may stand still.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How long after its time a timed acquire may return.
const LATE: Duration = Duration::from_millis(1_700);

/// A lock is held from its acquire to its release, again and again, and stands in nobody's way then.
pub(crate) fn acquire_and_release(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    for _ in 0..3 {
        assert!(!lock.is_acquired_in_this_process());
        lock.acquire().unwrap();
        assert!(lock.is_acquired_in_this_process() && !rival.is_acquired_in_this_process());
        world.await_waiters(0);
        assert!(!rival.acquire_timeout(Duration::ZERO).unwrap());
        lock.release().unwrap();
        assert!(!lock.is_acquired_in_this_process());
        assert!(rival.acquire_timeout(PATIENCE).unwrap());
        rival.release().unwrap();
    }
    world.await_nothing();
}

/// The release of one client's lock wakes another one's waiter.
pub(crate) fn hand_over(subject: &'static Subject) {
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        assert!(!waiter.is_granted());
        held.release().unwrap();
        waiter.await_grant();
        assert!(wanted.is_acquired_in_this_process());
        assert!(!held.acquire_timeout(Duration::ZERO).unwrap());
        waiter.release();
        assert!(held.acquire_timeout(PATIENCE).unwrap());
        held.release().unwrap();
    });
    world.await_nothing();
}

/// A timed acquire of a lock that is taken ends when its time is up and leaves nothing.
pub(crate) fn timeout(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    held.acquire().unwrap();
    let timeout = Duration::from_millis(150);
    for _ in 0..2 {
        let begin = now();
        assert!(!wanted.acquire_timeout(timeout).unwrap());
        assert!(elapsed(begin) >= timeout, "it did not wait");
        machine.assert_at_most("timed out", since(begin), timeout + LATE);
        assert!(!wanted.is_acquired_in_this_process());
        world.await_waiters(0);
    }
    assert!(held.is_acquired_in_this_process());
    held.release().unwrap();
    assert!(wanted.acquire_timeout(PATIENCE).unwrap());
    wanted.release().unwrap();
    world.await_nothing();
}

/// Zero, which is also what a deadline in the past comes to, gets a lock that is free and no other.
pub(crate) fn zero_time(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    let past = now().saturating_duration_since(now() + Duration::from_secs(1));
    for zero in [Duration::ZERO, past] {
        assert!(wanted.acquire_timeout(zero).unwrap(), "the lock is free");
        assert!(wanted.is_acquired_in_this_process());
        wanted.release().unwrap();
        world.await_nothing();
        held.acquire().unwrap();
        let begin = now();
        assert!(!wanted.acquire_timeout(zero).unwrap(), "the lock is taken");
        machine.assert_at_most("refused", since(begin), AT_ONCE);
        assert!(!wanted.is_acquired_in_this_process());
        world.await_waiters(0);
        held.release().unwrap();
        world.await_nothing();
    }
}

/// A time that is up before the first request can be answered never waits, and its answer is the truth.
pub(crate) fn time_already_up(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    let nothing = Duration::from_nanos(1);
    for _ in 0..5 {
        if wanted.acquire_timeout(nothing).unwrap() {
            assert!(wanted.is_acquired_in_this_process());
            wanted.release().unwrap();
        }
        assert!(!wanted.is_acquired_in_this_process());
        world.await_nothing();
    }
    held.acquire().unwrap();
    for _ in 0..5 {
        let begin = now();
        assert!(!wanted.acquire_timeout(nothing).unwrap(), "the lock is taken");
        machine.assert_at_most("refused", since(begin), AT_ONCE);
        world.await_waiters(0);
    }
    held.release().unwrap();
    world.await_nothing();
}

/// A directory that the server removes again and again, as an empty container, is no error of a timed acquire.
pub(crate) fn vanishing_directory(subject: &'static Subject) {
    const NO_NODE: i32 = -101;
    let world = World::new(subject);
    let proxy = world.proxy();
    // The time is up in the pause after a refusal.
    let lock = world.lock(&world.persistent_client_at(&proxy.connect_string(), Duration::from_secs(1)));
    let refuse = |op| proxy.inject(RequestMatch::op(op).path(|path| path != "/").times(u64::MAX), Fault::Refuse(NO_NODE));
    let refused = [op::CREATE, op::MULTI].map(refuse);
    // A slow machine needs all of a time for what comes before the create.
    eventually("a create was refused", || {
        assert!(!lock.acquire_timeout(Duration::from_millis(300)).unwrap());
        refused.iter().any(|refused| refused.hits() > 0)
    });
    refused.iter().for_each(InjectedFault::release);
    assert!(lock.acquire_timeout(PATIENCE).unwrap());
    lock.release().unwrap();
    world.await_nothing();
    // It may vanish between the create and the list.
    let lists = RequestMatch::ops([op::GET_CHILDREN, op::GET_CHILDREN_2]);
    let refused = proxy.inject(lists, Fault::Refuse(NO_NODE));
    assert!(lock.acquire_timeout(PATIENCE).unwrap());
    refused.release();
    lock.release().unwrap();
    world.await_nothing();
}

/// A parent that may not be created is the reason that an acquire gives, however deep below it the lock is.
pub(crate) fn refused_directory(subject: &'static Subject) {
    let world = World::new(subject);
    let read_only = Acl::read_unsafe();
    world.observer.create().creating_parents_if_needed().with_acl(read_only).for_path("/deep").unwrap();
    let lock = world.lock(&world.client());
    let error = lock.acquire().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NoAuth), "{error}");
    assert!(!lock.is_acquired_in_this_process());
    world.observer.delete().for_path("/deep").unwrap();
    lock.acquire().unwrap();
    lock.release().unwrap();
    world.await_nothing();
}

/// What fails after a wait for others is a failure of its own: the wait is no time that the retry policy counts.
pub(crate) fn long_wait(subject: &'static Subject) {
    const NO_NODE: i32 = -101;
    let machine = Machine::watch();
    let world = World::new(subject);
    let proxy = world.proxy();
    let policy = Arc::new(Recorded::default());
    let waiting = world.client_with(&proxy.connect_string(), policy.clone());
    let (held, wanted) = (world.rival(&world.client()), world.lock(&waiting));
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        // It has queued, and is about to sleep.
        let queued = now();
        match subject.queue {
            // Its watch was seen.
            Queue::Sole => {}
            Queue::Directory => world.await_watch_of_own(&waiting),
            Queue::Two | Queue::Leases => sleep(Duration::from_secs(1)),
        }
        policy.0.lock().unwrap().clear();
        let waited = now();
        let creates = RequestMatch::ops([op::CREATE, op::MULTI]).path(|path| path != "/");
        proxy.inject(creates.times(3), Fault::Refuse(NO_NODE));
        // It has to queue again, or, where nobody queues, to create the lock.
        world.delete_all_of(&waiting);
        held.release().unwrap();
        waiter.await_grant();
        let begun = policy.0.lock().unwrap().clone();
        let was_awake = machine.lateness(&(queued..waited)) > Duration::from_millis(300);
        let is_counted_anew = begun.iter().all(|begun| *begun >= waited);
        assert!(!begun.is_empty() && (is_counted_anew || was_awake), "{waited:?}: {begun:?}");
        waiter.release();
    });
    world.await_nothing();
}

/// Allows everything. When what it was asked about began, as far as it was told.
#[derive(Default)]
struct Recorded(Mutex<Vec<Instant>>);

impl RetryPolicy for Recorded {
    fn allow_retry(&self, _retry_count: u32, elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        let begun = now() - elapsed;
        self.0.lock().unwrap().push(begun);
        sleeper.sleep_for(Duration::from_millis(20))
    }
}

/// No time is too long.
pub(crate) fn longest_time(subject: &'static Subject) {
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    assert!(wanted.acquire_timeout(Duration::MAX).unwrap());
    wanted.release().unwrap();
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = scope.start(|| {
            let options = AcquireOptions::new().timeout(Duration::MAX);
            assert!(wanted.acquire_with(&options).unwrap());
            wanted.release().unwrap();
        });
        world.await_waiters(1);
        held.release().unwrap();
        waiter.join().unwrap();
    });
    world.await_nothing();
}

/// A cancelled acquire ends at once with an error and leaves nothing; one that is cancelled already gets nothing.
pub(crate) fn cancel(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    world.scope(|scope| {
        held.acquire().unwrap();
        for timeout in [None, Some(Duration::MAX)] {
            let token = CancelToken::new();
            let options = AcquireOptions::new().cancel_token(&token);
            let options = timeout.map_or(options.clone(), |timeout| options.timeout(timeout));
            let wanted = &*wanted;
            let waiter = scope.start(move || wanted.acquire_with(&options));
            world.await_waiters(1);
            let cancelled = now();
            token.cancel();
            let result = waiter.join().unwrap();
            assert!(matches!(&result, Err(Error::Cancelled { .. })), "{result:?}");
            machine.assert_at_most("cancelled", since(cancelled), AT_ONCE);
            assert!(!wanted.is_acquired_in_this_process());
            world.await_waiters(0);
        }
        held.release().unwrap();
    });
    world.await_nothing();
    let token = CancelToken::new();
    token.cancel();
    let result = wanted.acquire_with(&AcquireOptions::new().cancel_token(&token));
    assert!(matches!(&result, Err(Error::Cancelled { .. })), "{result:?}");
    assert!(!wanted.is_acquired_in_this_process());
    world.await_nothing();
}

/// A thread that holds the lock acquires it again without waiting, and has to release it as often.
pub(crate) fn reentrancy(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    lock.acquire().unwrap();
    assert!(lock.acquire_timeout(Duration::ZERO).unwrap());
    lock.acquire().unwrap();
    for _ in 0..2 {
        assert!(lock.is_acquired_in_this_process());
        world.await_waiters(0);
        lock.release().unwrap();
        assert!(!rival.acquire_timeout(Duration::ZERO).unwrap());
    }
    // Another thread has no part in it, not even through the same object. A reader is let in beside a reader.
    scope(|scope| {
        let other = scope.start(|| {
            let is_acquired = lock.acquire_timeout(Duration::ZERO).unwrap();
            assert_eq!(is_acquired, subject.is_shared);
            if is_acquired {
                lock.release().unwrap();
            }
        });
        other.join().unwrap();
    });
    lock.release().unwrap();
    assert!(!lock.is_acquired_in_this_process());
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    world.await_nothing();
}
