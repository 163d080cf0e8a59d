//! A tenure that ends otherwise than by its owner's will.

use std::{
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::bounded;
use curator_locks::{
    Acl, CuratorFramework, Error, HoldState, LostReason, RetryNTimes, Revoker, perms,
    testing::{FaultProxy, TestingServer},
};

use crate::{
    local::cached,
    support::{self, PATIENCE, another, builder, builder_at, connect, eventually, mutex, namespace, queue, server},
};

const PATH: &str = "/locks/m";

fn patient_client() -> CuratorFramework {
    let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(1));
    connect(builder(server(), &namespace()).retry_policy(retry).lock_recheck_interval(None))
}

#[test]
fn a_lost_session_ends_the_tenure_and_those_who_wait_keep_their_order() {
    let client = patient_client();
    let mutex = cached(&client);
    let held = mutex.lock().unwrap();
    let changes = held.state_changes();
    let order = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5)
            .map(|k| {
                let (mutex, order) = (&mutex, &order);
                let waiter = scope.spawn(move || {
                    let held = mutex.lock().unwrap();
                    order.lock().push((k, held.fencing_token()));
                    held.release().unwrap();
                });
                eventually("it waits", || mutex.local_waiters() == k + 1);
                waiter
            })
            .collect();
        support::expire(&client);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    let last = std::iter::from_fn(|| changes.recv_timeout(PATIENCE).ok()).last();
    assert_eq!(last, Some(HoldState::Lost(LostReason::SessionExpired)));
    let token = held.fencing_token();
    assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::SessionExpired, .. })));
    let order = order.into_inner();
    assert!(order.iter().map(|(k, _)| *k).eq(0..5), "{order:?}");
    assert!(order.iter().all(|(_, later)| *later > token) && order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
}

#[test]
fn an_administrators_delete_tells_the_holder_and_lets_the_next_one_in() {
    let client = patient_client();
    let mutex = cached(&client);
    for _ in 0..20 {
        let held = mutex.lock().unwrap();
        let changes = held.state_changes();
        thread::scope(|scope| {
            let waits = scope.spawn(|| mutex.lock().unwrap().release());
            eventually("it waits", || mutex.local_waiters() == 1);
            client.delete().for_path(held.path()).unwrap();
            waits.join().unwrap().unwrap();
        });
        let last = std::iter::from_fn(|| changes.recv_timeout(PATIENCE).ok()).last();
        assert_eq!(last, Some(HoldState::Lost(LostReason::NodeDeleted)));
        assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
    }
}

#[test]
fn an_idle_lock_whose_znode_is_deleted_is_had_anew() {
    let client = patient_client();
    let mutex = cached(&client);
    for _ in 0..50 {
        let held = mutex.lock().unwrap();
        let (path, token) = (held.path().to_owned(), held.fencing_token());
        held.release().unwrap();
        client.delete().for_path(&path).unwrap();
        // The watch tells before the answer to the delete.
        let held = mutex.lock().unwrap();
        assert!(held.is_valid() && held.fencing_token() > token);
        if held.path() == path {
            // The watch was not in place yet: this grant is younger than the news.
            eventually("it is told", || held.is_lost());
            assert!(held.release().is_err());
        } else {
            held.release().unwrap();
        }
    }
}

#[test]
fn no_lock_is_handed_out_while_there_is_no_connection() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server.port())).unwrap();
    let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(1));
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).retry_policy(retry));
    let mutex = cached(&client);
    let begin = Instant::now();
    let node = mutex.lock().unwrap().path().to_owned();
    // Where the question who else is there gets no answer, somebody may be. A server names nobody who watches children.
    eventually("the watches", || server.watch_count().unwrap() == 2);
    client.check_exists().for_path(&node).unwrap();
    proxy.refuse();
    proxy.cut();
    eventually("the connection is gone", || !client.is_connected());
    // An idle lock is listed after a second, and given back where that has no answer.
    let is_listed = begin.elapsed() >= Duration::from_secs(1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let held = mutex.lock().unwrap();
            assert!(client.is_connected());
            held.path().to_owned()
        });
        // Whoever has the turn cannot make sure of it, and whoever waits behind has none.
        assert!(!mutex.acquire_timeout(Duration::from_millis(300)).is_ok_and(|is_held| is_held));
        assert!(!waits.is_finished());
        proxy.pass().unwrap();
        let path = waits.join().unwrap();
        assert!(path == node || is_listed, "{path}: the session lives, and {node} was there all the time");
    });
}

/// CVE-2024-23944: servers tell nobody of the end of a znode that it may not read.
#[test]
fn a_list_without_its_znode_tells_a_holder_of_the_loss() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()));
    let mutex = cached(&client);
    let held = mutex.lock().unwrap();
    eventually("the watches", || server.watch_count().unwrap() == 2);
    let everybody = Acl { perms: perms::ALL & !perms::READ, ..Acl::open_unsafe().remove(0) };
    client.set_acl().for_path(held.path(), vec![everybody]).unwrap();
    client.delete().for_path(held.path()).unwrap();
    eventually("it is told", || held.is_lost());
    assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
}

/// As without caching: a guard that has outlived its lock object hears of requests, and gives the lock back.
#[test]
fn a_guard_without_its_lock_object_is_asked_for_the_lock() {
    let client = support::client();
    for lock in [mutex(&client), cached(&client)] {
        let (asked, is_asked) = bounded(1);
        lock.on_revocation(move |request| {
            asked.send(request.hold().map(|hold| hold.fencing_token())).unwrap();
            request.release();
        });
        let held = lock.lock().unwrap();
        drop(lock);
        Revoker::request(&client, held.path(), "an operator", "maintenance").unwrap();
        assert_eq!(is_asked.recv_timeout(PATIENCE).unwrap(), Some(held.fencing_token()));
        eventually("it is given back", || queue(&client, PATH).is_empty());
    }
}

#[test]
fn closing_the_client_ends_every_wait() {
    let client = support::client();
    let watching = another(&client);
    let mutex = cached(&client);
    let held = mutex.lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| mutex.acquire())).collect();
        eventually("all wait", || mutex.local_waiters() == 5);
        client.close();
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(Error::ClientClosed)));
        }
    });
    assert_eq!(held.state(), HoldState::Lost(LostReason::ClientClosed));
    assert!(held.release().is_err());
    assert!(matches!(mutex.acquire(), Err(Error::ClientClosed)));
    eventually("nothing is left", || queue(&watching, PATH).is_empty());
}

#[test]
fn a_lock_that_others_have_is_waited_for_by_one_znode_of_the_process() {
    let client = support::client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), mutex(&other));
    plain.acquire().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| kept.lock().unwrap().release().unwrap())).collect();
        eventually("all wait", || kept.local_waiters() == 4 && queue(&other, PATH).len() == 2);
        let begin = Instant::now();
        assert!(!kept.acquire_timeout(Duration::ZERO).unwrap());
        assert!(!kept.acquire_timeout(Duration::from_millis(50)).unwrap());
        assert!(begin.elapsed() >= Duration::from_millis(50));
        plain.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(queue(&other, PATH).len(), 1);
}
