//! How a lock is given back, by hand and as a value.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use curator_locks::{Error, FencingToken, Hold, HoldState, Locker, LostReason, StateChanges};

use super::super::{
    seam::{PATIENCE, Start, eventually, now, scope},
    subject::{LEASE, LOCK, Subject},
    world::World,
};

/// Who does not hold the lock is told so, before and after it did.
pub(crate) fn release_of_nothing(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, held) = (world.lock(&world.client()), world.rival(&world.client()));
    let not_owner = || match lock.release() {
        Err(Error::NotOwner { path, .. }) => assert!(path.starts_with(LOCK), "{path}"),
        other => panic!("{other:?}"),
    };
    not_owner();
    lock.acquire().unwrap();
    lock.release().unwrap();
    not_owner();
    // Somebody else's hold is not given back either.
    held.acquire().unwrap();
    not_owner();
    assert!(!lock.acquire_timeout(Duration::ZERO).unwrap());
    held.release().unwrap();
    world.await_nothing();
}

/// Only the thread that holds the lock releases it.
pub(crate) fn release_by_another_thread(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    lock.acquire().unwrap();
    let result = scope(|scope| scope.start(|| lock.release()).join().unwrap());
    assert!(matches!(&result, Err(Error::NotOwner { path, .. }) if path.starts_with(LOCK)), "{result:?}");
    assert!(lock.is_acquired_in_this_process());
    world.await_waiters(0);
    assert!(!rival.acquire_timeout(Duration::ZERO).unwrap());
    lock.release().unwrap();
    world.await_nothing();
}

/// A locker holds the lock as long as it lives, or says that it did not get it in time.
pub(crate) fn locker(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    let locker = Locker::new(&*lock).unwrap();
    assert!(lock.is_acquired_in_this_process());
    let late = Locker::with_timeout(&*rival, Duration::from_millis(50));
    assert!(matches!(&late, Err(Error::Timeout { .. })), "{late:?}");
    locker.close().unwrap();
    assert!(!lock.is_acquired_in_this_process());
    let locker = Locker::with_timeout(&*rival, PATIENCE).unwrap();
    assert!(!lock.acquire_timeout(Duration::ZERO).unwrap());
    drop(locker);
    world.await_nothing();
}

/// A guard that is dropped releases.
pub(crate) fn guard_drop(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    let guard = lock.guard().unwrap();
    assert!(!rival.acquire_timeout(Duration::ZERO).unwrap());
    drop(guard);
    assert!(!lock.is_acquired_in_this_process());
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    world.await_nothing();
}

/// A locker that is closed or dropped after its hold was lost, released and followed by another one, ends its own hold and
/// not that one.
pub(crate) fn stale_locker(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    for is_closed in [true, false] {
        let locker = Locker::new(&*lock).unwrap();
        for path in world.znodes() {
            world.observer.delete().for_path(&path).unwrap();
        }
        eventually("the holder is told", || locker.holds().iter().all(Hold::is_lost));
        let result = lock.release();
        assert!(matches!(&result, Err(Error::LockLost { .. })), "{result:?}");
        lock.acquire().unwrap();
        if is_closed {
            let result = locker.close();
            assert!(matches!(&result, Err(Error::NotOwner { path, .. }) if path.starts_with(LOCK)), "{result:?}");
        } else {
            drop(locker);
        }
        assert!(!lock.holds().is_empty() && lock.is_acquired_in_this_process());
        world.await_waiters(0);
        assert!(!rival.acquire_timeout(Duration::ZERO).unwrap(), "two holders");
        lock.release().unwrap();
        world.await_nothing();
    }
}

/// A guard's release says how it went, also that somebody had deleted the znode.
pub(crate) fn guard_release(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    lock.guard().unwrap().release().unwrap();
    world.await_nothing();
    let guard = lock.guard().unwrap();
    for path in world.znodes() {
        world.observer.delete().for_path(&path).unwrap();
    }
    for hold in guard.holds() {
        eventually("the holder is told", || hold.is_lost());
        assert_eq!(hold.state(), HoldState::Lost(LostReason::NodeDeleted));
    }
    let result = guard.release();
    assert!(
        matches!(&result, Err(Error::LockLost { path, reason: LostReason::NodeDeleted }) if path.starts_with(LOCK)),
        "{result:?}"
    );
    assert!(!lock.is_acquired_in_this_process());
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    assert!(lock.acquire_timeout(PATIENCE).unwrap());
    lock.release().unwrap();
    world.await_nothing();
}

/// A guard knows its znodes, and that the lock is held for certain up to a time to come; so does the lock itself, where
/// it is held without a guard.
pub(crate) fn guard_knows(subject: &'static Subject) {
    let world = World::new(subject);
    let client = world.client();
    let lock = world.lock(&client);
    let knows = |holds: &[&Hold]| {
        let paths: Vec<&str> = holds.iter().map(|hold| hold.path()).collect();
        assert_eq!(paths, world.znodes());
        for hold in holds {
            assert!(hold.is_valid() && !hold.is_lost());
            assert_eq!(hold.state(), HoldState::Held);
            assert!(hold.valid_until() > now());
            assert!(hold.valid_until() <= now() + client.session_timeout());
            let stat = world.observer.check_exists().for_path(hold.path()).unwrap().unwrap();
            assert_eq!(stat.ephemeral_owner, client.session_id());
            assert_eq!(stat.czxid, hold.fencing_token().value());
        }
    };
    let guard = lock.guard().unwrap();
    knows(&guard.holds());
    guard.release().unwrap();
    world.await_nothing();
    if subject.name == LEASE.name {
        // Only a lease itself knows, not the semaphore.
        return;
    }
    lock.acquire().unwrap();
    knows(&lock.holds().iter().collect::<Vec<_>>());
    lock.release().unwrap();
    assert!(lock.holds().is_empty());
    world.await_nothing();
}

/// What outlives a hold says that it was released, from the moment in which the release begins, and knows its token.
pub(crate) fn released_changes(subject: &'static Subject) {
    let world = World::new(subject);
    let lock = world.lock(&world.client());
    let end_with_released = |changes: Vec<StateChanges>| {
        assert!(!changes.is_empty());
        for changes in changes {
            assert_eq!(changes.iter().collect::<Vec<_>>(), [HoldState::Released], "and the channel ends");
        }
    };
    for drops in [false, true] {
        let guard = lock.guard().unwrap();
        let changes = guard.holds().into_iter().map(Hold::state_changes).collect();
        if drops {
            drop(guard);
        } else {
            guard.release().unwrap();
        }
        end_with_released(changes);
    }
    if subject.name == LEASE.name {
        // Only a lease itself knows, not the semaphore.
        return;
    }
    lock.acquire().unwrap();
    let holds = lock.holds();
    let changes = holds.iter().map(Hold::state_changes).collect();
    lock.release().unwrap();
    end_with_released(changes);
    for hold in holds {
        assert_eq!(hold.state(), HoldState::Released);
        assert!(!hold.is_valid() && !hold.is_lost() && hold.valid_until() <= now());
        assert!(hold.fencing_token().value() > 0);
    }
    world.await_nothing();
}

/// Fencing tokens grow from grant to grant, over clients.
pub(crate) fn guard_tokens_grow(subject: &'static Subject) {
    let world = World::new(subject);
    let locks = [world.lock(&world.client()), world.lock(&world.client()), world.rival(&world.client())];
    let mut last = Vec::new();
    for lock in locks.iter().cycle().take(7) {
        let guard = lock.guard().unwrap();
        let tokens: Vec<FencingToken> = guard.holds().into_iter().map(Hold::fencing_token).collect();
        assert!(!tokens.is_empty());
        assert!(last.iter().zip(&tokens).all(|(last, token)| last < token), "{last:?} {tokens:?}");
        last = tokens;
        guard.release().unwrap();
    }
}

/// A guard of a lock that belongs to no thread goes to another one, which releases it.
pub(crate) fn guard_send(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    let guard = lock.guard_for_any_thread().unwrap();
    scope(|scope| {
        let other = scope.start(|| {
            assert!(guard.holds()[0].is_valid());
            assert!(!rival.acquire_timeout(Duration::ZERO).unwrap());
            guard.release().unwrap();
        });
        other.join().unwrap();
    });
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    world.await_nothing();
}

/// The lock of a thread that panics is released on its way out.
pub(crate) fn panic_while_holding(subject: &'static Subject) {
    let world = World::new(subject);
    let (lock, rival) = (world.lock(&world.client()), world.rival(&world.client()));
    for is_locker in [false, true] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = if is_locker { Ok(Locker::new(&*lock).unwrap()) } else { Err(lock.guard().unwrap()) };
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && !lock.is_acquired_in_this_process());
        assert!(rival.acquire_timeout(PATIENCE).unwrap());
        rival.release().unwrap();
    }
    let (world_of_thread, lock_of_thread) = (&world, lock);
    let result = scope(|scope| {
        let panics = scope.start(move || {
            // Moved into this thread, so that an object without guards is dropped by the panic, too.
            let lock = lock_of_thread;
            let _guard = lock.guard().unwrap();
            world_of_thread.await_waiters(0);
            panic!("on purpose");
        });
        panics.join()
    });
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    world.await_nothing();
}
