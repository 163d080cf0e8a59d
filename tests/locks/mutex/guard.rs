//! What a holder knows, and the ways in which it lets go.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, Error, FencingToken, HoldState, InterProcessMutex, LostReason,
    testing::{Direction, FaultProxy},
};

use crate::support::{
    self, PATIENCE, after_doubt, another, await_queue, builder, builder_at, connect, eventually, mutex, queue,
};

#[test]
fn fencing_tokens_grow_with_every_grant_also_when_the_directory_was_removed_in_between() {
    let client = support::client();
    let other = another(&client);
    let mutexes = [mutex(&client), mutex(&other)];
    let mut last: Option<FencingToken> = None;
    for round in 0..6 {
        let guard = mutexes[round % 2].lock().unwrap();
        let token = guard.fencing_token();
        assert!(last.is_none_or(|last| last < token), "{last:?} {token}");
        assert_eq!(token.to_string(), token.value().to_string());
        assert!(client.check_exists().for_path(guard.path()).unwrap().is_some_and(|stat| stat.czxid == token.value()));
        last = Some(token);
        guard.release().unwrap();
        if round % 3 == 2 {
            eventually("the directory is gone", || client.check_exists().for_path("/locks").unwrap().is_none());
        }
    }
}

#[test]
fn a_fresh_hold_is_valid_into_the_future_and_heartbeats_move_that_on() {
    let client = connect(builder(support::server(), &support::namespace()).session_timeout(Duration::from_secs(15)));
    let mutex = mutex(&client);
    let guard = mutex.lock().unwrap();
    let first = guard.valid_until();
    assert!(first > Instant::now());
    assert!(guard.is_valid() && !guard.is_lost());
    assert_eq!(guard.state(), HoldState::Held);
    eventually("it moves on", || guard.valid_until() > first + Duration::from_secs(2));
    assert!(guard.valid_until() < Instant::now() + client.session_timeout());
    guard.release().unwrap();
}

#[test]
fn a_holder_whose_znode_is_deleted_is_told_in_every_way() {
    let client = support::client();
    let admin = another(&client);
    let mutex = mutex(&client);
    let guard = mutex.lock().unwrap();
    let changes = guard.state_changes();
    let (tell, told) = mpsc::channel();
    guard.on_state_change(|_| panic!("a listener that panics silences no other"));
    guard.on_state_change(move |state| tell.send(state).unwrap());
    let watched = format!("/{}{}", client.namespace(), guard.path());
    eventually("the watch on the own znode", || support::server().four_letter_word("wchp").unwrap().contains(&watched));
    admin.delete().for_path(guard.path()).unwrap();
    let lost = HoldState::Lost(LostReason::NodeDeleted);
    assert_eq!(after_doubt(|| changes.recv_timeout(PATIENCE).unwrap()), lost);
    assert_eq!(after_doubt(|| told.recv_timeout(PATIENCE).unwrap()), lost);
    assert_eq!(guard.state(), lost);
    assert!(guard.is_lost() && !guard.is_valid() && guard.valid_until() < Instant::now());
    let again = mutex.acquire();
    assert!(matches!(again, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })), "{again:?}");
    let release = guard.release();
    assert!(matches!(release, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })), "{release:?}");
    assert!(!mutex.is_acquired_in_this_process());
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn a_lock_that_was_waited_for_is_watched_from_its_first_moment() {
    let client = support::client();
    let admin = another(&client);
    let (held, wanted) = (mutex(&admin), mutex(&client));
    held.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = wanted.lock().unwrap();
            let changes = guard.state_changes();
            admin.delete().for_path(guard.path()).unwrap();
            let told = after_doubt(|| changes.recv_timeout(PATIENCE).unwrap());
            assert_eq!(told, HoldState::Lost(LostReason::NodeDeleted));
        });
        await_queue(&admin, "/locks/m", 2);
        held.release().unwrap();
    });
}

#[test]
fn a_holder_whose_data_somebody_changes_still_learns_that_its_znode_is_deleted() {
    let client = support::client();
    let admin = another(&client);
    let mutex = mutex(&client);
    let guard = mutex.lock().unwrap();
    let changes = guard.state_changes();
    let watched = format!("/{}{}", client.namespace(), guard.path());
    let is_watched = || support::server().four_letter_word("wchp").unwrap().contains(&watched);
    for _ in 0..3 {
        eventually("the watch on the own znode", is_watched);
        admin.set_data().for_path_and_data(guard.path(), "x").unwrap();
    }
    assert_eq!(guard.state(), HoldState::Held);
    eventually("the watch on the own znode", is_watched);
    admin.delete().for_path(guard.path()).unwrap();
    let told = after_doubt(|| changes.recv_timeout(PATIENCE).unwrap());
    assert_eq!(told, HoldState::Lost(LostReason::NodeDeleted));
}

#[test]
fn a_short_hold_whose_znode_is_deleted_learns_it_from_the_release() {
    let client = support::client();
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    client.delete().for_path(&mutex.lock_path().unwrap()).unwrap();
    let release = mutex.release();
    assert!(matches!(release, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })), "{release:?}");
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
}

#[test]
fn a_guard_releases_its_own_hold_and_no_later_one() {
    let client = support::client();
    let mutex = mutex(&client);
    let guard = mutex.lock().unwrap();
    mutex.release().unwrap();
    mutex.acquire().unwrap();
    drop(guard);
    assert!(mutex.is_owned_by_current_thread(), "the later hold was released");
    await_queue(&client, "/locks/m", 1);
    let guard = mutex.lock().unwrap();
    mutex.release().unwrap();
    mutex.release().unwrap();
    mutex.acquire().unwrap();
    assert!(matches!(guard.release(), Err(Error::NotOwner { .. })));
    assert!(mutex.is_owned_by_current_thread(), "the later hold was released");
    mutex.release().unwrap();
}

#[test]
fn guards_nest() {
    let client = support::client();
    let mutex = mutex(&client);
    let outer = mutex.lock().unwrap();
    let inner = mutex.lock().unwrap();
    assert_eq!(outer.path(), inner.path());
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    drop(outer);
    assert!(mutex.is_owned_by_current_thread());
    inner.release().unwrap();
    assert!(queue(&client, "/locks/m").is_empty());
}

#[test]
fn a_closure_runs_under_the_lock_and_the_lock_is_free_after_it() {
    let client = support::client();
    let other = another(&client);
    let (ours, theirs) = (mutex(&client), mutex(&other));
    let token = ours
        .run(|held| {
            assert!(theirs.run_timeout(Duration::ZERO, |_| ()).unwrap().is_none(), "nobody else runs meanwhile");
            held.fencing_token()
        })
        .unwrap();
    assert!(theirs.run_timeout(PATIENCE, |held| held.fencing_token() > token).unwrap().unwrap());
    let panics = thread::scope(|scope| scope.spawn(|| ours.run(|_| panic!("a caller's own")).map(drop)).join());
    assert!(panics.is_err());
    theirs.lock_timeout(PATIENCE).unwrap().unwrap().release().unwrap();
    let done = ours.run(|_| Err::<(), _>("the work's own error")).unwrap();
    assert_eq!(done, Err("the work's own error"));
    assert!(!ours.is_acquired_in_this_process());
}

#[test]
fn a_closure_whose_lock_was_lost_is_an_error() {
    let client = support::client();
    let mutex = mutex(&client);
    let result = mutex.run(|held| {
        client.delete().for_path(held.path()).unwrap();
        eventually("the holder knows", || held.is_lost());
    });
    assert!(matches!(result, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })), "{result:?}");
    mutex.run(|_| ()).unwrap();
}

/// A release of a cached lock, or of one that is held twice, asks no server.
#[test]
fn a_closure_whose_lock_is_anothers_by_its_end_is_an_error() {
    let rival = support::client();
    for (number, caching) in [None, Some(Caching::new())].into_iter().enumerate() {
        let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
        let behind = builder_at(&proxy.connect_string(), rival.namespace()).session_timeout(Duration::from_secs(2));
        let client = connect(behind);
        let path = format!("/locks/{number}");
        let mutex = InterProcessMutex::new(&client, &path).unwrap();
        let mutex = caching.into_iter().fold(mutex, InterProcessMutex::with_caching);
        let lose = |_: &_| {
            proxy.black_hole(Direction::Both);
            InterProcessMutex::new(&rival, &path).unwrap().lock_timeout(PATIENCE).unwrap().unwrap()
        };
        let inner = |_: &_| mutex.run(lose).map(drop);
        let (outer, inner) = match mutex.run(inner) {
            Ok(inner) => (Ok(()), inner),
            Err(error) => (Err(error), Ok(())),
        };
        assert!(outer.is_err(), "outer {outer:?}, inner {inner:?}");
        proxy.pass().unwrap();
        let mut said = None;
        eventually("it holds again", || {
            said = Some(mutex.run(|_| ()));
            matches!(said, Some(Ok(())))
        });
        let inner = mutex.run(|_| {
            let lost = mutex.run(lose);
            assert!(matches!(lost, Err(Error::LockLost { .. } | Error::Uncertain { .. })), "{lost:?}");
        });
        assert!(inner.is_err(), "{inner:?}");
    }
}

#[test]
fn a_closure_whose_lock_was_deleted_at_its_very_end_is_an_error() {
    let client = support::client();
    let other = another(&client);
    let (ours, theirs) = (mutex(&client), mutex(&other));
    let result = ours.run(|held| {
        other.delete().for_path(held.path()).unwrap();
        theirs.lock_timeout(PATIENCE).unwrap().unwrap()
    });
    assert!(matches!(result, Err(Error::LockLost { .. })), "{:?}", result.map(drop));
}
