//! `SharedCount`.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use curator_locks::{
    Error, SharedCount,
    testing::{Fault, FaultProxy, RequestMatch, TestingServer, expire_session, op},
};

use crate::support::{PATIENCE, builder, builder_at, client_in, connect, eventually, server};

#[test]
fn it_is_four_bytes_the_most_significant_first_in_a_persistent_znode() {
    let client = client_in("c_wire");
    let count = SharedCount::new(&client, "/a/count", 0x0102_0304).unwrap();
    assert_eq!((count.count(), count.versioned_value().version()), (0x0102_0304, -1), "before the start");
    let other = SharedCount::new(&client, "/a/count", 0x0102_0304).unwrap();
    other.start().unwrap();
    let unread = count.try_set_count(count.versioned_value(), 7);
    assert!(matches!(unread, Err(Error::NotInUse { state: "not started", .. })), "{unread:?}");
    count.start().unwrap();
    assert_eq!(client.get_data().for_path("/a/count").unwrap(), [1, 2, 3, 4]);
    assert_eq!(client.check_exists().for_path("/a/count").unwrap().unwrap().ephemeral_owner, 0);
    count.set_count(-2).unwrap();
    assert_eq!(client.get_data().for_path("/a/count").unwrap(), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!((count.count(), count.versioned_value().version()), (-2, 1));
    assert!(matches!(count.start(), Err(Error::AlreadyStarted)));
}

/// A limit of leases that shrinks after the session was lost, and with it the watch.
#[test]
fn a_listener_that_never_returns_keeps_no_value_from_being_known() {
    let [client, other] = [(); 2].map(|()| client_in("c_blocked"));
    let [count, changed] = [&client, &other].map(|client| SharedCount::new(client, "/count", 3).unwrap());
    count.start().unwrap();
    changed.start().unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let (enters, entered) = mpsc::channel();
    let blocked = Mutex::new(blocked);
    client.add_connection_state_listener(move |_, _| {
        let _ = enters.send(());
        let _ = blocked.lock().unwrap().recv();
    });
    let session = client.session_id();
    expire_session(&server().connect_string(), session, &client.session_password()).unwrap();
    entered.recv_timeout(PATIENCE).unwrap();
    eventually("it has another session", || client.is_connected() && client.session_id() != session);
    changed.set_count(1).unwrap();
    eventually("the new value is known", || count.count() == 1);
    drop(release);
}

#[test]
fn the_seed_counts_only_where_there_is_no_znode_at_the_start() {
    let client = client_in("c_seed");
    let first = SharedCount::new(&client, "/count", 3).unwrap();
    first.start().unwrap();
    let second = SharedCount::new(&client, "/count", 4).unwrap();
    second.start().unwrap();
    assert_eq!(second.count(), 3);
    second.close();
    client.delete().for_path("/count").unwrap();
    let third = SharedCount::new(&client, "/count", 5).unwrap();
    third.start().unwrap();
    assert_eq!(third.count(), 5);
    eventually("the first one sees the new znode", || first.count() == 5);
}

#[test]
fn a_versioned_write_succeeds_only_over_the_version_it_has_seen() {
    let (client1, client2) = (client_in("c_version"), client_in("c_version"));
    let (one, two) = (SharedCount::new(&client1, "/c", 1).unwrap(), SharedCount::new(&client2, "/c", 1).unwrap());
    one.start().unwrap();
    two.start().unwrap();
    let seen = one.versioned_value();
    two.set_count(2).unwrap();
    assert!(!one.try_set_count(seen, 10).unwrap());
    eventually("the other's value is known", || one.count() == 2);
    assert!(one.try_set_count(one.versioned_value(), 10).unwrap());
    eventually("the change is known to the other", || two.count() == 10);
    assert_eq!(one.versioned_value(), two.versioned_value());
}

#[test]
fn a_listener_that_takes_its_time_keeps_no_change_from_being_known() {
    let (client, other) = (client_in("c_slow"), client_in("c_slow"));
    let (ours, theirs) = (SharedCount::new(&client, "/c", 0).unwrap(), SharedCount::new(&other, "/c", 0).unwrap());
    ours.start().unwrap();
    theirs.start().unwrap();
    let (entered, enters) = std::sync::mpsc::channel();
    let (leave, leaves) = std::sync::mpsc::channel::<()>();
    let leaves = Mutex::new(leaves);
    ours.add_listener(move |_| {
        let _ = entered.send(());
        // Until the test has ended.
        let _ = leaves.lock().unwrap().recv();
    });
    theirs.set_count(1).unwrap();
    enters.recv_timeout(PATIENCE).unwrap();
    theirs.set_count(2).unwrap();
    eventually("the change is known", || ours.count() == 2);
    drop(leave);
}

/// The first attempt is lost on the way, and another client writes before the second one arrives.
fn try_set_count_beside(namespace: &str, fault: Fault, others_value: Option<i32>) -> Result<bool, Error> {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let (doubtful, direct) = (connect(builder_at(&proxy.connect_string(), namespace)), client_in(namespace));
    let (one, two) = (SharedCount::new(&doubtful, "/c", 1).unwrap(), SharedCount::new(&direct, "/c", 1).unwrap());
    one.start().unwrap();
    two.start().unwrap();
    let seen = one.versioned_value();
    let lost = proxy.inject(RequestMatch::op(op::SET_DATA), fault);
    // Of several faults the first one is done, so this is for the second attempt.
    let again = proxy.inject(RequestMatch::op(op::SET_DATA), Fault::HoldRequest);
    std::thread::scope(|scope| {
        let result = scope.spawn(|| one.try_set_count(seen, 2));
        lost.wait_for_hits(1, PATIENCE).unwrap();
        if let Some(value) = others_value {
            two.set_count(value).unwrap();
        }
        again.wait_for_hits(1, PATIENCE).unwrap();
        again.release();
        result.join().unwrap()
    })
}

#[test]
fn a_versioned_write_whose_reply_is_lost_is_unknown_and_never_taken_for_that_of_another() {
    let never = Fault::CutInsteadOfRequest;
    assert!(matches!(try_set_count_beside("c_same", never, Some(2)), Err(Error::ConnectionLoss { .. })));
    assert!(!try_set_count_beside("c_other", never, Some(3)).unwrap());
    assert!(try_set_count_beside("c_nobody", never, None).unwrap());
    let applied = Fault::CutInsteadOfReply;
    assert!(matches!(try_set_count_beside("c_applied", applied, None), Err(Error::ConnectionLoss { .. })));
    assert!(matches!(try_set_count_beside("c_both", applied, Some(3)), Err(Error::ConnectionLoss { .. })));
}

#[test]
fn listeners_hear_of_changes_in_order_until_they_are_removed() {
    let (client1, client2) = (client_in("c_listen"), client_in("c_listen"));
    let (one, two) = (SharedCount::new(&client1, "/c", 0).unwrap(), SharedCount::new(&client2, "/c", 0).unwrap());
    one.start().unwrap();
    two.start().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    let id = one.add_listener(move |count| sink.lock().unwrap().push(count));
    for count in 1..=5 {
        two.set_count(count).unwrap();
        eventually("it is heard", || heard.lock().unwrap().last() == Some(&count));
    }
    assert_eq!(*heard.lock().unwrap(), [1, 2, 3, 4, 5]);
    one.remove_listener(id);
    two.set_count(6).unwrap();
    eventually("it is known", || one.count() == 6);
    one.close();
    two.set_count(7).unwrap();
    assert_eq!(two.count(), 7);
    assert_eq!(one.count(), 6, "closed");
    assert_eq!(heard.lock().unwrap().len(), 5);
}

#[test]
fn what_an_overloaded_server_puts_off_is_asked_again() {
    const THROTTLED: i32 = -127;
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), "c_busy"));
    let other = client_in("c_busy");
    let (count, writer) = (SharedCount::new(&client, "/c", 0).unwrap(), SharedCount::new(&other, "/c", 0).unwrap());
    count.start().unwrap();
    writer.start().unwrap();
    for (value, op) in [(1, op::GET_DATA), (2, op::EXISTS), (3, op::GET_DATA)] {
        let refused = proxy.inject(RequestMatch::op(op), Fault::Refuse(THROTTLED));
        writer.set_count(value).unwrap();
        eventually("the change is known, and the next one will be", || count.count() == value);
        drop(refused);
    }
}

/// Counts how often each value was told.
fn told(count: &SharedCount) -> Arc<Mutex<Vec<i32>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    count.add_listener(move |value| sink.lock().unwrap().push(value));
    told
}

#[test]
fn what_the_start_reads_is_told_to_nobody() {
    let (client, other) = (client_in("c_start"), client_in("c_start"));
    let writer = SharedCount::new(&other, "/c", 5).unwrap();
    writer.start().unwrap();
    let count = SharedCount::new(&client, "/c", 1).unwrap();
    let told = told(&count);
    count.start().unwrap();
    assert_eq!(count.count(), 5);
    // What is told comes in order.
    writer.set_count(6).unwrap();
    eventually("the change is told", || told.lock().unwrap().last() == Some(&6));
    assert_eq!(*told.lock().unwrap(), [6]);
}

/// The reads of a start, the events, and the reads that these bring, in whatever order.
#[test]
fn what_changes_while_it_starts_is_known_in_the_end() {
    const COUNTS: i32 = 200;
    let (client, other) = (client_in("c_starting"), client_in("c_starting"));
    let writer = SharedCount::new(&other, "/c", 0).unwrap();
    writer.start().unwrap();
    let counts: Vec<_> = (0..COUNTS).map(|_| SharedCount::new(&client, "/c", 0).unwrap()).collect();
    thread::scope(|scope| {
        let starts = scope.spawn(|| counts.iter().for_each(|count| count.start().unwrap()));
        let mut value = 0;
        while !starts.is_finished() {
            value += 1;
            writer.set_count(value).unwrap();
        }
    });
    for value in [-1, -2] {
        writer.set_count(value).unwrap();
        eventually("all know it", || counts.iter().all(|count| count.count() == value));
    }
}

#[test]
fn after_each_reconnect_the_value_is_told_again_also_if_it_is_the_same() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), "c_reconnect"));
    let other = client_in("c_reconnect");
    let (count, writer) = (SharedCount::new(&client, "/c", 1).unwrap(), SharedCount::new(&other, "/c", 1).unwrap());
    count.start().unwrap();
    writer.start().unwrap();
    let told = told(&count);
    for reconnects in 1..=3 {
        proxy.cut();
        eventually("told again", || told.lock().unwrap().len() >= reconnects);
    }
    assert_eq!(*told.lock().unwrap(), [1; 3]);
    writer.set_count(2).unwrap();
    eventually("and a change is told", || told.lock().unwrap().last() == Some(&2));
    let session = client.session_id();
    proxy.refuse();
    proxy.cut();
    expire_session(&server().connect_string(), session, &client.session_password()).unwrap();
    proxy.pass().unwrap();
    eventually("told again in the next session", || told.lock().unwrap().len() >= 5);
    assert_ne!(client.session_id(), session);
    assert_eq!(*told.lock().unwrap(), [1, 1, 1, 2, 2]);
}

#[test]
fn it_follows_changes_over_a_restart_of_the_server_and_a_lost_session() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "c_restart").session_timeout(Duration::from_secs(2)));
    let other = connect(builder(&server, "c_restart"));
    let (one, two) = (SharedCount::new(&client, "/c", 1).unwrap(), SharedCount::new(&other, "/c", 1).unwrap());
    one.start().unwrap();
    two.start().unwrap();

    server.restart().unwrap();
    two.set_count(2).unwrap();
    eventually("known in the same session", || one.count() == 2);

    let session = client.session_id();
    server.stop().unwrap();
    eventually("the session is given up", || client.connection_state() == Some(curator_locks::ConnectionState::Lost));
    server.restart().unwrap();
    two.set_count(3).unwrap();
    eventually("known in the next session", || one.count() == 3);
    assert_ne!(client.session_id(), session);
    two.set_count(4).unwrap();
    eventually("watched in the next session", || one.count() == 4);
}

#[test]
fn what_is_no_count_is_refused_at_the_start() {
    let client = client_in("c_bytes");
    client.create().creating_parents_if_needed().for_path_and_data("/c", b"12345".to_vec()).unwrap();
    let count = SharedCount::new(&client, "/c", 1).unwrap();
    assert!(matches!(count.start(), Err(Error::InvalidPath { path, .. }) if path == "/c"));
    client.set_data().for_path_and_data("/c", 9_i32.to_be_bytes().to_vec()).unwrap();
    count.start().unwrap();
    assert_eq!(count.count(), 9);
}

/// Uses the count once more when it is dropped.
struct OnDrop(Arc<SharedCount>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add_listener(|_| ());
    }
}

#[test]
fn removing_a_listener_drops_what_it_owns_under_no_lock() {
    let client = client_in("count-owned");
    let count = SharedCount::new(&client, "/n", 1).unwrap();
    count.start().unwrap();
    let (told, removed) = crossbeam_channel::bounded(1);
    let other = client.clone();
    thread::spawn(move || {
        // The last handle goes with the listener, and takes a listener of its own from the same list.
        let id = other.add_connection_state_listener(move |_, _| drop(count.clone()));
        other.remove_connection_state_listener(id);
        let count = SharedCount::new(&other, "/n", 1).unwrap();
        let handle = Arc::new(count.clone());
        let owned = OnDrop(handle);
        let id = count.add_listener(move |_| drop(owned.0.clone()));
        count.remove_listener(id);
        let owned = OnDrop(Arc::new(count.clone()));
        count.add_listener(move |_| drop(owned.0.clone()));
        count.close();
        told.send(()).unwrap();
    });
    removed.recv_timeout(PATIENCE).expect("a lock is held while a listener is dropped");
}

#[test]
fn a_listener_that_panics_silences_no_other() {
    let client = client_in("count-panic");
    let count = SharedCount::new(&client, "/n", 1).unwrap();
    count.start().unwrap();
    count.add_listener(|_| panic!("on purpose"));
    let (tell, told) = crossbeam_channel::unbounded();
    count.add_listener(move |value| {
        let _ = tell.send(value);
    });
    count.set_count(2).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 2);
}
