//! Asking a holder for its lock, against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    CuratorFramework, InterProcessMutex, InterProcessReadLock, InterProcessReadWriteLock, InterProcessUnfairMutex,
    InterProcessWriteLock, LockQueue, Revocable, RevocationListener, Revoker, testing::TestingServer,
};
use support::{
    PATIENCE, builder, client_in, connect, eventually,
    machine::{Machine, since},
    namespace,
};

const PATH: &str = "/locks/l";
const REQUEST: &[u8] = &[0x5f, 0x5f, 0x52, 0x45, 0x56, 0x4f, 0x4b, 0x45, 0x5f, 0x5f];
/// A request that is not to come, after everything that could bring it has been seen to happen.
const NEVER: Duration = Duration::from_millis(300);

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, PATH).unwrap()
}

/// Makes the mutex revocable; the channel tells of requests.
fn requests(mutex: &InterProcessMutex) -> Receiver<String> {
    let (sender, requests) = unbounded();
    mutex.make_revocable(tell(sender));
    requests
}

fn tell(sender: Sender<String>) -> impl RevocationListener<InterProcessMutex> {
    move |_: &InterProcessMutex| {
        let _ = sender.send(thread::current().name().unwrap_or_default().to_owned());
    }
}

#[test]
fn the_holder_is_told_on_the_dispatch_thread_and_another_client_gets_the_lock() {
    let namespace = namespace();
    let (one, two) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&one), mutex(&two));
    let asked = requests(&held_by);
    let held = held_by.lock().unwrap();
    Revoker::attempt_revoke(&two, held.path()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "curator-dispatch");
    assert!(held.is_valid(), "a request takes nothing away");
    held.release().unwrap();
    assert!(waiting.acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn both_halves_of_a_read_write_lock_are_revocable() {
    let namespace = namespace();
    let (one, two) = (client_in(&namespace), client_in(&namespace));
    let lock = InterProcessReadWriteLock::new(&one, PATH).unwrap();
    let (sender, asked) = unbounded();
    let tells = sender.clone();
    lock.read_lock().make_revocable(move |lock: &InterProcessReadLock| {
        let _ = sender.send(("read", lock.is_acquired_in_this_process()));
    });
    lock.write_lock().make_revocable_with_executor(
        move |lock: &InterProcessWriteLock| {
            let _ = tells.send(("write", lock.is_acquired_in_this_process()));
        },
        |task| drop(thread::spawn(task)),
    );
    let reading = lock.read_lock().lock().unwrap();
    Revoker::attempt_revoke(&two, reading.path()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), ("read", true));
    reading.release().unwrap();
    let writing = lock.write_lock().lock().unwrap();
    Revoker::attempt_revoke(&two, writing.path()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), ("write", true));
    writing.release().unwrap();
}

#[test]
fn the_request_on_the_wire_is_the_ten_bytes_of_curator() {
    let client = client_in(&namespace());
    let node = "/n/lock-0000000000";
    client.create().creating_parents_if_needed().for_path_and_data(node, "mine").unwrap();
    Revoker::attempt_revoke(&client, node).unwrap();
    assert_eq!(client.get_data().for_path(node).unwrap(), REQUEST);
}

#[test]
fn to_ask_for_a_node_that_is_gone_is_no_error() {
    let client = client_in(&namespace());
    Revoker::attempt_revoke(&client, "/locks/l/lock-0000000001").unwrap();
    Revoker::attempt_revoke(&client, "no path").unwrap_err();
}

#[test]
fn a_revocable_node_carries_the_holders_data_until_a_request_replaces_it() {
    let client = client_in(&namespace());
    let mutex = mutex(&client).with_lock_data("who and why");
    let asked = requests(&mutex);
    let held = mutex.lock().unwrap();
    assert_eq!(client.get_data().for_path(held.path()).unwrap(), b"who and why");
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    assert_eq!(client.get_data().for_path(held.path()).unwrap(), REQUEST);
}

/// A node that is created with the request as its data is what a holder sees when a request comes between its create
/// and its watch: no event will follow.
#[test]
fn a_request_from_before_the_watch_is_told() {
    let client = client_in(&namespace());
    for _ in 0..20 {
        let mutex = mutex(&client).with_lock_data(REQUEST);
        let asked = requests(&mutex);
        let held = mutex.lock().unwrap();
        asked.recv_timeout(PATIENCE).unwrap();
        held.release().unwrap();
    }
}

/// The revoker writes as soon as the node is listed, at whatever point the holder is between create and watch.
#[test]
fn requests_that_race_with_the_create_are_all_told() {
    const ROUNDS: usize = 200;
    let namespace = namespace();
    let (one, two) = (client_in(&namespace), client_in(&namespace));
    let mutex = mutex(&one);
    let (go, next) = crossbeam_channel::bounded::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            while next.recv().is_ok() {
                loop {
                    let nodes = InterProcessMutex::new(&two, PATH).unwrap().participant_nodes().unwrap();
                    if let Some(node) = nodes.first() {
                        Revoker::attempt_revoke(&two, node).unwrap();
                        break;
                    }
                }
            }
        });
        for round in 0..ROUNDS {
            let asked = requests(&mutex);
            go.send(()).unwrap();
            let held = mutex.lock().unwrap();
            asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("round {round}: the request was lost"));
            held.release().unwrap();
        }
        drop(go);
    });
}

#[test]
fn a_hold_is_watched_at_once_if_revocable() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, ""));
    let mutex = mutex(&client);
    let machine = Machine::watch();
    let asked_after = |_| {
        let asked = requests(&mutex);
        let begin = Instant::now();
        let held = mutex.lock().unwrap();
        Revoker::attempt_revoke(&client, held.path()).unwrap();
        asked.recv_timeout(PATIENCE).unwrap();
        let took = since(begin);
        held.release().unwrap();
        took
    };
    // Other holds are watched after 100 ms.
    machine.assert_share_at_most("asked", 0.0, (0..20).map(asked_after).collect(), Duration::from_millis(90));
}

#[test]
fn other_data_is_no_request_and_the_watch_goes_on() {
    let client = client_in(&namespace());
    let mutex = mutex(&client);
    let asked = requests(&mutex);
    let held = mutex.lock().unwrap();
    for k in 0..5 {
        client.set_data().for_path_and_data(held.path(), format!("note {k}")).unwrap();
    }
    assert!(asked.recv_timeout(NEVER).is_err());
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    client.set_data().for_path_and_data(held.path(), "note").unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    assert!(held.is_valid());
}

#[test]
fn a_waiter_can_be_asked_too_and_goes_on_waiting() {
    let namespace = namespace();
    let (one, two) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&one), mutex(&two));
    let held = held_by.lock().unwrap();
    let asked = requests(&waiting);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let held = waiting.lock().unwrap();
            // The watch of the waiting time serves the holder.
            Revoker::attempt_revoke(&one, held.path()).unwrap();
            asked.recv_timeout(PATIENCE).unwrap();
            held.release().unwrap();
        });
        eventually("the waiter queues", || held_by.participant_nodes().unwrap().len() == 2);
        let node = held_by.participant_nodes().unwrap()[1].clone();
        Revoker::attempt_revoke(&one, &node).unwrap();
        asked.recv_timeout(PATIENCE).unwrap();
        held.release().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_listener_serves_up_to_the_next_release_only() {
    let client = client_in(&namespace());
    let mutex = mutex(&client);
    let asked = requests(&mutex);
    mutex.lock().unwrap().release().unwrap();
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    assert!(asked.recv_timeout(NEVER).is_err());
    assert!(asked.recv().is_err(), "the listener is dropped");
    held.release().unwrap();
    let asked = requests(&mutex);
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_hold_that_began_before_cannot_be_asked_but_the_next_one() {
    let client = client_in(&namespace());
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let asked = requests(&mutex);
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    assert!(asked.recv_timeout(NEVER).is_err());
    held.release().unwrap();
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn the_given_executor_runs_the_listener() {
    let client = client_in(&namespace());
    let mutex = mutex(&client);
    let (sender, asked) = unbounded();
    let tasks = Arc::new(AtomicUsize::new(0));
    let count = tasks.clone();
    let lock: &dyn Fn(&InterProcessMutex) = &|mutex| {
        let sender = sender.clone();
        let count = count.clone();
        Revocable::make_revocable_with_executor(mutex, tell(sender), move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            thread::Builder::new().name("mine".into()).spawn(task).unwrap();
        });
    };
    lock(&mutex);
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), "mine");
    assert_eq!(tasks.load(Ordering::SeqCst), 1);
}

#[test]
fn the_listener_is_given_the_lock() {
    let client = client_in(&namespace());
    let mutex = mutex(&client);
    let (sender, asked) = unbounded();
    mutex.make_revocable(move |mutex: &InterProcessMutex| {
        let _ = sender.send((mutex.is_acquired_in_this_process(), mutex.is_owned_by_current_thread()));
    });
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), (true, false));
}

#[test]
fn a_request_from_while_the_connection_was_gone_is_told_once_after_the_reconnect() {
    let server = TestingServer::start().unwrap();
    let one = connect(builder(&server, ""));
    let mutex = mutex(&one);
    let asked = requests(&mutex);
    let held = mutex.lock().unwrap();
    Revoker::attempt_revoke(&one, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    server.restart().unwrap();
    let two = connect(builder(&server, ""));
    eventually("both are connected", || one.is_connected());
    assert!(asked.recv_timeout(NEVER).is_err(), "an old request is told again");
    Revoker::attempt_revoke(&two, held.path()).unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    held.release().unwrap();
}

/// Curator's names carry a uuid of version 4, ours one of version 8.
#[test]
fn a_znode_of_curators_is_asked_with_its_ten_bytes_and_one_of_ours_keeps_its_data() {
    let client = client_in(&namespace());
    let curators = "/n/_c_3f2504e0-4f89-41d3-9a0c-0305e82c3301-lock-0000000000";
    client.create().creating_parents_if_needed().for_path_and_data(curators, "mine").unwrap();
    Revoker::request(&client, curators, "the operator", "maintenance").unwrap();
    assert_eq!(client.get_data().for_path(curators).unwrap(), REQUEST);
    let held = mutex(&client).with_lock_data("mine");
    let held = held.lock().unwrap();
    Revoker::request(&client, held.path(), "the operator", "maintenance").unwrap();
    assert!(client.get_data().for_path(held.path()).unwrap().starts_with(b"mine"));
    // Nor is the request shown as a part of them.
    let queue = LockQueue::inspect(&client, PATH).unwrap();
    assert_eq!(queue.entries[0].data.as_deref(), Some(&b"mine"[..]));
    let unfair = InterProcessUnfairMutex::new(&client, "/locks/u").unwrap().with_lock_data("mine");
    let held = unfair.lock().unwrap();
    Revoker::request(&client, held.path(), "the operator", "maintenance").unwrap();
    let queue = LockQueue::inspect(&client, "/locks/u").unwrap();
    assert_eq!(queue.entries[0].data.as_deref(), Some(&b"mine"[..]));
}
