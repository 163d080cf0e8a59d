//! One or two clients and a few leases.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, CreateMode, CuratorFramework, Error, InterProcessSemaphoreV2, Lease, LostReason,
    SharedCount, testing::TestingServer,
};

use crate::{
    kept::Kept,
    support::{
        PATIENCE, SESSION, builder, children, client_in, connect, eventually,
        machine::{Machine, since},
    },
};

const SHORT: Duration = Duration::from_millis(200);

/// One waits for leases at the head of the queue, with `count` znodes among the leases: not just a first try.
fn waits(client: &CuratorFramework, queued: usize, count: usize) {
    eventually("it waits", || {
        children(client, "/s/locks").len() == queued && children(client, "/s/leases").len() == count
    });
}

/// Waits until nobody else has or wants a lease. Where the server is slow, an acquire whose time is up leaves its znodes to
/// the background.
fn only(client: &CuratorFramework, lease: &Lease) {
    eventually("the others are gone", || {
        children(client, "/s/leases") == [lease.node_name()] && children(client, "/s/locks").is_empty()
    });
}

fn names(leases: &[Lease]) -> Vec<String> {
    let mut names: Vec<String> = leases.iter().map(|lease| lease.node_name().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_fourth_of_three_leases_gets_none_until_one_is_closed() {
    let client = client_in("simple2");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 3).unwrap();
    let mut leases: Vec<Lease> = (0..3).map(|_| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap()).collect();
    assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none());
    leases.pop().unwrap().close().unwrap();
    leases.push(semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
    semaphore.return_all(leases).unwrap();
    assert_eq!(semaphore.participant_nodes().unwrap(), [""; 0]);
}

#[test]
fn participant_nodes_are_the_names_of_the_leases_held() {
    let client = client_in("participants");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 10).unwrap();
    assert_eq!(semaphore.participant_nodes().unwrap(), [""; 0], "of a directory that does not exist");
    let mut leases = Vec::new();
    for count in 1..=3 {
        leases.extend(semaphore.acquire_many(count).unwrap());
        let mut participants = semaphore.participant_nodes().unwrap();
        participants.sort();
        assert_eq!(participants, names(&leases));
    }
    drop(leases);
    eventually("dropped leases are given back", || semaphore.participant_nodes().unwrap().is_empty());
}

#[test]
fn a_lease_is_a_protected_sequential_ephemeral_in_curators_directories() {
    let client = client_in("wire");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    semaphore.set_node_data(b"mine".to_vec());
    let lease = semaphore.acquire().unwrap();
    assert_eq!(lease.data().unwrap(), b"mine");
    let (uuid, rest) = lease.node_name().strip_prefix("_c_").unwrap().split_at(36);
    assert!(uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{uuid}");
    assert_eq!(rest, "-lease-0000000000");
    assert_eq!(lease.path(), format!("/s/leases/{}", lease.node_name()));
    let stat = client.check_exists().for_path(lease.path()).unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, client.session_id());
    assert_eq!(stat.czxid, lease.fencing_token().value());

    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap().close().unwrap());
        eventually("the waiter waits in both directories", || {
            children(&client, "/s/locks").len() == 1 && children(&client, "/s/leases").len() == 2
        });
        let [waits] = &children(&client, "/s/locks")[..] else { panic!("one waiter") };
        assert!(waits.starts_with("_c_") && waits[39..].starts_with("-lock-"), "{waits}");
        let path = format!("/s/locks/{waits}");
        assert_eq!(client.check_exists().for_path(&path).unwrap().unwrap().ephemeral_owner, client.session_id());
        lease.close().unwrap();
        waiter.join().unwrap();
    });
    assert_eq!(children(&client, "/s/leases"), [""; 0]);
    eventually("the queue is empty", || children(&client, "/s/locks").is_empty());
}

#[test]
fn an_uncontended_cycle_is_four_packets_however_often_it_is_run() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "packets"));
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 2).unwrap();
    semaphore.acquire().unwrap().close().unwrap();
    let (before, begin, mut slow) = (server.packets_received().unwrap(), Instant::now(), 0);
    for _ in 0..100 {
        let begin = Instant::now();
        semaphore.acquire().unwrap().close().unwrap();
        // After 100 ms a holder watches its znode, and gives that up again.
        slow += if begin.elapsed() >= Duration::from_millis(100) { 2 } else { 0 };
    }
    // The question itself is one. Heartbeats come in between.
    let packets = server.packets_received().unwrap() - before - 1;
    let heartbeats = 2 + begin.elapsed().as_secs() / (SESSION / 3).as_secs();
    println!("{packets} packets for 100 cycles");
    assert!((400..=400 + heartbeats + slow).contains(&packets), "{packets}, {slow} of slow cycles");
}

#[test]
fn timed_out_and_cancelled_acquires_leave_no_znode_and_no_watch() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "leftovers"));
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none()));
        }
    });
    for _ in 0..4 {
        let token = CancelToken::new();
        thread::scope(|scope| {
            let options = AcquireOptions::new().cancel_token(&token);
            let semaphore = &semaphore;
            let waiter = scope.spawn(move || semaphore.acquire_with(1, &options).unwrap_err());
            waits(&client, 1, 2);
            token.cancel();
            assert!(matches!(waiter.join().unwrap(), Error::Cancelled { path } if path == "/s"));
        });
        only(&client, &lease);
    }
    lease.close().unwrap();
    assert_eq!(children(&client, "/s/leases"), [""; 0]);
    eventually("no watch is left", || server.watch_count().unwrap() == 0);
    eventually("no znode is left", || server.ephemeral_count().unwrap() == 0);
}

#[test]
fn a_cancelled_waiter_in_the_queue_leaves_nothing_and_the_next_one_gets_the_lease() {
    let client = client_in("cancel_in_queue");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    let token = CancelToken::new();
    let options = AcquireOptions::new().cancel_token(&token);
    thread::scope(|scope| {
        let first = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
        waits(&client, 1, 2);
        let second = scope.spawn(|| semaphore.acquire_with(1, &options).unwrap_err());
        waits(&client, 2, 2);
        token.cancel();
        assert!(matches!(second.join().unwrap(), Error::Cancelled { .. }));
        waits(&client, 1, 2);
        lease.close().unwrap();
        first.join().unwrap().close().unwrap();
    });
    eventually("nothing is left", || {
        children(&client, "/s/locks").is_empty() && children(&client, "/s/leases").is_empty()
    });
}

#[test]
fn no_lease_at_all_and_more_than_there_are_is_refused_at_once() {
    let client = client_in("counts");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 2).unwrap();
    for count in [0, 3, usize::MAX] {
        match semaphore.acquire_many(count) {
            Err(Error::InvalidArgument { name: "count", value, .. }) => assert_eq!(value, count.to_string()),
            other => panic!("{other:?}"),
        }
    }
    let none = InterProcessSemaphoreV2::new(&client, "/none", 0).unwrap();
    assert!(matches!(none.acquire(), Err(Error::InvalidArgument { .. })));
    assert!(client.check_exists().for_path("/s").unwrap().is_none(), "nothing was sent");
    assert!(matches!(InterProcessSemaphoreV2::new(&client, "/", 1), Err(Error::InvalidPath { .. })));
}

#[test]
fn one_deadline_bounds_an_acquire_of_many() {
    let machine = Machine::watch();
    let client = client_in("deadline");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 3).unwrap();
    let lease = semaphore.acquire().unwrap();
    let asked = Duration::from_millis(500);
    let (kept, begin) = (Kept::from_now(), Instant::now());
    assert!(semaphore.acquire_many_timeout(3, asked).unwrap().is_none());
    assert!(begin.elapsed() >= asked, "it did not wait");
    machine.assert_at_most("an acquire of three", since(begin), asked * 2 + kept.so_far());
    only(&client, &lease);
    lease.close().unwrap();
    assert_eq!(semaphore.acquire_many_timeout(3, PATIENCE).unwrap().unwrap().len(), 3);
}

#[test]
fn waiters_get_their_leases_in_the_order_in_which_they_queued() {
    let client = client_in("fifo");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 2).unwrap();
    let leases = semaphore.acquire_many(2).unwrap();
    let (sender, order) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for k in 0..6 {
            let (semaphore, sender) = (&semaphore, sender.clone());
            // Of different sizes: who needs two is not overtaken by who needs one.
            scope.spawn(move || {
                let leases = semaphore.acquire_many_timeout(1 + k % 2, PATIENCE).unwrap().unwrap();
                sender.send(k).unwrap();
                semaphore.return_all(leases).unwrap();
            });
            eventually("it queues", || children(&client, "/s/locks").len() == k + 1);
        }
        semaphore.return_all(leases).unwrap();
    });
    let order: Vec<usize> = order.try_iter().collect();
    // With two leases, two neighbours in the queue may hold one each and report in any order.
    assert!(order.iter().enumerate().all(|(at, k)| at.abs_diff(*k) <= 1), "{order:?}");
}

#[test]
fn raising_the_shared_count_wakes_a_waiter() {
    let (client, other) = (client_in("increase"), client_in("increase"));
    let count = SharedCount::new(&client, "/count", 1).unwrap();
    count.start().unwrap();
    let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/s", &count).unwrap();
    let first = semaphore.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
        waits(&client, 1, 2);
        assert!(!waiter.is_finished());
        // By another process, as it were.
        let writer = SharedCount::new(&other, "/count", 7).unwrap();
        writer.start().unwrap();
        assert_eq!(writer.count(), 1, "the seed counts only where there is no znode");
        writer.set_count(2).unwrap();
        waiter.join().unwrap().close().unwrap();
    });
    first.close().unwrap();
}

#[test]
fn a_waiter_for_more_than_the_shared_count_waits_until_it_is_raised_far_enough() {
    let client = client_in("raise_for_many");
    let count = SharedCount::new(&client, "/count", 0).unwrap();
    count.start().unwrap();
    let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/s", &count).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_many_timeout(3, PATIENCE).unwrap().unwrap());
        waits(&client, 1, 3);
        for limit in [1, 2] {
            count.set_count(limit).unwrap();
        }
        assert!(semaphore.acquire_many_timeout(1, SHORT).unwrap().is_none(), "behind the waiter");
        assert!(!waiter.is_finished());
        count.set_count(3).unwrap();
        assert_eq!(waiter.join().unwrap().len(), 3);
    });
}

#[test]
fn lowering_the_shared_count_revokes_nothing_and_holds_back_newcomers() {
    let client = client_in("lower");
    let count = SharedCount::new(&client, "/count", 3).unwrap();
    count.start().unwrap();
    let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/s", &count).unwrap();
    let mut leases = semaphore.acquire_many(3).unwrap();
    count.set_count(1).unwrap();
    assert!(leases.iter().all(|lease| lease.is_valid()));
    for _ in 0..2 {
        leases.pop().unwrap().close().unwrap();
        assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none());
    }
    leases.pop().unwrap().close().unwrap();
    semaphore.acquire_timeout(PATIENCE).unwrap().unwrap().close().unwrap();
}

#[test]
fn a_waiter_whose_node_is_deleted_gets_a_lease_all_the_same_and_leaves_no_orphan() {
    let client = client_in("orphans");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
        let mut seen = vec![lease.node_name().to_owned()];
        // Again and again, also one that was made anew.
        for _ in 0..3 {
            let mut fresh = None;
            eventually("it waits with a new node", || {
                if children(&client, "/s/locks").is_empty() {
                    return false; // a first try
                }
                fresh = children(&client, "/s/leases").into_iter().find(|name| !seen.contains(name));
                fresh.is_some()
            });
            let name = fresh.unwrap();
            client.delete().for_path(&format!("/s/leases/{name}")).unwrap();
            seen.push(name);
        }
        waits(&client, 1, 2);
        lease.close().unwrap();
        waiter.join().unwrap().close().unwrap();
    });
    assert_eq!(children(&client, "/s/leases"), [""; 0]);
    eventually("the queue is empty", || children(&client, "/s/locks").is_empty());
}

#[test]
fn a_waiter_whose_place_is_deleted_queues_again_and_blocks_nobody() {
    let client = client_in("place");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap().close().unwrap());
        waits(&client, 1, 2);
        let place = children(&client, "/s/locks").remove(0);
        client.delete().for_path(&format!("/s/locks/{place}")).unwrap();
        let second = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap().close().unwrap());
        waits(&client, 2, 2);
        lease.close().unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
    eventually("nothing is left", || {
        children(&client, "/s/locks").is_empty() && children(&client, "/s/leases").is_empty()
    });
}

#[test]
fn the_holder_learns_that_its_lease_was_deleted() {
    let client = client_in("deleted");
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    client.delete().for_path(lease.path()).unwrap();
    eventually("the lease is lost", || lease.is_lost());
    assert!(matches!(lease.data(), Err(error) if error.is_no_node()));
    match lease.close() {
        Err(Error::LockLost { path, reason: LostReason::NodeDeleted }) => assert_eq!(path, "/s"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn children_without_a_number_are_no_leases() {
    let client = client_in("foreign");
    for name in ["!first", "zzz"] {
        client.create().creating_parents_if_needed().for_path(&format!("/s/leases/{name}")).unwrap();
    }
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 1).unwrap();
    let lease = semaphore.acquire_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(semaphore.participant_nodes().unwrap(), [lease.node_name()]);
    // As Curator's.
    let foreign = client.create().with_mode(CreateMode::EphemeralSequential).for_path("/s/leases/x-").unwrap();
    lease.close().unwrap();
    assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none(), "{foreign} holds the lease");
}

#[test]
fn more_leases_than_a_count_can_say_are_refused() {
    let client = client_in("too-many");
    let count = SharedCount::new(&client, "/count", 2).unwrap();
    count.start().unwrap();
    let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/s", &count).unwrap();
    let refused = semaphore.acquire_many(usize::MAX);
    assert!(
        matches!(&refused, Err(Error::InvalidArgument { name: "count", value, .. }) if *value == usize::MAX.to_string()),
        "{refused:?}"
    );
    assert_eq!(children(&client, "/s"), [""; 0]);
}
