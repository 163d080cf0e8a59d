//! Heartbeats, and connections that die.

use super::*;

/// Sync replies to heartbeats, and what was written.
fn beat(rig: &mut Rig) -> Vec<i32> {
    assert!(rig.timer_at(rig.now + T / 3));
    ops(&rig.answer_all())
}

#[test]
fn the_heartbeat_is_a_sync_a_quarter_of_the_timeout_after_the_answer_to_the_last_one() {
    let mut rig = Rig::connected();
    assert_eq!(rig.machine.next_timer(), rig.now + T * 11 / 40);
    assert!(rig.timer_at(rig.now + T * 11 / 40 - Duration::from_millis(1)));
    assert!(!rig.machine.has_output());
    rig.now -= T * 11 / 40 - Duration::from_millis(1);
    for _ in 0..3 {
        assert_eq!(beat(&mut rig), [server::SYNC]);
        assert_eq!(rig.machine.next_timer(), rig.now + T * 11 / 40);
    }
    assert_eq!(rig.log, [""; 0]);
}

#[test]
fn the_heartbeat_goes_out_beside_requests_in_flight() {
    let mut rig = Rig::connected();
    rig.submit(&sync("/a"), 1);
    rig.written();
    assert!(rig.timer_at(rig.now + T / 3));
    assert_eq!(paths(&rig.written()), ["/"]);
}

#[test]
fn answered_heartbeats_prove_how_long_the_session_is_valid() {
    let mut rig = Rig::new();
    assert_eq!(rig.machine.valid_until(), None);
    rig.connect();
    let lease = T - T / 20;
    assert_eq!(rig.machine.valid_until(), Some(rig.now + lease));
    beat(&mut rig);
    let first = rig.now;
    beat(&mut rig);
    assert_eq!(rig.machine.valid_until(), Some(first + lease));
}

/// Answers the first heartbeat of a resumed session, which goes out at once, with this result.
fn agree(rig: &mut Rig, result: &[u8]) {
    assert!(rig.timer_at(rig.now));
    let heartbeat = rig.written().remove(0);
    assert_eq!((heartbeat.op, server::string(&mut &heartbeat.body[9..])), (op::MULTI, "/".to_owned()));
    rig.receive(&server::reply(heartbeat.xid, 1, 0, &[result, &server::end_of_multi()].concat())).unwrap();
}

fn checked() -> Vec<u8> {
    [&op::CHECK.to_be_bytes()[..], &[0], &[0; 4]].concat()
}

#[test]
fn a_session_that_was_resumed_when_it_may_be_due_is_certain_half_a_timeout_later() {
    let mut rig = Rig::connected();
    let valid_until = rig.machine.valid_until();
    rig.disconnect();
    rig.now += T - T / 20;
    rig.connect();
    agree(&mut rig, &checked());
    let first = rig.now;
    beat(&mut rig);
    assert_eq!(rig.machine.valid_until(), valid_until);
    beat(&mut rig);
    assert_eq!(rig.machine.valid_until(), Some(first + T / 3 + T - T / 20), "a pair");
}

#[test]
fn a_session_that_was_resumed_in_time_is_certain_for_longer_once_a_majority_has_answered() {
    for quorum_heartbeats in [false, true] {
        let mut rig = Rig::with(SessionConfig { quorum_heartbeats, ..server::config() });
        rig.connect();
        let valid_until = rig.machine.valid_until();
        rig.disconnect();
        rig.now += T / 2;
        rig.connect();
        let of_handshake = Some(rig.now + T - T / 20);
        for refused in [-110, -127] {
            agree(&mut rig, &failed(refused));
            assert_eq!(rig.machine.valid_until(), valid_until);
            rig.now += T * 11 / 40;
        }
        agree(&mut rig, &failed(-102));
        assert_eq!(rig.machine.valid_until(), of_handshake);
        assert!(rig.timer_at(rig.now + T / 3));
        assert_eq!(ops(&rig.written()), [if quorum_heartbeats { op::MULTI } else { server::SYNC }]);
    }
}

#[test]
fn a_heartbeat_that_fails_proves_nothing() {
    let mut rig = Rig::connected();
    let valid_until = rig.machine.valid_until();
    for _ in 0..4 {
        assert!(rig.timer_at(rig.now + T / 3));
        let heartbeat = rig.written().remove(0);
        rig.receive(&server::answer(&heartbeat, 1, server::NOT_READ_ONLY)).unwrap();
    }
    assert_eq!(rig.machine.valid_until(), valid_until);
}

#[test]
fn a_heartbeat_that_needs_a_quorum_is_a_transaction_and_proves_nothing_of_a_session_that_it_finds_gone() {
    let mut rig = Rig::with(SessionConfig { quorum_heartbeats: true, ..server::config() });
    rig.connect();
    let (of_handshake, lease) = (rig.now + T - T / 20, T - T / 20);
    let mut before = None;
    let mut beat = |result: &[u8], proves| {
        assert!(rig.timer_at(rig.now + T * 3 / 10));
        let heartbeat = rig.written().remove(0);
        assert_eq!((heartbeat.op, server::string(&mut &heartbeat.body[9..])), (op::MULTI, "/".to_owned()));
        rig.receive(&server::reply(heartbeat.xid, 1, 0, &[result, &server::end_of_multi()].concat())).unwrap();
        let valid_until = before.filter(|_| proves).map_or(of_handshake, |sent| sent + lease);
        before = Some(rig.now);
        (valid_until, rig.machine.valid_until())
    };
    for (result, proves) in [(&failed(-110), false), (&checked(), false), (&failed(-102), true), (&checked(), true)] {
        let (expected, valid_until) = beat(result, proves);
        assert_eq!(valid_until, Some(expected));
    }
    assert_eq!(beat(&failed(server::EXPIRED), false).1, None);
    assert_eq!(rig.log.pop().unwrap(), "raise Expired");
}

#[test]
fn a_read_only_server_gets_pings_and_proves_nothing() {
    let mut rig = Rig::with(server::config());
    rig.handshake(ConnectResponse { read_only: true, ..response(ID) }).unwrap();
    assert_eq!(rig.log, ["raise Connected { connection: 1, read_only: true }"]);
    assert_eq!(rig.machine.valid_until(), None);
    for _ in 0..3 {
        assert!(rig.timer_at(rig.now + T / 3));
        let pings = rig.written();
        assert_eq!(pings.iter().map(|frame| (frame.op, frame.xid)).collect::<Vec<_>>(), [(server::PING, XID_PING)]);
        rig.receive(&server::answer(&pings[0], 1, 0)).unwrap();
    }
    assert_eq!(rig.machine.valid_until(), None);
}

#[test]
fn a_server_that_sends_frames_and_answers_nothing_loses_the_connection_after_the_session_timeout() {
    for (quorum_heartbeats, read_only) in [(false, false), (true, false), (false, true)] {
        let mut rig = Rig::with(SessionConfig { quorum_heartbeats, ..server::config() });
        rig.handshake(ConnectResponse { read_only, ..response(ID) }).unwrap();
        rig.submit(&sync("/a"), 1);
        rig.written();
        let due = rig.machine.next_timer();
        assert!(rig.timer_at(due));
        let frames = [server::notification(server::CHANGED, "/nobody-cares"), server::reply(XID_PING, 1, 0, &[])];
        while rig.now + T / 20 < due + T {
            rig.now += T / 20;
            // Where a ping is the heartbeat, the answer to one is no other frame.
            rig.receive(&frames[usize::from(!read_only && rig.now > due + T / 2)]).unwrap();
            assert!(rig.timer_at(rig.now));
        }
        rig.take_log();
        assert!(!rig.timer_at(due + T), "{quorum_heartbeats}, {read_only}");
        rig.disconnect();
        assert_eq!(rig.take_log(), ["1 lost", "raise Disconnected"]);
    }
}

#[test]
fn slow_answers_keep_the_connection_and_the_session_certain() {
    for quorum_heartbeats in [false, true] {
        let mut rig = Rig::with(SessionConfig { quorum_heartbeats, ..server::config() });
        rig.connect();
        let (begin, mut answers) = (rig.now, VecDeque::new());
        while rig.now < begin + 10 * T {
            let timer = rig.machine.next_timer();
            rig.now = answers.front().map_or(timer, |(at, _)| timer.min(*at));
            if timer == rig.now {
                assert!(rig.timer_at(timer));
                let sent = rig.now;
                answers.extend(rig.written().into_iter().map(|heartbeat| (sent + T * 3 / 10, heartbeat)));
                continue;
            }
            let (_, heartbeat) = answers.pop_front().unwrap();
            let is_certain = rig.machine.valid_until() > Some(rig.now);
            // A link that becomes slow begins with a silence.
            assert!(is_certain || rig.now < begin + T * 5 / 2, "{:?}", rig.now - begin);
            rig.receive(&server::answer(&heartbeat, 1, 0)).unwrap();
        }
    }
}

#[test]
fn a_timeout_that_a_reconnect_lowers_is_followed_whatever_counts_as_a_proof() {
    for quorum_heartbeats in [false, true] {
        let mut rig = Rig::with(SessionConfig { quorum_heartbeats, ..server::config() });
        rig.connect();
        rig.disconnect();
        rig.now += T / 10;
        rig.handshake(ConnectResponse { timeout_ms: 1000, ..response(ID) }).unwrap();
        assert_eq!(rig.machine.valid_until(), Some(rig.now + Duration::from_millis(950)), "{quorum_heartbeats}");
    }
}

#[test]
fn a_reconnect_raises_no_timeout_above_the_one_that_the_session_was_made_with() {
    let mut rig = Rig::new();
    rig.handshake(ConnectResponse { timeout_ms: 2000, ..response(ID) }).unwrap();
    rig.disconnect();
    assert_eq!(rig.machine.connect_request().timeout_ms, 2000);
    rig.handshake(response(ID)).unwrap();
    assert_eq!(rig.machine.timeout(), Duration::from_secs(2));
    assert_eq!(rig.machine.valid_until(), Some(rig.now + Duration::from_millis(1900)));
    rig.disconnect();
    rig.handshake(ConnectResponse { timeout_ms: 1000, ..response(ID) }).unwrap();
    assert_eq!(rig.machine.timeout(), Duration::from_secs(1));
    rig.disconnect();
    assert_eq!(rig.machine.connect_request().timeout_ms, 2000);
}

#[test]
fn two_thirds_of_silence_are_the_end_of_a_connection() {
    let mut rig = Rig::connected();
    assert!(rig.timer_at(rig.now + T / 3));
    assert!(rig.timer_at(rig.now + T / 3 - Duration::from_millis(1)));
    assert!(!rig.timer_at(rig.now + Duration::from_millis(1)));
    // Nothing more goes to a connection that is dead.
    rig.submit(&sync("/a"), 1);
    assert!(!rig.machine.has_output());
    rig.disconnect();
    assert_eq!(rig.log, ["raise Disconnected"]);
}

#[test]
fn any_frame_is_a_sign_of_life() {
    let mut rig = Rig::connected();
    rig.now += T / 2;
    rig.receive(&server::notification(server::CHANGED, "/nobody-cares")).unwrap();
    assert!(rig.timer_at(rig.now + T * 2 / 3 - Duration::from_millis(1)));
    assert!(!rig.timer_at(rig.now + Duration::from_millis(1)));
}

#[test]
fn a_heartbeat_does_not_outlive_its_connection() {
    let mut rig = Rig::connected();
    assert!(rig.timer_at(rig.now + T / 3));
    rig.disconnect();
    rig.connect();
    assert!(rig.written().is_empty());
}

#[test]
fn time_passes_without_a_connection() {
    let mut rig = Rig::new();
    assert!(rig.timer_at(rig.now + 10 * T));
    rig.connect();
    rig.disconnect();
    assert!(rig.timer_at(rig.now + 10 * T));
    assert!(!rig.machine.has_output());
    assert!(rig.machine.is_alive());
}

#[test]
fn extreme_timeouts_do_not_overflow() {
    for (asked, given) in [(Duration::ZERO, 1), (Duration::MAX, i32::MAX), (Duration::MAX, 2), (Duration::MAX, -1)] {
        let mut rig = Rig::with(SessionConfig { session_timeout: asked, ..server::config() });
        rig.machine.next_timer();
        assert!(rig.machine.timeout() <= LONGEST_TIMEOUT);
        assert!(rig.machine.connect_request().timeout_ms >= 0);
        let taken = rig.handshake(ConnectResponse { timeout_ms: given, ..response(ID) });
        assert_eq!(taken.is_ok(), given > 0);
        rig.machine.next_timer();
        rig.machine.valid_until();
        rig.timer_at(rig.now + rig.machine.timeout() / 3);
        rig.answer_all();
        rig.timer_at(rig.now + rig.machine.timeout() * 2 / 3);
        rig.leave(SessionError::Closed, None);
        rig.machine.next_timer();
    }
}
