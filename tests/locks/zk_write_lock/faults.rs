//! ZooKeeper's own recipe where something fails.

use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};

use super::*;

#[test]
fn an_owner_whose_session_expires_is_told_and_queues_again_in_the_next() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace)];
    let ((owner, told), (other, told_other)) = (candidate(&clients[0]), candidate(&clients[1]));
    owner.lock().unwrap();
    other.lock().unwrap();
    assert_eq!(next(&told), Acquired);
    let (id, session) = (owner.id(), clients[0].session_id());
    expire(&clients[0]);
    assert_eq!(next(&told_other), Acquired);
    assert_eq!(next(&told), Released);
    assert!(!owner.is_owner());
    eventually("it queues again", || owner.id().is_some_and(|new| Some(new) != id));
    assert_ne!(clients[0].session_id(), session);
    close(&clients[0], &other);
    assert_eq!(next(&told), Acquired);
    close(&clients[0], &owner);
    assert_eq!(next(&told), Released);
    assert_eq!(children(&clients[1], DIR), [""; 0]);
}

/// No heartbeat makes the session certain: it gives its place up after a session timeout, and queues again behind the others.
#[test]
fn an_owner_to_be_on_a_slow_link_lets_those_behind_it_have_the_lock() {
    let (namespace, session) = (namespace(), Duration::from_secs(2));
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let slow = connect(builder_at(&proxy.connect_string(), &namespace).session_timeout(session));
    let prompt = client_in(&namespace);
    let probe = curator_locks::InterProcessMutex::new(&slow, "/probe").unwrap();
    let probe = probe.lock().unwrap();
    proxy.delay(session / 5);
    eventually("nothing is certain any more", || probe.valid_until() <= Instant::now());
    let ((first, told), (next_one, told_next)) = (candidate(&slow), candidate(&prompt));
    assert!(!first.lock().unwrap());
    let id = first.id();
    next_one.lock().unwrap();
    assert_eq!(next(&told_next), Acquired);
    eventually("it queues again", || first.id().is_some_and(|new| Some(new) != id));
    assert!(told.is_empty() && !first.is_owner());
    proxy.pass().unwrap();
    close(&prompt, &next_one);
    assert_eq!(next(&told), Acquired);
    close(&slow, &first);
}

#[test]
fn a_create_whose_reply_was_lost_leaves_one_znode() {
    let namespace = namespace();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace));
    for _ in 0..10 {
        let ((lock, told), (second, _)) = (candidate(&client), candidate(&client));
        second.lock().unwrap();
        let contender = |path: &str| path.contains("/x-");
        let fault = proxy.inject(RequestMatch::creates().path(contender), Fault::CutInsteadOfReply);
        assert!(!lock.lock().unwrap());
        assert_eq!(fault.hits(), 1);
        assert_eq!(queue(&client), [second.id().unwrap(), lock.id().unwrap()]);
        close(&client, &second);
        assert_eq!(next(&told), Acquired);
        close(&client, &lock);
        assert_eq!(children(&client, DIR), [""; 0]);
    }
}

/// Allows one retry, and notes when it is asked.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<parking_lot::Mutex<Vec<Instant>>>);

impl RetryPolicy for Asked {
    fn allow_retry(&self, _retries: u32, _elapsed: Duration, _sleeper: &dyn RetrySleeper) -> bool {
        let mut asked = self.0.lock();
        asked.push(Instant::now());
        asked.len() == 1
    }
}

/// The time of the first wait for a connection, which was not used up, is over while it waits for the second one.
#[test]
fn each_wait_for_a_connection_has_the_whole_connection_timeout() {
    // Longer than this machine takes for all that comes before the cut.
    const CONNECTION: Duration = Duration::from_secs(10);
    let (proxy, asked) = (FaultProxy::start(support::server().connect_string()).unwrap(), Asked::default());
    proxy.refuse();
    let client = builder_at(&proxy.connect_string(), &namespace())
        .connection_timeout(CONNECTION)
        .retry_policy(asked.clone())
        .build()
        .unwrap();
    client.start().unwrap();
    let held_back = proxy.inject(RequestMatch::creates(), Fault::HoldRequest);
    let (lock, _) = candidate(&client);
    std::thread::scope(|scope| {
        let locking = scope.spawn(|| lock.lock());
        // It waits by then.
        std::thread::sleep(CONNECTION / 6);
        proxy.pass().unwrap();
        held_back.wait_for_hits(1, PATIENCE).unwrap();
        proxy.refuse();
        proxy.cut();
        assert!(matches!(locking.join().unwrap(), Err(Error::ConnectionLoss { .. })));
    });
    let asked = asked.0.lock();
    assert_eq!(asked.len(), 2);
    assert!(asked[1] - asked[0] >= CONNECTION, "{:?}", asked[1] - asked[0]);
}

/// The change uses up the watch on the own znode while the queue is read for the last time.
#[test]
fn a_change_of_a_waiters_data_just_before_its_turn_hides_no_later_delete() {
    let namespace = namespace();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let (faulty, admin) = (connect(builder_at(&proxy.connect_string(), &namespace)), client_in(&namespace));
    let ((owner, _), (waiter, told)) = (candidate(&admin), candidate(&faulty));
    assert!(owner.lock().unwrap());
    assert!(!waiter.lock().unwrap());
    let list = RequestMatch::op(op::GET_CHILDREN).path(|path| path.contains(DIR));
    let held_back = proxy.inject(list, Fault::HoldRequest);
    close(&admin, &owner);
    held_back.wait_for_hits(1, PATIENCE).unwrap();
    let node = waiter.id().unwrap();
    admin.set_data().for_path_and_data(&node, b"changed").unwrap();
    held_back.release();
    assert_eq!(next(&told), Acquired);
    admin.delete().for_path(&node).unwrap();
    assert_eq!(next(&told), Released);
    waiter.close().ok();
}

#[test]
fn lost_replies_in_the_background_delay_the_lock_and_leave_nothing() {
    let namespace = namespace();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let (faulty, admin) = (connect(builder_at(&proxy.connect_string(), &namespace)), client_in(&namespace));
    for fault in [Fault::CutInsteadOfReply, Fault::CutInsteadOfRequest] {
        for op in [op::CREATE, op::GET_CHILDREN, op::GET_DATA] {
            let ((owner, _), (waiter, told)) = (candidate(&admin), candidate(&faulty));
            owner.lock().unwrap();
            waiter.lock().unwrap();
            let in_queue = |path: &str| path.contains(DIR);
            let injected = proxy.inject(RequestMatch::op(op).path(in_queue), fault);
            // It queues again, in the background.
            admin.delete().for_path(&waiter.id().unwrap()).unwrap();
            admin.delete().for_path(&owner.id().unwrap()).unwrap();
            injected.wait_for_hits(1, PATIENCE).unwrap_or_else(|error| panic!("{op}: {error}"));
            owner.close().ok();
            assert_eq!(next(&told), Acquired, "{op} {fault:?}");
            close(&admin, &waiter);
            eventually("nothing is left", || children(&admin, DIR).is_empty());
        }
    }
}

/// There is a znode, so it has queued, whether the servers ever say that it waits or not.
#[test]
fn who_has_queued_does_not_wait_for_servers_that_stay_away() {
    let namespace = namespace();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let (first, client) = (client_in(&namespace), connect(builder_at(&proxy.connect_string(), &namespace)));
    let ((owner, _), (lock, told)) = (candidate(&first), candidate(&client));
    assert!(owner.lock().unwrap());
    let watches = proxy.inject(RequestMatch::ops([op::EXISTS, op::GET_DATA]), Fault::HoldReply);
    let (say, said) = unbounded();
    let lock = Arc::new(lock);
    let queueing = lock.clone();
    std::thread::spawn(move || say.send(queueing.lock()));
    watches.wait_for_hits(1, PATIENCE).unwrap();
    proxy.refuse();
    proxy.cut();
    assert!(!said.recv_timeout(PATIENCE).expect("it waits for the servers").unwrap());
    proxy.pass().unwrap();
    close(&client, &owner);
    assert_eq!(next(&told), Acquired);
    close(&client, &lock);
}
