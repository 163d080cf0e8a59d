//! What the server is asked about a held znode, and when again.

use super::*;
use crate::{base::clock, proto::request::Request};

/// Who looked over the second connection may say so after the client's thread has looked over the third.
#[test]
fn what_was_seen_over_an_earlier_connection_puts_nothing_in_doubt() {
    let rig = Rig::new(None);
    let node = rig.watched();
    rig.said.connection.store(3, Ordering::Release);
    rig.look_at(rig.begun + WATCH_AFTER);
    rig.answer(Ok(ours()));
    for sees in [|node: &HeldNode| node.znode().seen_again(2), |node: &HeldNode| node.znode().seen(2, Ok(ours()))] {
        sees(&node);
        assert_eq!(node.state(rig.begun), HoldState::Held);
    }
}

#[test]
fn a_watch_that_was_refused_is_asked_for_again_and_not_in_a_circle() {
    let rig = Rig::new(None);
    let node = rig.hold();
    rig.look_at(node.since + WATCH_AFTER);
    assert_eq!(rig.requests(), 1);
    // Nothing to come back for while the request is under way.
    rig.look_at(node.since + WATCH_AFTER);
    rig.look_at(node.since + WATCH_AFTER);
    rig.is_woken();
    rig.answer(Err(SessionError::Server(ErrorCode::NoAuth)));
    assert!(rig.is_woken());
    let refused = clock::now();
    assert!(rig.look_at(refused).is_some());
    assert_eq!(rig.requests(), 0);
    rig.look_at(refused + WATCH_AFTER + MOMENT);
    assert_eq!(rig.requests(), 1);
}

#[test]
fn data_above_the_frame_limit_end_one_connection() {
    let rig = Rig::new(None);
    let node = rig.hold();
    rig.look_at(node.since + WATCH_AFTER);
    rig.said.connection.store(2, Ordering::Release);
    rig.answer(Err(SessionError::FrameTooLarge { size: 2000, limit: 1024 }));
    rig.look_at(clock::now() + WATCH_AFTER);
    let asked = rig.said.submissions.lock()[0].request.clone();
    assert!(matches!(asked, Request::Exists { watch: true, .. }), "{asked:?}");
    rig.answer(Ok(Response::Stat(Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() })));
    assert_eq!(node.state(rig.begun), HoldState::Held);
}

/// The watch stays, though no event may come: CVE-2024-23944.
#[test]
fn what_the_holder_may_not_read_is_asked_for_once_per_session_timeout() {
    let rig = Rig::new(None);
    let node = rig.hold();
    let states = node.channel();
    rig.look_at(node.since + WATCH_AFTER);
    rig.answer(Err(SessionError::Server(ErrorCode::NoAuth)));
    rig.look_at(node.since + WATCH_AFTER + MOMENT);
    for _ in 0..2 {
        rig.answer(Ok(Response::Stat(Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() })));
        assert!(rig.is_woken());
        let answered = clock::now();
        rig.look_at(answered);
        assert_eq!(rig.requests(), 0, "the watch is in place");
        rig.said.valid_until.lock().replace(answered + 2 * LONG);
        rig.look_at(answered + LONG);
        rig.look_at(answered + LONG);
        assert_eq!(rig.requests(), 1);
    }
    rig.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert_eq!(node.lost(), Some(LostReason::NodeDeleted));
    assert_eq!(states.try_iter().count(), 0, "told by the look that follows");
}

#[test]
fn a_question_that_the_connection_took_with_it_is_asked_over_the_next_one_at_once() {
    let rig = Rig::new(None);
    let node = rig.hold();
    rig.look_at(node.since + WATCH_AFTER);
    rig.said.connection.store(0, Ordering::Release);
    rig.answer(Err(SessionError::ConnectionLoss(None)));
    rig.look_at(node.since + WATCH_AFTER + MOMENT);
    assert_eq!(rig.requests(), 0);
    rig.said.connection.store(2, Ordering::Release);
    rig.look_at(node.since + WATCH_AFTER + 2 * MOMENT);
    assert_eq!(rig.requests(), 1);
}

#[test]
fn a_watch_that_was_used_up_is_set_again_at_once() {
    let rig = Rig::new(None);
    let node = rig.watched();
    let at = node.since + WATCH_AFTER + MOMENT;
    rig.look_at(at);
    rig.look_at(at);
    node.znode().watched(&WatchEvent::Node { event: EventType::NodeDataChanged, connection: 1 });
    assert!(rig.is_woken());
    rig.look_at(at);
    assert_eq!(rig.requests(), 1);
}

#[test]
fn after_a_reconnect_the_znode_is_asked_for_until_it_was_seen() {
    let rig = Rig::new(None);
    let node = rig.watched();
    let states = node.channel();
    let at = node.since + 2 * WATCH_AFTER;
    rig.said.connection.store(2, Ordering::Release);
    // The client's thread looks because the session has said so.
    assert_eq!(rig.look_at(at), Some(at + WATCH_AFTER));
    assert_eq!(rig.look_at(at + WATCH_AFTER), Some(at + 2 * WATCH_AFTER));
    assert_eq!(rig.requests(), 1);
    rig.answer(Ok(ours()));
    rig.look_at(at + 2 * WATCH_AFTER);
    assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::InDoubt, HoldState::Held]);
}

#[test]
fn the_end_of_the_session_is_told_by_the_look_that_follows() {
    let rig = Rig::new(None);
    let node = rig.watched();
    let states = node.channel();
    let session: Arc<dyn Session> = rig.said.clone();
    rig.said.ended.store(true, Ordering::Release);
    rig.held.lose_all(Some(&session), LostReason::SuspendedTooLong);
    rig.look_at(node.since + 2 * WATCH_AFTER);
    assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::Lost(LostReason::SuspendedTooLong)]);
}
