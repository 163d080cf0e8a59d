//! The unfair mutex where something fails.

use std::thread;

use curator_locks::testing::{Fault, FaultProxy, InjectedFault, RequestMatch, op};

use super::*;

/// A client behind a proxy, and what is done to its requests about the lock's znode.
struct Faulty {
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Faulty {
    fn start(namespace: &str) -> Faulty {
        let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
        let client = closed_by_failure(connect(builder_at(&proxy.connect_string(), namespace)));
        Faulty { proxy, client }
    }

    /// The one request that acquires the lock.
    fn inject_create(&self, fault: Fault) -> InjectedFault {
        self.proxy.inject(RequestMatch::transactions(), fault)
    }

    /// The one request that gives it back.
    fn inject_delete(&self, fault: Fault) -> InjectedFault {
        self.proxy.inject(RequestMatch::op(op::DELETE).path(|path| path.contains(HOLDER)), fault)
    }

    /// The next connection comes only after `proxy.pass()`.
    fn stay_away(&self) {
        self.proxy.refuse();
    }
}

/// The server removes a container that has become empty, and the next create would come to nothing. To be called while nobody
/// holds the lock, and after its last use: each acquire makes a container of the directory.
fn keep_directory(client: &CuratorFramework) {
    match client.delete().for_path(HOLDER) {
        Err(error) if !error.is_no_node() => panic!("{error}"),
        _ => client.create().creating_parents_if_needed().for_path(HOLDER).unwrap(),
    };
}

fn releases_whose_reply_is_lost(rounds: usize) {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let (second, third) = (client_in(&namespace), client_in(&namespace));
    let (first, next, last) = (mutex(&faulty.client), mutex(&second), mutex(&third));
    for round in 0..rounds {
        first.acquire().unwrap();
        let lost = faulty.inject_delete(Fault::CutInsteadOfReply);
        let held_back = faulty.inject_delete(Fault::HoldRequest);
        scope(|scope| {
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
    eventually("nothing is left", || children(&second, HOLDER).is_empty());
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
    second.delete().for_path(&node(&second).unwrap()).unwrap();
    assert!(next.acquire_timeout(PATIENCE).unwrap());
    assert!(first.hold().unwrap().is_valid(), "the session was too short for this test");
    let hold = first.hold().unwrap();
    scope(|scope| {
        scope.spawn(|| {
            eventually("the release has begun", || hold.state() == HoldState::Released);
            faulty.proxy.pass().unwrap();
        });
        let result = first.release();
        let lost = matches!(&result, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. }));
        assert!(lost, "the lock was another's by then: {result:?}");
    });
    assert!(last.try_lock().unwrap().is_none(), "two holders");
    assert_eq!(children(&second, HOLDER).len(), 1);
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
        let fault = faulty.inject_delete(Fault::CutInsteadOfRequest);
        first.release().unwrap();
        assert_eq!(fault.hits(), 1);
        drop(mutex(&other).try_lock().unwrap().unwrap());
        eventually("the other one has given it back", || children(&other, HOLDER).is_empty());
    }
    let held = first.lock().unwrap();
    let fault = faulty.inject_delete(Fault::CutInsteadOfRequest);
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
        mutex_of_first.acquire().unwrap();
        mutex_of_first.release().unwrap();
        let fault = faulty.inject_create(Fault::CutInsteadOfReply);
        let held = mutex_of_first.lock().unwrap();
        assert_eq!(fault.hits(), 1);
        let stat = other.check_exists().for_path(held.path()).unwrap().unwrap();
        assert_eq!(held.fencing_token().value(), stat.czxid);
        assert!(mutex(&other).try_lock().unwrap().is_none());
        held.release().unwrap();
        eventually("nothing is left", || children(&other, HOLDER).is_empty());
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
    let lost = faulty.inject_create(Fault::CutInsteadOfReply);
    faulty.stay_away();
    scope(|scope| {
        let waiting = scope.spawn(|| {
            let held = first.lock_timeout(PATIENCE).unwrap().expect("it waits for itself");
            assert_eq!(asked.recv_timeout(PATIENCE), Ok(None));
            held.release().unwrap();
        });
        lost.wait_for_hits(1, PATIENCE).unwrap();
        eventually("the znode is there", || node(&other).is_some());
        Revoker::attempt_revoke(&other, &node(&other).unwrap()).unwrap();
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
    scope(|scope| {
        let waiter = scope.spawn(|| waiting.acquire().and_then(|()| waiting.release()));
        // A waiter that sends its list after the first hand-over waits for the next holder, and creates nothing that could
        // be refused.
        await_waiter(&other, &faulty.client);
        // More often than the retry policy allows.
        for round in 0..8 {
            let create = RequestMatch::transactions().times(2);
            let refused = faulty.proxy.inject(create, Fault::Refuse(NO_NODE));
            first.release().unwrap();
            // Most often faster than the waiter, which pauses once refused.
            first.acquire().unwrap();
            let seen = || {
                let (hits, holder, log) = (refused.hits(), node(&other), faulty.proxy.log());
                format!("the waiter was refused twice, and waits: round {round}, {hits} hits, {holder:?}, {log:#?}")
            };
            let is_waiting = || refused.hits() == 2 && waits(&other, &faulty.client);
            eventually_or(seen, || is_waiting() || waiter.is_finished());
        }
        first.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// It has heard that the lock is taken, and then another holder comes before it knows by which znode.
#[test]
fn a_waiter_that_lists_after_a_hand_over_waits_for_the_next_holder() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let (first, waiting) = (mutex(&other), mutex(&faulty.client));
    first.acquire().unwrap();
    scope(|scope| {
        let list = faulty.proxy.inject(RequestMatch::op(op::GET_CHILDREN), Fault::HoldRequest);
        let waiter = scope.spawn(|| waiting.acquire().and_then(|()| waiting.release()));
        list.wait_for_hits(1, PATIENCE).unwrap();
        first.release().unwrap();
        first.acquire().unwrap();
        list.release();
        await_waiter(&other, &faulty.client);
        assert_eq!(faulty.proxy.requests(op::MULTI), 1);
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
    let fault = faulty.inject_create(Fault::CutInsteadOfRequest);
    scope(|scope| {
        let waiter = scope.spawn(|| {
            first.acquire().unwrap();
            first.release().unwrap();
        });
        fault.wait_for_hits(1, PATIENCE).unwrap();
        // Whoever is faster, the other one waits.
        second.acquire().unwrap();
        let held = second.hold().unwrap();
        assert_eq!(node(&other).as_deref(), Some(held.path()));
        second.release().unwrap();
        waiter.join().unwrap();
    });
    eventually("nothing is left", || children(&other, HOLDER).is_empty());
}

/// The create is done, its reply is lost, and the caller gives up before the connection is back.
#[test]
fn a_doubtful_create_that_nobody_waits_for_any_more_is_deleted() {
    let namespace = namespace();
    let faulty = Faulty::start(&namespace);
    let other = client_in(&namespace);
    let first = mutex(&faulty.client);
    keep_directory(&other);
    let fault = faulty.inject_create(Fault::CutInsteadOfReply);
    faulty.stay_away();
    let token = CancelToken::new();
    scope(|scope| {
        let waiter = scope.spawn(|| first.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        // Who gives up before that withdraws over the connection that it still has.
        fault.wait_for_hits(1, PATIENCE).unwrap();
        eventually("its client knows of the cut", || !faulty.client.is_connected());
        token.cancel();
        waiter.join().unwrap().unwrap_err();
    });
    assert!(node(&other).is_some());
    faulty.proxy.pass().unwrap();
    assert!(mutex(&other).acquire_timeout(PATIENCE).unwrap());
}

/// An administrator deletes the holder's znode, and the next one comes in before the former holder has heard of that.
#[test]
fn a_release_of_a_znode_that_was_deleted_by_hand_takes_the_lock_from_nobody() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace), client_in(&namespace)];
    let [first, next, last] = clients.each_ref().map(mutex);
    for round in 0..40 {
        let held = first.lock().unwrap();
        clients[1].delete().for_path(held.path()).unwrap();
        let next = next.lock_timeout(PATIENCE).unwrap().expect("the next one gets it");
        // In turns: as an error, without a result, and left to the background by a listener.
        match round % 2 {
            0 => {
                let result = held.release();
                let is_lost = matches!(&result, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. }));
                assert!(is_lost, "round {round}: {result:?}");
            }
            _ => {
                drop(held);
                // Over the same connection, so behind the delete.
                clients[0].sync().for_path("/").unwrap();
            }
        }
        assert!(last.try_lock().unwrap().is_none(), "round {round}: two holders");
        assert!(next.is_valid());
        next.release().unwrap();
    }
}

/// The same with the whole directory, where all that counts begins anew.
#[test]
fn a_release_after_the_directory_was_deleted_by_hand_takes_the_lock_from_nobody() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace), client_in(&namespace)];
    let [first, next, last] = clients.each_ref().map(mutex);
    for round in 0..10 {
        let held = first.lock().unwrap();
        clients[1].delete().deleting_children_if_needed().for_path(PATH).unwrap();
        let next = next.lock_timeout(PATIENCE).unwrap().expect("the next one gets it");
        let result = held.release();
        assert!(matches!(result, Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })), "{result:?}");
        assert!(last.try_lock().unwrap().is_none(), "round {round}: two holders");
        next.release().unwrap();
    }
}

/// A request to give the lock back, whose write is on its way while the lock goes to somebody else.
struct LateRequest<'scope> {
    write: InjectedFault,
    asking: thread::ScopedJoinHandle<'scope, Result<(), Error>>,
}

impl<'scope> LateRequest<'scope> {
    /// To a holder, who then gives the lock back.
    fn start(scope: &'scope thread::Scope<'scope, '_>, asker: &'scope Faulty, holder: &CuratorFramework) -> Self {
        let held = mutex(holder).lock().unwrap();
        let path = held.path().to_owned();
        let write = asker.proxy.inject(RequestMatch::op(op::SET_DATA), Fault::HoldRequest);
        let asking = scope.spawn(move || Revoker::request(&asker.client, &path, "the operator", "maintenance"));
        write.wait_for_hits(1, PATIENCE).unwrap();
        held.release().unwrap();
        LateRequest { write, asking }
    }

    fn arrive(self) {
        self.write.release();
        self.asking.join().unwrap().unwrap();
    }
}

#[test]
fn a_request_that_comes_late_reaches_nobody() {
    let namespace = namespace();
    let (asker, holder, other) = (Faulty::start(&namespace), client_in(&namespace), client_in(&namespace));
    let next = mutex(&other).with_lock_data("the next one's");
    let (tell, asked) = crossbeam_channel::unbounded();
    next.on_revocation(move |request| drop(tell.send(request.who().map(str::to_owned))));
    scope(|scope| {
        let late = LateRequest::start(scope, &asker, &holder);
        let held = next.lock().unwrap();
        late.arrive();
        let data = other.get_data().for_path(held.path()).unwrap();
        assert!(data.ends_with(b"the next one's"), "{:?}", String::from_utf8_lossy(&data));
        assert_eq!(asked.try_recv(), Err(crossbeam_channel::TryRecvError::Empty));
        held.release().unwrap();
    });
}

#[test]
fn a_create_whose_reply_was_lost_is_found_also_where_a_late_request_came_over_it() {
    let namespace = namespace();
    let (asker, holder, next) = (Faulty::start(&namespace), client_in(&namespace), Faulty::start(&namespace));
    let waiting = mutex(&next.client);
    scope(|scope| {
        let late = LateRequest::start(scope, &asker, &holder);
        keep_directory(&holder);
        let lost = next.inject_create(Fault::CutInsteadOfReply);
        next.stay_away();
        let waiter = scope.spawn(|| waiting.lock_timeout(PATIENCE).unwrap().map(|held| held.release().unwrap()));
        lost.wait_for_hits(1, PATIENCE).unwrap();
        eventually("the znode is there", || node(&holder).is_some());
        late.arrive();
        next.proxy.pass().unwrap();
        assert!(waiter.join().unwrap().is_some(), "it waits for itself");
    });
    eventually("nothing is left", || node(&holder).is_none());
}

/// Whatever its data say by then.
#[test]
fn a_create_whose_reply_was_lost_is_cleaned_up_also_where_others_have_written_over_it() {
    let namespace = namespace();
    let (faulty, other) = (Faulty::start(&namespace), client_in(&namespace));
    keep_directory(&other);
    let first = mutex(&faulty.client);
    let lost = faulty.inject_create(Fault::CutInsteadOfReply);
    faulty.stay_away();
    let token = CancelToken::new();
    scope(|scope| {
        let waiter = scope.spawn(|| first.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        lost.wait_for_hits(1, PATIENCE).unwrap();
        eventually("its client knows of the cut", || !faulty.client.is_connected());
        token.cancel();
        waiter.join().unwrap().unwrap_err();
    });
    other.set_data().for_path_and_data(&node(&other).unwrap(), "by hand").unwrap();
    faulty.proxy.pass().unwrap();
    assert!(mutex(&other).acquire_timeout(PATIENCE).unwrap(), "it is left to the end of its session");
}

#[test]
fn a_request_whose_reply_was_lost_is_not_made_again() {
    let namespace = namespace();
    let (asker, holder) = (Faulty::start(&namespace), client_in(&namespace));
    let held = mutex(&holder).lock().unwrap();
    let lost = asker.proxy.inject(RequestMatch::op(op::SET_DATA), Fault::CutInsteadOfReply);
    Revoker::request(&asker.client, held.path(), "the operator", "maintenance").unwrap();
    assert_eq!(lost.hits(), 1);
    let log = asker.proxy.log();
    assert_eq!(log.iter().filter(|request| request.op == op::SET_DATA && request.error == Some(0)).count(), 1);
    held.release().unwrap();
}

mod slow {
    use super::*;

    /// The delete is done and its reply lost. Before the first holder can send anything more about the znode, another one
    /// comes in and stays; then the first one finishes its release. The third client must not get in beside the second.
    #[test]
    fn a_release_whose_reply_was_lost_never_takes_the_lock_from_the_next_holder() {
        // A reconnect takes its time, so four at a time.
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| releases_whose_reply_is_lost(25));
            }
        });
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
            let lost = faulty.inject_delete(Fault::CutInsteadOfReply);
            let held_back = faulty.inject_delete(Fault::HoldRequest);
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
        eventually("nothing is left", || children(&second, HOLDER).is_empty());
    }
}
