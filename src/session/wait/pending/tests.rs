//! How waits end, over a session that only keeps what it is given.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::atomic::Ordering;

use super::*;
use crate::{base::clock, session::wait::cancel::CancelToken};
use crate::{
    proto::{response::Response, types::CreateMode},
    session::{api::SessionError, fake::stub::StubSession},
};

fn desk(written: bool) -> (Arc<StubSession>, Arc<dyn Session>) {
    let desk = StubSession::new();
    desk.written.store(written, Ordering::Release);
    (desk.clone(), desk)
}

const MOMENT: Duration = Duration::from_millis(10);

fn request() -> Request {
    Request::Sync { path: "/".into() }
}

fn soon() -> WaitBound<'static> {
    WaitBound::at(clock::now() + MOMENT)
}

fn is_stopped(answer: &Result<Reply, Stopped>, expected_end: WaitEnd, expected_sent: bool) -> bool {
    matches!(answer, Err(Stopped { end, sent }) if (*end, *sent) == (expected_end, expected_sent))
}

#[test]
fn a_reply_that_is_there_is_the_answer_even_when_time_is_up() {
    let (desk, session) = desk(true);
    let pending = submit_one(&session, request());
    desk.answer(Ok(Response::Done));
    let long_ago = WaitBound::at(clock::now());
    assert!(matches!(pending.wait(long_ago), Ok(Ok(Response::Done))));
}

#[test]
fn a_request_that_was_not_written_in_time_is_taken_back() {
    let (desk, session) = desk(false);
    assert!(is_stopped(&submit_one(&session, request()).wait(soon()), WaitEnd::Deadline, false));
    assert_eq!(*desk.withdrawn.lock(), [Ticket(0)]);
}

#[test]
fn a_request_that_was_written_may_have_been_carried_out() {
    let (_desk, session) = desk(true);
    assert!(is_stopped(&submit_one(&session, request()).wait(soon()), WaitEnd::Deadline, true));
}

#[test]
fn a_cancelled_wait_says_so_even_without_a_deadline() {
    let (_desk, session) = desk(true);
    let cancel = CancelToken::new();
    let pending = submit_one(&session, request());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| pending.wait(WaitBound { deadline: None, cancel: Some(&cancel) }));
        cancel.cancel();
        assert!(is_stopped(&wait.join().unwrap(), WaitEnd::Cancelled, true));
    });
    assert_eq!(WaitBound { deadline: Some(clock::now()), cancel: Some(&cancel) }.is_over(), Some(WaitEnd::Cancelled));
}

#[test]
fn the_write_timeout_ends_the_wait_only_for_a_request_that_was_not_written() {
    let (_desk, session) = desk(false);
    let unsent = submit_one(&session, request()).wait_sent(WaitBound::default(), MOMENT);
    assert!(is_stopped(&unsent, WaitEnd::Deadline, false));
    let (desk, session) = desk(true);
    let pending = submit_one(&session, request());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| pending.wait_sent(WaitBound::default(), Duration::ZERO));
        // The write timeout is over, and it waits on all the same.
        while desk.withdrawn.lock().is_empty() {
            std::thread::yield_now();
        }
        desk.answer(Err(SessionError::Closed));
        assert!(matches!(wait.join().unwrap(), Ok(Err(SessionError::Closed))));
    });
}

#[test]
fn a_write_timeout_without_end_does_not_overflow() {
    let (_desk, session) = desk(false);
    let answer = submit_one(&session, request()).wait_sent(soon(), Duration::MAX);
    assert!(is_stopped(&answer, WaitEnd::Deadline, false));
}

#[test]
fn a_completion_that_was_dropped_leaves_nobody_waiting() {
    let (desk, session) = desk(true);
    let pending = submit_one(&session, request());
    desk.submissions.lock().clear();
    assert!(is_stopped(&pending.wait(WaitBound::default()), WaitEnd::Deadline, true));
}

#[test]
fn a_request_that_is_dropped_before_it_was_written_is_taken_back() {
    let (desk, session) = desk(false);
    drop(submit_one(&session, request()));
    let mut batch = submit(&session, vec![(request(), None), (request(), None)]);
    // The first one failed, and nobody asks for the other any more.
    batch.pop();
    assert_eq!(*desk.withdrawn.lock(), [Ticket(0), Ticket(2)]);
    let (waited_for, _) = batch.pop().unwrap();
    desk.submissions.lock().swap(0, 1);
    desk.answer(Ok(Response::Done));
    assert!(matches!(waited_for.wait(soon()), Ok(Ok(Response::Done))));
    let answered = submit_one(&session, request());
    desk.submissions.lock().drain(..2);
    desk.answer(Ok(Response::Done));
    drop(answered);
    assert_eq!(*desk.withdrawn.lock(), [Ticket(0), Ticket(2)]);
}

#[test]
fn a_reply_that_nobody_waits_for_is_no_trouble() {
    let (desk, session) = desk(true);
    drop(submit_one(&session, request()));
    desk.answer(Ok(Response::Done));
}

#[test]
fn a_batch_gives_each_request_its_reply_and_watches_where_asked_for() {
    let (desk, session) = desk(true);
    let watcher: Watcher = Arc::new(|_| {});
    let watched = Request::GetData { path: "/".into(), watch: true };
    let mut waiting = submit(&session, vec![(request(), None), (watched, Some(watcher))]);
    let ((second, watch), (first, none)) = (waiting.pop().unwrap(), waiting.pop().unwrap());
    assert!(none.is_none());
    desk.answer(Ok(Response::Done));
    desk.answer(Err(SessionError::Expired));
    assert!(matches!(first.wait(soon()), Ok(Ok(Response::Done))));
    assert!(matches!(second.wait(soon()), Ok(Err(SessionError::Expired))));
    drop(watch.unwrap());
    assert_eq!(*desk.unwatched.lock(), [Ticket(1)]);
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

/// How each of two deletes was answered that went as one transaction.
fn shared_out(reply: Reply) -> Vec<Reply> {
    let (desk, session) = desk(true);
    let (sent, _) = submit_together(&session, vec![delete("/a"), delete("/b")], Vec::new(), 1000);
    desk.answer(reply);
    sent.into_iter().map(|pending| pending.wait(soon()).unwrap()).collect()
}

#[test]
fn each_of_a_transaction_has_its_own_result_or_is_undone_or_in_doubt_with_all() {
    let done = |results| shared_out(Ok(Response::Multi(results)));
    assert!(matches!(done(vec![Ok(Response::Done), Ok(Response::Done)])[..], [Ok(Response::Done), Ok(Response::Done)]));
    let is = |code: ErrorCode| move |reply: &Reply| matches!(reply, Err(SessionError::Server(found)) if *found == code);
    let failed = |code| done(vec![Err(None), Err(Some(code))]);
    assert!(failed(ErrorCode::NoNode).iter().all(is(UNDONE)));
    let (desk, session) = desk(true);
    let create = |path: &str| Request::Create {
        path: path.into(),
        data: Vec::new(),
        acl: Vec::new(),
        mode: CreateMode::Ephemeral,
    };
    let (created, _) = submit_together(&session, vec![create("/a/b"), create("/c/d")], Vec::new(), 1000);
    desk.answer(Ok(Response::Multi(vec![Err(None), Err(Some(ErrorCode::NoNode))])));
    let created: Vec<Reply> = created.into_iter().map(|pending| pending.wait(soon()).unwrap()).collect();
    assert!(created.iter().all(is(ErrorCode::NoNode)), "for want of a parent");
    assert!(shared_out(Err(SessionError::Server(ErrorCode::Unimplemented))).iter().all(is(UNDONE)));
    // Perhaps it is carried out all the same.
    assert!(failed(ErrorCode::SessionMoved).iter().all(is(ErrorCode::SessionMoved)));
    let lost = shared_out(Err(SessionError::ConnectionLoss(None)));
    assert!(lost.iter().all(|reply| matches!(reply, Err(SessionError::ConnectionLoss(None)))));
}

#[test]
fn a_result_that_is_missing_is_an_unknown_outcome() {
    let (desk, session) = desk(true);
    let (mut sent, _) = submit_together(&session, vec![delete("/a"), delete("/b")], Vec::new(), 1000);
    desk.answer(Ok(Response::Multi(vec![Ok(Response::Done)])));
    assert!(is_stopped(&sent.pop().unwrap().wait(soon()), WaitEnd::Deadline, true));
    assert!(matches!(sent.pop().unwrap().wait(soon()), Ok(Ok(Response::Done))));
}

#[test]
fn a_transaction_is_cut_into_parts_below_the_limit_and_one_of_one_is_none() {
    let paths: Vec<String> = (0..100).map(|k| format!("/{}", "x".repeat(k))).collect();
    for limit in [0, 150, 1000, 1 << 20] {
        let parts = in_parts(paths.iter().map(|path| delete(path)).collect(), limit);
        assert_eq!(parts.iter().flatten().map(Request::path).collect::<Vec<_>>(), paths);
        let is_within = |part: &Vec<Request>| part.len() == 1 || Request::Multi(part.clone()).encode(0).len() <= limit;
        assert!(parts.iter().all(is_within), "{limit}");
        assert_eq!(parts.len() == 1, limit == 1 << 20);
    }
    let (desk, session) = desk(true);
    let (sent, _) = submit_together(&session, vec![delete("/a")], Vec::new(), 1000);
    desk.answer(Err(SessionError::Server(ErrorCode::NoNode)));
    let alone = sent.into_iter().map(|pending| pending.wait(soon()).unwrap()).next();
    assert!(matches!(alone, Some(Err(SessionError::Server(ErrorCode::NoNode)))));
}
