//! Who owns a lock, how often, and who may release it.

use std::{thread, time::Duration};

use curator_locks::{AcquireOptions, Caching, Error, InterProcessMutex, LockInternals};

use crate::support::{self, PATIENCE, another, await_queue, builder, connect, eventually, mutex, queue};

#[test]
fn each_release_of_a_lost_lock_says_so_and_the_last_one_ends_it() {
    let client = support::client();
    let mutex = mutex(&client);
    let guards = [mutex.lock().unwrap(), mutex.lock().unwrap()];
    mutex.acquire().unwrap();
    mutex.acquire().unwrap();
    client.delete().for_path(guards[0].path()).unwrap();
    eventually("the holder knows", || guards[0].is_lost());
    for _ in 0..2 {
        let result = mutex.release();
        assert!(matches!(&result, Err(Error::LockLost { .. })), "{result:?}");
    }
    for guard in guards {
        assert!(mutex.is_owned_by_current_thread());
        let result = guard.release();
        assert!(matches!(&result, Err(Error::LockLost { .. })), "{result:?}");
    }
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn another_thread_sees_the_hold_and_owns_nothing_of_it() {
    let client = support::client();
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(mutex.is_acquired_in_this_process() && !mutex.is_owned_by_current_thread());
            assert_eq!(mutex.lock_path(), None);
        });
    });
    assert!(mutex.is_owned_by_current_thread());
    mutex.release().unwrap();
}

#[test]
fn a_timeout_of_zero_gets_a_free_lock_and_no_other() {
    let client = support::client();
    let other = another(&client);
    let (ours, theirs) = (mutex(&client), mutex(&other));
    assert!(ours.acquire_timeout(Duration::ZERO).unwrap());
    assert!(!theirs.acquire_timeout(Duration::ZERO).unwrap());
    assert!(theirs.try_lock().unwrap().is_none());
    assert!(theirs.lock_with(&AcquireOptions::new().timeout(Duration::ZERO)).unwrap().is_none());
    assert_eq!(queue(&client, "/locks/m").len(), 1);
    ours.release().unwrap();
    let guard = theirs.try_lock().unwrap().unwrap();
    assert!(ours.try_lock().unwrap().is_none());
    guard.release().unwrap();
    assert!(ours.lock_timeout(PATIENCE).unwrap().is_some());
}

#[test]
fn participants_come_in_the_order_of_the_queue() {
    let client = support::client();
    let mutex = mutex(&client);
    assert!(mutex.participant_nodes().unwrap().is_empty());
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let mut nodes = vec![mutex.lock_path().unwrap()];
        let mut threads = Vec::new();
        for length in 2..=6 {
            threads.push(scope.spawn(|| {
                mutex.acquire().unwrap();
                let path = mutex.lock_path().unwrap();
                mutex.release().unwrap();
                path
            }));
            nodes = await_queue(&client, "/locks/m", length);
        }
        assert_eq!(mutex.participant_nodes().unwrap(), nodes);
        assert!(nodes.iter().all(|node| node.starts_with("/locks/m/_c_") && node.contains("-lock-")), "{nodes:?}");
        mutex.release().unwrap();
        let granted: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(granted, nodes[1..]);
    });
}

#[test]
fn a_lock_carries_its_data_or_the_clients_default() {
    let client = connect(builder(support::server(), &support::namespace()).default_data("the default"));
    let mutexes = [mutex(&client), mutex(&client).with_lock_data("its own"), mutex(&client).with_lock_data("")];
    for (mutex, data) in mutexes.iter().zip(["the default", "its own", ""]) {
        mutex.acquire().unwrap();
        assert_eq!(client.get_data().for_path(&mutex.lock_path().unwrap()).unwrap(), data.as_bytes());
        mutex.release().unwrap();
    }
    let plain = support::client();
    let mutex = mutex(&plain);
    mutex.acquire().unwrap();
    let data = plain.get_data().for_path(&mutex.lock_path().unwrap()).unwrap();
    let address = String::from_utf8(data).unwrap();
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address:?} is not this machine's address");
    mutex.release().unwrap();
}

#[test]
fn cleaning_removes_a_directory_that_nobody_uses() {
    let namespace = support::namespace();
    let client = connect(builder(support::server(), &namespace).dont_use_container_parents());
    let mutex = InterProcessMutex::new(&client, "/locks/m").unwrap();
    mutex.internals().clean().unwrap();
    mutex.acquire().unwrap();
    mutex.internals().clean().unwrap();
    assert_eq!(LockInternals::participant_nodes(&client, "/locks/m").unwrap().len(), 1);
    mutex.release().unwrap();
    assert!(client.check_exists().for_path("/locks/m").unwrap().is_some());
    mutex.internals().clean().unwrap();
    assert_eq!(client.check_exists().for_path("/locks/m").unwrap(), None);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

#[test]
fn a_thread_holds_a_mutex_that_is_not_re_entrant_once() {
    let client = support::client();
    for caching in [None, Some(Caching::new())] {
        let mutex = mutex(&client).non_reentrant();
        let mutex = caching.into_iter().fold(mutex, InterProcessMutex::with_caching);
        for _ in 0..2 {
            let held = mutex.lock().unwrap();
            let again = mutex.acquire();
            assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{again:?}");
            let again = mutex.acquire_timeout(PATIENCE);
            assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{again:?}");
            assert!(mutex.try_lock().unwrap().is_none());
            held.release().unwrap();
        }
        let held = mutex.lock().unwrap();
        client.delete().for_path(held.path()).unwrap();
        eventually("the holder knows", || held.is_lost());
        let again = mutex.acquire();
        assert!(matches!(again, Err(Error::LockLost { .. })), "{again:?}");
        assert!(matches!(held.release(), Err(Error::LockLost { .. })));
        mutex.run(|_| ()).unwrap();
    }
}
