//! What watches are told.

use curator_locks::{
    CreateMode,
    testing::{Fault, FaultProxy, RequestMatch, op},
    unversioned::{EventType, Request, SessionEvent, WatchEvent},
};

use crate::{
    opened::{Kind, LONG, Opened, create, delete, exists, observer, read, write},
    support::{eventually, server},
};

fn watch_data(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: true }
}

fn watch_existence(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: true }
}

fn watch_children(path: &str) -> Request {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

fn changed(event: EventType, connection: u64) -> WatchEvent {
    WatchEvent::Node { event, connection }
}

/// Waits until the session has read what the server has to tell by now.
fn settle(opened: &Opened) {
    opened.ask(Request::Sync { path: "/".into() }).unwrap();
    opened.ask(exists("/")).unwrap();
}

/// Of data, existence and children, each with the kind of change, and never a second time.
pub(crate) fn each_change_is_told_once_to_its_watches(kind: Kind) {
    let (opened, other) = (kind.open(&server().connect_string(), LONG), observer());
    let (path, child) = (opened.path("a"), opened.path("a/child"));
    let created = opened.watch(watch_existence(&path));
    other.ask(create(&path, CreateMode::Persistent)).unwrap();
    assert_eq!(created.next(), changed(EventType::NodeCreated, 1));
    let [data, existence, children] = [watch_data, watch_existence, watch_children].map(|ask| opened.watch(ask(&path)));
    other.ask(write(&path, "new")).unwrap();
    assert_eq!(data.next(), changed(EventType::NodeDataChanged, 1));
    assert_eq!(existence.next(), changed(EventType::NodeDataChanged, 1));
    other.ask(create(&child, CreateMode::Persistent)).unwrap();
    assert_eq!(children.next(), changed(EventType::NodeChildrenChanged, 1));
    other.ask(write(&path, "newer")).unwrap();
    other.ask(delete(&child)).unwrap();
    let watches = [watch_data, watch_existence, watch_children].map(|ask| opened.watch(ask(&path)));
    other.ask(delete(&path)).unwrap();
    for watch in &watches {
        assert_eq!(watch.next(), changed(EventType::NodeDeleted, 1));
    }
    for watch in [created, data, existence, children].into_iter().chain(watches) {
        assert_eq!(watch.rest(), [], "told twice");
    }
}

/// Two watches of one znode: the one is given up, the other one is told.
pub(crate) fn a_watch_that_is_given_up_is_told_nothing_and_its_neighbour_is(kind: Kind) {
    let (opened, other) = (kind.open(&server().connect_string(), LONG), observer());
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    for request in [watch_data, watch_existence] {
        let [given_up, kept] = [opened.watch(request(&path)), opened.watch(request(&path))];
        opened.session.unwatch(given_up.ticket);
        other.ask(write(&path, "new")).unwrap();
        assert_eq!(kept.next(), changed(EventType::NodeDataChanged, 1));
        assert_eq!(given_up.rest(), []);
        // And where it is the last one.
        let last = opened.watch(request(&path));
        opened.session.unwatch(last.ticket);
        other.ask(write(&path, "newer")).unwrap();
        settle(&opened);
        assert_eq!(last.rest(), []);
    }
}

/// Who asks for the data or the children of what is not there is not told of its creation.
pub(crate) fn a_znode_that_is_not_there_is_watched_by_exists_alone(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    let path = opened.path("a");
    let [data, children] = [watch_data, watch_children].map(|ask| opened.watch(ask(&path)));
    let existence = opened.watch(watch_existence(&path));
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    assert_eq!(existence.next(), changed(EventType::NodeCreated, 1));
    assert_eq!((data.rest(), children.rest()), (vec![], vec![]));
}

/// A change that the server has made before it answers has been told by then.
pub(crate) fn a_watch_is_told_before_the_reply_to_what_came_after_the_change(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    assert!(opened.session.tells_in_order());
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    for round in 0..200 {
        let watch = opened.watch(watch_data(&path));
        let replies = opened.submit(vec![write(&path, "new"), read(&path)]);
        replies[1].wait().unwrap();
        assert_eq!(watch.so_far(), [changed(EventType::NodeDataChanged, 1)], "round {round}");
    }
}

/// It is told that the connection went and came, and of the next change after that.
pub(crate) fn a_watch_outlives_a_cut(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let (opened, other) = (kind.open(&proxy.connect_string(), LONG), observer());
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    let watches = [watch_data, watch_existence, watch_children].map(|ask| opened.watch(ask(&path)));
    proxy.cut();
    for watch in &watches {
        assert_eq!(watch.next(), WatchEvent::Disconnected);
        assert_eq!(watch.next(), WatchEvent::Reconnected { connection: 2 });
    }
    other.ask(delete(&path)).unwrap();
    for watch in &watches {
        assert_eq!(watch.next(), changed(EventType::NodeDeleted, 2));
        assert_eq!(watch.rest(), []);
    }
}

/// Whatever happens to a znode while there is no connection, its watch is told over the next one.
pub(crate) fn a_change_during_a_cut_is_told_after_it(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let (opened, other) = (kind.open(&proxy.connect_string(), LONG), observer());
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    let watches = [watch_data, watch_existence, watch_children].map(|ask| opened.watch(ask(&path)));
    proxy.refuse();
    proxy.cut();
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    other.ask(delete(&path)).unwrap();
    proxy.pass().unwrap();
    for watch in &watches {
        assert_eq!(watch.next(), WatchEvent::Disconnected);
        let told = match watch.next() {
            WatchEvent::Reconnected { connection: 2 } => watch.next(),
            told => told,
        };
        assert!(matches!(told, WatchEvent::Node { connection: 2, .. }), "{told:?}");
        assert_eq!(watch.rest(), []);
    }
    // A watch that was asked for when the connection went stands for none.
    let held = proxy.inject(RequestMatch::op(op::GET_DATA), Fault::HoldRequest);
    opened.await_connection(2);
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    let (reply, watch) = opened.send_watching(watch_data(&path));
    eventually("it is under way", || held.hits() > 0);
    proxy.cut();
    reply.wait().unwrap_err();
    let told = watch.rest();
    assert!(told.iter().all(|told| !matches!(told, WatchEvent::Node { .. })), "{told:?}");
}
