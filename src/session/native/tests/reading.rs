//! Callers that wait for a reply and read the connection meanwhile.

use std::{
    io::Write,
    sync::atomic::AtomicUsize,
    thread::{self, JoinHandle},
};

use super::{super::reading::Turn, fake::USUAL_TIMEOUT, *};
use crate::{cancel::CancelToken, session::WaitEnd};

/// How late a wait may end.
pub(super) const LATE: Duration = Duration::from_millis(50);

/// What takes longer was not woken by what arrived, but by a timer.
pub(super) const PROMPT: Duration = Duration::from_millis(500);

/// Long enough for what would come to come.
pub(super) const MOMENT: Duration = Duration::from_millis(100);

/// A session whose inside can be looked at, and which any thread may read.
pub(super) fn opened(fake: &Fake) -> (Arc<Shared>, Client, Peer) {
    opened_for(fake, USUAL_TIMEOUT)
}

pub(super) fn opened_for(fake: &Fake, timeout: Duration) -> (Arc<Shared>, Client, Peer) {
    let (sender, events) = unbounded();
    let observer: SessionObserver = Arc::new(move |event| sender.send(event).unwrap_or_default());
    let session = NativeSession::open(fake.config(), Arc::new(Tcp), observer).unwrap();
    let shared = session.shared.clone();
    let client = Client { session: Arc::new(session), events };
    let mut peer = fake.accept();
    peer.welcome_for(timeout);
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
    wait_until(LONG, || is_offered(&shared));
    (shared, client, peer)
}

/// Whether any thread may read, which comes after the news that there is a connection.
pub(super) fn is_offered(shared: &Arc<Shared>) -> bool {
    shared.reading.lock().interest.is_some()
}

/// The right to read, which the session's thread has now and then for a moment.
pub(super) fn turn(shared: &Arc<Shared>) -> Turn<'_> {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(turn) = shared.turn() {
            return turn;
        }
        assert!(Instant::now() < deadline, "nobody gives the right to read back");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends notifications until the client hangs up, so often that no read of a caller ends without one.
pub(super) fn flood(peer: &Peer) -> JoinHandle<()> {
    let mut stream = peer.stream.try_clone().unwrap();
    let notification = server::prefixed(&server::notification(server::CHANGED, "/nobody's"));
    thread::spawn(move || {
        while stream.write_all(&notification).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    })
}

#[test]
fn what_a_caller_leaves_unread_wakes_the_sessions_thread() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    for round in 0..50 {
        let (_, reply) = client.submit(sync("/a"));
        let request = peer.request();
        let turn = turn(&shared);
        peer.answer(&request);
        if round % 2 == 0 {
            // The session's thread has slept through it.
            assert!(reply.recv_timeout(Duration::from_millis(5)).is_err());
        }
        drop(turn);
        assert!(reply.recv_timeout(PROMPT).unwrap().is_ok());
    }
}

#[test]
fn a_caller_that_comes_and_goes_leaves_the_end_of_the_connection_to_the_sessions_thread() {
    let fake = Fake::new();
    let (shared, client, peer) = opened(&fake);
    let mut turn = turn(&shared);
    hang_up(&peer);
    let begun = Instant::now();
    while turn.read() {}
    drop(turn);
    assert_eq!(client.events.recv_timeout(PROMPT).unwrap(), SessionEvent::Disconnected);
    assert!(begun.elapsed() < PROMPT);
    fake.accept().welcome();
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 2, .. }));
}

#[test]
fn no_connection_follows_while_somebody_may_read_the_last_one() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    let mut turn = turn(&shared);
    peer.answer(&request);
    // The reader thread ends the connection for a reason of its own.
    assert!(shared.state.lock().machine.write_failed(1));
    shared.state.lock().hang_up();
    assert!(client.events.recv_timeout(MOMENT).is_err());
    assert!(fake.accept_until(Instant::now() + MOMENT).is_none());
    // What has arrived belongs to the connection, and is in time.
    while turn.read() {}
    drop(turn);
    assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let mut peer = fake.accept();
    peer.welcome();
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 2, .. }));
    let server = thread::spawn(|| peer.answer_all());
    assert!(is_synced(&wait(&client.session, "/b")));
    drop((client, shared));
    assert_eq!(server.join().unwrap(), [server::SYNC, server::CLOSE]);
}

#[test]
fn nobody_takes_what_comes_behind_a_frame_that_was_not_understood() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    let mut caller = turn(&shared);
    peer.send(&server::reply(99, 7, 0, b""));
    while caller.read() {}
    assert!(caller.failure().is_some());
    // The session's thread is not there yet, and others come by.
    peer.answer(&request);
    for _ in 0..3 {
        assert!(!caller.read());
    }
    drop(caller);
    assert!(is_loss(&reply.recv_timeout(LONG).unwrap()));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert_eq!(fake.accept().welcome().last_zxid, 0);
}

#[test]
fn many_callers_get_each_their_reply() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 300;
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    let server = thread::spawn(|| peer.answer_all());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = &client.session;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let path = format!("/{thread}/{round}");
                    let begun = Instant::now();
                    match wait(session, &path) {
                        Answer::Reply(Ok(Response::Synced { path: synced })) => assert_eq!(synced, path),
                        other => panic!("{other:?}"),
                    }
                    // A wake-up that was lost shows as the period of the session's thread.
                    assert!(begun.elapsed() < READ_PATIENCE - LATE, "{:?}", begun.elapsed());
                }
            });
        }
    });
    drop(client);
    assert_eq!(server.join().unwrap().len(), THREADS * ROUNDS + 1);
}

#[test]
fn a_wait_ends_at_its_deadline_whether_the_server_says_nothing_or_never_stops() {
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let noise = is_loud.then(|| flood(&peer));
        for patience in [0, 5, 21, 25, 31, 100, 250].map(Duration::from_millis) {
            let pending = submit_one(&client.session, sync("/a"));
            peer.request();
            let deadline = Instant::now() + patience;
            let answer = pending.wait(Stop::at(deadline));
            let late = Instant::now().saturating_duration_since(deadline);
            assert!(matches!(answer, Answer::Stopped { end: WaitEnd::Deadline, sent: true }), "{answer:?}");
            assert!(late < LATE, "{patience:?}, loud: {is_loud}: {late:?} late");
        }
        drop(client);
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn a_wait_ends_when_it_is_cancelled_whether_the_server_says_nothing_or_never_stops() {
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let noise = is_loud.then(|| flood(&peer));
        for pause in [0, 3, 8, 40].map(Duration::from_millis) {
            let token = CancelToken::new();
            let pending = submit_one(&client.session, sync("/a"));
            peer.request();
            thread::scope(|scope| {
                let cancelling = scope.spawn(|| {
                    thread::sleep(pause);
                    let now = Instant::now();
                    token.cancel();
                    now
                });
                let answer = pending.wait(Stop { cancel: Some(&token), deadline: None });
                let ended = Instant::now();
                assert!(matches!(answer, Answer::Stopped { end: WaitEnd::Cancelled, sent: true }), "{answer:?}");
                let late = ended.saturating_duration_since(cancelling.join().unwrap());
                assert!(late < LATE, "after {pause:?}, loud: {is_loud}: {late:?} late");
            });
        }
        drop(client);
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn heartbeats_go_out_in_time_while_callers_read_all_the_time() {
    const TIMEOUT: Duration = Duration::from_millis(900);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.welcome_for(TIMEOUT);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    let noise = flood(&peer);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&client.session, "/a"));
        let first = peer.request();
        assert_eq!(first.path(), "/a");
        let mut before = Instant::now();
        for _ in 0..5 {
            let heartbeat = peer.request();
            assert_eq!(heartbeat.path(), "/");
            assert!(before.elapsed() < TIMEOUT / 2, "{:?}", before.elapsed());
            before = Instant::now();
        }
        hang_up(&peer);
        assert!(matches!(waiting.join().unwrap(), Answer::Reply(Err(SessionError::ConnectionLoss(_)))));
    });
    noise.join().unwrap();
}

#[test]
fn a_silent_connection_is_left_in_time_while_callers_wait() {
    const TIMEOUT: Duration = Duration::from_millis(600);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.welcome_for(TIMEOUT);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    let begun = Instant::now();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| wait(&client.session, "/a"))).collect();
        assert_eq!(client.event(), SessionEvent::Disconnected);
        assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
        for waiting in waiting {
            assert!(matches!(waiting.join().unwrap(), Answer::Reply(Err(SessionError::ConnectionLoss(_)))));
        }
    });
}

#[test]
fn a_close_whose_confirmation_a_caller_reads_is_over_at_once() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let mut turn = turn(&shared);
    thread::scope(|scope| {
        let closing = scope.spawn(|| client.session.close(Instant::now() + LONG));
        let close = peer.request();
        assert_eq!(close.op, server::CLOSE);
        peer.answer(&close);
        while !turn.read() {}
        drop(turn);
        let begun = Instant::now();
        closing.join().unwrap();
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    });
    assert!(client.session.is_finished());
}

#[test]
fn the_end_of_a_session_ends_every_wait_at_once() {
    for is_close in [true, false] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| wait(&client.session, "/a"))).collect();
            let requests: Vec<_> = (0..4).map(|_| peer.request()).collect();
            let begun = Instant::now();
            if is_close {
                client.session.close(Instant::now());
            } else {
                client.session.abandon();
            }
            for waiting in waiting {
                match waiting.join().unwrap() {
                    Answer::Reply(Err(SessionError::Closed)) if is_close => {}
                    Answer::Reply(Err(SessionError::Expired)) if !is_close => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
            requests.iter().for_each(|request| peer.answer(request));
        });
        assert_eq!(peer.answer_all(), [server::CLOSE]);
        client.wait_until_finished(LONG);
    }
}

#[test]
fn a_caller_may_wait_while_its_thread_unwinds() {
    struct Waits<'a>(&'a Client, &'a AtomicUsize);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(usize::from(is_synced(&wait(&self.0.session, "/a"))), Ordering::Relaxed);
        }
    }
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    let server = thread::spawn(|| peer.answer_all());
    let synced = AtomicUsize::new(0);
    thread::scope(|scope| {
        let unwinding = scope.spawn(|| {
            let _waits = Waits(&client, &synced);
            panic!("on purpose");
        });
        assert!(unwinding.join().is_err());
    });
    assert_eq!(synced.load(Ordering::Relaxed), 1);
    assert!(is_synced(&wait(&client.session, "/b")));
    // What a caller does in its distress is not the connection's fault.
    assert_eq!(client.session.connection(), 1);
    assert!(client.events.try_recv().is_err());
    drop(client);
    assert_eq!(server.join().unwrap(), [server::SYNC, server::SYNC, server::CLOSE]);
}

#[test]
fn a_callback_that_panics_while_a_caller_reads_ends_the_session_and_not_the_caller() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let (sender, seen) = unbounded();
    let watcher: Watcher = Arc::new(move |event: &WatchEvent| sender.send(event.clone()).unwrap_or_default());
    let request = Request::GetData { path: "/watched".into(), watch: true };
    client.session.submit(vec![Submission { request, watcher: Some(watcher), on_reply: Box::new(drop) }]);
    let request = peer.request();
    peer.answer(&request);
    let on_reply = Box::new(|_| panic!("on purpose"));
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let pending = submit_one(&client.session, sync("/second"));
    let request = peer.request();
    let mut turn = turn(&shared);
    // In one write, so that both are read together: what comes behind the panic is told, too.
    let event = server::prefixed(&server::notification(server::DELETED, "/watched"));
    let reply = server::prefixed(&server::answer(&request, 1, 0));
    peer.stream.write_all(&[reply, event].concat()).unwrap();
    while turn.read() {}
    drop(turn);
    let answer = pending.wait(Stop::at(Instant::now() + LONG));
    assert!(matches!(answer, Answer::Reply(Err(SessionError::Expired))), "{answer:?}");
    let event = crate::proto::EventType::NodeDeleted;
    assert_eq!(seen.recv_timeout(LONG).unwrap(), WatchEvent::Node { event, connection: 1 });
    assert_eq!(client.event(), SessionEvent::Expired);
    client.wait_until_finished(PROMPT);
    assert!(client.events.try_recv().is_err());
    peer.wait_for_the_end();
}

#[test]
fn a_callback_that_a_caller_runs_may_submit_and_drop_and_close() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let (sender, done) = bounded(1);
    let session = client.session.clone();
    let on_reply = Box::new(move |_| {
        let unwanted = submit_one(&session, sync("/unwanted"));
        drop(unwanted);
        // Nobody reads for it meanwhile, so it ends without a reply, but it ends.
        let answer = submit_one(&session, sync("/in vain")).wait(Stop::at(Instant::now() + MOMENT));
        assert!(matches!(answer, Answer::Stopped { end: WaitEnd::Deadline, .. }));
        session.close(Instant::now());
        sender.send(()).unwrap_or_default();
    });
    let mut turn = turn(&shared);
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let request = peer.request();
    peer.answer(&request);
    while !turn.read() {}
    drop(turn);
    done.recv_timeout(LONG).unwrap();
    let server = thread::spawn(|| peer.answer_all());
    client.wait_until_finished(LONG);
    assert_eq!(server.join().unwrap().last(), Some(&server::CLOSE));
}
