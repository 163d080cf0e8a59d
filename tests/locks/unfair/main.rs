//! `InterProcessUnfairMutex` against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod faults;
#[path = "../../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use curator_locks::{
    AcquireOptions, CancelToken, CreateMode, CuratorFramework, Error, HoldState, InterProcessUnfairMutex, LostReason,
    Revoker, Stat, testing::TestingServer,
};
use support::{
    PATIENCE, after_doubt, builder, builder_at, children, connect, eventually, eventually_or, namespace,
    scope::{client_in, closed_by_failure, scope},
    watchers,
};

const PATH: &str = "/locks/l";
/// Where the holder's znode is, and no other.
const HOLDER: &str = "/locks/l/lock/holder";

fn mutex(client: &CuratorFramework) -> InterProcessUnfairMutex {
    InterProcessUnfairMutex::new(client, PATH).unwrap()
}

/// The holder's znode.
fn node(client: &CuratorFramework) -> Option<String> {
    children(client, HOLDER).pop().map(|name| format!("{HOLDER}/{name}"))
}

/// Whether a thread of this client is behind the holder: it watches the holder's znode.
fn waits(admin: &CuratorFramework, waiter: &CuratorFramework) -> bool {
    node(admin).is_some_and(|node| watchers(admin, &node).contains(&waiter.session_id()))
}

fn await_waiter(admin: &CuratorFramework, waiter: &CuratorFramework) {
    eventually("the waiter watches the holder", || waits(admin, waiter));
}

/// Waits until the server has so many watches.
fn await_watches(server: &TestingServer, count: u64) {
    eventually("the watches", || server.watch_count().unwrap() >= count);
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
    other.get_data().storing_stat_in(&mut before).for_path(HOLDER).unwrap();
    let packets = server.packets_received().unwrap();
    assert!(mutex(&other).try_lock().unwrap().is_none());
    assert!(!mutex(&other).acquire_timeout(Duration::ZERO).unwrap());
    assert_eq!(server.packets_received().unwrap() - packets, 2 + 1);
    let mut after = Stat::default();
    other.get_data().storing_stat_in(&mut after).for_path(HOLDER).unwrap();
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
fn an_administrators_delete_is_told_to_the_holder_and_wakes_a_waiter() {
    let namespace = namespace();
    let (holder, other, admin) = (client_in(&namespace), client_in(&namespace), client_in(&namespace));
    let (held_by, waiting) = (mutex(&holder), mutex(&other));
    let held = held_by.lock().unwrap();
    let changes = held.state_changes();
    scope(|scope| {
        let (done, is_done) = crossbeam_channel::bounded::<()>(0);
        let waiter = scope.spawn(move || {
            let held = waiting.lock().unwrap();
            let _ = is_done.recv();
            assert!(held.is_valid(), "the former holder's release took the lock away");
            held.release().unwrap();
        });
        await_waiter(&admin, &other);
        admin.delete().for_path(&node(&admin).unwrap()).unwrap();
        let told = after_doubt(|| changes.recv_timeout(PATIENCE).unwrap());
        assert_eq!(told, HoldState::Lost(LostReason::NodeDeleted));
        assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
        drop(done);
        waiter.join().unwrap();
    });
    assert_eq!(children(&admin, HOLDER), [""; 0]);
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
fn a_foreign_node_in_the_directory_is_waited_for() {
    let client = client_in(&namespace());
    let foreign = format!("{HOLDER}/by-hand");
    client.create().creating_parents_if_needed().for_path(&foreign).unwrap();
    let mutex = mutex(&client);
    assert!(mutex.try_lock().unwrap().is_none());
    scope(|scope| {
        let waiter = scope.spawn(|| {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        });
        await_waiter(&client, &client);
        client.delete().for_path(&foreign).unwrap();
        waiter.join().unwrap();
    });
}

/// A client that knows the lock as one ephemeral znode of a fixed name.
#[test]
fn a_lock_of_the_fixed_name_and_this_one_exclude_each_other() {
    let namespace = namespace();
    let (client, classical) = (client_in(&namespace), client_in(&namespace));
    let fixed = format!("{PATH}/lock");
    let create = || classical.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral).for_path(&fixed);
    create().unwrap();
    let mutex = mutex(&client);
    assert!(!mutex.acquire_timeout(Duration::from_millis(200)).unwrap(), "two holders");
    assert!(mutex.try_lock().unwrap().is_none(), "two holders");
    assert_eq!(classical.check_exists().for_path(&fixed).unwrap().unwrap().ephemeral_owner, classical.session_id());
    let held = scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock_timeout(PATIENCE).unwrap().map(|held| held.release().unwrap()));
        classical.delete().for_path(&fixed).unwrap();
        assert!(waiter.join().unwrap().is_some());
        mutex.lock().unwrap()
    });
    assert!(create().unwrap_err().is_node_exists());
    // Nor does its release, of a znode that was deleted by hand.
    classical.delete().for_path(&fixed).unwrap_err();
    assert!(held.is_valid());
    held.release().unwrap();
}

/// No lock can ever be there, and nothing is made on the way.
#[test]
fn a_path_below_somebodys_ephemeral_znode_is_an_error() {
    let client = client_in(&namespace());
    let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    create.for_path("/locks/worker").unwrap();
    let mutex = InterProcessUnfairMutex::new(&client, "/locks/worker/guard").unwrap();
    for result in [mutex.acquire(), mutex.acquire_timeout(PATIENCE).map(drop), mutex.try_lock().map(drop)] {
        assert_eq!(result.unwrap_err().code(), Some(curator_locks::ErrorCode::NoChildrenForEphemerals));
    }
    assert!(children(&client, "/locks/worker").is_empty());
}

#[test]
fn the_node_is_ephemeral_and_carries_the_lock_data() {
    let client = client_in(&namespace());
    let mutex = mutex(&client).with_lock_data("who and why");
    let mut paths = Vec::new();
    for _ in 0..2 {
        let held = mutex.lock().unwrap();
        let mut stat = Stat::default();
        let data = client.get_data().storing_stat_in(&mut stat).for_path(held.path()).unwrap();
        assert_eq!(stat.ephemeral_owner, client.session_id());
        assert_eq!((held.fencing_token().value(), data), (stat.czxid, b"who and why".to_vec()));
        assert_eq!(node(&client).as_deref(), Some(held.path()));
        paths.push(held.path().to_owned());
        held.release().unwrap();
    }
    assert_ne!(paths[0], paths[1], "a name is used again");
}

/// It never falls back on what is less than sure.
#[cfg(feature = "zookeeper")]
#[test]
fn a_session_without_transactions_is_refused_and_leaves_nothing() {
    let (namespace, servers) = (namespace(), support::server().connect_string());
    let factory = curator_locks::ZooKeeperSessionFactory::connecting(move || {
        zookeeper::ZooKeeper::connect(&servers, Duration::from_secs(10), |_| {})
    });
    let client = connect(builder(support::server(), &namespace).session_factory(factory));
    for result in [mutex(&client).acquire(), mutex(&client).acquire_timeout(PATIENCE).map(drop)] {
        assert_eq!(result.unwrap_err().code(), Some(curator_locks::ErrorCode::Unimplemented));
    }
    assert_eq!(children(&client_in(&namespace), HOLDER), [""; 0]);
}

#[test]
fn a_queue_in_the_same_directory_does_not_matter() {
    let client = client_in(&namespace());
    let name = format!("{PATH}/_c_0-lock-");
    client.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential).for_path(&name).unwrap();
    assert!(mutex(&client).acquire_timeout(Duration::ZERO).unwrap());
}
