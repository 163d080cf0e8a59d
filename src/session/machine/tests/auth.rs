//! Credentials, and what goes out first on a connection.

use super::*;

fn rig(schemes: &[&str]) -> Rig {
    let authorizations = schemes.iter().map(|scheme| ((*scheme).into(), b"me:secret".to_vec())).collect();
    Rig::with(SessionConfig { authorizations, ..server::config() })
}

#[test]
fn credentials_go_out_first_then_watches_then_requests() {
    let mut rig = rig(&["digest", "x509"]);
    rig.connect();
    rig.watch(&get_data("/watched"), 1);
    rig.disconnect();
    rig.submit(&sync("/request"), 2);
    rig.connect();
    let frames = rig.written();
    assert_eq!(ops(&frames), [server::AUTH, server::AUTH, server::SET_WATCHES, server::SYNC]);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [XID_AUTH, XID_AUTH, XID_SET_WATCHES, 2]);
}

#[test]
fn accepted_credentials_are_no_news() {
    let mut rig = rig(&["digest"]);
    rig.connect();
    rig.take_log();
    rig.answer_all();
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn rejected_credentials_end_the_session_with_the_scheme_and_never_the_secret() {
    let mut rig = rig(&["good", "bad"]);
    rig.connect();
    rig.submit(&sync("/a"), 1);
    rig.take_log();
    rig.written();
    rig.submit(&sync("/b"), 2);
    rig.receive(&server::reply(XID_AUTH, 0, 0, b"")).unwrap();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    rig.submit(&sync("/c"), 3);
    assert_eq!(
        rig.take_log(),
        [r#"1 AuthFailed("bad")"#, r#"2 AuthFailed("bad")"#, r#"raise AuthFailed("bad")"#, r#"3 AuthFailed("bad")"#]
    );
    assert!(!rig.machine.is_alive());
}

#[test]
fn a_session_with_rejected_credentials_is_closed_over_another_connection_without_them() {
    let mut rig = rig(&["bad"]);
    rig.connect();
    rig.written();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    rig.disconnect();
    rig.take_log();
    assert!(!rig.machine.is_over(rig.now));
    assert!(rig.machine.is_over(rig.now + T));
    rig.connect();
    assert_eq!(ops(&rig.answer_all()), [server::CLOSE]);
    assert!(rig.machine.is_over(rig.now));
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn rejected_credentials_of_a_session_that_leaves_are_no_news() {
    let mut rig = rig(&["bad"]);
    rig.connect();
    rig.written();
    rig.leave(SessionError::Closed, None);
    rig.take_log();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    rig.submit(&sync("/a"), 1);
    assert_eq!(rig.log, ["1 Closed"]);
}

#[test]
fn an_answer_to_credentials_that_were_not_sent_ends_the_connection() {
    let mut rig = Rig::connected();
    assert!(rig.receive(&server::reply(XID_AUTH, 0, 0, b"")).is_err());
    assert!(rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).is_err());
    assert_eq!(rig.log, [""; 0]);
    assert!(rig.machine.is_alive());
}

#[test]
fn answers_of_an_earlier_connection_do_not_count_for_the_next() {
    let mut rig = rig(&["first", "second"]);
    rig.connect();
    rig.written();
    rig.disconnect();
    rig.connect();
    rig.written();
    rig.take_log();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    assert_eq!(rig.log, [r#"raise AuthFailed("first")"#]);
}

#[test]
fn a_preamble_that_was_not_written_is_not_written_to_the_next_connection_as_well() {
    let mut rig = rig(&["digest"]);
    rig.connect();
    rig.disconnect();
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::AUTH]);
}
