//! Connections that go, come back, and say nothing.

use std::time::{Duration, Instant};

use curator_locks::{
    CreateMode,
    testing::{Direction, Fault, FaultProxy, RequestMatch, op},
    unversioned::{SessionError, SessionEvent},
};

use crate::{
    opened::{Kind, LONG, create, exists, is_there, observer, read, write},
    support::{
        eventually,
        machine::{Machine, since},
        server,
    },
};

/// Long enough for a machine that is shared, and to wait for.
const SHORT: Duration = Duration::from_secs(3);

/// The connection's end and the next one are told, and everything stands between the two.
pub(crate) fn a_session_and_its_znodes_outlive_a_cut(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let opened = kind.open(&proxy.connect_string(), LONG);
    let (id, mine) = (opened.session.id(), opened.path("mine"));
    opened.ask(create(&mine, CreateMode::Ephemeral)).unwrap();
    let until = opened.session.valid_until();
    proxy.refuse();
    proxy.cut();
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    assert_eq!((opened.session.connection(), opened.session.id()), (0, id));
    assert!(opened.session.last_error().is_some() && !opened.session.is_ended());
    assert!(opened.session.valid_until() >= until, "a cut makes nothing less certain");
    let waits = opened.send(exists(&mine));
    assert!(waits.reply.try_recv().is_err());
    proxy.pass().unwrap();
    opened.await_connection(2);
    waits.wait().unwrap();
    assert_eq!((opened.session.connection(), opened.session.id()), (2, id));
    assert!(opened.session.last_error().is_none());
}

/// Whether it was carried out nobody knows, and it is said so; what was not sent yet is answered over the next one.
pub(crate) fn a_request_without_a_reply_is_lost_with_its_connection(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let opened = kind.open(&proxy.connect_string(), LONG);
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    let fault = proxy.inject(RequestMatch::op(op::SET_DATA).path(|path| path.ends_with("/a")), Fault::CutInsteadOfReply);
    let lost = opened.send(write(&path, "new"));
    let reply = lost.wait();
    assert!(matches!(reply, Err(SessionError::ConnectionLoss(_))), "{reply:?}");
    assert_eq!(fault.hits(), 1);
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    opened.await_connection(2);
    let data = opened.ask(read(&path)).unwrap();
    assert!(format!("{data:?}").contains("version: 1"), "it was carried out, and once: {data:?}");
}

/// A session that nobody uses is certain for longer and longer.
pub(crate) fn heartbeats_move_the_certainty_on(kind: Kind) {
    let opened = kind.open(&server().connect_string(), SHORT);
    let begin = Instant::now();
    // From two heartbeats, of which only the second was sent after this.
    eventually("certain for longer", || opened.session.valid_until() > Some(begin + SHORT));
    let until = opened.session.valid_until().unwrap();
    assert!(until <= Instant::now() + SHORT);
    assert!(opened.events.try_recv().is_err(), "without another connection");
}

/// A server that says nothing any more is left in time, and nothing is certain beyond the last answer.
pub(crate) fn a_silent_connection_is_left_before_the_session_can_have_ended(kind: Kind) {
    let machine = Machine::watch();
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let opened = kind.open(&proxy.connect_string(), SHORT);
    let begin = Instant::now();
    proxy.black_hole(Direction::Both);
    // Whatever was sent by then counts from when it was sent.
    let latest = Instant::now() + SHORT;
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    machine.assert_at_most("silence noticed", since(begin), SHORT * 2 / 3 + Duration::from_millis(500));
    assert!(opened.session.valid_until().is_none_or(|until| until <= latest));
    assert_eq!(opened.session.connection(), 0);
}

/// The servers are replaced, and the session goes on at the others.
pub(crate) fn other_servers_are_used_from_the_next_connection_on(kind: Kind) {
    let [one, other] = [(); 2].map(|()| FaultProxy::start(server().connect_string()).unwrap());
    let opened = kind.open(&one.connect_string(), LONG);
    let (id, mine) = (opened.session.id(), opened.path("mine"));
    opened.ask(create(&mine, CreateMode::Ephemeral)).unwrap();
    opened.session.update_hosts(&other.connect_string().parse().unwrap());
    assert_eq!(other.connections(), 0, "not before the connection ends");
    one.cut();
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    opened.await_connection(2);
    assert_eq!((opened.session.id(), one.open_connections(), other.open_connections()), (id, 0, 1));
    assert!(is_there(&observer(), &mine));
}
