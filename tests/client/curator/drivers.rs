//! Drivers from outside, and what an acquire does when theirs fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use curator_locks::{
    CreateMode, CuratorFramework, Decision, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    LockInternalsDriver, LostReason, RetryNTimes, StandardLockInternalsDriver,
    testing::{TestingServer, expire_session},
};

use crate::support::{
    self, PATIENCE, await_queue, builder, connect, eventually, namespace, queue, quick_server, server,
};

const PATH: &str = "/locks/m";

/// A mutex whose znodes outlive the session.
#[derive(Default)]
struct Persistent(StandardLockInternalsDriver);

impl LockInternalsDriver for Persistent {
    fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision {
        self.0.decide(children, own, max_leases)
    }

    fn lock_name(&self) -> &str {
        self.0.lock_name()
    }

    fn create_mode(&self) -> CreateMode {
        CreateMode::PersistentSequential
    }
}

fn persistent(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::with_driver(client, PATH, Persistent::default()).unwrap()
}

/// Ends the client's session, and waits for the next one.
fn expire(client: &CuratorFramework) {
    let id = client.session_id();
    expire_session(&server().connect_string(), id, &client.session_password()).unwrap();
    eventually("a new session", || client.is_connected() && client.session_id() != id);
}

#[test]
fn a_lock_of_persistent_nodes_outlives_its_session_and_its_release_deletes_the_node() {
    let client = support::client();
    let other = support::another(&client);
    let (mutex, rival) = (persistent(&client), persistent(&other));
    mutex.acquire().unwrap();
    let before = await_queue(&other, PATH, 1);
    expire(&client);
    assert_eq!(await_queue(&other, PATH, 1), before, "the znode outlives the session");
    assert!(mutex.is_acquired_in_this_process());
    assert!(!rival.acquire_timeout(Duration::from_millis(50)).unwrap(), "it is still held");
    await_queue(&other, PATH, 1);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    assert!(!rival.acquire_timeout(Duration::ZERO).unwrap(), "it was acquired twice");
    mutex.release().unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    assert!(rival.acquire_timeout(PATIENCE).unwrap());
    rival.release().unwrap();
    assert!(queue(&other, PATH).is_empty());
}

/// A lock that its caller holds already, and that will never be certain again, cannot be acquired together with others.
#[test]
fn a_multi_lock_does_not_wait_for_a_member_that_has_outlived_its_session() {
    let client = support::client();
    let (say, told) = std::sync::mpsc::channel();
    let of_thread = client.clone();
    std::thread::spawn(move || {
        let member: Arc<dyn InterProcessLock> = Arc::new(persistent(&of_thread));
        let multi = InterProcessMultiLock::from_locks([member.clone()]).unwrap();
        multi.acquire().unwrap();
        expire(&of_thread);
        let again = [multi.acquire(), multi.acquire_timeout(PATIENCE).map(drop), multi.try_lock().map(drop)];
        say.send(again).unwrap();
        say.send([multi.release(), member.release(), multi.acquire()]).unwrap();
        multi.release().unwrap();
    });
    for result in told.recv_timeout(PATIENCE).unwrap() {
        let is_lost = matches!(&result, Err(Error::LockLost { reason: LostReason::SessionExpired, .. }));
        assert!(is_lost, "{result:?}");
    }
    let [released, again, anew] = told.recv_timeout(PATIENCE).unwrap();
    assert!(released.is_ok() && anew.is_ok(), "{released:?} {anew:?}");
    assert!(matches!(again, Err(Error::NotOwner { .. })), "it was acquired once: {again:?}");
    await_queue(&client, PATH, 0);
}

#[test]
fn a_guard_of_a_persistent_node_that_is_dropped_after_the_session_deletes_the_node() {
    let client = support::client();
    let other = support::another(&client);
    let mutex = persistent(&client);
    let guard = mutex.lock().unwrap();
    expire(&client);
    assert!(!guard.is_lost() && !guard.is_valid(), "{:?}", guard.state());
    drop(guard);
    await_queue(&other, PATH, 0);
}

#[test]
fn a_waiter_with_a_persistent_node_whose_session_ends_leaves_no_second_node() {
    let client = support::client();
    let other = support::another(&client);
    let (held, wanted) = (persistent(&other), persistent(&client));
    held.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wanted.acquire().and_then(|()| wanted.release()));
        await_queue(&other, PATH, 2);
        expire(&client);
        await_queue(&other, PATH, 2);
        held.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
    await_queue(&other, PATH, 0);
}

/// Never sees its own znode.
struct Blind(Arc<dyn Fn() + Send + Sync>);

impl LockInternalsDriver for Blind {
    fn decide(&self, _children: &[String], _own: &str, _max_leases: usize) -> Decision {
        (self.0)();
        Decision::Missing
    }

    fn lock_name(&self) -> &str {
        "lock-"
    }
}

#[test]
fn an_acquire_that_never_sees_its_node_ends_with_no_node_and_leaves_none() {
    let retries = |count| {
        connect(builder(server(), &namespace()).retry_policy(RetryNTimes::new(count, Duration::from_millis(1))))
    };
    for count in [0, 3] {
        let client = retries(count);
        let blind = InterProcessMutex::with_driver(&client, PATH, Blind(Arc::new(|| {}))).unwrap();
        let error = blind.acquire().unwrap_err();
        assert!(error.is_no_node(), "{error:?}");
        assert!(!blind.is_acquired_in_this_process());
        await_queue(&client, PATH, 0);
    }
}

#[test]
fn the_error_of_an_acquire_survives_a_clean_up_that_fails() {
    let server = Arc::new(quick_server().start().unwrap());
    let client = connect(builder(&server, "fails").retry_policy(RetryNTimes::new(0, Duration::from_millis(1))));
    // The first time that the znode is not to be seen, the server is asked whether it is there.
    let (looks, goes_away) = (AtomicUsize::new(0), server.clone());
    let goes_away = move || {
        if looks.fetch_add(1, Ordering::Relaxed) == 1 {
            TestingServer::stop(&goes_away).unwrap();
        }
    };
    let blind = InterProcessMutex::with_driver(&client, PATH, Blind(Arc::new(goes_away))).unwrap();
    let error = blind.acquire().unwrap_err();
    assert!(error.is_no_node(), "{error:?}");
    assert!(!server.is_running());
    server.restart().unwrap();
    eventually("connected again", || client.is_connected());
    await_queue(&client, PATH, 0);
}
