//! `InterProcessUnfairMutex` against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod faults;
#[path = "../../support/mod.rs"]
mod support;

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, CreateMode, CuratorFramework, Error, HoldState, InterProcessLock,
    InterProcessUnfairMutex, Locker, LostReason, Revoker, Stat, testing::TestingServer,
};
use support::{PATIENCE, builder, builder_at, children, client_in, connect, eventually, expire, namespace, watchers};

const PATH: &str = "/locks/l";
const NODE: &str = "/locks/l/lock";

fn mutex(client: &CuratorFramework) -> InterProcessUnfairMutex {
    InterProcessUnfairMutex::new(client, PATH).unwrap()
}

/// Waits until a thread of this client is behind the holder: it watches the lock's node.
fn await_waiter(admin: &CuratorFramework, waiter: &CuratorFramework) {
    eventually("the waiter watches the holder", || watchers(admin, NODE).contains(&waiter.session_id()));
}

/// Waits until the server has so many watches.
fn await_watches(server: &TestingServer, count: u64) {
    eventually("the watches", || server.watch_count().unwrap() >= count);
}

#[test]
fn threads_of_several_clients_exclude_each_other_and_leave_nothing() {
    const ROUNDS: usize = 40;
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace), client_in(&namespace)];
    let (inside, entries) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mutex = mutex(client);
                    for _ in 0..ROUNDS {
                        let held = mutex.lock().unwrap();
                        assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                        thread::yield_now();
                        entries.fetch_add(1, Ordering::SeqCst);
                        inside.store(false, Ordering::SeqCst);
                        held.release().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(entries.load(Ordering::SeqCst), 6 * ROUNDS);
    assert_eq!(children(&clients[0], PATH), [""; 0]);
}

#[test]
fn uncontended_acquire_and_release_are_one_packet_each() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "").session_timeout(PATIENCE));
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    let packets_of_20_cycles = || {
        let before = server.packets_received().unwrap();
        for _ in 0..20 {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        }
        // Without the question itself.
        server.packets_received().unwrap() - before - 1
    };
    // On a busy machine a hold may last so long that it gets a watch.
    eventually("20 cycles are 40 packets", || packets_of_20_cycles() == 40);
}

#[test]
fn a_busy_try_is_one_read_and_no_write() {
    let server = TestingServer::start().unwrap();
    // With heartbeats so seldom that none comes in between.
    let quiet = || connect(builder(&server, "").session_timeout(PATIENCE));
    let (holder, other) = (quiet(), quiet());
    let held_by = mutex(&holder);
    let held = held_by.lock().unwrap();
    // The only request that a hold makes by itself.
    await_watches(&server, 1);
    let zxid = |stat: &Stat| stat.pzxid;
    let mut before = Stat::default();
    other.get_data().storing_stat_in(&mut before).for_path(PATH).unwrap();
    let packets = server.packets_received().unwrap();
    assert!(mutex(&other).try_lock().unwrap().is_none());
    assert!(!mutex(&other).acquire_timeout(Duration::ZERO).unwrap());
    assert_eq!(server.packets_received().unwrap() - packets, 2 + 1);
    let mut after = Stat::default();
    other.get_data().storing_stat_in(&mut after).for_path(PATH).unwrap();
    assert_eq!(zxid(&before), zxid(&after));
    held.release().unwrap();
    mutex(&other).try_lock().unwrap().unwrap().release().unwrap();
}

#[test]
fn a_thread_enters_again_without_any_packet_and_releases_as_often() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "").session_timeout(PATIENCE));
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    // The only request that a hold makes by itself.
    await_watches(&server, 1);
    let packets = server.packets_received().unwrap();
    assert!(mutex.acquire_timeout(Duration::ZERO).unwrap());
    mutex.release().unwrap();
    assert!(mutex.is_owned_by_current_thread());
    assert_eq!(server.packets_received().unwrap() - packets, 1);
    mutex.release().unwrap();
    assert!(!mutex.is_owned_by_current_thread() && !mutex.is_acquired_in_this_process());
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
}

#[test]
fn a_timed_acquire_ends_in_time_and_leaves_no_watch() {
    let server = TestingServer::start().unwrap();
    let (holder, other) = (connect(builder(&server, "")), connect(builder(&server, "")));
    let held_by = mutex(&holder);
    let held = held_by.lock().unwrap();
    let watches = server.watch_count().unwrap();
    let begin = Instant::now();
    assert!(!mutex(&other).acquire_timeout(Duration::from_millis(200)).unwrap());
    assert!(begin.elapsed() >= Duration::from_millis(200));
    // The holder's own watch may have come meanwhile.
    eventually("the waiter's watch is gone", || server.watch_count().unwrap() <= watches.max(1));
    held.release().unwrap();
    eventually("no watch is left", || server.watch_count().unwrap() == 0);
}

#[test]
fn a_cancelled_waiter_ends() {
    let namespace = namespace();
    let (holder, other) = (client_in(&namespace), client_in(&namespace));
    let held_by = mutex(&holder);
    let held = held_by.lock().unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex(&other).acquire_with(&AcquireOptions::new().cancel_token(&token)));
        await_waiter(&holder, &other);
        token.cancel();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    held.release().unwrap();
    // A create that was on the wire when the waiter gave up is seen to in the background.
    eventually("nothing is left", || children(&holder, PATH).is_empty());
}

#[test]
fn a_waiter_gets_the_lock_when_the_holder_releases() {
    let namespace = namespace();
    let (holder, other) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    let held = held_by.lock().unwrap();
    let first = held.fencing_token();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let held = waiting.lock().unwrap();
            let token = held.fencing_token();
            held.release().unwrap();
            token
        });
        await_waiter(&holder, &other);
        held.release().unwrap();
        assert!(waiter.join().unwrap() > first, "fencing tokens grow");
    });
}

#[test]
fn an_administrators_delete_is_told_to_the_holder_and_wakes_a_waiter() {
    let namespace = namespace();
    let (holder, other, admin) = (client_in(&namespace), client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    let held = held_by.lock().unwrap();
    let changes = held.state_changes();
    thread::scope(|scope| {
        let (done, is_done) = crossbeam_channel::bounded::<()>(0);
        let waiter = scope.spawn(move || {
            let held = waiting.lock().unwrap();
            let _ = is_done.recv();
            assert!(held.is_valid(), "the former holder's release took the lock away");
            held.release().unwrap();
        });
        await_waiter(&admin, &other);
        admin.delete().for_path(NODE).unwrap();
        assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), HoldState::InDoubt);
        assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), HoldState::Lost(LostReason::NodeDeleted));
        assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
        drop(done);
        waiter.join().unwrap();
    });
    assert_eq!(children(&admin, PATH), [""; 0]);
}

#[test]
fn an_administrators_delete_of_the_directory_does_not_stop_waiters() {
    let namespace = namespace();
    let (holder, admin) = (client_in(&namespace), client_in(&namespace));
    let held_by = mutex(&holder);
    let held = held_by.lock().unwrap();
    admin.delete().deleting_children_if_needed().for_path("/locks").unwrap();
    let other = mutex(&admin);
    other.acquire().unwrap();
    other.release().unwrap();
    drop(held);
}

#[test]
fn a_foreign_node_of_the_same_name_is_waited_for() {
    let client = client_in(&namespace());
    client.create().creating_parents_if_needed().for_path(NODE).unwrap();
    let mutex = mutex(&client);
    assert!(mutex.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        });
        await_waiter(&client, &client);
        client.delete().for_path(NODE).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn the_node_is_ephemeral_and_carries_an_id_and_the_lock_data() {
    let client = client_in(&namespace());
    let mutex = mutex(&client).with_lock_data("who and why");
    let held = mutex.lock().unwrap();
    assert_eq!(held.path(), NODE);
    let mut stat = Stat::default();
    let data = client.get_data().storing_stat_in(&mut stat).for_path(NODE).unwrap();
    assert_eq!(stat.ephemeral_owner, client.session_id());
    assert_eq!(held.fencing_token().value(), stat.czxid);
    let text = String::from_utf8(data).unwrap();
    let (id, data) = text.split_once('\n').unwrap();
    assert_eq!((id.len(), data), (36, "who and why"));
}

#[test]
fn the_server_removes_the_unused_directory() {
    let server = TestingServer::builder().container_check_interval(Duration::from_millis(200)).start().unwrap();
    let client = connect(builder(&server, ""));
    let mutex = mutex(&client);
    for _ in 0..3 {
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        eventually("the directory is gone", || client.check_exists().for_path("/locks").unwrap().is_none());
    }
}

#[test]
fn a_dropped_guard_releases() {
    let namespace = namespace();
    let (one, two) = (client_in(&namespace), client_in(&namespace));
    drop(mutex(&one).lock().unwrap());
    let mutex = mutex(&two);
    Locker::with_timeout(&mutex, PATIENCE).unwrap().close().unwrap();
    assert_eq!(children(&one, PATH), [""; 0]);
}

#[test]
fn closing_the_client_ends_waiters_and_frees_the_lock() {
    let namespace = namespace();
    let (holder, other) = (client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    held_by.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.acquire());
        await_waiter(&holder, &other);
        other.close();
        assert!(matches!(waiter.join().unwrap(), Err(Error::ClientClosed)));
    });
    holder.close();
    let third = client_in(&namespace);
    assert!(mutex(&third).acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn a_queue_in_the_same_directory_does_not_matter() {
    let client = client_in(&namespace());
    let name = format!("{PATH}/_c_0-lock-");
    client.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential).for_path(&name).unwrap();
    assert!(mutex(&client).acquire_timeout(Duration::ZERO).unwrap());
}

#[test]
fn it_is_an_inter_process_lock() {
    let client = client_in(&namespace());
    let lock: Box<dyn InterProcessLock> = Box::new(mutex(&client));
    lock.acquire().unwrap();
    assert!(lock.is_acquired_in_this_process());
    lock.release().unwrap();
    assert!(!lock.is_acquired_in_this_process());
    assert!(matches!(InterProcessUnfairMutex::new(&client, "/"), Err(Error::InvalidPath { .. })));
}
