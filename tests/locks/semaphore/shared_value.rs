//! `SharedValue`, and limits of leases of the caller's own.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, unbounded};
use curator_locks::{
    Acl, ConnectionState, CuratorFramework, Error, InterProcessSemaphoreV2, SharedCountReader, SharedValue,
    SharedValueListener, SharedValueReader, perms,
    testing::{FaultProxy, op},
};
use parking_lot::Mutex;

use crate::support::{
    PATIENCE, another, await_children, builder_at, client, client_in, connect, eventually, namespace, server, watchers,
};

fn started(client: &CuratorFramework, path: &str, seed: &str) -> SharedValue {
    let value = SharedValue::new(client, path, seed).unwrap();
    value.start().unwrap();
    value
}

#[test]
fn it_is_whatever_bytes_lie_in_a_persistent_znode() {
    let client = client();
    let value = SharedValue::new(&client, "/a/value", [0, 255]).unwrap();
    let unread = value.versioned_value();
    assert_eq!((unread.value().as_slice(), unread.version(), unread.zxid()), (&[0, 255][..], -1, -1));
    let refused = value.try_set_value(&unread, "x");
    assert!(matches!(refused, Err(Error::NotInUse { what: "the shared value", state: "not started", .. })));
    value.start().unwrap();
    assert_eq!(client.get_data().for_path("/a/value").unwrap(), [0, 255]);
    assert_eq!(client.check_exists().for_path("/a/value").unwrap().unwrap().ephemeral_owner, 0);
    value.set_value([]).unwrap();
    assert_eq!((value.value(), client.get_data().for_path("/a/value").unwrap()), (Vec::new(), Vec::new()));
    let other = started(&another(&client), "/a/value", "never used");
    assert_eq!(other.versioned_value(), value.versioned_value());
    other.set_value("new").unwrap();
    eventually("the other's write is known", || value.value() == b"new");
    assert!(matches!(value.start(), Err(Error::AlreadyStarted)));
}

/// Without the right to read no event comes, nor when the right is given back.
#[test]
fn a_value_that_may_not_be_read_for_a_while_is_heard_of_later_and_the_refusal_once() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let (sender, errors) = unbounded();
    client.add_unhandled_error_listener(move |message, _| {
        let _ = sender.send(message.to_owned());
    });
    let (ours, others) = (started(&client, "/v", "seed"), another(&client));
    let allow = |perms| {
        let acl = Acl { perms, ..Acl::open_unsafe().remove(0) };
        others.set_acl().for_path("/v", vec![acl]).unwrap();
    };
    allow(perms::ALL & !perms::READ);
    others.set_data().for_path_and_data("/v", "unread").unwrap();
    proxy.cut();
    let told = errors.recv_timeout(PATIENCE).unwrap();
    assert!(told.contains("keeps its last value"), "{told}");
    assert_eq!(ours.value(), b"seed");
    let asked = proxy.requests(op::GET_DATA);
    eventually("it is refused again, and once more", || proxy.requests(op::GET_DATA) >= asked + 2);
    allow(perms::ALL);
    eventually("the value that was written without an event", || ours.value() == b"unread");
    assert!(errors.is_empty());
}

/// Each read of it would end the connection, on which all locks of the client depend.
#[test]
fn a_value_above_the_frame_limit_ends_one_connection_and_is_heard_of_when_it_is_smaller() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).max_frame_size(64 << 10));
    let (sender, errors) = unbounded();
    client.add_unhandled_error_listener(move |message, _| {
        let _ = sender.send(message.to_owned());
    });
    let (ours, others) = (started(&client, "/v", "seed"), another(&client));
    let known = ours.versioned_value();
    others.set_data().for_path_and_data("/v", vec![7; 100 << 10]).unwrap();
    let told = errors.recv_timeout(PATIENCE).unwrap();
    assert!(told.contains("keeps its last value"), "{told}");
    eventually("it is connected again", || proxy.connections() == 2 && client.is_connected());
    for _ in 0..3 {
        let refused = ours.try_set_value(&known, "x");
        assert!(matches!(refused, Err(Error::FrameTooLarge { .. })), "{refused:?}");
    }
    assert_eq!((ours.value(), proxy.connections()), (b"seed".to_vec(), 2));
    others.set_data().for_path_and_data("/v", "small").unwrap();
    eventually("the smaller value", || ours.value() == b"small");
    assert!(errors.is_empty() && proxy.connections() == 2);
}

/// CURATOR-688: by version and value alone the old one would pass for the new one.
#[test]
fn a_znode_that_was_made_anew_is_another_value_even_with_the_same_version_and_bytes() {
    let client = client();
    let (ours, others) = (started(&client, "/v", "same"), another(&client));
    let seen = ours.versioned_value();
    others.delete().for_path("/v").unwrap();
    // The namespace is a container, which the server may have removed by now.
    others.create().creating_parent_containers_if_needed().for_path_and_data("/v", "same").unwrap();
    eventually("the new znode is known", || ours.versioned_value().zxid() != seen.zxid());
    let now = ours.versioned_value();
    assert_eq!((now.version(), now.value()), (seen.version(), seen.value()));
    assert!(now.zxid() > seen.zxid());
    assert!(!ours.try_set_value(&seen, "other").unwrap());
    assert!(ours.try_set_value(&now, "other").unwrap());
}

#[derive(Debug, PartialEq)]
enum Told {
    Value(String),
    State(ConnectionState),
}

struct Tells(crossbeam_channel::Sender<Told>);

impl SharedValueListener for Tells {
    fn value_has_changed(&self, _: &dyn SharedValueReader, new_value: &[u8]) {
        let _ = self.0.send(Told::Value(String::from_utf8_lossy(new_value).into()));
    }

    fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) {
        let _ = self.0.send(Told::State(state));
    }
}

fn listen(value: &SharedValue) -> Receiver<Told> {
    let (tell, told) = unbounded();
    value.add_listener(Tells(tell));
    told
}

#[test]
fn a_listener_hears_of_the_connection_and_after_a_reconnect_of_the_value_again() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), "v_state"));
    let value = started(&client, "/v", "a");
    let told = listen(&value);
    for _ in 0..3 {
        proxy.cut();
        let heard = [(); 3].map(|()| told.recv_timeout(PATIENCE).unwrap());
        let expected = [
            Told::State(ConnectionState::Suspended),
            Told::State(ConnectionState::Reconnected),
            Told::Value("a".into()),
        ];
        assert_eq!(heard, expected);
    }
    value.close();
    proxy.cut();
    let (tell, last) = unbounded();
    client.add_connection_state_listener(move |_, state| tell.send(state).unwrap_or_default());
    while last.recv_timeout(PATIENCE).unwrap() != ConnectionState::Reconnected {}
    assert!(told.is_empty(), "it was closed");
}

#[test]
fn an_executor_runs_its_listener_and_one_that_drops_or_panics_silences_no_other() {
    let client = client();
    let value = started(&client, "/v", "a");
    let (tell, told) = unbounded();
    value.add_listener_with_executor(|_: &[u8]| panic!("is never run"), drop);
    value.add_listener_with_executor(|_: &[u8]| (), |_| panic!("on purpose"));
    value.add_listener_with_executor(
        move |_: &[u8]| tell.send(thread::current().name().map(str::to_owned)).unwrap_or_default(),
        |task| drop(thread::Builder::new().name("of the executor".into()).spawn(task)),
    );
    let dispatched = listen(&value);
    value.set_value("b").unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().as_deref(), Some("of the executor"));
    assert_eq!(dispatched.recv_timeout(PATIENCE).unwrap(), Told::Value("b".into()));
}

#[test]
fn dropping_the_last_handle_ends_the_watch_and_drops_the_listeners() {
    let client = client();
    let value = started(&client, "/v", "a");
    let told = listen(&value);
    let clone = value.clone();
    drop(value);
    assert_eq!(watchers(&client, "/v"), [client.session_id()]);
    clone.set_value("b").unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Value("b".into()));
    drop(clone);
    assert!(told.recv_timeout(PATIENCE).unwrap_err().is_disconnected());
    eventually("no watch is left", || watchers(&client, "/v").is_empty());
}

/// A limit that the process sets by itself; a negative one panics.
#[derive(Default)]
struct Own(AtomicI32, Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>);

impl Own {
    fn set(&self, limit: i32) {
        self.0.store(limit, Ordering::SeqCst);
        let wakes: Vec<_> = self.1.lock().iter().filter_map(Weak::upgrade).collect();
        wakes.iter().for_each(|wake| wake());
    }
}

impl SharedCountReader for Own {
    fn count(&self) -> i32 {
        let limit = self.0.load(Ordering::SeqCst);
        assert!(limit >= 0, "on purpose");
        limit
    }

    fn wake_on_change(&self, wake: Weak<dyn Fn() + Send + Sync>) {
        let mut wakes = self.1.lock();
        wakes.retain(|wake| wake.strong_count() > 0);
        wakes.push(wake);
    }
}

#[test]
fn a_limit_of_ones_own_wakes_waiters_and_one_that_panics_lets_nobody_in() {
    let client = client_in("v_own");
    let limit = Arc::new(Own::default());
    assert_eq!((limit.versioned_value().version(), limit.versioned_value().zxid()), (-1, -1));
    let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/s", &limit).unwrap();
    limit.set(-1);
    assert!(semaphore.acquire_timeout(Duration::ZERO).unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
        await_children(&client, "/s/leases", 1);
        limit.set(1);
        waiter.join().unwrap().close().unwrap();
    });
    assert_eq!(limit.1.lock().iter().filter(|wake| wake.strong_count() > 0).count(), 0, "a wait has left its wake-up");
}
