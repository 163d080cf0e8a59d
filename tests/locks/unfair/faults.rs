//! The unfair mutex where something fails.

use curator_locks::testing::{Fault, FaultProxy, InjectedFault, RequestMatch, expire_session, op};

use super::*;

/// A client behind a proxy, and what is done to its requests about the lock's znode.
struct Faulty {
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Faulty {
    fn start(namespace: &str) -> Faulty {
        let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
        let client = connect(builder_at(&proxy.connect_string(), namespace));
        Faulty { proxy, client }
    }

    fn inject(&self, op: i32, fault: Fault) -> InjectedFault {
        self.proxy.inject(RequestMatch::op(op).path(|path| path.ends_with(NODE)), fault)
    }

    /// The next connection comes only after `proxy.pass()`.
    fn stay_away(&self) {
        self.proxy.refuse();
    }
}

/// An empty container could be removed before the next create, which would then come to nothing.
fn keep_directory(client: &CuratorFramework) {
    client.create().creating_parents_if_needed().for_path(PATH).unwrap();
}

/// The delete is done and its reply lost. Before the first holder can send anything more about the znode, another one
/// comes in and stays; then the first one finishes its release. The third client must not get in beside the second.
#[test]
fn a_release_whose_reply_was_lost_never_takes_the_lock_from_the_next_holder() {
    // A reconnect takes its time, so four at a time.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| releases_whose_reply_is_lost(25));
        }
    });
}

fn releases_whose_reply_is_lost(rounds: usize) {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let (second, third) = (client_in(&namespace), client_in(&namespace));
    let (first, next, last) = (mutex(&faulty.client), mutex(&second), mutex(&third));
    for round in 0..rounds {
        first.acquire().unwrap();
        let lost = faulty.inject(op::DELETE, Fault::CutInsteadOfReply);
        let held_back = faulty.inject(op::SYNC, Fault::HoldRequest);
        thread::scope(|scope| {
            scope.spawn(|| {
                lost.wait_for_hits(1, PATIENCE).unwrap();
                assert!(next.acquire_timeout(PATIENCE).unwrap());
                held_back.release();
                eventually("the first one has finished its release", || !first.is_acquired_in_this_process());
                assert!(!last.acquire_timeout(Duration::from_millis(5)).unwrap(), "round {round}: two holders");
                next.release().unwrap();
            });
            first.release().unwrap();
        });
        assert_eq!(lost.hits(), 1);
    }
    eventually("nothing is left", || children(&second, PATH).is_empty());
}

/// The same where the first holder does not wait for its release: the background has the delete.
#[test]
fn a_dropped_guard_whose_delete_has_no_answer_takes_the_lock_from_nobody() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let (second, third) = (client_in(&namespace), client_in(&namespace));
    let (first, next, last) = (mutex(&faulty.client), mutex(&second), mutex(&third));
    for round in 0..25 {
        let held = first.lock().unwrap();
        let lost = faulty.inject(op::DELETE, Fault::CutInsteadOfReply);
        let held_back = faulty.inject(op::SYNC, Fault::HoldRequest);
        drop(held);
        lost.wait_for_hits(1, PATIENCE).unwrap();
        assert!(next.acquire_timeout(PATIENCE).unwrap());
        held_back.wait_for_hits(1, PATIENCE).unwrap();
        held_back.release();
        // Over the same connection, so behind the background's look at the znode.
        faulty.client.sync().for_path("/").unwrap();
        assert!(!last.acquire_timeout(Duration::from_millis(5)).unwrap(), "round {round}: two holders");
        next.release().unwrap();
    }
    eventually("nothing is left", || children(&second, PATH).is_empty());
}

/// While there is no connection nothing tells the holder that its znode was deleted, and it is certain up to
/// `valid_until`. The delete goes over the next connection, where the name may be another holder's.
#[test]
fn a_release_that_waits_for_a_connection_takes_the_lock_from_nobody() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let (second, third) = (client_in(&namespace), client_in(&namespace));
    let (first, next, last) = (mutex(&faulty.client), mutex(&second), mutex(&third));
    first.acquire().unwrap();
    faulty.stay_away();
    faulty.proxy.cut();
    eventually("the first one has no connection", || !faulty.client.is_connected());
    second.delete().for_path(NODE).unwrap();
    assert!(next.acquire_timeout(PATIENCE).unwrap());
    assert!(first.hold().unwrap().is_valid(), "the session was too short for this test");
    let hold = first.hold().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the release has begun", || hold.state() == HoldState::Released);
            faulty.proxy.pass().unwrap();
        });
        let result = first.release();
        let lost = matches!(&result, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. }));
        assert!(lost, "the lock was another's by then: {result:?}");
    });
    assert!(last.try_lock().unwrap().is_none(), "two holders");
    assert_eq!(children(&second, PATH).len(), 1);
    next.release().unwrap();
}

#[test]
fn a_delete_that_never_arrived_is_sent_again() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let first = mutex(&faulty.client);
    for _ in 0..5 {
        first.acquire().unwrap();
        let fault = faulty.inject(op::DELETE, Fault::CutInsteadOfRequest);
        first.release().unwrap();
        assert_eq!(fault.hits(), 1);
        drop(mutex(&other).try_lock().unwrap().unwrap());
        eventually("the other one has given it back", || children(&other, PATH).is_empty());
    }
    let held = first.lock().unwrap();
    let fault = faulty.inject(op::DELETE, Fault::CutInsteadOfRequest);
    drop(held);
    fault.wait_for_hits(1, PATIENCE).unwrap();
    assert!(mutex(&other).acquire_timeout(PATIENCE).unwrap(), "the background did not delete");
}

#[test]
fn a_create_whose_reply_was_lost_is_found_and_held() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let mutex_of_first = mutex(&faulty.client);
    for _ in 0..10 {
        let create = RequestMatch::creates().path(|path| path.ends_with(NODE));
        mutex_of_first.acquire().unwrap();
        mutex_of_first.release().unwrap();
        let fault = faulty.proxy.inject(create, Fault::CutInsteadOfReply);
        let held = mutex_of_first.lock().unwrap();
        assert_eq!(fault.hits(), 1);
        let stat = other.check_exists().for_path(NODE).unwrap().unwrap();
        assert_eq!(held.fencing_token().value(), stat.czxid);
        assert!(mutex(&other).try_lock().unwrap().is_none());
        held.release().unwrap();
        eventually("nothing is left", || children(&other, PATH).is_empty());
    }
}

#[test]
fn a_create_whose_reply_was_lost_is_found_also_behind_a_request_to_give_the_lock_back() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    keep_directory(&other);
    let first = mutex(&faulty.client);
    let (tell, asked) = crossbeam_channel::unbounded();
    first.on_revocation(move |request| drop(tell.send(request.who().map(str::to_owned))));
    first.acquire().unwrap();
    first.release().unwrap();
    let create = RequestMatch::creates().path(|path| path.ends_with(NODE));
    let lost = faulty.proxy.inject(create, Fault::CutInsteadOfReply);
    faulty.stay_away();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let held = first.lock_timeout(PATIENCE).unwrap().expect("it waits for itself");
            assert_eq!(asked.recv_timeout(PATIENCE), Ok(None));
            held.release().unwrap();
        });
        lost.wait_for_hits(1, PATIENCE).unwrap();
        eventually("the znode is there", || other.check_exists().for_path(NODE).unwrap().is_some());
        Revoker::attempt_revoke(&other, NODE).unwrap();
        faulty.proxy.pass().unwrap();
        waiting.join().unwrap();
    });
}

/// Each holder that leaves empties the directory, and the server may remove it twice before a waiter is back.
#[test]
fn a_directory_that_vanishes_at_each_hand_over_ends_no_wait() {
    const NO_NODE: i32 = -101;
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let (first, waiting) = (mutex(&other), mutex(&faulty.client));
    first.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.acquire().and_then(|()| waiting.release()));
        // More often than the retry policy allows.
        for _ in 0..8 {
            let create = RequestMatch::creates().path(|path| path.ends_with(NODE)).times(2);
            let refused = faulty.proxy.inject(create, Fault::Refuse(NO_NODE));
            first.release().unwrap();
            // Most often faster than the waiter, which pauses once refused.
            first.acquire().unwrap();
            let waits = || support::watchers(&other, NODE).contains(&faulty.client.session_id());
            eventually("the waiter was refused, and waits", || refused.hits() == 2 && waits() || waiter.is_finished());
        }
        first.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// What exists after the lost reply is another holder's.
#[test]
fn a_create_that_never_arrived_waits_for_who_was_faster() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let (first, second) = (mutex(&faulty.client), mutex(&other));
    first.acquire().unwrap();
    first.release().unwrap();
    let create = RequestMatch::creates().path(|path| path.ends_with(NODE));
    let fault = faulty.proxy.inject(create, Fault::CutInsteadOfRequest);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            first.acquire().unwrap();
            first.release().unwrap();
        });
        fault.wait_for_hits(1, PATIENCE).unwrap();
        // Whoever is faster, the other one waits.
        second.acquire().unwrap();
        assert!(other.check_exists().for_path(NODE).unwrap().unwrap().ephemeral_owner == other.session_id());
        second.release().unwrap();
        waiter.join().unwrap();
    });
    eventually("nothing is left", || children(&other, PATH).is_empty());
}

/// The create is done, its reply is lost, and the caller gives up before the connection is back.
#[test]
fn a_doubtful_create_that_nobody_waits_for_any_more_is_deleted() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let first = mutex(&faulty.client);
    keep_directory(&other);
    let create = RequestMatch::creates().path(|path| path.ends_with(NODE));
    let fault = faulty.proxy.inject(create, Fault::CutInsteadOfReply);
    faulty.stay_away();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| first.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        // Who gives up before that withdraws over the connection that it still has.
        fault.wait_for_hits(1, PATIENCE).unwrap();
        eventually("its client knows of the cut", || !faulty.client.is_connected());
        token.cancel();
        waiter.join().unwrap().unwrap_err();
    });
    assert!(other.check_exists().for_path(NODE).unwrap().is_some());
    faulty.proxy.pass().unwrap();
    assert!(mutex(&other).acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn the_holder_of_an_expired_session_is_told_and_a_waiter_gets_the_lock() {
    let namespace = namespace();
    let (holder, other) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    let held = held_by.lock().unwrap();
    let changes = held.state_changes();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.acquire_timeout(PATIENCE).unwrap());
        expire(&holder);
        assert!(waiter.join().unwrap());
    });
    eventually("the holder knows", || {
        changes.try_iter().any(|state| state == HoldState::Lost(LostReason::SessionExpired))
    });
    assert!(matches!(held_by.acquire(), Err(Error::LockLost { .. })));
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    // The former holder's release has left the lock alone.
    assert!(!held_by.acquire_timeout(Duration::ZERO).unwrap());
}

#[test]
fn a_waiter_whose_session_expires_waits_on_in_the_next() {
    let namespace = namespace();
    let (holder, other) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    held_by.acquire().unwrap();
    let before = other.session_id();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.acquire_timeout(PATIENCE).unwrap());
        expire_session(&support::server().connect_string(), before, &other.session_password()).unwrap();
        eventually("there is another session", || other.is_connected() && other.session_id() != before);
        held_by.release().unwrap();
        assert!(waiter.join().unwrap());
    });
}
