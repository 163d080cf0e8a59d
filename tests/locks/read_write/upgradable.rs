//! One holder beside readers, who becomes the writer without a writer in between.

use std::{sync::mpsc, time::Duration};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, EntryMode, Error, FencingToken, HoldState,
    InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockQueue, LostReason, ReadLockDriver, Result,
};

use crate::support::{
    PATIENCE, await_children, children, eventually, expire,
    scope::{client_in, scope},
    sequence, watchers,
};

const PATH: &str = "/lock";
/// Long enough for a call that would not wait to be done, and short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

fn lock(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}

/// So many clients in a namespace, each with a lock object.
fn locks<const N: usize>(namespace: &str) -> ([CuratorFramework; N], [InterProcessReadWriteLock; N]) {
    let clients = std::array::from_fn(|_| client_in(namespace));
    let locks = std::array::from_fn(|k| lock(&clients[k]));
    (clients, locks)
}

#[test]
fn one_at_a_time_holds_it_and_readers_hold_beside() {
    let ([one, ..], [first, second, third]) = locks::<3>("upgradable-beside");
    let before = third.read_lock().lock().unwrap();
    let held = first.upgradable_lock().lock().unwrap();
    let after = third.read_lock().try_lock().unwrap().expect("the same thread once more");
    let beside = second.read_lock().try_lock().unwrap().expect("a reader goes past");
    assert!(second.upgradable_lock().try_lock().unwrap().is_none());
    assert!(second.write_lock().try_lock().unwrap().is_none());
    let modes: Vec<EntryMode> = LockQueue::inspect(&one, PATH).unwrap().holders().map(|entry| entry.mode).collect();
    assert_eq!(modes, [EntryMode::Read, EntryMode::Upgradable, EntryMode::Read]);
    assert_eq!(second.upgradable_lock().participant_nodes().unwrap(), [held.path()]);
    for guard in [before, after, beside, held] {
        guard.release().unwrap();
    }
    second.upgradable_lock().try_lock().unwrap().expect("free").release().unwrap();
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn a_reader_of_a_driver_of_ones_own_waits_for_it_as_curators_do() {
    let ([one, two], [first, _]) = locks::<2>("upgradable-java");
    let held = first.upgradable_lock().lock().unwrap();
    let java = InterProcessMutex::with_driver(&two, PATH, ReadLockDriver).unwrap();
    assert!(!java.acquire_timeout(SHORT).unwrap());
    scope(|scope| {
        let reads = scope.spawn(|| java.acquire().and_then(|()| java.release()));
        await_children(&one, PATH, 2);
        // It waits itself, so the upgrade does not wait for it.
        first.upgradable_lock().upgrade().unwrap().release().unwrap();
        held.release().unwrap();
        reads.join().unwrap().unwrap();
    });
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn an_upgrade_waits_for_the_readers_and_no_writer_comes_in_between() {
    let ([one, ..], [first, second, third, fourth]) = locks::<4>("upgradable-order");
    let (events, order) = mpsc::channel::<&str>();
    let before = second.read_lock().lock().unwrap();
    scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let said = events.clone();
        let first = &first;
        scope.spawn(move || {
            let held = first.upgradable_lock().lock().unwrap();
            ready.send(()).unwrap();
            let writing = first.upgradable_lock().upgrade().unwrap();
            said.send("upgraded").unwrap();
            assert!(writing.fencing_token() > held.fencing_token() && writing.is_valid());
            writing.release().unwrap();
            held.release().unwrap();
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        await_children(&one, PATH, 3);
        let said = events.clone();
        let third = &third;
        scope.spawn(move || {
            let held = third.write_lock().lock().unwrap();
            said.send("writer").unwrap();
            held.release().unwrap();
        });
        await_children(&one, PATH, 4);
        assert!(fourth.read_lock().try_lock().unwrap().is_none(), "nobody comes in any more");
        assert!(order.try_recv().is_err(), "a reader holds");
        before.release().unwrap();
        assert_eq!([order.recv_timeout(PATIENCE), order.recv_timeout(PATIENCE)], [Ok("upgraded"), Ok("writer")]);
    });
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn a_writer_that_waits_in_front_of_an_upgrade_comes_after_it_with_a_greater_token() {
    let ([one, ..], [first, second]) = locks::<2>("upgradable-tokens");
    let held = first.upgradable_lock().lock().unwrap();
    let (tokens, token) = mpsc::channel::<FencingToken>();
    scope(|scope| {
        let second = &second;
        scope.spawn(move || {
            let held = second.write_lock().lock().unwrap();
            tokens.send(held.fencing_token()).unwrap();
            held.release().unwrap();
        });
        await_children(&one, PATH, 2);
        let upgrade = || {
            let writing = first.upgradable_lock().upgrade().unwrap();
            let token = writing.fencing_token();
            writing.release().unwrap();
            token
        };
        let (once, again) = (upgrade(), upgrade());
        assert!(held.fencing_token() < once && once < again);
        // Going on as a reader does not shrink the token either.
        let reading = first.read_lock().lock().unwrap();
        assert_eq!(reading.fencing_token(), again);
        reading.release().unwrap();
        held.release().unwrap();
        assert!(again < token.recv_timeout(PATIENCE).unwrap());
    });
}

#[test]
fn an_upgrade_whose_time_is_up_leaves_what_was_held() {
    let ([one, ..], [first, second, third]) = locks::<3>("upgradable-timeout");
    let reading = second.read_lock().lock().unwrap();
    let held = first.upgradable_lock().lock().unwrap();
    let upgradable = first.upgradable_lock();
    assert!(upgradable.try_upgrade().unwrap().is_none());
    assert!(upgradable.upgrade_timeout(SHORT).unwrap().is_none());
    let taken = upgradable.upgrade_with(&AcquireOptions::new().timeout(SHORT).timeout_is_error());
    assert!(matches!(taken, Err(Error::StillTaken { ahead: None, .. })), "{taken:?}");
    let token = CancelToken::new();
    token.cancel();
    let cancelled = upgradable.upgrade_with(&AcquireOptions::new().cancel_token(&token));
    assert!(matches!(cancelled, Err(Error::Cancelled { .. })), "{cancelled:?}");
    await_children(&one, PATH, 2);
    assert!(held.is_valid() && !upgradable.is_upgraded());
    third.read_lock().try_lock().unwrap().expect("readers come in again").release().unwrap();
    reading.release().unwrap();
    let writing = upgradable.try_upgrade().unwrap().expect("no reader holds");
    assert!(upgradable.is_upgraded() && third.read_lock().try_lock().unwrap().is_none());
    writing.release().unwrap();
    held.release().unwrap();
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn upgrades_of_one_hold_follow_each_other_and_nest() {
    let ([one, ..], [first, second]) = locks::<2>("upgradable-nested");
    let upgradable = first.upgradable_lock();
    upgradable.acquire().unwrap();
    upgradable.acquire().unwrap();
    for _ in 0..2 {
        let (outer, inner) = (upgradable.upgrade().unwrap(), upgradable.upgrade().unwrap());
        assert_eq!(outer.path(), inner.path());
        outer.release().unwrap();
        assert!(second.read_lock().try_lock().unwrap().is_none(), "upgraded once more");
        drop(inner);
        assert!(second.read_lock().acquire_timeout(PATIENCE).unwrap());
        second.read_lock().release().unwrap();
    }
    upgradable.release().unwrap();
    assert!(upgradable.is_owned_by_current_thread() && second.upgradable_lock().try_lock().unwrap().is_none());
    upgradable.release().unwrap();
    assert!(matches!(upgradable.release(), Err(Error::NotOwner { .. })));
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn the_release_of_the_upgradable_lock_ends_its_upgrade() {
    let ([one, ..], [first, second]) = locks::<2>("upgradable-release");
    for drops in [false, true] {
        let held = first.upgradable_lock().lock().unwrap();
        let writing = first.upgradable_lock().upgrade().unwrap();
        let changes = writing.state_changes();
        if drops {
            drop(held);
        } else {
            held.release().unwrap();
            assert_eq!(children(&one, PATH), Vec::<String>::new(), "both znodes at once");
        }
        assert_eq!(changes.recv_timeout(PATIENCE), Ok(HoldState::Released));
        assert!(second.write_lock().acquire_timeout(PATIENCE).unwrap());
        second.write_lock().release().unwrap();
        assert!(matches!(writing.release(), Err(Error::NotOwner { .. })));
    }
    await_children(&one, PATH, 0);
}

fn await_loss(guard: &LockGuard, reason: LostReason) {
    eventually("the hold is lost", || guard.state() == HoldState::Lost(reason));
}

#[test]
fn an_upgrade_is_lost_with_either_znode_and_the_upgradable_lock_with_its_own() {
    let ([one, two], [first, second]) = locks::<2>("upgradable-deleted");
    let upgradable = first.upgradable_lock();
    let held = upgradable.lock().unwrap();
    let writing = upgradable.upgrade().unwrap();
    two.delete().for_path(writing.path()).unwrap();
    await_loss(&writing, LostReason::NodeDeleted);
    assert!(held.is_valid());
    second.read_lock().try_lock().unwrap().expect("readers come in").release().unwrap();
    assert!(matches!(writing.release(), Err(Error::LockLost { .. })));

    let writing = upgradable.upgrade().unwrap();
    let guarded = writing.guard_transaction(one.transaction()).unwrap();
    two.delete().for_path(held.path()).unwrap();
    let written = guarded.create().for_path("/written").commit();
    assert!(matches!(written, Err(Error::LockLost { .. })), "{written:?}");
    await_loss(&held, LostReason::NodeDeleted);
    await_loss(&writing, LostReason::NodeDeleted);
    await_children(&one, PATH, 0);
    assert!(second.write_lock().acquire_timeout(PATIENCE).unwrap(), "the upgrade's znode stops nobody");
    second.write_lock().release().unwrap();
    assert!(matches!(upgradable.upgrade(), Err(Error::LockLost { .. })));
    assert!(matches!(writing.release(), Err(Error::LockLost { .. })));
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
}

#[test]
fn an_upgrade_that_waits_is_told_that_its_lock_is_lost() {
    let ([one, two], [first, second]) = locks::<2>("upgradable-lost");
    let reading = second.read_lock().lock().unwrap();
    for expires in [false, true] {
        scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let first = &first;
            let upgrades = scope.spawn(move || {
                let held = first.upgradable_lock().lock().unwrap();
                ready.send(held.path().to_owned()).unwrap();
                let upgraded = first.upgradable_lock().upgrade().map(drop);
                drop(held);
                upgraded
            });
            let path = is_ready.recv_timeout(PATIENCE).unwrap();
            await_children(&one, PATH, 3);
            if expires {
                expire(&one);
            } else {
                two.delete().for_path(&path).unwrap();
            }
            let upgraded = upgrades.join().unwrap();
            assert!(matches!(upgraded, Err(Error::LockLost { .. })), "{upgraded:?}");
        });
        await_children(&two, PATH, 1);
    }
    reading.release().unwrap();
}

#[test]
fn a_lost_session_takes_both_along() {
    let ([one, two], [first, second]) = locks::<2>("upgradable-expired");
    let held = first.upgradable_lock().lock().unwrap();
    let writing = first.upgradable_lock().upgrade().unwrap();
    expire(&one);
    await_loss(&held, LostReason::SessionExpired);
    await_loss(&writing, LostReason::SessionExpired);
    assert!(second.write_lock().acquire_timeout(PATIENCE).unwrap());
    second.write_lock().release().unwrap();
    drop((writing, held));
    await_children(&two, PATH, 0);
}

#[test]
fn its_holder_reads_as_well_and_may_go_on_as_a_reader() {
    let ([one, ..], [first, second, third]) = locks::<3>("upgradable-reads");
    let held = first.upgradable_lock().lock().unwrap();
    scope(|scope| {
        let second = &second;
        let writes = scope.spawn(move || second.write_lock().acquire().and_then(|()| second.write_lock().release()));
        await_children(&one, PATH, 2);
        let reading = first.read_lock().lock().unwrap();
        assert_eq!(sequence(reading.path()), sequence(held.path()));
        let writing = first.upgradable_lock().try_upgrade().unwrap().expect("it does not wait for itself");
        writing.release().unwrap();
        held.release().unwrap();
        assert!(third.write_lock().try_lock().unwrap().is_none() && !writes.is_finished());
        reading.release().unwrap();
        writes.join().unwrap().unwrap();
    });
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn a_thread_that_would_wait_for_itself_is_told_so() {
    let ([one, ..], [mine, _]) = locks::<2>("upgradable-deadlock");
    let other = lock(&one);
    let is_refused = |result: Result<LockGuard>| matches!(result, Err(Error::WouldDeadlock { .. }));
    let upgradable = mine.upgradable_lock();
    assert!(matches!(upgradable.upgrade(), Err(Error::NotOwner { .. })));
    let reading = mine.read_lock().lock().unwrap();
    let held = upgradable.lock().unwrap();
    assert!(is_refused(upgradable.upgrade()) && is_refused(mine.write_lock().lock()));
    assert!(upgradable.try_upgrade().unwrap().is_none(), "a mere try waits for nobody");
    reading.release().unwrap();
    assert!(is_refused(mine.write_lock().lock()) && is_refused(other.upgradable_lock().lock()));
    assert!(is_refused(other.write_lock().lock()));
    let reading = other.read_lock().lock().unwrap();
    assert!(is_refused(upgradable.upgrade()), "through another object it reads by a znode as any other");
    reading.release().unwrap();
    for options in [AcquireOptions::new().hold_at_least(SHORT), AcquireOptions::new().max_queue(3)] {
        let refused = upgradable.upgrade_with(&options);
        assert!(matches!(refused, Err(Error::InvalidArgument { name: "options", .. })), "{refused:?}");
    }
    let writing = upgradable.upgrade().unwrap();
    assert!(is_refused(mine.write_lock().lock()) && is_refused(other.read_lock().lock()));
    writing.release().unwrap();
    held.release().unwrap();
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

/// By its number alone it would hold beside the upgrade, which did not wait for it.
#[test]
fn a_reader_behind_a_writer_that_gives_up_queues_anew_behind_the_upgrade() {
    let ([one, two, three], [first, second, third]) = locks::<3>("upgradable-gives-up");
    let held = first.upgradable_lock().lock().unwrap();
    let token = CancelToken::new();
    let options = AcquireOptions::new().cancel_token(&token);
    scope(|scope| {
        let (second, third, options) = (&second, &third, &options);
        let writes = scope.spawn(move || second.write_lock().acquire_with(options));
        await_children(&one, PATH, 2);
        let (granted, is_granted) = mpsc::channel();
        scope.spawn(move || {
            let held = third.read_lock().lock().unwrap();
            granted.send(held.path().to_owned()).unwrap();
            held.release().unwrap();
        });
        await_children(&one, PATH, 3);
        let writer = second.write_lock().participant_nodes().unwrap().pop().unwrap();
        eventually("the reader waits", || watchers(&one, &writer).contains(&three.session_id()));
        let place = third.read_lock().participant_nodes().unwrap().pop().unwrap();
        let writing = first.upgradable_lock().try_upgrade().unwrap().expect("no reader holds");
        token.cancel();
        assert!(matches!(writes.join().unwrap(), Err(Error::Cancelled { .. })));
        eventually("the reader queues anew", || {
            let places = third.read_lock().participant_nodes().unwrap();
            places.len() == 1 && sequence(&places[0]) > sequence(writing.path())
        });
        assert!(is_granted.try_recv().is_err());
        writing.release().unwrap();
        assert_ne!(is_granted.recv_timeout(PATIENCE).unwrap(), place);
        held.release().unwrap();
    });
    assert_eq!(children(&two, PATH), Vec::<String>::new());
}

#[test]
fn cached_readers_hold_beside_it_and_give_way_to_its_upgrade() {
    let ([one, two], [first, _]) = locks::<2>("upgradable-cached");
    let cached = lock(&two).with_caching(Caching::new().keep_idle(PATIENCE));
    let held = first.upgradable_lock().lock().unwrap();
    for _ in 0..3 {
        cached.read_lock().try_lock().unwrap().expect("beside it").release().unwrap();
    }
    let writing = first.upgradable_lock().upgrade_timeout(PATIENCE).unwrap().expect("an idle znode goes");
    assert!(cached.read_lock().try_lock().unwrap().is_none());
    writing.release().unwrap();
    held.release().unwrap();
    // The same object, which does not cache this lock.
    let held = cached.upgradable_lock().lock().unwrap();
    cached.upgradable_lock().upgrade().unwrap().release().unwrap();
    held.release().unwrap();
    drop(cached);
    await_children(&one, PATH, 0);
}

#[test]
fn a_hold_that_ends_by_its_own_limit_takes_the_upgrade_along() {
    let ([one, ..], [first, second]) = locks::<2>("upgradable-limit");
    let held = first.upgradable_lock().lock_with(&AcquireOptions::new().hold_at_most(SHORT)).unwrap().unwrap();
    let writing = first.upgradable_lock().upgrade().unwrap();
    assert!(writing.valid_until() <= held.valid_until());
    await_loss(&held, LostReason::HeldTooLong);
    await_loss(&writing, LostReason::HeldTooLong);
    assert!(second.write_lock().acquire_timeout(PATIENCE).unwrap());
    second.write_lock().release().unwrap();
    drop((writing, held));
    await_children(&one, PATH, 0);
}
