//! Holds that have ended, and releases that did not go as they should.

use std::{sync::Arc, time::Duration};

use curator_locks::{Error, Hold, InterProcessLock, InterProcessMultiLock, Locker, LostReason, Result};

use super::super::{
    seam::{Fault, FaultProxy, InjectedFault, PATIENCE, RequestMatch, Start, eventually, now, op, scope},
    subject::{Lock, Subject},
    world::World,
};
use super::Waiter;

/// How a lock is held and given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Release,
    Guard,
    DroppedGuard,
    Locker,
    DroppedLocker,
    /// As the only lock of a multi lock.
    Member,
    GuardOfMember,
    DroppedGuardOfMember,
}

const WAYS: [Way; 8] = [
    Way::Release,
    Way::Guard,
    Way::DroppedGuard,
    Way::Locker,
    Way::DroppedLocker,
    Way::Member,
    Way::GuardOfMember,
    Way::DroppedGuardOfMember,
];

impl Way {
    /// Acquires the lock and gives it back. `None`: this way does not say how that went.
    fn hold(self, lock: &Arc<dyn Lock>, meanwhile: impl FnOnce()) -> Option<Result<()>> {
        let member: Arc<dyn InterProcessLock> = lock.clone();
        let multi = InterProcessMultiLock::from_locks([member]).unwrap();
        match self {
            Way::Release | Way::Member => {
                let lock: &dyn InterProcessLock = if self == Way::Member { &multi } else { &**lock };
                lock.acquire().unwrap();
                meanwhile();
                Some(lock.release())
            }
            Way::Guard | Way::DroppedGuard => {
                let guard = lock.guard().unwrap();
                meanwhile();
                (self == Way::Guard).then(|| guard.release())
            }
            Way::Locker | Way::DroppedLocker => {
                let locker = Locker::new(&**lock).unwrap();
                meanwhile();
                (self == Way::Locker).then(|| locker.close())
            }
            Way::GuardOfMember | Way::DroppedGuardOfMember => {
                let guard = multi.lock().unwrap();
                meanwhile();
                (self == Way::GuardOfMember).then(|| guard.release())
            }
        }
    }
}

/// Whoever releases a hold that was lost is told so, and takes nothing from the thread that holds the lock by now through
/// the same object.
pub(crate) fn stale_release(subject: &'static Subject) {
    for way in WAYS {
        println!("{way:?}");
        let world = World::new(subject);
        let (client, third) = (world.client(), world.client());
        let (lock, third): (Arc<dyn Lock>, _) = (world.lock(&client).into(), world.rival(&third));
        world.scope(|scope| {
            let mut second = None;
            let result = way.hold(&lock, || {
                let before = client.session_id();
                world.expire(&client);
                eventually("a new session", || client.is_connected() && client.session_id() != before);
                let waiter = Waiter::start(scope, &*lock);
                let holds = waiter.await_grant();
                second = Some((waiter, holds));
            });
            let (second, holds) = second.unwrap();
            let is_told = |result: Result<()>| matches!(result, Err(Error::LockLost { .. }));
            assert!(result.clone().is_none_or(is_told), "{way:?}: {result:?}");
            assert!(!third.acquire_timeout(Duration::ZERO).unwrap(), "{way:?}: two holders");
            assert!(holds.iter().all(Hold::is_valid), "{way:?}: {holds:?}");
            assert!(lock.is_acquired_in_this_process(), "{way:?}");
            world.await_waiters(0);
            second.release();
        });
        world.await_nothing();
    }
}

/// A hold that was released is not valid, whoever looks, also when somebody else holds the lock.
pub(crate) fn released_hold(subject: &'static Subject) {
    let world = World::new(subject);
    let (client, rival) = (world.client(), world.client());
    let (lock, rival): (Arc<dyn Lock>, _) = (world.lock(&client).into(), world.rival(&rival));
    let is_released = |hold: &Hold| {
        let is_over = hold.valid_until() <= now();
        !hold.is_valid() && is_over && format!("{:?}", hold.state()) == "Released"
    };
    for way in WAYS {
        let mut holds = Vec::new();
        way.hold(&lock, || {
            holds = lock.holds();
            assert!(holds.iter().all(Hold::is_valid), "{way:?}: {holds:?}");
        });
        // A guard that belongs to no thread keeps what it knows to itself.
        assert!(!holds.is_empty() || way == Way::Guard || way == Way::DroppedGuard, "{way:?}");
        assert!(holds.iter().all(is_released), "{way:?}: {holds:?}");
        assert!(rival.acquire_timeout(PATIENCE).unwrap());
        assert!(holds.iter().all(is_released), "{way:?}, with a rival: {holds:?}");
        rival.release().unwrap();
    }
    world.await_nothing();
}

/// Whoever releases a lock of a client that was closed meanwhile is told that it was lost.
pub(crate) fn release_after_close(subject: &'static Subject) {
    let world = World::new(subject);
    let rival = world.rival(&world.client());
    for way in WAYS {
        let client = world.client();
        let lock: Arc<dyn Lock> = world.lock(&client).into();
        let result = way.hold(&lock, || {
            client.close();
            // The client's end is the lock's end, for others at once.
            assert!(rival.acquire_timeout(PATIENCE).unwrap());
        });
        let is_told = |result: Result<()>| match result {
            Err(Error::LockLost { reason: LostReason::ClientClosed, .. } | Error::ClientClosed) => true,
            // Whoever is told by a listener has been told by now, and there is nothing left to give back.
            Err(Error::NotOwner { .. }) => subject.is_one_contender,
            _ => false,
        };
        assert!(result.clone().is_none_or(is_told), "{way:?}: {result:?}");
        assert!(!lock.is_acquired_in_this_process(), "{way:?}");
        world.await_waiters(0);
        rival.release().unwrap();
    }
    world.await_nothing();
}

/// What a server says that is overloaded, and one whose administrator changes permissions.
const REFUSALS: [i32; 2] = [-127, -102];

/// A release that the server refuses is an error, and is made up for when the server does it again: the lock goes to
/// others then.
pub(crate) fn refused_release(subject: &'static Subject) {
    let world = World::new(subject);
    let proxy = world.proxy();
    let (client, rival) = (world.client_at(&proxy.connect_string()), world.client());
    let (lock, rival): (Arc<dyn Lock>, _) = (world.lock(&client).into(), world.rival(&rival));
    let once_more = (Way::Release, REFUSALS[1]);
    for (way, code) in WAYS.into_iter().zip(REFUSALS.into_iter().cycle()).chain([once_more]) {
        println!("{way:?} {code}");
        let mut refused = None;
        let result = way.hold(&lock, || refused = Some(refuse_deletes(&proxy, code)));
        let refused = refused.unwrap();
        let is_other = |error: &Error| !matches!(error, Error::NotOwner { .. } | Error::LockLost { .. });
        assert!(result.iter().all(|result| result.as_ref().is_err_and(is_other)), "{way:?} {code}: {result:?}");
        if way == Way::Release && subject.remembers_releases {
            release_again(&world, &*lock, &refused);
        } else {
            await_another_try(&refused).unwrap_or_else(|error| panic!("{way:?} {code}: {error}"));
            assert!(!world.znodes().is_empty(), "{way:?} {code}: it was refused");
            refused.release();
        }
        assert!(rival.acquire_timeout(PATIENCE).unwrap(), "{way:?} {code}: the znode stays");
        rival.release().unwrap();
        world.await_nothing();
        eventually("it is free for this process", || !lock.is_acquired_in_this_process());
    }
    if subject.remembers_releases {
        release_again_after_close(&world);
    }
}

/// A second release after the client's end does not say that the server has confirmed the first.
fn release_again_after_close(world: &World) {
    let proxy = world.proxy();
    let client = world.client_at(&proxy.connect_string());
    let lock = world.lock(&client);
    lock.acquire().unwrap();
    let _refused = refuse_deletes(&proxy, REFUSALS[1]);
    lock.release().unwrap_err();
    client.close();
    let result = lock.release();
    assert!(matches!(&result, Err(Error::ClientClosed | Error::Several { .. })), "{result:?}");
    assert!(!lock.is_acquired_in_this_process());
    world.await_nothing();
}

/// A second release waits for what the first has left to the background, or says that it is not done.
fn release_again(world: &World, lock: &dyn Lock, refused: &InjectedFault) {
    let (result, goes_on) = scope(|scope| {
        let permits = scope.start(|| {
            let goes_on = await_another_try(refused);
            refused.release();
            goes_on
        });
        let result = lock.release();
        assert!(result.is_err() || world.znodes().is_empty(), "released, with the znode there");
        (result, permits.join().unwrap())
    });
    assert!(!matches!(result, Err(Error::NotOwner { .. })), "{result:?}");
    goes_on.expect("the background goes on");
}

/// A waiter whose time is up goes, and what it had in the queue follows when the server does not refuse it any more.
pub(crate) fn refused_withdrawal(subject: &'static Subject) {
    let world = World::new(subject);
    let proxy = world.proxy();
    let (wanted, held) = (world.lock(&world.client_at(&proxy.connect_string())), world.rival(&world.client()));
    for code in REFUSALS {
        held.acquire().unwrap();
        let refused = refuse_deletes(&proxy, code);
        let mut time = Duration::from_secs(1);
        // Longer where this machine takes longer to let it queue.
        while refused.hits() == 0 {
            let result = wanted.acquire_timeout(time);
            assert!(matches!(result, Ok(false)), "{code}: {result:?}");
            eventually("it has queued, and its delete was refused", || refused.hits() > 0 || world.are_waiters(0));
            time *= 2;
        }
        await_another_try(&refused).unwrap();
        refused.release();
        world.await_waiters(0);
        held.release().unwrap();
        world.await_nothing();
    }
}

/// Waits until the background has been refused, and has tried again all the same.
fn await_another_try(refused: &InjectedFault) -> Result<(), String> {
    refused.wait_for_hits(refused.hits() + 2, PATIENCE).map_err(|error| error.to_string())
}

fn refuse_deletes(proxy: &FaultProxy, code: i32) -> InjectedFault {
    // A multi lock's deletes go as one transaction first.
    let deletes = RequestMatch::ops([op::DELETE, op::MULTI]).path(|path| path != "/");
    proxy.inject(deletes.times(u64::MAX), Fault::Refuse(code))
}
