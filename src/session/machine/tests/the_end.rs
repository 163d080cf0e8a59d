//! Expiry, abandoning and closing, in every state.

use super::*;

/// How servers answer to a session that is gone.
const GONE: [i32; 2] = [server::EXPIRED, server::UNKNOWN_SESSION];

/// Requests and watches in every stage: one watch armed, one given up on the wire, a request in flight, one unsent.
fn busy() -> Rig {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/armed"), 1);
    let given_up = rig.submit(&get_data("/given-up"), 2);
    rig.submit(&sync("/in-flight"), 3);
    rig.written();
    rig.unwatch(given_up);
    rig.submit(&exists("/unsent"), 4);
    rig.take_log();
    rig
}

/// Everybody is told once, and nothing is kept.
fn assert_told(rig: &mut Rig, error: &str) {
    let mut told = rig.take_log();
    told.sort();
    let mut expected = vec![
        "drop watcher 2".to_owned(),
        "watcher 1 Ended".into(),
        "watcher 4 Ended".into(),
        format!("2 {error}"),
        format!("3 {error}"),
        format!("4 {error}"),
    ];
    expected.sort();
    assert_eq!(told, expected);
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn a_handshake_that_says_expired_ends_everything() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/armed"), 1);
    rig.disconnect();
    rig.submit(&sync("/unsent"), 2);
    rig.take_log();
    rig.handshake(ConnectResponse { timeout_ms: 0, session_id: 0, ..response(0) }).unwrap();
    assert_eq!(rig.take_log(), ["watcher 1 Ended", "2 Expired", "raise Expired"]);
    assert!(rig.machine.is_over(rig.now));
    assert!(!rig.machine.has_output());
    assert_eq!(rig.machine.valid_until(), None);
    assert_eq!(rig.machine.connection(), 0);
    rig.submit(&sync("/late"), 3);
    rig.disconnect();
    assert_eq!(rig.log, ["3 Expired"]);
}

#[test]
fn a_reply_that_says_expired_ends_everything() {
    for gone in GONE {
        let mut rig = busy();
        let xid = rig.machine.in_flight[0].0;
        rig.receive(&server::reply(xid, 1, gone, b"")).unwrap();
        assert_eq!(rig.log.pop().unwrap(), "raise Expired", "{gone}");
        assert_told(&mut rig, "Expired");
        assert!(rig.machine.is_over(rig.now));
        // What is still on its way is of no interest, and no harm.
        rig.receive(&server::notification(server::DELETED, "/armed")).unwrap();
        rig.disconnect();
        assert_eq!(rig.log, [""; 0]);
    }
}

/// Operations in front of the one that failed have the code 0, and those behind it -2.
#[test]
fn a_transaction_that_finds_the_session_gone_ends_everything() {
    for gone in GONE {
        for (results, err) in [([gone, -2], gone), ([gone, -2], 0), ([0, gone], gone)] {
            let mut rig = Rig::connected();
            let deletes = ["/a", "/b"].map(|path| Request::Delete { path: path.into(), version: -1 });
            rig.submit(&Request::Multi(deletes.into()), 1);
            rig.submit(&sync("/unsent"), 2);
            let xid = rig.written()[0].xid;
            let body = [failed(results[0]), failed(results[1]), server::end_of_multi()].concat();
            rig.receive(&server::reply(xid, 1, err, &body)).unwrap();
            assert_eq!(rig.take_log(), ["1 Expired", "2 Expired", "raise Expired"], "{results:?}, {err}");
            assert!(rig.machine.is_over(rig.now));
        }
    }
}

#[test]
fn a_heartbeat_can_bring_the_news_of_the_expiry() {
    for gone in GONE {
        let mut rig = Rig::connected();
        rig.timer_at(rig.now + T / 3);
        let heartbeat = rig.written().remove(0);
        rig.receive(&server::answer(&heartbeat, 1, gone)).unwrap();
        assert_eq!(rig.log, ["raise Expired"], "{gone}");
    }
}

#[test]
fn closing_tells_everybody_and_then_closes_at_the_server() {
    let mut rig = busy();
    rig.leave(SessionError::Closed, None);
    assert_told(&mut rig, "Closed");
    assert!(!rig.machine.is_alive());
    assert_eq!(rig.machine.valid_until(), None);
    // What is on the wire is answered first, and nobody hears of it.
    for xid in [2, 3] {
        rig.receive(&server::reply(xid, 1, server::NO_NODE, b"")).unwrap();
    }
    assert!(!rig.machine.is_over(rig.now));
    assert_eq!(ops(&rig.answer_all()), [server::CLOSE]);
    assert!(rig.machine.is_over(rig.now));
    rig.disconnect();
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn a_session_that_no_server_gave_an_id_ends_at_once() {
    let mut rig = Rig::new();
    rig.submit(&sync("/a"), 1);
    rig.leave(SessionError::Closed, None);
    assert_eq!(rig.log, ["1 Closed"]);
    assert!(rig.machine.is_over(rig.now));
}

#[test]
fn a_session_that_a_server_gives_after_the_end_is_closed_at_once() {
    let mut rig = Rig::new();
    rig.leave(SessionError::Closed, None);
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn an_abandoned_session_is_neither_taken_up_nor_closed_while_a_holder_may_rely_on_it() {
    for ends in 0..3 {
        let mut rig = Rig::connected();
        rig.answer_all();
        let valid_until = rig.machine.valid_until();
        rig.disconnect();
        rig.leave(SessionError::Expired, None);
        assert_eq!((rig.machine.left_behind(), rig.machine.rests_until(rig.now)), (valid_until, valid_until));
        assert!(rig.handshake(response(ID)).is_err(), "of an attempt that was under way");
        match ends {
            0 => rig.nobody_holds(),
            1 => rig.now = valid_until.unwrap(),
            _ => rig.leave(SessionError::Closed, None),
        }
        assert_eq!(rig.machine.rests_until(rig.now), None);
        rig.connect();
        assert_eq!(ops(&rig.written()), [server::CLOSE], "{ends}");
    }
}

#[test]
fn a_session_abandoned_over_its_connection_is_not_closed_over_it_while_a_holder_may_rely_on_it() {
    let mut rig = Rig::connected();
    rig.answer_all();
    rig.leave(SessionError::Expired, None);
    rig.nobody_holds();
    assert!(rig.written().is_empty());
    rig.disconnect();
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
}

#[test]
fn a_session_abandoned_without_a_connection_is_taken_up_only_to_close_it() {
    let mut rig = busy();
    rig.disconnect();
    rig.take_log();
    rig.leave(SessionError::Expired, None);
    rig.nobody_holds();
    let mut told = rig.take_log();
    told.sort();
    assert_eq!(told, ["4 Expired", "watcher 1 Ended", "watcher 4 Ended"]);
    assert_eq!(rig.machine.connect_request().session_id, ID);
    rig.connect();
    assert_eq!(ops(&rig.answer_all()), [server::CLOSE]);
    assert!(rig.machine.is_over(rig.now));
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn a_close_that_is_lost_with_the_connection_is_sent_again() {
    let mut rig = Rig::connected();
    rig.leave(SessionError::Closed, None);
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
    rig.disconnect();
    assert!(!rig.machine.is_over(rig.now));
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
    rig.disconnect();
    rig.handshake(ConnectResponse { timeout_ms: 0, ..response(0) }).unwrap();
    assert!(rig.machine.is_over(rig.now));
    rig.submit(&sync("/late"), 1);
    assert_eq!(rig.log, ["1 Closed"]);
}

#[test]
fn a_close_that_was_not_written_is_sent_once_over_the_next_connection() {
    let mut rig = Rig::connected();
    rig.leave(SessionError::Closed, None);
    rig.disconnect();
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
}

#[test]
fn a_close_that_a_server_refuses_is_sent_to_another() {
    let mut rig = Rig::with(server::config());
    rig.handshake(response(ID)).unwrap();
    rig.disconnect();
    rig.handshake(ConnectResponse { read_only: true, ..response(ID) }).unwrap();
    rig.leave(SessionError::Closed, None);
    let close = rig.written().remove(0);
    assert!(rig.receive(&server::answer(&close, 1, server::NOT_READ_ONLY)).is_err());
    assert!(!rig.machine.is_over(rig.now));
    assert!(!rig.machine.connect_request().read_only);
}

/// No other server knows it.
#[test]
fn a_session_of_a_read_only_server_alone_is_closed_by_nobody() {
    let mut rig = Rig::with(server::config());
    rig.handshake(ConnectResponse { read_only: true, ..response(ID) }).unwrap();
    rig.disconnect();
    assert_eq!(rig.machine.connect_request().session_id, 0);
    rig.handshake(ConnectResponse { read_only: true, ..response(ID + 1) }).unwrap();
    rig.leave(SessionError::Closed, None);
    assert!(rig.written().is_empty() && rig.machine.is_over(rig.now));
}

#[test]
fn a_close_of_a_session_that_has_expired_is_done() {
    for gone in GONE {
        let mut rig = Rig::connected();
        rig.leave(SessionError::Closed, None);
        let close = rig.written().remove(0);
        rig.receive(&server::answer(&close, 1, gone)).unwrap();
        assert!(rig.machine.is_over(rig.now), "{gone}");
    }
}

#[test]
fn leaving_takes_no_longer_than_the_earliest_limit() {
    let mut rig = Rig::connected();
    let seconds = Duration::from_secs;
    let start = rig.now;
    assert_eq!(rig.machine.leaves_at(), None);
    rig.leave(SessionError::Expired, None);
    rig.nobody_holds();
    rig.leave(SessionError::Closed, Some(start + seconds(5)));
    rig.leave(SessionError::Closed, Some(start + seconds(3)));
    rig.leave(SessionError::Closed, Some(start + seconds(4)));
    rig.leave(SessionError::Closed, None);
    assert_eq!(rig.machine.leaves_at(), Some(start + seconds(3)));
    assert_eq!(rig.machine.next_timer(), start + seconds(3));
    assert!(!rig.machine.is_over(start + seconds(3) - Duration::from_nanos(1)));
    assert!(rig.machine.is_over(start + seconds(3)));
    rig.submit(&sync("/late"), 1);
    assert_eq!(rig.log, ["1 Expired"]);
}

#[test]
fn a_session_that_leaves_sends_no_heartbeat_and_its_timer_does_not_stand_still() {
    for limit in [None, Some(10 * T)] {
        let mut rig = Rig::connected();
        rig.leave(SessionError::Closed, limit.map(|limit| rig.now + limit));
        rig.written();
        rig.timer_at(rig.now + T / 2);
        assert!(!rig.machine.has_output());
        assert!(rig.machine.next_timer() > rig.now);
        assert!(!rig.timer_at(rig.now + T / 6));
    }
}

#[test]
fn nothing_is_heard_of_a_session_after_its_end() {
    let mut rig = busy();
    rig.leave(SessionError::Closed, None);
    rig.take_log();
    rig.unwatch(1);
    assert!(!rig.withdraw(4));
    rig.disconnect();
    rig.connect();
    rig.disconnect();
    rig.handshake(ConnectResponse { timeout_ms: 0, ..response(0) }).unwrap();
    rig.leave(SessionError::Expired, None);
    rig.input(Machine::expired);
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn another_session_than_the_one_asked_for_is_not_taken() {
    let mut rig = Rig::new();
    assert!(matches!(
        rig.handshake(response(0)),
        Err(ProtoError::Unexpected { what: "id of a new session", value: 0 })
    ));
    let expired = ConnectResponse { timeout_ms: 0, ..response(ID) };
    assert!(matches!(rig.handshake(expired), Err(ProtoError::Unexpected { value: 0, .. })));
    assert!(rig.log.is_empty() && !rig.machine.is_over(rig.now));
    assert_eq!(rig.machine.session_id(), 0);
    rig.connect();
    rig.disconnect();
    rig.take_log();
    assert!(matches!(rig.handshake(response(5)), Err(ProtoError::WrongSession { wanted: ID, given: 5 })));
    assert_eq!(rig.machine.session_id(), ID);
    assert_eq!(rig.machine.connection(), 0);
    rig.disconnect();
    assert_eq!(rig.log, [""; 0]);
    rig.connect();
    assert_eq!(rig.log, ["raise Connected { connection: 2, read_only: false }"]);
}
