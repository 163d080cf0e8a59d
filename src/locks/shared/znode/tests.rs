//! What is told, and asked again, whatever comes together.

use std::{
    sync::atomic::{AtomicI32, Ordering},
    thread,
    time::Instant,
};

use super::*;
use crate::{
    framework::config::retry::RetryOneTime, locks::shared::count::SharedCount, session::fake::stub::StubSession,
};

/// A client whose servers are not there, and its session.
fn client() -> (CuratorFramework, Arc<StubSession>) {
    let retry = RetryOneTime::new(Duration::from_millis(1));
    let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
    client.start().unwrap();
    let session = StubSession::new();
    client.core.set_session(session.clone());
    (client, session)
}

/// Waits until so many requests are unanswered.
fn await_asked(session: &StubSession, number: usize) {
    let begin = Instant::now();
    while session.submissions.lock().len() < number {
        assert!(begin.elapsed() < Duration::from_secs(60), "{number} requests");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn listeners_hear_of_values_in_the_order_in_which_they_were_accepted() {
    const VALUES: i32 = 20_000;
    let (client, session) = client();
    let count = SharedCount::new(&client, "/c", 0).unwrap();
    let (tell, told) = crate::base::channel::unbounded();
    count.add_listener(move |value| tell.send(value).unwrap_or_default());
    let session: Arc<dyn Session> = session;
    let next = AtomicI32::new(1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let value = next.fetch_add(1, Ordering::Relaxed);
                    if value > VALUES {
                        return;
                    }
                    let stat = Stat { mzxid: value.into(), version: value, ..Stat::default() };
                    count.value.znode.accept(&session, &stat, &i32::to_be_bytes(value), Occasion::Change);
                }
            });
        }
    });
    let mut heard = Vec::new();
    while heard.last() != Some(&VALUES) {
        heard.push(told.recv_timeout(Duration::from_secs(20)).unwrap());
    }
    assert!(heard.is_sorted(), "told out of order");
    assert_eq!(count.count(), VALUES);
}

#[test]
fn what_is_put_off_is_asked_again_once_for_whatever_needed_it_most() {
    let (client, session) = client();
    let count = SharedCount::new(&client, "/c", 5).unwrap();
    count.value.znode.state.lock().life = CuratorFrameworkState::Started;
    let (tell, told) = crate::base::channel::unbounded();
    count.add_listener(move |value| tell.send(value).unwrap_or_default());
    count.value.znode.refresh(Occasion::Connection);
    count.value.znode.refresh(Occasion::Change);
    for asked in [4, 2, 2] {
        assert_eq!(session.submissions.lock().len(), asked);
        // No timer comes in between.
        let (go, gate) = crate::base::channel::bounded::<()>(0);
        client.core.run_later(Duration::ZERO, move || gate.recv().unwrap_or_default());
        for _ in 0..asked {
            session.answer(Err(SessionError::Server(ErrorCode::ThrottledOp)));
        }
        // Behind whatever has been planned.
        let (pass, passed) = crate::base::channel::bounded(1);
        client.core.run_later(WHEN_PUT_OFF, move || pass.send(()).unwrap_or_default());
        drop(go);
        passed.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    let stat = Stat { version: UNREAD, ..Stat::default() };
    session.answer(Ok(Response::Stat(stat)));
    session.answer(Ok(Response::Data { data: vec![0, 0, 0, 5], stat }));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(5), "a reconnect is told in any case");
}

/// Each read of it would end the connection, on which all locks of the client depend.
#[test]
fn a_value_that_is_too_large_is_told_once_and_read_again_when_it_is_smaller() {
    const LIMIT: usize = 1000;
    let (client, session) = client();
    let count = SharedCount::new(&client, "/c", 5).unwrap();
    count.value.znode.state.lock().life = CuratorFrameworkState::Started;
    let (tell, told) = crate::base::channel::unbounded();
    client.add_unhandled_error_listener(move |what, error| tell.send(format!("{what}: {error}")).unwrap_or_default());
    let stat = |size: usize| {
        let data_length = i32::try_from(size).unwrap();
        Ok(Response::Stat(Stat { version: 1, mzxid: 1, data_length, ..Stat::default() }))
    };
    let asked = || session.submissions.lock().len();
    count.value.znode.refresh(Occasion::Change);
    assert_eq!(asked(), 2);
    session.answer(stat(LIMIT));
    session.answer(Err(SessionError::FrameTooLarge { size: LIMIT + BESIDE_THE_DATA, limit: LIMIT }));
    count.value.znode.refresh(Occasion::Connection);
    for _ in 0..2 {
        assert_eq!(asked(), 1, "not the value");
        session.answer(stat(LIMIT - BESIDE_THE_DATA + 1));
        // It looks again by itself.
        await_asked(&session, 1);
    }
    session.answer(stat(LIMIT - BESIDE_THE_DATA));
    await_asked(&session, 2);
    session.answer(stat(4));
    let stat = Stat { version: 2, mzxid: 2, data_length: 4, ..Stat::default() };
    session.answer(Ok(Response::Data { data: vec![0, 0, 0, 7], stat }));
    assert_eq!(count.count(), 7);
    let told = told.recv_timeout(Duration::from_secs(20)).map(|one| (one, told.try_recv().is_err())).unwrap();
    assert!(told.0.contains("keeps its last value") && told.1, "{told:?}");
}

#[test]
fn an_answer_of_a_session_before_says_nothing_new() {
    let (client, session) = client();
    let count = SharedCount::new(&client, "/c", 0).unwrap();
    let accept = |session: Arc<dyn Session>, mzxid: i64, value: i32| {
        let stat = Stat { mzxid, version: value, ..Stat::default() };
        count.value.znode.accept(&session, &stat, &i32::to_be_bytes(value), Occasion::Change);
        count.count()
    };
    assert_eq!(accept(session.clone(), 20, 2), 2);
    assert_eq!(accept(StubSession::new(), 30, 1), 2, "of a session before");
    // As if a session before had brought what is known.
    count.value.znode.state.lock().session_id = 8;
    assert_eq!(accept(session, 10, 3), 3, "the session of now counts, whatever its numbers");
    count.value.znode.state.lock().session_id = 8;
    assert_eq!(accept(StubSession::new(), 30, 4), 4, "there is nothing of the session of now");
}

/// The start is late to hear of its reply, and the watch that it has asked for was used up by then.
#[test]
fn a_watch_is_kept_until_that_of_a_later_read() {
    let (client, session) = client();
    let count = SharedCount::new(&client, "/c", 5).unwrap();
    let stat = Stat { version: 3, ..Stat::default() };
    thread::scope(|scope| {
        let starts = scope.spawn(|| count.start());
        await_asked(&session, 2);
        count.value.znode.refresh(Occasion::Change);
        assert_eq!(session.submissions.lock().len(), 4);
        session.answer(Ok(Response::Stat(stat)));
        session.answer(Ok(Response::Data { data: vec![0, 0, 0, 5], stat }));
        starts.join().unwrap().unwrap();
    });
    assert_eq!(*session.unwatched.lock(), [Ticket(0)]);
    count.close();
    assert_eq!(*session.unwatched.lock(), [Ticket(0), Ticket(2)]);
}

#[test]
fn a_count_that_is_closed_while_it_starts_stays_closed() {
    let stat = Stat { version: 0, ..Stat::default() };
    let data = Response::Data { data: vec![0, 0, 0, 5], stat };
    for answer in [Ok(data), Err(SessionError::Server(ErrorCode::NoAuth))] {
        let (client, session) = client();
        let count = SharedCount::new(&client, "/c", 5).unwrap();
        thread::scope(|scope| {
            let starts = scope.spawn(|| count.start());
            await_asked(&session, 2);
            count.close();
            session.answer(Ok(Response::Stat(stat)));
            session.answer(answer);
            let started = starts.join().unwrap();
            assert!(matches!(started, Err(Error::NotInUse { state: "closed", .. })), "{started:?}");
        });
        assert!(matches!(count.start(), Err(Error::AlreadyStarted)));
    }
}
