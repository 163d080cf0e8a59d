//! Locks over a handle of the package `zookeeper`, beside locks over this crate's session.
//!
//! Special here, as the package has no such requests or keeps things to itself:
//! - container parents: parents are plain persistent znodes (`parents_are_plain_persistent_znodes`);
//! - the session's password cannot be had (`the_password_is_unknown_and_the_id_is_the_handles`);
//! - search with `sync`: a write stands in for it;
//! - create and list in one round trip: one request at a time;
//! - multi, TTL (`what_the_package_cannot_do_is_unimplemented`);
//! - any number of cuts within one session: the package gives its handle up
//!   (`a_cut_later_than_the_session_timeout_ends_the_session_and_another_follows`).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    PATIENCE, builder_at, connect, eventually,
    machine::{Machine, since},
    relay::Relay,
    server,
};
use curator_locks::{
    Acl, Builder, ConnectionState, CreateMode, CuratorFramework, Error, ErrorCode, HoldState, InterProcessMutex,
    LockGuard, LostReason, RetryNTimes, ZooKeeperSessionFactory, perms,
    testing::{Fault, FaultProxy, RequestMatch, TestingServer, op},
};
use zookeeper::{ZkError, ZooKeeper};

/// Longer than this machine lets a process stand still.
const SESSION: Duration = Duration::from_secs(15);

fn builder(address: &str, namespace: &str, session: Duration) -> Builder {
    builder_at(address, namespace).session_timeout(session).retry_policy(RetryNTimes::new(3, Duration::from_millis(50)))
}

fn native(address: &str, namespace: &str) -> CuratorFramework {
    connect(builder(address, namespace, SESSION))
}

fn handle(address: &str, session: Duration) -> Arc<ZooKeeper> {
    Arc::new(ZooKeeper::connect(address, session, |_| {}).unwrap())
}

/// Over a handle that the program holds.
fn given(address: &str, namespace: &str) -> (CuratorFramework, Arc<ZooKeeper>) {
    let handle = handle(address, SESSION);
    let factory = ZooKeeperSessionFactory::new(handle.clone());
    (connect(builder(address, namespace, SESSION).session_factory(factory)), handle)
}

/// Over handles that are made as needed. To be closed before the relay goes that it connects through: a handle that finds no server
/// any more tries again without a pause until its session timeout has passed, on a whole processor.
fn connecting(address: &str, namespace: &str, session: Duration) -> CuratorFramework {
    let to = address.to_owned();
    let factory = ZooKeeperSessionFactory::connecting(move || ZooKeeper::connect(&to, session, |_| {}));
    connect(builder(address, namespace, session).session_factory(factory))
}

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, "/lock").unwrap()
}

fn queue(client: &CuratorFramework) -> usize {
    mutex(client).participant_nodes().unwrap().len()
}

#[test]
fn a_panic_while_a_handle_is_made_is_no_more_than_a_failed_attempt() {
    let server = server();
    let (address, attempts) = (server.connect_string(), AtomicUsize::new(0));
    let to = address.clone();
    let factory = ZooKeeperSessionFactory::connecting(move || {
        assert!(attempts.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        ZooKeeper::connect(&to, SESSION, |_| {})
    });
    let client = connect(builder(&address, "panic", SESSION).session_factory(factory));
    mutex(&client).lock().unwrap().release().unwrap();
}

/// As the factory's docs have it look for a server first, which keeps the package from trying without a pause.
#[test]
fn a_connect_that_finds_no_server_is_called_again_after_a_pause_each_time() {
    const CALLS: u32 = 6;
    let server = server();
    let (address, called) = (server.connect_string(), Arc::new(Mutex::new(Vec::new())));
    let (to, calls) = (address.clone(), called.clone());
    let factory = ZooKeeperSessionFactory::connecting(move || {
        let mut calls = calls.lock().unwrap();
        calls.push(Instant::now());
        if calls.len() < CALLS as usize {
            return Err(ZkError::ConnectionLoss);
        }
        ZooKeeper::connect(&to, SESSION, |_| {})
    });
    let client = connect(builder(&address, "away", SESSION).session_factory(factory));
    mutex(&client).lock().unwrap().release().unwrap();
    let called = called.lock().unwrap();
    let pauses: Vec<Duration> = called.windows(2).map(|calls| calls[1] - calls[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(100)), "{pauses:?}");
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came_whatever_their_session() {
    let server = server();
    let native = native(&server.connect_string(), "fifo");
    let (client, _handle) = given(&server.connect_string(), "fifo");
    let first = mutex(&native);
    first.acquire().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..6 {
            let (client, order) = (if number % 2 == 0 { &client } else { &native }, &order);
            scope.spawn(move || {
                let lock = mutex(client);
                lock.acquire().unwrap();
                order.lock().unwrap().push(number);
                lock.release().unwrap();
            });
            eventually("queued", || queue(&native) == number + 2);
        }
        first.release().unwrap();
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn two_handles_and_a_native_client_never_hold_together() {
    let server = server();
    let address = server.connect_string();
    let (one, _one) = given(&address, "exclusion");
    let other = connecting(&address, "exclusion", SESSION);
    let native = native(&address, "exclusion");
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in [&one, &one, &other, &other, &native, &native] {
            let (inside, entered) = (&inside, &entered);
            scope.spawn(move || {
                let lock = mutex(client);
                for _ in 0..10 {
                    let held = lock.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    entered.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    held.release().unwrap();
                }
            });
        }
    });
    assert_eq!(entered.load(Ordering::SeqCst), 60);
    assert_eq!(queue(&native), 0);
}

#[test]
fn tokens_grow_and_a_hold_is_certain_at_once_over_a_handle_of_its_own_else_after_two_heartbeats() {
    let server = server();
    let own = connecting(&server.connect_string(), "tokens", SESSION);
    let (shared, _handle) = given(&server.connect_string(), "tokens");
    let held = mutex(&own);
    let held = held.lock().unwrap();
    assert!(held.is_valid());
    assert!(held.valid_until() <= Instant::now() + SESSION);
    let earlier = held.fencing_token();
    held.release().unwrap();
    let held = mutex(&shared);
    let held = held.lock().unwrap();
    assert!(held.fencing_token() > earlier);
    eventually("certain", || held.state() == HoldState::Held);
    // Heartbeats go on.
    let begin = Instant::now();
    eventually("certain for longer and longer", || held.valid_until() > begin + SESSION + SESSION / 3);
    assert!(!held.is_lost());
    held.release().unwrap();
}

#[test]
fn parents_are_plain_persistent_znodes() {
    let server = server();
    let (client, _handle) = given(&server.connect_string(), "parents");
    mutex(&client).lock().unwrap().release().unwrap();
    let stat = client.check_exists().for_path("/lock").unwrap().unwrap();
    assert_eq!((stat.ephemeral_owner, stat.num_children), (0, 0));
}

#[test]
fn the_password_is_unknown_and_the_id_is_the_handles() {
    let server = server();
    let (client, handle) = given(&server.connect_string(), "");
    assert_eq!(client.session_password(), Vec::<u8>::new());
    let acl = zookeeper::Acl::open_unsafe().clone();
    handle.create("/whose", Vec::new(), acl, zookeeper::CreateMode::Ephemeral).unwrap();
    assert_eq!(handle.exists("/whose", false).unwrap().unwrap().ephemeral_owner, client.session_id());
}

#[test]
fn what_the_package_cannot_do_is_unimplemented() {
    let server = server();
    let (client, _handle) = given(&server.connect_string(), "");
    let ttl = client.create().with_mode(CreateMode::PersistentWithTtl(1000)).for_path("/ttl");
    assert_eq!(ttl.unwrap_err().code(), Some(ErrorCode::Unimplemented));
}

/// The package has no name for the code of a session that the server does not know.
#[test]
fn an_acquire_that_meets_a_session_that_is_gone_goes_on_in_the_next_and_one_refused_for_another_reason_says_so() {
    const UNKNOWN_SESSION: i32 = -12;
    let server = server();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let (client, _handle) = given(&proxy.connect_string(), "nameless");
    let mutex = mutex(&client);
    mutex.lock().unwrap().release().unwrap();
    let refuse = |op, times| proxy.inject(RequestMatch::op(op).times(times), Fault::Refuse(UNKNOWN_SESSION));
    // The question which session the handle has is refused, too, and asked again.
    let refused = [refuse(op::CREATE, 1), refuse(op::SET_DATA, 3)];
    mutex.lock().unwrap().release().unwrap();
    assert_eq!(refused.map(|refused| refused.hits()), [1, 3]);
    let refused = refuse(op::CREATE, 1);
    assert_eq!(mutex.lock().unwrap_err().code(), Some(ErrorCode::Unimplemented));
    assert_eq!(refused.hits(), 1);
    // Nor is the znode of a hold forgotten that is refused its delete as the client closes.
    let _held = mutex.lock().unwrap();
    let refused = refuse(op::DELETE, 2);
    client.close();
    let native = native(&server.connect_string(), "nameless");
    eventually("the znode is gone", || refused.hits() == 2 && queue(&native) == 0);
}

#[test]
fn closing_the_client_deletes_its_znodes_and_leaves_the_handle_open() {
    let server = server();
    let native = native(&server.connect_string(), "closing");
    let (client, handle) = given(&server.connect_string(), "closing");
    let id = client.session_id();
    mutex(&client).acquire().unwrap();
    thread::scope(|scope| {
        let other = client.using_namespace("closing").unwrap();
        let waiter = scope.spawn(move || mutex(&other).acquire());
        eventually("queued", || queue(&native) == 2);
        client.close();
        assert!(matches!(waiter.join().unwrap(), Err(Error::ClientClosed)));
    });
    eventually("the queue is empty", || queue(&native) == 0);
    let is_probe = |name: &String| name.starts_with("_curator_locks_");
    let of_session = |name: &String| {
        handle.exists(&format!("/{name}"), false).unwrap().is_some_and(|stat| stat.ephemeral_owner == id)
    };
    eventually("the probe is gone", || {
        !handle.get_children("/", false).unwrap().iter().any(|name| is_probe(name) && of_session(name))
    });
    let again = connect(
        builder(&server.connect_string(), "closing", SESSION).session_factory(ZooKeeperSessionFactory::new(handle)),
    );
    assert_eq!(again.session_id(), id);
    mutex(&again).lock().unwrap().release().unwrap();
}

#[test]
fn a_connection_cut_soon_keeps_the_session_and_the_lock_and_wakes_the_waiter_whose_event_was_lost() {
    let server = server();
    let relay = Relay::to(&server.connect_string());
    let native = native(&server.connect_string(), "cut");
    // Younger than its session timeout throughout, or the package gives it up.
    let client = connecting(relay.address(), "cut", Duration::from_secs(40));
    let kept = InterProcessMutex::new(&client, "/kept").unwrap();
    let kept = kept.lock().unwrap();
    let id = client.session_id();
    let first = mutex(&native);
    first.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let lock = mutex(&client);
            lock.acquire().and_then(|()| lock.release())
        });
        eventually("the waiter has its watch", || queue(&native) == 2 && server.watch_count().unwrap() >= 1);
        relay.silence(true);
        first.release().unwrap();
        relay.cut();
        relay.silence(false);
        waiter.join().unwrap().unwrap();
    });
    assert!(relay.accepted() >= 2);
    assert_eq!(client.session_id(), id);
    eventually("valid again", || kept.is_valid());
    kept.release().unwrap();
    client.close();
}

#[test]
fn a_waiter_that_may_not_watch_its_predecessor_again_after_a_cut_is_told_so() {
    let server = server();
    let relay = Relay::to(&server.connect_string());
    let native = native(&server.connect_string(), "unreadable");
    let client = connecting(relay.address(), "unreadable", Duration::from_secs(40));
    let first = mutex(&native);
    let held = first.lock().unwrap();
    let (tell, told) = crossbeam_channel::bounded(1);
    let waiter = thread::spawn(move || {
        tell.send(mutex(&client).acquire()).unwrap();
        client.close();
    });
    eventually("the waiter has its watch", || queue(&native) == 2 && server.watch_count().unwrap() >= 1);
    let acl = vec![Acl { perms: perms::ALL & !perms::READ, scheme: "world".into(), id: "anyone".into() }];
    native.set_acl().for_path(held.path(), acl).unwrap();
    relay.cut();
    let refused = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::NoAuth));
    waiter.join().unwrap();
    eventually("its znode is gone", || queue(&native) == 1);
    held.release().unwrap();
}

#[test]
fn a_black_hole_is_noticed_the_holder_is_told_and_calls_end_in_time() {
    let machine = Machine::watch();
    let server = server();
    let relay = Relay::to(&server.connect_string());
    let session = Duration::from_secs(3);
    let client = connecting(relay.address(), "hole", session);
    let lock = mutex(&client);
    let held = lock.lock().unwrap();
    eventually("certain", || held.is_valid());
    let changes = held.state_changes();
    relay.deafen(true);
    relay.silence(true);
    let begin = Instant::now();
    let is_gone = |state| matches!(state, Some(ConnectionState::Suspended | ConnectionState::Lost));
    eventually("suspended", || is_gone(client.connection_state()));
    machine.assert_at_most("suspended", since(begin), session * 2 / 3 + Duration::from_millis(500));
    assert_eq!(changes.recv_timeout(PATIENCE), Ok(HoldState::InDoubt));
    machine.assert_at_most("in doubt", since(begin), session);

    let other = InterProcessMutex::new(&client, "/other").unwrap();
    let call = Instant::now();
    let _ = other.acquire_timeout(Duration::from_millis(500));
    machine.assert_at_most("a call of half a second", since(call), Duration::from_secs(1));

    // The doubt may have been about something else, and over for a while.
    let last = std::iter::from_fn(|| changes.recv_timeout(PATIENCE).ok()).last();
    assert!(matches!(last, Some(HoldState::Lost(_))), "{last:?}");
    relay.deafen(false);
    relay.silence(false);
    relay.cut();
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    eventually("usable again", || lock.lock().and_then(LockGuard::release).is_ok());
    client.close();
}

#[test]
fn a_server_that_restarts_soon_keeps_the_session_and_the_lock() {
    let server = TestingServer::start().unwrap();
    let (address, session) = (server.connect_string(), Duration::from_secs(40));
    let factory = ZooKeeperSessionFactory::new(handle(&address, session));
    let client = connect(builder(&address, "", session).session_factory(factory));
    let lock = mutex(&client);
    let held = lock.lock().unwrap();
    let id = client.session_id();
    server.restart().unwrap();
    eventually("connected again", || client.connection_state() == Some(ConnectionState::Reconnected));
    eventually("the call succeeds", || client.check_exists().for_path(held.path()).is_ok_and(|stat| stat.is_some()));
    assert_eq!(client.session_id(), id);
    held.release().unwrap();
    client.close();
}

mod slow {
    use super::*;

    #[test]
    fn a_cut_later_than_the_session_timeout_ends_the_session_and_another_follows() {
        let server = server();
        let relay = Relay::to(&server.connect_string());
        let client = connecting(relay.address(), "late", SESSION);
        let (id, lock) = (client.session_id(), mutex(&client));
        let held = lock.lock().unwrap();
        let begin = Instant::now();
        // On a busy machine a heartbeat may come late, and the next one makes the lock certain again.
        eventually("older than the session timeout, and held", || begin.elapsed() > SESSION * 5 / 4 && held.is_valid());
        relay.cut();
        eventually("told", || held.is_lost());
        assert!(matches!(held.release(), Err(Error::LockLost { .. })));
        eventually("usable again", || lock.lock().and_then(LockGuard::release).is_ok());
        assert_ne!(client.session_id(), id);
        client.close();
    }

    #[test]
    fn a_session_that_the_package_replaces_in_silence_is_noticed() {
        let [server, stranger] = [(); 2].map(|()| TestingServer::start().unwrap());
        // A server that has more transactions than the handle has seen: with fewer it would not talk to it.
        let native = native(&stranger.connect_string(), "");
        for _ in 0..100 {
            native.set_data().for_path_and_data("/", "").unwrap();
        }
        let relay = Relay::to(&server.connect_string());
        // The package closes a handle whose connection ends later than this after its start, and the lock is certain
        // after 11/20 of it.
        let timeout = 2 * SESSION;
        let factory = ZooKeeperSessionFactory::new(handle(relay.address(), timeout));
        let client = connect(builder(relay.address(), "", timeout).session_factory(factory));
        let (id, lock) = (client.session_id(), mutex(&client));
        let held = lock.lock().unwrap();
        // One that has never heard of the session.
        relay.lead_to(&stranger.connect_string());
        relay.cut();
        eventually("told", || held.state() == HoldState::Lost(LostReason::SessionExpired));
        assert!(matches!(held.release(), Err(Error::LockLost { .. })));
        eventually("a new session", || client.is_connected());
        assert_ne!(client.session_id(), id);
        lock.lock().unwrap().release().unwrap();
        client.close();
    }
}
