//! What becomes of requests.

use super::*;

#[test]
fn requests_wait_for_the_first_connection_and_keep_their_order() {
    let mut rig = Rig::new();
    for tag in 0..3 {
        rig.submit(&sync(&format!("/{tag}")), tag);
    }
    assert!(!rig.machine.has_output());
    rig.connect();
    assert_eq!(paths(&rig.answer_all()), ["/0", "/1", "/2"]);
    assert_eq!(rig.log, ["raise Connected { connection: 1, read_only: false }", "0 ok", "1 ok", "2 ok"]);
}

#[test]
fn xids_are_consecutive_in_the_order_of_submission_over_all_connections() {
    let mut rig = Rig::connected();
    let mut xids = Vec::new();
    for tag in 0..6 {
        rig.submit(&sync("/"), tag);
        if tag % 2 == 1 {
            xids.extend(rig.written().iter().map(|frame| frame.xid));
        }
        if tag == 3 {
            rig.disconnect();
            rig.connect();
        }
    }
    assert_eq!(xids, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn after_the_largest_xid_comes_one() {
    let mut rig = Rig::connected();
    rig.machine.next_xid = i32::MAX;
    rig.submit(&sync("/a"), 1);
    rig.submit(&sync("/b"), 2);
    let xids: Vec<_> = rig.answer_all().iter().map(|frame| frame.xid).collect();
    assert_eq!(xids, [i32::MAX, 1]);
    assert_eq!(rig.log, ["1 ok", "2 ok"]);
}

#[test]
fn what_was_written_is_lost_with_the_connection_and_what_was_not_waits() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/written"), 1);
    rig.written();
    rig.submit(&sync("/unwritten"), 2);
    rig.disconnect();
    assert_eq!(rig.take_log(), ["1 lost", "raise Disconnected"]);
    rig.connect();
    assert_eq!(paths(&rig.answer_all()), ["/unwritten"]);
    assert_eq!(rig.take_log(), ["raise Connected { connection: 2, read_only: false }", "2 ok"]);
}

#[test]
fn requests_are_written_in_pieces_so_that_a_stuck_writer_leaves_the_rest_unwritten() {
    let mut rig = Rig::connected();
    let path = "x".repeat(10_000);
    for tag in 0..20 {
        rig.submit(&sync(&path), tag);
    }
    let mut piece = Vec::new();
    rig.machine.take_output(&mut piece);
    assert_eq!(server::frames(&piece).len(), 6);
    assert!(rig.machine.write_failed(1));
    assert!(!rig.machine.has_output());
    assert_eq!(rig.machine.connection(), 1);
    rig.disconnect();
    let lost: Vec<_> = (0..6).map(|tag| format!("{tag} lost")).chain(["raise Disconnected".into()]).collect();
    assert_eq!(rig.take_log(), lost);
    rig.connect();
    assert_eq!(rig.written().len(), 14);
}

#[test]
fn a_request_larger_than_a_piece_goes_out_alone() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/small"), 1);
    rig.submit(&sync(&"x".repeat(OUTPUT_CHUNK)), 2);
    for expected in [1, 2] {
        let mut piece = Vec::new();
        rig.machine.take_output(&mut piece);
        assert_eq!(server::frames(&piece).iter().map(|frame| frame.xid).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn a_failed_write_to_an_earlier_connection_does_not_concern_the_live_one() {
    let mut rig = Rig::connected();
    rig.disconnect();
    assert!(!rig.machine.write_failed(1));
    assert!(!rig.machine.write_failed(0));
    rig.connect();
    assert!(!rig.machine.write_failed(1));
    rig.submit(&sync("/"), 1);
    assert_eq!(rig.written().len(), 1);
}

#[test]
fn a_request_that_was_not_written_can_be_withdrawn_and_is_never_heard_of_again() {
    let mut rig = Rig::new();
    let tickets: Vec<_> = (0..3).map(|tag| rig.submit(&sync(&format!("/{tag}")), tag)).collect();
    assert!(rig.withdraw(tickets[1]));
    assert!(!rig.withdraw(tickets[1]));
    rig.connect();
    assert_eq!(paths(&rig.answer_all()), ["/0", "/2"]);
    assert!(!rig.withdraw(tickets[0]));
    assert!(!rig.withdraw(12345));
    assert_eq!(rig.log, ["drop 1", "raise Connected { connection: 1, read_only: false }", "0 ok", "2 ok"]);
}

#[test]
fn a_request_between_requests_of_the_session_itself_can_be_withdrawn() {
    let mut rig = Rig::connected();
    rig.timer_at(rig.now + T / 3);
    let ticket = rig.submit(&sync("/mine"), 1);
    rig.receive(&server::reply(XID_PING, 1, 0, b"")).unwrap();
    rig.timer_at(rig.now + T / 3);
    assert!(rig.withdraw(ticket));
    assert_eq!(paths(&rig.written()), ["/", "/"]);
}

#[test]
fn a_reply_to_another_request_ends_the_connection_and_completes_nothing() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    rig.submit(&sync("/b"), 2);
    let frames = rig.written();
    assert!(rig.receive(&server::answer(&frames[1], 1, 0)).is_err());
    assert_eq!(rig.take_log(), [""; 0]);
    rig.disconnect();
    assert_eq!(rig.take_log(), ["1 lost", "2 lost", "raise Disconnected"]);
}

#[test]
fn a_reply_that_nobody_asked_for_ends_the_connection() {
    let mut rig = Rig::connected();
    assert!(rig.receive(&server::reply(1, 1, 0, b"")).is_err());
    assert!(rig.receive(&server::reply(0, 1, 0, b"")).is_err());
    assert!(rig.receive(&server::reply(-3, 1, 0, b"")).is_err());
}

#[test]
fn a_reply_that_cannot_be_read_ends_the_connection_and_the_request_is_lost_with_it() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    let xid = rig.written()[0].xid;
    assert!(rig.receive(&server::reply(xid, 1, 0, b"nonsense")).is_err());
    rig.disconnect();
    assert_eq!(rig.take_log(), ["1 lost", "raise Disconnected"]);
}

#[test]
fn an_error_of_the_server_is_the_answer() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    let frames = rig.written();
    rig.receive(&server::answer(&frames[0], 1, server::NO_NODE)).unwrap();
    assert_eq!(rig.log, ["1 NoNode"]);
}

#[test]
fn the_body_of_a_failed_multi_is_the_answer() {
    let mut rig = Rig::connected();
    rig.submit(&Request::Multi(Vec::new()), 1);
    let xid = rig.written()[0].xid;
    let body = [&(-1_i32).to_be_bytes()[..], &[1], &(-1_i32).to_be_bytes()].concat();
    rig.receive(&server::reply(xid, 1, server::NO_NODE, &body)).unwrap();
    rig.submit(&Request::Multi(Vec::new()), 2);
    let xid = rig.written()[0].xid;
    rig.receive(&server::reply(xid, 1, server::NO_NODE, b"")).unwrap();
    assert_eq!(rig.log, ["1 ok", "2 NoNode"]);
}

#[test]
fn last_zxid_moves_with_replies_and_with_nothing_else() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    rig.submit(&sync("/b"), 2);
    let frames = rig.written();
    rig.receive(&server::answer(&frames[0], 10, 0)).unwrap();
    let mut event = server::notification(server::CHANGED, "/a");
    event[4..12].copy_from_slice(&20_i64.to_be_bytes());
    rig.receive(&event).unwrap();
    rig.receive(&server::reply(XID_PING, 30, 0, b"")).unwrap();
    assert_eq!(rig.machine.connect_request().last_zxid_seen, 10);
    // A zxid from nowhere would keep every server from taking the session up.
    assert!(rig.receive(&server::reply(99, i64::MAX, 0, b"")).is_err());
    assert!(rig.receive(&server::reply(frames[1].xid, i64::MAX, 0, b"nonsense")).is_err());
    assert_eq!(rig.machine.connect_request().last_zxid_seen, 10);
    rig.receive(&server::answer(&frames[1], 9, server::NO_NODE)).unwrap();
    assert_eq!(rig.machine.connect_request().last_zxid_seen, 10);
}

#[test]
fn a_request_above_the_limit_is_refused_with_its_size() {
    let mut rig = Rig::with(SessionConfig { max_frame_size: 30, ..server::config() });
    rig.connect();
    rig.take_log();
    let fits = sync(&"x".repeat(18));
    assert_eq!(fits.encode(0).len(), 4 + 30);
    rig.submit(&fits, 1);
    rig.submit(&sync(&"x".repeat(19)), 2);
    rig.submit(&get_data(&"x".repeat(19)), 3);
    assert_eq!(
        rig.take_log(),
        ["2 FrameTooLarge { size: 31, limit: 30 }", "3 FrameTooLarge { size: 51, limit: 30 }", "drop watcher 3"]
    );
    assert_eq!(rig.written().len(), 1);
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn a_reply_above_the_limit_is_the_error_of_its_own_request_only() {
    let mut rig = Rig::connected();
    rig.submit(&get_data("/large"), 1);
    rig.submit(&sync("/next"), 2);
    let frames = rig.written();
    rig.input(|machine, actions| machine.frame_too_large(frames[1].xid, 5, 4, actions));
    assert_eq!(rig.take_log(), [""; 0]);
    rig.input(|machine, actions| machine.frame_too_large(frames[0].xid, 5, 4, actions));
    rig.disconnect();
    assert_eq!(
        rig.take_log(),
        ["drop watcher 1", "1 FrameTooLarge { size: 5, limit: 4 }", "2 lost", "raise Disconnected"]
    );
}

#[test]
fn what_only_the_session_may_send_is_refused() {
    let mut rig = Rig::connected();
    let set_watches = Request::SetWatches { relative_zxid: 0, data: vec![], exist: vec![], child: vec![] };
    let auth = Request::Auth { scheme: "digest".into(), auth: b"me:secret".to_vec() };
    for (tag, request) in (0..).zip([Request::Ping, auth, set_watches, Request::CloseSession]) {
        rig.submit(&request, tag);
    }
    assert_eq!(rig.take_log(), ["0 BadArguments", "1 BadArguments", "2 BadArguments", "3 BadArguments"]);
    assert!(rig.written().is_empty());
}

#[test]
fn what_stands_on_the_wrong_side_of_a_multi_is_refused() {
    let mut rig = Rig::connected();
    let check = || Request::Check { path: "/a".into(), version: 1 };
    let delete = Request::Delete { path: "/a".into(), version: 1 };
    rig.submit(&check(), 0);
    for (tag, request) in (1..).zip([sync("/a"), get_data("/a"), Request::Multi(vec![check()])]) {
        rig.submit(&Request::Multi(vec![check(), request]), tag);
    }
    assert_eq!(rig.take_log(), ["0 BadArguments", "1 BadArguments", "2 BadArguments", "3 BadArguments"]);
    rig.submit(&Request::Multi(vec![check(), delete]), 4);
    assert_eq!(ops(&rig.written()), [14]);
    // Reads stand among themselves, and leave no watch.
    let watched = Request::GetData { path: "/a".into(), watch: true };
    rig.submit(&Request::Multi(vec![get_data("/a"), watched]), 5);
    assert_eq!(rig.take_log(), ["5 BadArguments"]);
}

#[test]
fn a_watch_without_a_watcher_and_a_watcher_without_a_watch_are_refused() {
    let mut rig = Rig::connected();
    for (request, watcher) in [(get_data("/a"), None), (sync("/a"), Some(7))] {
        rig.input(|machine, actions| machine.submit(&request, request.encode(0), 1, watcher, actions));
    }
    assert_eq!(rig.take_log(), ["1 BadArguments", "1 BadArguments", "drop watcher 7"]);
    assert!(rig.written().is_empty());
}
