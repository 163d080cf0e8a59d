//! What servers know, and a session in the place of another.

use super::*;
use crate::{
    proto::{
        op,
        types::{Acl, CreateMode},
    },
    session::servers::resolver::KnownServers,
};

const NO_SUCH: i32 = server::NO_NODE;
const UNIMPLEMENTED: i32 = -6;

/// A session that has to find out what it is connected to.
fn asking() -> Rig {
    let mut rig = Rig::with(SessionConfig { dialect: None, ..server::config() });
    rig.connect();
    rig.take_log();
    rig
}

fn container() -> Request {
    Request::Create { path: "/c".into(), data: Vec::new(), acl: Acl::open_unsafe(), mode: CreateMode::Container }
}

/// The reply to a read of these data.
fn data(request: &Frame, data: &[u8]) -> Vec<u8> {
    server::reply(request.xid, 1, 0, &[server::prefixed(data), vec![0; 68]].concat())
}

#[test]
fn the_question_goes_in_front_of_what_waited_for_the_connection() {
    let mut rig = Rig::with(SessionConfig { dialect: None, ..server::config() });
    rig.submit(&sync("/early"), 1);
    rig.connect();
    let written = rig.written();
    assert_eq!(paths(&written), [API_VERSION, "/early"]);
    rig.receive(&server::answer(&written[0], 1, NO_SUCH)).unwrap();
    assert_eq!(rig.machine.abilities(), Some(Dialect::ZooKeeper.into()));
    rig.receive(&server::answer(&written[1], 1, 0)).unwrap();
    rig.disconnect();
    rig.connect();
    assert!(rig.written().is_empty(), "it goes on with a server that it knows");
}

#[test]
fn a_question_whose_answer_was_lost_is_asked_again() {
    let mut rig = asking();
    assert_eq!(rig.written().len(), 1);
    rig.disconnect();
    rig.connect();
    assert_eq!(paths(&rig.written()), [API_VERSION]);
}

#[test]
fn what_may_not_be_known_waits_for_the_answer_and_so_does_all_behind_it() {
    let mut rig = asking();
    rig.submit(&sync("/before"), 1);
    rig.submit(&container(), 2);
    rig.submit(&sync("/behind"), 3);
    let written = rig.written();
    assert_eq!(paths(&written), [API_VERSION, "/before"]);
    assert!(!rig.machine.has_output());
    rig.receive(&server::answer(&written[0], 1, NO_SUCH)).unwrap();
    assert_eq!(paths(&rig.written()), ["/c", "/behind"]);
}

#[test]
fn what_is_not_known_never_goes_out() {
    let mut rig = asking();
    rig.submit(&container(), 1);
    rig.submit(&sync("/behind"), 2);
    let asked = rig.written();
    rig.receive(&data(&asked[0], b"3")).unwrap();
    let asked = rig.written();
    assert_eq!(paths(&asked), [FEATURE_FLAGS]);
    rig.receive(&data(&asked[0], &[0xf0])).unwrap();
    assert_eq!(rig.take_log().last().unwrap(), "1 Unimplemented");
    assert_eq!(paths(&rig.written()), ["/behind"]);
    rig.submit(&container(), 3);
    rig.submit(&Request::Multi(vec![container()]), 4);
    rig.submit(&Request::GetEphemerals { prefix: "/".into() }, 5);
    assert_eq!(rig.take_log(), ["3 Unimplemented", "4 Unimplemented", "5 Unimplemented"]);
    assert!(rig.written().is_empty());
}

#[test]
fn a_watch_lapses_where_it_cannot_be_removed() {
    let watches = |dialect| {
        let mut rig = Rig::with(SessionConfig { dialect: Some(dialect), ..server::config() });
        rig.connect();
        let ticket = rig.watch(&get_data("/a"), 1);
        rig.take_log();
        rig.unwatch(ticket);
        assert_eq!((rig.take_log().as_slice(), rig.machine.watches()), (["drop watcher 1".to_owned()].as_slice(), 0));
        let removals = ops(&rig.written());
        // An event that comes all the same finds nobody.
        rig.receive(&server::notification(server::DELETED, "/a")).unwrap();
        assert!(rig.take_log().is_empty());
        removals
    };
    assert_eq!(watches(Dialect::ZooKeeper), [server::REMOVE_WATCHES]);
    assert!(watches(Dialect::KeeperBefore267).is_empty());
}

#[test]
fn a_refusal_is_not_asked_for_again() {
    let mut rig = Rig::connected();
    rig.submit(&container(), 1);
    let written = rig.written();
    rig.receive(&server::answer(&written[0], 1, UNIMPLEMENTED)).unwrap();
    assert_eq!(rig.machine.abilities(), Some(Dialect::ZooKeeper34.into()));
    rig.submit(&container(), 2);
    assert_eq!(rig.take_log(), ["1 Unimplemented", "2 Unimplemented"]);
    assert!(rig.written().is_empty());
}

/// ZooKeeper 3.5 ends the connection after the answer, and the client's next session does not ask either.
#[test]
fn several_reads_at_once_are_asked_for_once() {
    let known: Arc<KnownServers> = Arc::default();
    let list = || Request::GetChildren { path: "/a".into(), watch: false, with_stat: false };
    let connected = || {
        let mut rig = Rig::with(SessionConfig { dialect: None, known: known.clone(), ..server::config() });
        rig.connect();
        let probe = rig.written();
        rig.receive(&server::answer(&probe[0], 1, server::NO_NODE)).unwrap();
        rig
    };
    let mut rig = connected();
    rig.submit(&Request::Multi(vec![list(), list()]), 1);
    let written = rig.written();
    assert_eq!(ops(&written), [op::MULTI_READ]);
    rig.receive(&server::answer(&written[0], 1, UNIMPLEMENTED)).unwrap();
    assert!(rig.machine.take_refusal() && !rig.machine.take_refusal(), "told once");
    // A real one refuses in front of what it has still to do, which ends the connection as well.
    let mut early = Rig::with(SessionConfig { dialect: Some(Dialect::ZooKeeper), ..server::config() });
    early.connect();
    early.submit(&sync("/a"), 1);
    early.submit(&Request::Multi(vec![list(), list()]), 2);
    let written = early.written();
    assert!(early.receive(&server::answer(&written[1], 1, UNIMPLEMENTED)).is_err());
    assert!(early.machine.take_refusal() && !early.machine.abilities().unwrap().reads_together);
    for mut rig in [rig, connected()] {
        let abilities = rig.machine.abilities().unwrap();
        assert!(abilities.dialect == Dialect::ZooKeeper && abilities.has_containers && !abilities.reads_together);
        rig.take_log();
        rig.submit(&Request::Multi(vec![list(), list()]), 2);
        assert_eq!(rig.take_log(), ["2 Unimplemented"]);
        assert!(rig.written().is_empty() && !rig.machine.take_refusal());
    }
    // Nor does a client whose dialect is configured.
    let configured = Rig::with(SessionConfig { dialect: Some(Dialect::ZooKeeper), known, ..server::config() });
    assert!(!configured.machine.abilities().unwrap().reads_together);
}

#[test]
fn a_session_in_the_place_of_another_ends_that_and_leaves_its_znodes() {
    let mut rig = Rig::connected();
    let valid_until = rig.machine.valid_until().unwrap();
    rig.submit(&sync("/lost"), 1);
    rig.written();
    rig.disconnect();
    rig.submit(&sync("/unsent"), 2);
    rig.take_log();
    assert!(!rig.machine.is_replaced_by(&response(ID)), "its own");
    assert!(!rig.machine.is_replaced_by(&response(0)), "none");
    assert!(!rig.machine.is_replaced_by(&ConnectResponse { timeout_ms: 0, ..response(ID + 1) }), "expired");
    assert!(rig.machine.is_replaced_by(&response(ID + 1)));
    let now = rig.now;
    assert!(rig.input(|machine, actions| machine.replaced(now, actions)));
    assert_eq!(rig.take_log(), ["2 Expired", "raise Expired"]);
    assert_eq!((rig.machine.left_behind(), rig.machine.valid_until()), (Some(valid_until), None));
    assert!(!rig.input(|machine, actions| machine.replaced(now, actions)), "it was over before");
}

#[test]
fn an_expired_session_and_one_that_is_given_up_leave_nothing_unless_nobody_can_close_it() {
    let mut rig = Rig::connected();
    rig.input(Machine::expired);
    assert_eq!(rig.machine.left_behind(), None);
    let given_up = |dialect, error: SessionError| {
        let mut rig = Rig::with(SessionConfig { dialect: Some(dialect), ..server::config() });
        rig.connect();
        rig.disconnect();
        rig.now += T;
        rig.leave(error, None);
        rig.machine.left_behind().is_some()
    };
    assert!(!given_up(Dialect::ZooKeeper, SessionError::Expired));
    assert!(given_up(Dialect::Keeper, SessionError::Expired));
    assert!(!given_up(Dialect::Keeper, SessionError::Closed), "nobody comes after it");
}

#[test]
fn a_new_session_is_in_nobodys_place() {
    let rig = Rig::new();
    assert!(!rig.machine.is_replaced_by(&response(ID)));
}
