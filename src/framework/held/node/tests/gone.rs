//! Znodes that are gone: who deleted them, and what the holder is told meanwhile.

use super::*;
use crate::base::clock;

#[test]
fn a_znode_that_is_gone_is_in_doubt_until_its_session_has_answered() {
    for (sync, exists) in [
        (synced(), Err(SessionError::Server(ErrorCode::NoNode))),
        (Err(SessionError::Server(ErrorCode::Unimplemented)), Ok(ours())),
    ] {
        let rig = Rig::new(None);
        let (_node, states) = deleted(&rig);
        rig.look_at(rig.begun);
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [IN_DOUBT]);
        assert_eq!(rig.requests(), 2);
        // Once.
        rig.look_at(rig.begun + WATCH_AFTER);
        assert_eq!(rig.requests(), 2);
        rig.answer(sync);
        assert!(!rig.is_woken());
        rig.answer(exists);
        assert!(rig.is_woken());
        rig.look_at(rig.begun);
        assert_eq!(states.iter().collect::<Vec<_>>(), [DELETED], "and the end of the channel");
    }
}

#[test]
fn a_znode_that_goes_with_its_session_is_lost_for_that_reason() {
    for answers in [false, true] {
        let rig = Rig::new(None);
        let (node, states) = deleted(&rig);
        rig.look_at(rig.begun);
        if answers {
            rig.answer(Err(SessionError::Server(ErrorCode::SessionExpired)));
            rig.answer(Err(SessionError::Server(ErrorCode::NoNode)));
            rig.look_at(rig.begun);
            assert_eq!(node.state(rig.begun), IN_DOUBT, "a server that has yet to close the connection");
        }
        let session: Arc<dyn Session> = rig.said.clone();
        rig.held.lose_all(Some(&session), LostReason::SessionExpired);
        rig.look_at(rig.begun);
        assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, EXPIRED]);
        assert_eq!(node.lost(), Some(LostReason::SessionExpired));
    }
}

#[test]
fn a_znode_that_is_gone_before_a_disconnect_was_deleted_if_the_session_has_another_connection() {
    let rig = Rig::new(None);
    let (node, states) = deleted(&rig);
    rig.look_at(rig.begun);
    rig.said.connection.store(0, Ordering::Release);
    rig.answer(Err(SessionError::ConnectionLoss(None)));
    rig.answer(Err(SessionError::ConnectionLoss(None)));
    rig.look_at(rig.begun + 10 * WATCH_AFTER);
    assert_eq!(node.state(rig.begun), IN_DOUBT);
    rig.said.connection.store(2, Ordering::Release);
    rig.look_at(rig.begun + 10 * WATCH_AFTER);
    rig.look_at(rig.begun + 10 * WATCH_AFTER);
    assert_eq!(rig.requests(), 0);
    assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, DELETED]);
}

#[test]
fn a_session_that_could_not_say_whether_it_lives_is_asked_again() {
    let rig = Rig::new(None);
    let (node, _states) = deleted(&rig);
    rig.look_at(rig.begun);
    rig.answer(Err(SessionError::Server(ErrorCode::ThrottledOp)));
    rig.answer(Ok(ours()));
    let refused = clock::now();
    rig.look_at(refused);
    assert_eq!(rig.requests(), 0, "not in a circle");
    rig.look_at(refused + WATCH_AFTER + MOMENT);
    rig.answer(synced());
    rig.answer(Ok(ours()));
    assert_eq!(node.state(rig.begun), DELETED);
}

#[test]
fn a_znode_that_the_watch_finds_gone_is_asked_about_and_told() {
    let rig = Rig::new(None);
    let node = rig.hold();
    let states = node.channel();
    rig.look_at(node.since + WATCH_AFTER);
    rig.is_woken();
    rig.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert!(rig.is_woken());
    rig.look_at(node.since + WATCH_AFTER + MOMENT);
    rig.answer(synced());
    rig.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert!(rig.is_woken());
    assert_eq!(rig.look_at(node.since + WATCH_AFTER + MOMENT), Some(node.since + 2 * WATCH_AFTER + MOMENT));
    assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, DELETED]);
}

/// Gives out one session, and whom it tells what happens to it.
struct Once(Arc<StubSession>, Sender<SessionObserver>);

impl SessionFactory for Once {
    fn open(&self, _config: &SessionConfig, observer: SessionObserver) -> crate::error::Result<Arc<dyn Session>> {
        self.1.send(observer).unwrap_or_default();
        Ok(self.0.clone())
    }
}

#[test]
fn who_holds_when_the_credentials_are_rejected_is_told_at_once() {
    let said = said(clock::now() + LONG);
    let session: Arc<dyn Session> = said.clone();
    let (sender, observers) = unbounded();
    let builder =
        CuratorFramework::builder().connect_string("127.0.0.1:2181").retry_policy(RetryNTimes::new(1, MOMENT));
    let client = builder.session_factory(Once(said, sender)).build().unwrap();
    client.start().unwrap();
    let observer = observers.recv_timeout(LONG).unwrap();
    let held = &client.core.held;
    let watch = Watch::new(session.clone(), Ticket(1));
    let node = held.add(ServerPath::from_server("/held"), session.clone(), 3, 1, Some(watch));
    let states = node.channel();
    // The client's thread comes back when the doubt begins, and not before.
    let deadline = clock::now() + LONG / 2;
    while held.planned_look() != session.valid_until() {
        assert!(clock::now() < deadline);
        std::thread::sleep(MOMENT);
    }
    observer(SessionEvent::AuthFailed { scheme: "digest".into(), detail: String::new() });
    assert_eq!(states.recv_timeout(LONG / 2).unwrap(), HoldState::Lost(LostReason::SessionExpired));
}
