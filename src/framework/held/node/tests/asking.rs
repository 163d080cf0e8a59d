//! What the server is asked about a held znode, and when again.

use super::*;

/// Who looked over the second connection may say so after the client's thread has looked over the third.
#[test]
fn what_was_seen_over_an_earlier_connection_puts_nothing_in_doubt() {
    let scene = Wanted::new(None);
    let node = scene.watched();
    scene.said.connection.store(3, Ordering::Release);
    scene.look_at(scene.begun + WATCH_AFTER);
    scene.answer(Ok(ours()));
    for sees in [|node: &HeldNode| node.znode().seen_again(2), |node: &HeldNode| node.znode().seen(2, Ok(ours()))] {
        sees(&node);
        assert_eq!(node.state(scene.begun), HoldState::Held);
    }
}

#[test]
fn a_watch_that_was_refused_is_asked_for_again_and_not_in_a_circle() {
    let scene = Wanted::new(None);
    let node = scene.hold();
    scene.look_at(node.since + WATCH_AFTER);
    assert_eq!(scene.requests(), 1);
    // Nothing to come back for while the request is under way.
    scene.look_at(node.since + WATCH_AFTER);
    scene.look_at(node.since + WATCH_AFTER);
    scene.is_woken();
    scene.answer(Err(SessionError::Server(ErrorCode::NoAuth)));
    assert!(scene.is_woken());
    let refused = Instant::now();
    assert!(scene.look_at(refused).is_some());
    assert_eq!(scene.requests(), 0);
    scene.look_at(refused + WATCH_AFTER + MOMENT);
    assert_eq!(scene.requests(), 1);
}

/// The watch stays, though no event may come: CVE-2024-23944.
#[test]
fn what_the_holder_may_not_read_is_asked_for_once_per_session_timeout() {
    let scene = Wanted::new(None);
    let node = scene.hold();
    let states = node.channel();
    scene.look_at(node.since + WATCH_AFTER);
    scene.answer(Err(SessionError::Server(ErrorCode::NoAuth)));
    scene.look_at(node.since + WATCH_AFTER + MOMENT);
    for _ in 0..2 {
        scene.answer(Ok(Response::Stat(Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() })));
        assert!(scene.is_woken());
        let answered = Instant::now();
        scene.look_at(answered);
        assert_eq!(scene.requests(), 0, "the watch is in place");
        scene.said.valid_until.lock().replace(answered + 2 * LONG);
        scene.look_at(answered + LONG);
        scene.look_at(answered + LONG);
        assert_eq!(scene.requests(), 1);
    }
    scene.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert_eq!(node.lost(), Some(LostReason::NodeDeleted));
    assert_eq!(states.try_iter().count(), 0, "told by the look that follows");
}

#[test]
fn a_question_that_the_connection_took_with_it_is_asked_over_the_next_one_at_once() {
    let scene = Wanted::new(None);
    let node = scene.hold();
    scene.look_at(node.since + WATCH_AFTER);
    scene.said.connection.store(0, Ordering::Release);
    scene.answer(Err(SessionError::ConnectionLoss(None)));
    scene.look_at(node.since + WATCH_AFTER + MOMENT);
    assert_eq!(scene.requests(), 0);
    scene.said.connection.store(2, Ordering::Release);
    scene.look_at(node.since + WATCH_AFTER + 2 * MOMENT);
    assert_eq!(scene.requests(), 1);
}

#[test]
fn a_watch_that_was_used_up_is_set_again_at_once() {
    let scene = Wanted::new(None);
    let node = scene.watched();
    let at = node.since + WATCH_AFTER + MOMENT;
    scene.look_at(at);
    scene.look_at(at);
    node.znode().watched(&WatchEvent::Node { event: EventType::NodeDataChanged, connection: 1 });
    assert!(scene.is_woken());
    scene.look_at(at);
    assert_eq!(scene.requests(), 1);
}

#[test]
fn after_a_reconnect_the_znode_is_asked_for_until_it_was_seen() {
    let scene = Wanted::new(None);
    let node = scene.watched();
    let states = node.channel();
    let at = node.since + 2 * WATCH_AFTER;
    scene.said.connection.store(2, Ordering::Release);
    // The client's thread looks because the session has said so.
    assert_eq!(scene.look_at(at), Some(at + WATCH_AFTER));
    assert_eq!(scene.look_at(at + WATCH_AFTER), Some(at + 2 * WATCH_AFTER));
    assert_eq!(scene.requests(), 1);
    scene.answer(Ok(ours()));
    scene.look_at(at + 2 * WATCH_AFTER);
    assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::InDoubt, HoldState::Held]);
}

#[test]
fn the_end_of_the_session_is_told_by_the_look_that_follows() {
    let scene = Wanted::new(None);
    let node = scene.watched();
    let states = node.channel();
    let session: Arc<dyn Session> = scene.said.clone();
    scene.said.ended.store(true, Ordering::Release);
    scene.held.lose_all(Some(&session), LostReason::SuspendedTooLong);
    scene.look_at(node.since + 2 * WATCH_AFTER);
    assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::Lost(LostReason::SuspendedTooLong)]);
}
