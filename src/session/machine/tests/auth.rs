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
    assert_eq!(rig.take_log(), ["1 refused bad", "2 refused bad", "raise refused bad", "3 refused bad"]);
    assert!(!rig.machine.is_alive());
}

#[test]
fn a_session_with_rejected_credentials_is_closed_over_another_connection_without_them() {
    let mut rig = rig(&["bad"]);
    rig.connect();
    rig.written();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    rig.disconnect();
    rig.nobody_holds();
    rig.take_log();
    assert!(!rig.machine.is_over(rig.now));
    assert!(rig.machine.is_over(rig.now + 2 * T));
    rig.connect();
    assert_eq!(ops(&rig.answer_all()), [server::CLOSE]);
    assert!(rig.machine.is_over(rig.now));
    assert_eq!(rig.log, [""; 0]);
}

/// Its holder was told until when the lock is its own, and works on.
#[test]
fn a_session_whose_credentials_are_rejected_at_a_reconnect_is_not_closed_under_a_holder() {
    let mut rig = rig(&["bad"]);
    rig.connect();
    rig.answer_all();
    rig.disconnect();
    rig.connect();
    rig.written();
    let valid_until = rig.machine.valid_until().unwrap();
    rig.receive(&server::reply(XID_AUTH, 0, server::AUTH_FAILED, b"")).unwrap();
    assert!(rig.written().is_empty() && rig.machine.is_failing(), "it is hung up");
    rig.disconnect();
    assert_eq!(rig.machine.rests_until(rig.now), Some(valid_until));
    assert!(!rig.machine.is_over(valid_until) && rig.machine.is_over(valid_until + T));
    rig.now = valid_until;
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
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
    assert_eq!(rig.log, ["raise refused first"]);
}

#[test]
fn a_preamble_that_was_not_written_is_not_written_to_the_next_connection_as_well() {
    let mut rig = rig(&["digest"]);
    rig.connect();
    rig.disconnect();
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::AUTH]);
}

const WHY: &str = "the ticket has expired";

fn refuse(rig: &mut Rig) {
    let now = rig.now;
    rig.input(|machine, actions| machine.auth_failed("sasl".into(), WHY.into(), now, actions));
}

#[test]
fn a_new_session_that_sasl_does_not_let_in_ends_at_once() {
    let mut rig = Rig::new();
    rig.submit(&sync("/a"), 1);
    refuse(&mut rig);
    rig.submit(&sync("/b"), 2);
    assert_eq!(rig.take_log(), ["1 refused sasl", "raise refused sasl", "2 refused sasl"]);
    // No request of it has ever been taken, so no znode needs a close.
    assert!(rig.machine.is_over(rig.now));
}

#[test]
fn a_session_that_sasl_does_not_let_in_again_is_closed_without_it() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/watched"), 1);
    rig.disconnect();
    rig.take_log();
    refuse(&mut rig);
    rig.nobody_holds();
    assert_eq!(rig.take_log(), ["watcher 1 Ended", "raise refused sasl"]);
    #[cfg(feature = "sasl")]
    assert!(!rig.machine.authenticates());
    assert!(!rig.machine.is_over(rig.now) && rig.machine.is_over(rig.now + 2 * T));
    rig.connect();
    assert_eq!(ops(&rig.answer_all()), [server::CLOSE]);
    assert!(rig.machine.is_over(rig.now));
}

#[test]
fn a_close_that_a_server_refuses_without_sasl_is_not_sent_again_and_again() {
    let mut rig = Rig::connected();
    rig.disconnect();
    refuse(&mut rig);
    rig.nobody_holds();
    rig.connect();
    let close = rig.written().remove(0);
    rig.receive(&server::answer(&close, 0, SASL_REQUIRED)).unwrap();
    assert!(rig.machine.is_over(rig.now));
}

#[cfg(feature = "sasl")]
#[test]
fn a_session_that_is_being_closed_authenticates_until_it_is_refused() {
    let mut rig = Rig::connected();
    rig.disconnect();
    rig.leave(SessionError::Closed, None);
    rig.take_log();
    assert!(rig.machine.authenticates());
    refuse(&mut rig);
    assert!(!rig.machine.authenticates());
    assert_eq!(rig.log, [""; 0]);
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::CLOSE]);
}

/// What a server answers to a request of a client that has not authenticated itself.
const SASL_REQUIRED: i32 = -124;

#[test]
fn a_server_that_demands_sasl_ends_a_session_without_it() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    rig.submit(&sync("/b"), 2);
    let first = rig.written().remove(0);
    rig.receive(&server::answer(&first, 0, SASL_REQUIRED)).unwrap();
    assert_eq!(rig.take_log(), ["1 refused sasl", "2 refused sasl", "raise refused sasl"]);
    rig.disconnect();
    rig.nobody_holds();
    rig.connect();
    let close = rig.written().remove(0);
    rig.receive(&server::answer(&close, 0, SASL_REQUIRED)).unwrap();
    assert!(rig.machine.is_over(rig.now));
}
