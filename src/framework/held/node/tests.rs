//! When holders are looked at and told, over a session that only says what the test wants.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use crossbeam_channel::Receiver;

use super::*;
use crate::{
    framework::{
        client::core::CuratorFramework, config::retry::RetryNTimes, events::event::event_channel,
        held::registry::HeldNodes,
    },
    proto::{
        response::Response,
        types::{ErrorCode, EventType, Stat},
    },
    session::{
        api::{Reply, SessionConfig, SessionError, SessionEvent, SessionFactory, SessionObserver, Ticket, WatchEvent},
        fake::stub::StubSession,
        wait::pending::Watch,
    },
};

/// Longer than anything here should take.
const LONG: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(1);

/// Valid until then.
fn said(valid_until: Instant) -> Arc<StubSession> {
    let said = StubSession::new();
    *said.valid_until.lock() = Some(valid_until);
    said
}

/// The znodes, and what the client's thread does with them.
struct Scene {
    held: Arc<HeldNodes>,
    received: Receiver<Event>,
    said: Arc<StubSession>,
    begun: Instant,
}

impl Scene {
    fn new(max_hold_time: Option<Duration>) -> Scene {
        let (events, received) = event_channel();
        let begun = Instant::now();
        let said = said(begun + LONG);
        let dispatcher = Arc::new(Dispatcher::new());
        dispatcher.start().unwrap();
        Scene { held: Arc::new(HeldNodes::new(max_hold_time, events, dispatcher)), received, said, begun }
    }

    fn hold(&self) -> Arc<HeldNode> {
        self.held.add(ServerPath::from_server("/held"), self.said.clone(), 3, 1, None)
    }

    /// A hold with its watch in place, that nobody listens to.
    fn watched(&self) -> Arc<HeldNode> {
        let node = self.hold();
        self.look_at(node.since + WATCH_AFTER);
        self.answer(Ok(ours()));
        self.is_woken();
        node
    }

    fn look_at(&self, now: Instant) -> Option<Instant> {
        let next = self.held.look(now);
        assert_eq!(self.held.planned_look(), next, "what is claimed is what is planned");
        next
    }

    /// Somebody else's word that the znode is gone, over the first connection.
    fn deletes(&self, node: &HeldNode) {
        node.watched(&WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 });
    }

    /// Whether the client's thread was told to look.
    fn is_woken(&self) -> bool {
        self.received.try_iter().filter(|event| matches!(event, Event::Look)).count() > 0
    }

    fn requests(&self) -> usize {
        self.said.submissions.lock().len()
    }

    fn answer(&self, reply: Reply) {
        let submission = self.said.submissions.lock().remove(0);
        (submission.on_reply)(reply);
    }
}

fn ours() -> Response {
    Response::Data { data: Vec::new(), stat: Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() } }
}

#[test]
fn short_holds_one_after_the_other_wake_nobody() {
    let scene = Scene::new(None);
    let node = scene.hold();
    assert!(scene.is_woken());
    scene.look_at(node.since);
    for _ in 0..10 {
        let node = scene.hold();
        node.released();
        scene.held.remove(&node);
    }
    assert!(!scene.is_woken());
    assert_eq!(scene.requests(), 0);
}

#[test]
fn holds_that_are_over_before_the_look_wake_somebody_once_in_a_while() {
    let scene = Scene::new(None);
    // Twice in vain, so no look is planned.
    scene.look_at(scene.begun);
    assert_eq!(scene.look_at(scene.begun), None);
    let mut woken = 0;
    for _ in 0..10 {
        let node = scene.hold();
        node.released();
        scene.held.remove(&node);
        if scene.is_woken() {
            woken += 1;
            scene.look_at(node.since);
        }
    }
    assert_eq!(woken, 1);
}

#[test]
fn a_hold_that_begins_during_a_look_needs_no_other_look_at_once() {
    let scene = Scene::new(None);
    let _watched = scene.watched();
    scene.look_at(scene.begun);
    for is_over in [false, true] {
        scene.is_woken();
        let (held, said) = (scene.held.clone(), scene.said.clone());
        let begins = move || {
            let node = held.add(ServerPath::from_server("/other"), said.clone(), 3, 1, None);
            if is_over {
                node.released();
                held.remove(&node);
            }
        };
        *scene.said.when_asked.lock() = Some(Box::new(begins));
        let begun = Instant::now();
        // One by one these looks would come without a pause, if short holds do.
        let next = scene.look_at(begun).unwrap();
        assert!(scene.said.when_asked.lock().is_none());
        assert!(!scene.is_woken(), "over: {is_over}");
        assert!(next >= begun + WATCH_AFTER && next <= Instant::now() + WATCH_AFTER);
    }
}

#[test]
fn a_look_that_panics_leaves_nobody_without_a_look() {
    let scene = Scene::new(None);
    let _watched = scene.watched();
    scene.look_at(scene.begun);
    for begins_meanwhile in [false, true] {
        let (held, said) = (scene.held.clone(), scene.said.clone());
        let panics = move || {
            if begins_meanwhile {
                held.add(ServerPath::from_server("/other"), said.clone(), 3, 1, None);
            }
            panic!("on purpose");
        };
        *scene.said.when_asked.lock() = Some(Box::new(panics));
        let look = || scene.held.look(Instant::now());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err());
        assert_eq!(scene.is_woken(), begins_meanwhile);
        scene.hold();
        assert!(scene.is_woken());
    }
}

#[test]
fn a_watched_hold_that_nobody_listens_to_needs_no_look() {
    let scene = Scene::new(None);
    let node = scene.watched();
    // The look that asked for the watch has planned one more, for the short hold that may follow.
    assert_eq!(scene.look_at(node.since + 2 * WATCH_AFTER), None);
    assert_eq!(scene.requests(), 0);
    // The next hold finds that nothing is planned.
    scene.hold();
    assert!(scene.is_woken());
}

#[test]
fn who_listens_is_told_of_the_doubt_when_it_begins_watched_or_not() {
    for is_watched in [true, false] {
        let scene = Scene::new(None);
        let node = if is_watched { scene.watched() } else { scene.hold() };
        let at = node.since + WATCH_AFTER / 2;
        let doubtful = at + WATCH_AFTER / 4;
        *scene.said.valid_until.lock() = Some(doubtful);
        scene.is_woken();
        let states = node.channel();
        assert!(scene.is_woken());
        assert_eq!(scene.look_at(at), Some(doubtful), "watched: {is_watched}");
        assert_eq!(scene.look_at(doubtful), Some(doubtful + WATCH_AFTER));
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::InDoubt]);
        // The end of the doubt is found by looking.
        *scene.said.valid_until.lock() = Some(scene.begun + LONG);
        scene.look_at(doubtful + WATCH_AFTER);
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::Held]);
    }
}

const IN_DOUBT: HoldState = HoldState::InDoubt;
const DELETED: HoldState = HoldState::Lost(LostReason::NodeDeleted);
const EXPIRED: HoldState = HoldState::Lost(LostReason::SessionExpired);

/// A hold whose znode is gone, and what its holder has been told.
fn deleted(scene: &Scene) -> (Arc<HeldNode>, StateChanges) {
    let node = scene.watched();
    let states = node.channel();
    scene.look_at(scene.begun);
    scene.is_woken();
    scene.deletes(&node);
    assert!(scene.is_woken());
    assert_eq!((node.state(scene.begun), node.lost()), (IN_DOUBT, Some(LostReason::NodeDeleted)), "before any look");
    assert!(!node.is_certain() && node.valid_until() <= Instant::now());
    (node, states)
}

fn synced() -> Reply {
    Ok(Response::Synced { path: "/held".into() })
}

#[test]
fn a_znode_that_is_gone_is_in_doubt_until_its_session_has_answered() {
    for (sync, exists) in [
        (synced(), Err(SessionError::Server(ErrorCode::NoNode))),
        (Err(SessionError::Server(ErrorCode::Unimplemented)), Ok(ours())),
    ] {
        let scene = Scene::new(None);
        let (_node, states) = deleted(&scene);
        scene.look_at(scene.begun);
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [IN_DOUBT]);
        assert_eq!(scene.requests(), 2);
        // Once.
        scene.look_at(scene.begun + WATCH_AFTER);
        assert_eq!(scene.requests(), 2);
        scene.answer(sync);
        assert!(!scene.is_woken());
        scene.answer(exists);
        assert!(scene.is_woken());
        scene.look_at(scene.begun);
        assert_eq!(states.iter().collect::<Vec<_>>(), [DELETED], "and the end of the channel");
    }
}

#[test]
fn a_znode_that_goes_with_its_session_is_lost_for_that_reason() {
    for answers in [false, true] {
        let scene = Scene::new(None);
        let (node, states) = deleted(&scene);
        scene.look_at(scene.begun);
        if answers {
            scene.answer(Err(SessionError::Server(ErrorCode::SessionExpired)));
            scene.answer(Err(SessionError::Server(ErrorCode::NoNode)));
            scene.look_at(scene.begun);
            assert_eq!(node.state(scene.begun), IN_DOUBT, "a server that has yet to close the connection");
        }
        let session: Arc<dyn Session> = scene.said.clone();
        scene.held.lose_all(Some(&session), LostReason::SessionExpired);
        scene.look_at(scene.begun);
        assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, EXPIRED]);
        assert_eq!(node.lost(), Some(LostReason::SessionExpired));
    }
}

#[test]
fn a_znode_that_is_gone_before_a_disconnect_was_deleted_if_the_session_has_another_connection() {
    let scene = Scene::new(None);
    let (node, states) = deleted(&scene);
    scene.look_at(scene.begun);
    scene.said.connection.store(0, Ordering::Release);
    scene.answer(Err(SessionError::ConnectionLoss(None)));
    scene.answer(Err(SessionError::ConnectionLoss(None)));
    scene.look_at(scene.begun + 10 * WATCH_AFTER);
    assert_eq!(node.state(scene.begun), IN_DOUBT);
    scene.said.connection.store(2, Ordering::Release);
    scene.look_at(scene.begun + 10 * WATCH_AFTER);
    scene.look_at(scene.begun + 10 * WATCH_AFTER);
    assert_eq!(scene.requests(), 0);
    assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, DELETED]);
}

#[test]
fn a_session_that_could_not_say_whether_it_lives_is_asked_again() {
    let scene = Scene::new(None);
    let (node, _states) = deleted(&scene);
    scene.look_at(scene.begun);
    scene.answer(Err(SessionError::Server(ErrorCode::ThrottledOp)));
    scene.answer(Ok(ours()));
    let refused = Instant::now();
    scene.look_at(refused);
    assert_eq!(scene.requests(), 0, "not in a circle");
    scene.look_at(refused + WATCH_AFTER + MOMENT);
    scene.answer(synced());
    scene.answer(Ok(ours()));
    assert_eq!(node.state(scene.begun), DELETED);
}

#[test]
fn a_znode_that_the_watch_finds_gone_is_asked_about_and_told() {
    let scene = Scene::new(None);
    let node = scene.hold();
    let states = node.channel();
    scene.look_at(node.since + WATCH_AFTER);
    scene.is_woken();
    scene.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert!(scene.is_woken());
    scene.look_at(node.since + WATCH_AFTER + MOMENT);
    scene.answer(synced());
    scene.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    assert!(scene.is_woken());
    assert_eq!(scene.look_at(node.since + WATCH_AFTER + MOMENT), Some(node.since + 2 * WATCH_AFTER + MOMENT));
    assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, DELETED]);
}

#[test]
fn a_znode_that_no_session_owns_is_nobodys_to_ask_about() {
    let scene = Scene::new(None);
    let znode =
        Znode { path: ServerPath::from_server("/held"), czxid: 3, token: 3, has_waited: false, outlives_session: true };
    let node = scene.held.add_znode(znode, scene.said.clone(), 1, None, None);
    scene.deletes(&node);
    assert_eq!(node.state(scene.begun), DELETED);
}

#[test]
fn a_released_hold_says_so_for_good_and_wakes_only_who_listens() {
    let scene = Scene::new(None);
    let node = scene.watched();
    let states = node.channel();
    let (tell, told) = unbounded();
    let tell_again = tell.clone();
    node.listen(Arc::new(move |state| tell.send(state).unwrap()));
    scene.look_at(scene.begun);
    scene.is_woken();
    node.released();
    assert!(!scene.is_woken(), "the client's own thread has nothing to do with it");
    assert_eq!(states.iter().collect::<Vec<_>>(), [HoldState::Released], "and the end of the channel");
    assert_eq!(told.recv_timeout(LONG).unwrap(), HoldState::Released);
    // What comes after that is not about this hold.
    node.released();
    scene.deletes(&node);
    node.lose(LostReason::NodeDeleted);
    scene.said.ended.store(true, Ordering::Release);
    scene.held.lose_all(None, LostReason::ClientClosed);
    scene.look_at(scene.begun);
    assert_eq!((node.state(scene.begun), node.lost()), (HoldState::Released, None));
    assert!(node.valid_until() <= Instant::now());
    // Who asks after that is told, too.
    assert_eq!(node.channel().iter().collect::<Vec<_>>(), [HoldState::Released]);
    node.listen(Arc::new(move |state| tell_again.send(state).unwrap()));
    assert_eq!(told.recv_timeout(LONG).unwrap(), HoldState::Released);
    assert!(told.recv_timeout(LONG).is_err(), "both listeners are gone, after one message each");
    assert!(!scene.is_woken());
}

#[test]
fn a_lost_hold_stays_lost_after_its_release_and_is_told_as_lost() {
    for loses in [
        (|_, node| node.lose(LostReason::NodeDeleted)) as fn(&Scene, &HeldNode),
        |scene, node| scene.deletes(node),
        |scene, _| scene.said.ended.store(true, Ordering::Release),
    ] {
        let scene = Scene::new(None);
        let node = scene.watched();
        let states = node.channel();
        loses(&scene, &node);
        let reason = node.lost().unwrap();
        node.released();
        assert_eq!((node.state(scene.begun), node.lost()), (HoldState::Lost(reason), Some(reason)));
        assert_eq!(states.iter().collect::<Vec<_>>(), [HoldState::Lost(reason)]);
    }
}

#[test]
fn a_hold_that_is_being_released_is_certain_as_long_as_its_znode_is() {
    let scene = Scene::new(None);
    let node = scene.hold();
    node.released();
    assert!(node.is_certain());
    *scene.said.valid_until.lock() = Some(scene.begun);
    assert!(!node.is_certain());
}

#[test]
fn who_asks_for_changes_again_and_again_keeps_nothing_and_wakes_the_client_once() {
    let scene = Scene::new(None);
    let node = scene.watched();
    let first = node.channel();
    let begin = Instant::now();
    for _ in 0..100_000 {
        drop(node.channel());
        assert_eq!(node.inner.lock().audience.channels.len(), 1);
    }
    println!("100,000 channels: {:?}", begin.elapsed());
    assert_eq!(scene.received.try_iter().count(), 1, "a look for the first of them");
    let (second, shared) = (node.channel(), first.clone());
    drop(first);
    // Each of them is told of all.
    *scene.said.valid_until.lock() = Some(scene.begun);
    scene.look_at(Instant::now());
    node.released();
    for states in [second, shared] {
        assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, HoldState::Released]);
    }
}

#[test]
fn changes_can_be_selected_on() {
    let scene = Scene::new(None);
    let node = scene.hold();
    let never = crossbeam_channel::never::<()>();
    node.released();
    crossbeam_channel::select! {
        recv(node.channel()) -> state => assert_eq!(state, Ok(HoldState::Released)),
        recv(never) -> _ => panic!("never"),
    }
}

/// Who looked over the second connection may say so after the client's thread has looked over the third.
#[test]
fn what_was_seen_over_an_earlier_connection_puts_nothing_in_doubt() {
    let scene = Scene::new(None);
    let node = scene.watched();
    scene.said.connection.store(3, Ordering::Release);
    scene.look_at(scene.begun + WATCH_AFTER);
    scene.answer(Ok(ours()));
    for sees in [|node: &HeldNode| node.seen_again(2), |node: &HeldNode| node.seen(2, Ok(ours()))] {
        sees(&node);
        assert_eq!(node.state(scene.begun), HoldState::Held);
    }
}

#[test]
fn a_watch_that_was_refused_is_asked_for_again_and_not_in_a_circle() {
    let scene = Scene::new(None);
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

#[test]
fn a_question_that_the_connection_took_with_it_is_asked_over_the_next_one_at_once() {
    let scene = Scene::new(None);
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
    let scene = Scene::new(None);
    let node = scene.watched();
    let at = node.since + WATCH_AFTER + MOMENT;
    scene.look_at(at);
    scene.look_at(at);
    node.watched(&WatchEvent::Node { event: EventType::NodeDataChanged, connection: 1 });
    assert!(scene.is_woken());
    scene.look_at(at);
    assert_eq!(scene.requests(), 1);
}

#[test]
fn after_a_reconnect_the_znode_is_asked_for_until_it_was_seen() {
    let scene = Scene::new(None);
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
    let scene = Scene::new(None);
    let node = scene.watched();
    let states = node.channel();
    let session: Arc<dyn Session> = scene.said.clone();
    scene.said.ended.store(true, Ordering::Release);
    scene.held.lose_all(Some(&session), LostReason::SuspendedTooLong);
    scene.look_at(node.since + 2 * WATCH_AFTER);
    assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::Lost(LostReason::SuspendedTooLong)]);
}

#[test]
fn a_long_hold_is_looked_at_when_its_warning_is_due_and_never_without_a_pause() {
    let limit = Duration::from_secs(3);
    let scene = Scene::new(Some(limit));
    let node = scene.watched();
    let at = node.since + 2 * WATCH_AFTER;
    assert_eq!(scene.look_at(at), Some(node.since + limit));
    assert_eq!(scene.look_at(node.since + limit), Some(node.since + 2 * limit));
    assert_eq!(scene.look_at(node.since + 2 * limit), Some(node.since + 4 * limit));

    let scene = Scene::new(Some(Duration::from_nanos(1)));
    let node = scene.watched();
    let mut at = node.since + 2 * WATCH_AFTER;
    for _ in 0..100 {
        let next = scene.look_at(at).unwrap();
        assert!(next >= at + WATCH_AFTER);
        at = next;
    }
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
    let said = said(Instant::now() + LONG);
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
    let deadline = Instant::now() + LONG / 2;
    while held.planned_look() != session.valid_until() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(MOMENT);
    }
    observer(SessionEvent::AuthFailed("digest".into()));
    assert_eq!(states.recv_timeout(LONG / 4).unwrap(), HoldState::Lost(LostReason::SessionExpired));
}
