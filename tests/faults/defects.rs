//! Curator's defects in sessions, protected creates and guaranteed deletes, one after the other (its letters are those of
//! its table): each test fails on Curator.

use std::time::{Duration, Instant};

use curator_locks::{
    ConnectionState::{Connected, Lost, Reconnected, Suspended},
    CreateMode, CuratorFramework, Error, InterProcessSemaphoreV2, RetryNTimes,
    testing::{Direction, Fault, FaultProxy, RequestMatch, TestingCluster, op},
};

use super::scene::*;

/// A client that gives its session up long before the server does.
fn hasty_client(scene: &Scene) -> (CuratorFramework, States) {
    let client = scene
        .builder(LONG / 4)
        .retry_policy(RetryNTimes::new(20, 200 * MS))
        .simulated_session_expiration_percent(1)
        .build()
        .unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, Connected);
    (client, states)
}

/// CURATOR-604: the client gives a session up that the server still has, and the old node comes to the head.
#[test]
fn defect_a_no_lock_is_granted_on_a_node_of_a_session_given_up() {
    let scene = scene();
    let (client, states) = hasty_client(&scene);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let waiting = client.clone();
    let waiter = spawn(move || {
        let mutex = mutex(&waiting);
        let held = mutex.lock().unwrap();
        let owner = waiting.check_exists().for_path(held.path()).unwrap().unwrap().ephemeral_owner;
        (owner, waiting.session_id(), held.is_valid(), held.release())
    });
    wait_for_nodes(&scene.observer, 2);
    let before = client.session_id();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&states, Suspended);
    expect_state(&states, Lost);
    holder.release().unwrap();
    // The old session's node is at the head now, and alive at the server.
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.proxy.pass().unwrap();
    expect_state(&states, Reconnected);
    let (owner, session, valid, released) = join(&waiter).1;
    figure("defect A: the session given up, the owner of the znode granted", (before, owner));
    released.unwrap();
    assert!(valid);
    assert_eq!(owner, session);
    assert_ne!(owner, before);
    wait_for_nodes(&scene.observer, 0);
}

/// As defect A, for a semaphore's lease.
#[test]
fn defect_a_no_lease_is_granted_on_a_node_of_a_session_given_up() {
    let scene = scene();
    let (client, states) = hasty_client(&scene);
    let lease = InterProcessSemaphoreV2::new(&scene.observer, "/leases", 1).unwrap().acquire().unwrap();
    let waiting = client.clone();
    let waiter = spawn(move || {
        let lease = InterProcessSemaphoreV2::new(&waiting, "/leases", 1).unwrap().acquire().unwrap();
        let path = format!("/leases/leases/{}", lease.node_name());
        let owner = waiting.check_exists().for_path(&path).unwrap().unwrap().ephemeral_owner;
        (owner, waiting.session_id(), lease.is_valid(), lease.close())
    });
    // Its first try takes its znode back; it waits when its watch on the leases is set.
    let watches = || scene.proxy.requests(op::GET_CHILDREN) + scene.proxy.requests(op::GET_CHILDREN_2) > 1;
    let waits = || watches() && children(&scene.observer, "/leases/locks").len() == 1;
    eventually("it waits", || {
        let two = || children(&scene.observer, "/leases/leases").len() == 2;
        waits() && two() && client.sync().for_path("/").is_ok() && two()
    });
    let before = client.session_id();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&states, Suspended);
    expect_state(&states, Lost);
    lease.close().unwrap();
    assert_eq!(children(&scene.observer, "/leases/leases").len(), 1);
    scene.proxy.pass().unwrap();
    expect_state(&states, Reconnected);
    let (owner, session, valid, closed) = join(&waiter).1;
    figure("defect A: the session given up, the owner of the lease granted", (before, owner));
    closed.unwrap();
    assert!(valid);
    assert_eq!(owner, session);
    assert_ne!(owner, before);
}

/// Two connection losses in one protected create: Curator's returns nothing, and its znode stays.
#[test]
fn defect_b_two_connection_losses_in_one_create_end_with_its_one_node() {
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let creates = || RequestMatch::creates().path(|path| path.contains("-lock-"));
    let never = scene.proxy.inject(creates(), Fault::CutInsteadOfRequest);
    let lost = scene.proxy.inject(creates(), Fault::CutInsteadOfReply);
    let path = scene
        .client
        .create()
        .with_protection()
        .with_mode(CreateMode::EphemeralSequential)
        .for_path(&format!("{LOCK}/x-lock-"))
        .unwrap();
    figure("defect B: losses, and what the create returned", (never.hits() + lost.hits(), &path));
    assert_eq!((never.hits(), lost.hits()), (1, 1));
    let names = nodes(&scene.observer);
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(path, format!("{LOCK}/{}", names[0]));
    scene.client.delete().for_path(&path).unwrap();
}

#[test]
fn defect_c_an_untimed_waiter_ends_when_its_client_is_closed() {
    let machine = Machine::watch();
    let scene = scene();
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let client = scene.client.clone();
    let waiter = spawn(move || mutex(&client).acquire());
    wait_for_nodes(&scene.observer, 2);
    let begin = Instant::now();
    scene.client.close();
    let (at, result) = join(&waiter);
    machine.assert_at_most("defect C: waiter woken after the close", begin..at, 1000 * MS);
    assert!(matches!(result, Err(Error::ClientClosed)), "{result:?}");
}

/// A release whose delete failed: Curator forgets that it ever held the lock.
#[test]
fn defect_g_a_release_whose_delete_failed_is_releasing_until_its_node_is_gone() {
    let machine = Machine::watch();
    let scene = scene_of(LONG / 2, hasty);
    let witness = Witness::of(&scene.server);
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&scene.states, Suspended);
    let result = mutex.release();
    assert!(matches!(result, Err(Error::ConnectionLoss { .. })), "{result:?}");
    assert!(mutex.is_acquired_in_this_process() && !mutex.is_owned_by_current_thread());
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.proxy.pass().unwrap();
    let reconnected = expect_state(&scene.states, Reconnected);
    let gone = wait_for_nodes(&scene.observer, 0);
    witness.assert_at_most(&machine, "defect G: node gone after the reconnect", reconnected..gone, 1000 * MS);
    // A second release waits for what the first has begun.
    mutex.release().unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    let begin = Instant::now();
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    figure("defect G: acquired again after", begin.elapsed());
}

/// The next acquire of the same process waits for its own znode to go, and does not wait for ever.
#[test]
fn defect_g_an_acquire_after_a_release_in_doubt_gets_the_lock() {
    // The release ends soon, and the acquire waits long enough for the connection to come back.
    let scene = scene_of(LONG, |builder| hasty(builder).connection_timeout(T));
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    scene.proxy.refuse();
    scene.proxy.cut();
    assert!(mutex.release().is_err());
    scene.proxy.pass().unwrap();
    let begin = Instant::now();
    mutex.acquire().unwrap();
    figure("defect G: acquired again after", begin.elapsed());
    assert_eq!(nodes(&scene.observer).len(), 1);
    mutex.release().unwrap();
    wait_for_nodes(&scene.observer, 0);
}

/// On the wire: after a doubt the first thing asked is a sync, and only behind it the list.
#[test]
fn defect_k_a_search_after_a_reconnect_begins_with_a_sync() {
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let creates = RequestMatch::creates().path(|path| path.contains("-lock-"));
    let fault = scene.proxy.inject(creates, Fault::CutInsteadOfReply);
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    assert_eq!(fault.hits(), 1);
    let log = scene.proxy.log();
    let last = log.last().map(|record| record.connection);
    let search: Vec<i32> = log
        .iter()
        .filter(|record| {
            Some(record.connection) == last && record.path.as_ref().is_some_and(|path| path.contains(LOCK))
        })
        .map(|record| record.op)
        .take(3)
        .collect();
    figure("defect K: the search, as operation codes", &search);
    assert_eq!(search, [op::SYNC, op::GET_CHILDREN, op::EXISTS]);
    mutex.release().unwrap();
}

/// The leader has proposed the create, and no quorum has acknowledged it yet, when the client comes to a follower, whose
/// list does not show it. Without the sync there would be a second create.
#[test]
fn defect_k_a_search_on_a_lagging_follower_finds_what_was_created() {
    let cluster = TestingCluster::builder(4).tick_time(500 * MS).sync_limit(120).severable(true).start().unwrap();
    let leader = cluster.wait_for_leader(LONG).unwrap();
    let [follower, one, two] = [1, 2, 3].map(|step| (leader + step) % 4);
    let (at_leader, at_follower) = (&cluster.servers()[leader], &cluster.servers()[follower]);
    let observer = client_of(&at_follower.connect_string(), Duration::from_secs(10));
    start(&observer);
    make_directory(&observer);
    observer.sync().for_path("/").unwrap();
    let first = FaultProxy::start(at_leader.connect_string()).unwrap();
    let second = FaultProxy::start(at_follower.connect_string()).unwrap();
    second.refuse();
    let client =
        builder_of(&format!("{},{}", first.connect_string(), second.connect_string()), Duration::from_secs(10))
            .connection_timeout(5000 * MS)
            .retry_policy(RetryNTimes::new(20, 200 * MS))
            .build()
            .unwrap();
    start(&client);
    client.sync().for_path(LOCK).unwrap();
    // Leader and follower alone are two of four: nothing is committed.
    for index in [one, two] {
        cluster.sever_way(index, Direction::ToServer).unwrap();
    }
    let locked = spawn(move || {
        let mutex = mutex(&client);
        let held = mutex.lock().unwrap();
        (held.path().to_owned(), held.is_valid(), held.release())
    });
    eventually("the create is at the leader", || first.requests(op::CREATE) == 1 && is_busy(at_leader));
    first.refuse();
    first.cut();
    second.pass().unwrap();
    eventually("the search has begun", || second.requests(op::SYNC) > 0 && second.requests(op::GET_CHILDREN) > 0);
    // What a search without a sync would be told, here and now.
    assert_eq!(nodes(&observer), [""; 0], "the follower does not lag");
    for index in [one, two] {
        cluster.mend(index).unwrap();
    }
    let (path, valid, released) = join(&locked).1;
    released.unwrap();
    assert!(valid);
    let creates = first.requests(op::CREATE) + second.requests(op::CREATE);
    figure("defect K: creates, and what was granted", (creates, path));
    assert_eq!(creates, 1);
    observer.sync().for_path(LOCK).unwrap();
    assert_eq!(nodes(&observer), [""; 0]);
}

/// Whether requests are under way in the server.
fn is_busy(server: &curator_locks::testing::TestingServer) -> bool {
    server.metric("zk_outstanding_requests").is_ok_and(|count| count > 0)
}
