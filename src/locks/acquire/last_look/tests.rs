//! Looks at holds of a session that only says what the test wants.

#![allow(clippy::unwrap_used)]

use std::{sync::atomic::Ordering, thread};

use super::*;
use crate::{
    base::paths::ServerPath,
    error::LostReason,
    framework::{
        events::{dispatch::Dispatcher, event::event_channel},
        held::registry::HeldNodes,
    },
    proto::types::Stat,
    session::{fake::stub::StubSession, wait::cancel::CancelToken},
};

const LONG: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

fn all_certain(held: &[Arc<HeldNode>], time: Duration, bound: WaitBound<'_>) -> Certainty {
    last_look(held, time, bound, false)
}

fn all_confirmed(held: &[Arc<HeldNode>], time: Duration, bound: WaitBound<'_>) -> Certainty {
    last_look(held, time, bound, true)
}

/// Two holds of a session that is valid for long, seen over its connection.
fn two() -> (Arc<StubSession>, Vec<Arc<HeldNode>>) {
    let session = StubSession::new();
    *session.valid_until.lock() = Some(Instant::now() + LONG);
    let nodes = HeldNodes::new(None, event_channel().0, Arc::new(Dispatcher::new()), Arc::default());
    let held = ["/a", "/b"].map(|path| nodes.add(ServerPath::from_server(path), session.clone(), 3, 1, None));
    (session, held.into())
}

fn put_in_doubt(session: &StubSession) {
    *session.valid_until.lock() = Some(Instant::now());
}

fn stands() -> crate::session::api::Reply {
    Ok(Response::Stat(Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() }))
}

/// Waits for a sync and a question for each of the two, and answers them so.
fn answer(session: &StubSession, replies: [crate::session::api::Reply; 2]) {
    let begun = Instant::now();
    while session.submissions.lock().len() < 3 {
        assert!(begun.elapsed() < LONG, "it does not ask");
        thread::sleep(Duration::from_millis(1));
    }
    let is_sync = matches!(session.submissions.lock().first().unwrap().request, Request::Sync { .. });
    assert!(is_sync);
    session.answer(Ok(Response::Synced { path: "/a".into() }));
    replies.into_iter().for_each(|reply| session.answer(reply));
}

/// What this look says once the first znode stands and the question for the second one is answered so.
fn answered(
    session: &StubSession,
    second: crate::session::api::Reply,
    look: impl FnOnce() -> Certainty + Send,
) -> Certainty {
    thread::scope(|scope| {
        let look = scope.spawn(look);
        answer(session, [stands(), second]);
        look.join().unwrap()
    })
}

#[test]
fn what_is_certain_is_not_asked_for() {
    let (session, held) = two();
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::Certain);
    assert_eq!(all_certain(&[], NOW, WaitBound::default()), Certainty::Certain);
    assert!(session.submissions.lock().is_empty());
}

#[test]
fn what_has_to_be_confirmed_is_asked_for() {
    for (reply, look_at_it) in
        [(stands(), Certainty::Certain), (Err(SessionError::Server(ErrorCode::NoNode)), Certainty::Lost)]
    {
        let (session, held) = two();
        assert_eq!(answered(&session, reply, || all_confirmed(&held, NOW, WaitBound::default())), look_at_it);
    }
    let (_, held) = two();
    assert_eq!(
        all_confirmed(&held, NOW, WaitBound::at(Instant::now() + Duration::from_millis(20))),
        Certainty::InDoubt
    );
}

#[test]
fn one_that_is_lost_is_enough() {
    let (session, held) = two();
    held.last().unwrap().lose(LostReason::NodeDeleted);
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::Lost);
    put_in_doubt(&session);
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::Lost, "whatever is in doubt besides");
}

/// Waits for a sync and one question, and answers them so.
fn answer_one(session: &StubSession, sync: crate::session::api::Reply, question: crate::session::api::Reply) {
    let begun = Instant::now();
    while session.submissions.lock().len() < 2 {
        assert!(begun.elapsed() < LONG, "it does not ask");
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
        ((synced(), stands()), Certainty::Certain),
        ((synced(), refused()), Certainty::InDoubt),
        ((refused(), stands()), Certainty::InDoubt),
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
    *session.valid_until.lock() = Some(Instant::now() + Duration::from_millis(100));
    *session.when_asked.lock() = Some(Box::new(|| thread::sleep(Duration::from_millis(200))));
    assert_eq!(all_certain(&held, NOW, WaitBound::at(Instant::now())), Certainty::InDoubt);
}

#[test]
fn what_is_in_doubt_is_waited_for_until_the_heartbeats_are_answered() {
    let (session, held) = two();
    put_in_doubt(&session);
    thread::scope(|scope| {
        let look = scope.spawn(|| all_certain(&held, NOW, WaitBound::default()));
        answer(&session, [stands(), stands()]);
        assert!(!look.is_finished(), "a server that has answered proves no heartbeat");
        *session.valid_until.lock() = Some(Instant::now() + LONG);
        assert_eq!(look.join().unwrap(), Certainty::Certain);
    });
}

#[test]
fn what_is_wanted_for_longer_than_it_is_certain_is_waited_for() {
    let (session, held) = two();
    assert_eq!(all_certain(&held, LONG / 2, WaitBound::default()), Certainty::Certain);
    let soon = WaitBound::at(Instant::now() + Duration::from_millis(20));
    assert_eq!(all_certain(&held, LONG, soon), Certainty::InDoubt);
    session.submissions.lock().clear();
    thread::scope(|scope| {
        let look = scope.spawn(|| all_certain(&held, LONG, WaitBound::default()));
        answer(&session, [stands(), stands()]);
        *session.valid_until.lock() = Some(Instant::now() + 2 * LONG);
        assert_eq!(look.join().unwrap(), Certainty::Certain);
    });
}

#[test]
fn what_was_not_seen_over_the_new_connection_is_certain_with_the_answer() {
    let (session, held) = two();
    session.connection.store(2, Ordering::Release);
    assert_eq!(answered(&session, stands(), || all_certain(&held, NOW, WaitBound::default())), Certainty::Certain);
}

#[test]
fn a_znode_that_is_gone_or_another_one_by_now_is_lost() {
    let another = Ok(Response::Stat(Stat { czxid: 4, ephemeral_owner: 7, ..Stat::default() }));
    for reply in [Err(SessionError::Server(ErrorCode::NoNode)), another] {
        let (session, held) = two();
        put_in_doubt(&session);
        assert_eq!(answered(&session, reply, || all_certain(&held, NOW, WaitBound::default())), Certainty::Lost);
    }
}

#[test]
fn a_pause_is_no_part_of_the_time_in_which_all_may_become_certain() {
    let timeout = Duration::from_secs(1);
    let (session, held) = two();
    *session.timeout.lock() = timeout;
    put_in_doubt(&session);
    // The process stands still in the midst of a look, and is certain half a timeout after that.
    let this = session.clone();
    *session.when_asked.lock() = Some(Box::new(move || {
        thread::sleep(timeout.mul_f64(0.9));
        *this.valid_until.lock() = Some(Instant::now());
    }));
    thread::scope(|scope| {
        scope.spawn(|| {
            answer(&session, [stands(), stands()]);
            thread::sleep(timeout / 2);
            *session.valid_until.lock() = Some(Instant::now() + LONG);
        });
        assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::Certain);
    });
    put_in_doubt(&session);
    let begun = Instant::now();
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::InDoubt, "there is an end without a pause");
    assert!(begun.elapsed() >= timeout);
}

#[test]
fn the_deadline_and_the_caller_end_it_in_doubt() {
    let (session, held) = two();
    put_in_doubt(&session);
    let soon = WaitBound::at(Instant::now() + Duration::from_millis(20));
    assert_eq!(all_certain(&held, NOW, soon), Certainty::InDoubt);
    assert_eq!(all_certain(&held, NOW, WaitBound::at(Instant::now())), Certainty::InDoubt);
    let token = CancelToken::new();
    token.cancel();
    assert_eq!(all_certain(&held, NOW, WaitBound { deadline: None, cancel: Some(&token) }), Certainty::InDoubt);
    session.connection.store(0, Ordering::Release);
    let asked = session.submissions.lock().len();
    assert_eq!(all_certain(&held, NOW, WaitBound::at(Instant::now() + Duration::from_millis(20))), Certainty::InDoubt);
    assert_eq!(session.submissions.lock().len(), asked, "there is nobody to ask");
}

/// It is certain once the servers could be asked for half a timeout.
#[test]
fn a_time_without_a_connection_is_no_part_of_that_time_either() {
    let (session, held) = two();
    let timeout = Duration::from_secs(1);
    *session.timeout.lock() = timeout;
    put_in_doubt(&session);
    session.connection.store(0, Ordering::SeqCst);
    let this = session.clone();
    thread::spawn(move || {
        thread::sleep(timeout.mul_f64(0.8));
        this.connection.store(1, Ordering::SeqCst);
        answer(&this, [stands(), stands()]);
        thread::sleep(timeout.mul_f64(0.5));
        *this.valid_until.lock() = Some(Instant::now() + LONG);
    });
    assert_eq!(all_certain(&held, NOW, WaitBound::default()), Certainty::Certain);
}
