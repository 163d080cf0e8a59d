//! Looks at holds of a session that only says what the test wants.

#![allow(clippy::unwrap_used)]

use std::{sync::atomic::Ordering, thread};

use super::*;
use crate::{
    base::{clock, paths::ServerPath},
    error::LostReason,
    framework::{
        events::{dispatch::Dispatcher, event::event_channel},
        held::registry::HeldNodes,
    },
    proto::types::Stat,
    session::{
        api::Ticket,
        fake::stub::StubSession,
        wait::{cancel::CancelToken, pending::Watch},
    },
};

const LONG: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

type Looked = Result<Certainty, WaitEnd>;

const CERTAIN: Looked = Ok(Certainty::Certain);
const IN_DOUBT: Looked = Ok(Certainty::InDoubt);
const GONE: Looked = Ok(Certainty::Gone);
const TIME_UP: Looked = Err(WaitEnd::Deadline);

/// A look of the contender that has just been granted them.
fn all_certain(held: &[Arc<HeldNode>], time: Duration, bound: WaitBound<'_>) -> Looked {
    last_look(held, time, bound, Needs::Connection)
}

/// A look of a thread that knows only the evidence.
fn all_confirmed(held: &[Arc<HeldNode>], time: Duration, bound: WaitBound<'_>) -> Looked {
    last_look(held, time, bound, Needs::Watch)
}

/// Two holds of a session that is valid for long, seen over its connection.
fn two() -> (Arc<StubSession>, Vec<Arc<HeldNode>>) {
    let session = StubSession::new();
    *session.valid_until.lock() = Some(clock::now() + LONG);
    let nodes = HeldNodes::new(None, event_channel().0, Arc::new(Dispatcher::new()), Arc::default());
    let held = ["/a", "/b"].map(|path| nodes.add(ServerPath::from_server(path), session.clone(), 3, 1, None));
    (session, held.into())
}

fn put_in_doubt(session: &StubSession) {
    *session.valid_until.lock() = Some(clock::now());
}

fn stands() -> crate::session::api::Reply {
    Ok(Response::Stat(Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() }))
}

/// Waits for a sync and a question for each of the two, and answers them so.
fn answer(session: &StubSession, replies: [crate::session::api::Reply; 2]) {
    let begun = clock::now();
    while session.submissions.lock().len() < 3 {
        assert!(clock::since(begun) < LONG, "it does not ask");
        thread::sleep(Duration::from_millis(1));
    }
    let is_sync = matches!(session.submissions.lock().first().unwrap().request, Request::Sync { .. });
    assert!(is_sync);
    session.answer(Ok(Response::Synced { path: "/a".into() }));
    replies.into_iter().for_each(|reply| session.answer(reply));
}

/// What this look says once the first znode stands and the question for the second one is answered so.
fn answered(session: &StubSession, second: crate::session::api::Reply, look: impl FnOnce() -> Looked + Send) -> Looked {
    thread::scope(|scope| {
        let look = scope.spawn(look);
        answer(session, [stands(), second]);
        look.join().unwrap()
    })
}

#[test]
fn what_is_certain_is_not_asked_for() {
    let (session, held) = two();
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), CERTAIN);
    assert!(session.submissions.lock().is_empty());
}

#[test]
fn what_has_to_be_confirmed_is_asked_for() {
    for (reply, look_at_it) in [(stands(), CERTAIN), (Err(SessionError::Server(ErrorCode::NoNode)), GONE)] {
        let (session, held) = two();
        assert_eq!(answered(&session, reply, || all_confirmed(&held, NOW, WaitBound::default())), look_at_it);
    }
    let (_, held) = two();
    assert_eq!(all_confirmed(&held, NOW, WaitBound::at(clock::now() + Duration::from_millis(20))), TIME_UP);
}

#[test]
fn one_that_is_lost_is_enough() {
    let (session, held) = two();
    held.last().unwrap().lose(LostReason::NodeDeleted);
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), GONE);
    put_in_doubt(&session);
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), GONE, "whatever is in doubt besides");
}

/// Waits for a sync and one question, and answers them so.
fn answer_one(session: &StubSession, sync: crate::session::api::Reply, question: crate::session::api::Reply) {
    let begun = clock::now();
    while session.submissions.lock().len() < 2 {
        assert!(clock::since(begun) < LONG, "it does not ask");
        thread::sleep(Duration::from_millis(1));
    }
    session.answer(sync);
    session.answer(question);
}

#[test]
fn an_answer_of_some_confirms_nothing() {
    let synced = || Ok(Response::Synced { path: "/a".into() });
    let refused = || Err(SessionError::Server(ErrorCode::ThrottledOp));
    for (of_first, certainty) in [
        ((synced(), stands()), CERTAIN),
        ((synced(), refused()), Err(WaitEnd::Cancelled)),
        ((refused(), stands()), Err(WaitEnd::Cancelled)),
    ] {
        let ((first, mut held), (second, others)) = (two(), two());
        held.truncate(1);
        held.extend(others.into_iter().take(1));
        let (held, token) = (&held, CancelToken::new());
        thread::scope(|scope| {
            let bound = WaitBound { deadline: None, cancel: Some(&token) };
            let look = scope.spawn(move || all_confirmed(held, NOW, bound));
            answer_one(&first, of_first.0, of_first.1);
            answer_one(&second, synced(), stands());
            // It asks once more, or is done.
            while first.submissions.lock().is_empty() && !look.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            token.cancel();
            assert_eq!(look.join().unwrap(), certainty);
        });
    }
}

#[test]
fn a_pause_in_the_midst_of_a_look_shows() {
    let (session, held) = two();
    *session.valid_until.lock() = Some(clock::now() + Duration::from_millis(100));
    *session.when_asked.lock() = Some(Box::new(|| thread::sleep(Duration::from_millis(200))));
    assert_eq!(all_certain(&held, NOW, WaitBound::at(clock::now())), TIME_UP);
}

#[test]
fn what_is_in_doubt_is_waited_for_until_the_heartbeats_are_answered() {
    let (session, held) = two();
    put_in_doubt(&session);
    thread::scope(|scope| {
        let look = scope.spawn(|| all_certain(&held, NOW, WaitBound::default()));
        answer(&session, [stands(), stands()]);
        assert!(!look.is_finished(), "a server that has answered proves no heartbeat");
        *session.valid_until.lock() = Some(clock::now() + LONG);
        assert_eq!(look.join().unwrap(), CERTAIN);
    });
}

#[test]
fn what_is_wanted_for_longer_than_it_is_certain_is_waited_for() {
    let (session, held) = two();
    assert_eq!(all_certain(&held, LONG / 2, WaitBound::default()), CERTAIN);
    let soon = WaitBound::at(clock::now() + Duration::from_millis(20));
    assert_eq!(all_certain(&held, LONG, soon), TIME_UP);
    session.submissions.lock().clear();
    thread::scope(|scope| {
        let look = scope.spawn(|| all_certain(&held, LONG, WaitBound::default()));
        answer(&session, [stands(), stands()]);
        *session.valid_until.lock() = Some(clock::now() + 2 * LONG);
        assert_eq!(look.join().unwrap(), CERTAIN);
    });
}

#[test]
fn what_was_not_seen_over_the_new_connection_is_certain_with_the_answer() {
    let (session, held) = two();
    session.connection.store(2, Ordering::Release);
    assert_eq!(answered(&session, stands(), || all_certain(&held, NOW, WaitBound::default())), CERTAIN);
}

#[test]
fn a_znode_that_is_gone_or_another_one_by_now_is_lost() {
    let another = Ok(Response::Stat(Stat { czxid: 4, ephemeral_owner: 7, ..Stat::default() }));
    for reply in [Err(SessionError::Server(ErrorCode::NoNode)), another] {
        let (session, held) = two();
        put_in_doubt(&session);
        assert_eq!(answered(&session, reply, || all_certain(&held, NOW, WaitBound::default())), GONE);
    }
}

#[test]
fn a_pause_is_no_part_of_the_time_in_which_all_may_become_certain() {
    let (session, timeout) = (StubSession::new(), Duration::from_secs(1));
    let held = tenure(&session, true);
    *session.timeout.lock() = timeout;
    put_in_doubt(&session);
    // The process stands still in the midst of the second look, and is certain half a timeout after that.
    let this = session.clone();
    let pause = move || {
        thread::sleep(timeout.mul_f64(0.9));
        thread::spawn(move || {
            thread::sleep(timeout / 2);
            *this.valid_until.lock() = Some(clock::now() + LONG);
        });
    };
    let second = session.clone();
    *session.when_asked.lock() = Some(Box::new(move || *second.when_asked.lock() = Some(Box::new(pause))));
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), CERTAIN);
    put_in_doubt(&session);
    let begun = clock::now();
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), IN_DOUBT, "there is an end without a pause");
    assert!(clock::since(begun) >= timeout);
}

#[test]
fn the_deadline_and_the_caller_end_it() {
    let (session, held) = two();
    put_in_doubt(&session);
    let soon = WaitBound::at(clock::now() + Duration::from_millis(20));
    assert_eq!(all_certain(&held, NOW, soon), TIME_UP);
    assert_eq!(all_certain(&held, NOW, WaitBound::at(clock::now())), TIME_UP);
    let token = CancelToken::new();
    token.cancel();
    assert_eq!(all_certain(&held, NOW, WaitBound { deadline: None, cancel: Some(&token) }), Err(WaitEnd::Cancelled));
    session.connection.store(0, Ordering::Release);
    let asked = session.submissions.lock().len();
    assert_eq!(all_certain(&held, NOW, WaitBound::at(clock::now() + Duration::from_millis(20))), TIME_UP);
    assert_eq!(session.submissions.lock().len(), asked, "there is nobody to ask");
}

/// It is certain once the servers could be asked for half a timeout.
#[test]
fn a_time_without_a_connection_is_no_part_of_that_time_either() {
    let (session, timeout) = (StubSession::new(), Duration::from_secs(1));
    let held = tenure(&session, true);
    *session.timeout.lock() = timeout;
    put_in_doubt(&session);
    session.connection.store(0, Ordering::SeqCst);
    let this = session.clone();
    thread::spawn(move || {
        thread::sleep(timeout.mul_f64(0.8));
        this.connection.store(1, Ordering::SeqCst);
        thread::sleep(timeout.mul_f64(0.5));
        *this.valid_until.lock() = Some(clock::now() + LONG);
    });
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), CERTAIN);
}

/// The tenure of a cached lock, with a watch on its znode or without.
fn tenure(session: &Arc<StubSession>, is_watched: bool) -> [Arc<HeldNode>; 1] {
    *session.valid_until.lock() = Some(clock::now() + LONG);
    let nodes = HeldNodes::new(None, event_channel().0, Arc::new(Dispatcher::new()), Arc::default());
    let session: Arc<dyn Session> = session.clone();
    let watch = is_watched.then(|| Watch::new(session.clone(), Ticket(0)));
    [nodes.add(ServerPath::from_server("/locks/m/lock-0000000000"), session, 3, 1, watch)]
}

/// The event may be late, or kept back.
#[test]
fn a_watch_is_no_answer() {
    let session = StubSession::new();
    let held = tenure(&session, true);
    let looked = thread::scope(|scope| {
        let look = scope.spawn(|| last_look(&held, NOW, WaitBound::default(), Needs::Answer));
        let no_node = Err(SessionError::Server(ErrorCode::NoNode));
        answer_one(&session, Ok(Response::Synced { path: String::new() }), no_node);
        look.join().unwrap()
    });
    assert_eq!(looked, GONE);
}

#[test]
fn a_holder_without_a_connection_holds_on() {
    let session = StubSession::new();
    let held = tenure(&session, false);
    session.connection.store(0, Ordering::SeqCst);
    assert_eq!(last_look(&held, LONG / 2, WaitBound::default(), Needs::Nothing), CERTAIN);
    let soon = WaitBound::at(clock::now() + Duration::from_millis(20));
    assert_eq!(all_certain(&held, NOW, soon), TIME_UP, "and nobody begins to hold");
}

#[test]
fn a_znode_that_was_watched_over_another_connection_is_asked_about_and_one_that_is_gone_is_not() {
    let session = StubSession::new();
    let held = tenure(&session, true);
    assert_eq!(all_confirmed(&held, NOW, WaitBound::default()), CERTAIN);
    assert!(session.submissions.lock().is_empty(), "its watch would have told of its end");
    session.connection.store(2, Ordering::SeqCst);
    let looked = thread::scope(|scope| {
        let look = scope.spawn(|| all_confirmed(&held, NOW, WaitBound::default()));
        answer_one(&session, Ok(Response::Synced { path: String::new() }), stands());
        look.join().unwrap()
    });
    assert_eq!(looked, CERTAIN);
    session.ended.store(true, Ordering::SeqCst);
    assert_eq!(all_confirmed(&held, NOW, WaitBound::default()), GONE);
    assert!(session.submissions.lock().is_empty());
}

/// The znode has no watch, and the connection of the first question is gone when its answer comes.
#[test]
fn only_an_answer_over_the_connection_of_now_makes_certain_of_a_znode_without_a_watch() {
    let session = StubSession::new();
    let held = tenure(&session, false);
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), CERTAIN);
    assert!(session.submissions.lock().is_empty(), "its contender has just seen it");
    let looked = thread::scope(|scope| {
        let look = scope.spawn(|| all_confirmed(&held, NOW, WaitBound::default()));
        for connection in [2, 2] {
            while session.submissions.lock().len() < 2 && !look.is_finished() {
                thread::yield_now();
            }
            assert!(!look.is_finished(), "it asks nobody");
            session.connection.store(connection, Ordering::SeqCst);
            answer_one(&session, Ok(Response::Synced { path: String::new() }), stands());
        }
        look.join().unwrap()
    });
    assert_eq!(looked, CERTAIN);
}

/// The znode was not seen over the current connection, and no server answers.
#[test]
fn who_is_certain_only_when_its_time_is_up_does_not_get_the_lock() {
    let session = StubSession::new();
    let held = tenure(&session, true);
    session.connection.store(2, Ordering::SeqCst);
    let end = clock::now() + Duration::from_millis(200);
    let looked = thread::scope(|scope| {
        let look = scope.spawn(|| all_certain(&held, NOW, WaitBound::at(end)));
        // If it begins too late it does not ask.
        while session.submissions.lock().is_empty() && !look.is_finished() {
            thread::yield_now();
        }
        // The thread sleeps until its time is up, and finds this when it wakes.
        session.connection.store(1, Ordering::SeqCst);
        look.join().unwrap()
    });
    assert_eq!(looked, TIME_UP);
}
