//! Threads that wait for a reply or an event, and what they are told by the one that reads.

use std::{
    io::Write,
    sync::atomic::AtomicUsize,
    thread::{self, JoinHandle},
};

use super::*;
use crate::{
    base::clock,
    proto::{op, types::EventType},
    session::wait::{
        cancel::CancelToken,
        deadline::WaitEnd,
        pending::{Watch, submit},
    },
};

/// How late a wait may end, once in so many tries.
const LATE: Duration = Duration::from_millis(50);
const TRIES: usize = 3;

/// What takes longer was not woken by what arrived, but by a timer.
const PROMPT: Duration = Duration::from_millis(500);

/// Long enough for what would come to come.
const MOMENT: Duration = Duration::from_millis(100);

fn flood(peer: &Peer) -> JoinHandle<()> {
    let mut stream = peer.stream.try_clone().unwrap();
    let notification = server::prefixed(&server::notification(server::CHANGED, "/nobody's"));
    thread::spawn(move || {
        while stream.write_all(&notification).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// A watch, and what it brings.
struct Watching {
    told: Receiver<WatchEvent>,
    #[allow(dead_code, reason = "dropping it gives the watch up")]
    watch: Watch,
}

impl Watching {
    fn submit(session: &Arc<dyn Session>, path: &str) -> (Pending, Watching) {
        let (sender, told) = unbounded();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| sender.send(event.clone()).unwrap_or_default());
        let request = Request::GetData { path: path.into(), watch: true };
        let (pending, watch) = submit(session, vec![(request, Some(watcher))]).pop().unwrap();
        (pending, Watching { told, watch: watch.unwrap() })
    }

    /// Asks for a watch; `None`: the connection was lost.
    fn ask(session: &Arc<dyn Session>, path: &str) -> Option<Watching> {
        let (pending, watching) = Watching::submit(session, path);
        match pending.wait(WaitBound::at(clock::now() + LONG)) {
            Ok(Ok(_)) => Some(watching),
            Ok(Err(SessionError::ConnectionLoss(_))) => None,
            other => panic!("{other:?}"),
        }
    }

    /// A watch that the server has set.
    fn set(client: &Client, peer: &mut Peer, path: &str) -> Watching {
        let (pending, watching) = Watching::submit(&client.session, path);
        let request = peer.request();
        assert_eq!(request.path(), path);
        peer.answer(&request);
        assert!(matches!(pending.wait(WaitBound::at(clock::now() + LONG)), Ok(Ok(_))));
        watching
    }

    fn recv(&self, bound: WaitBound<'_>) -> Result<WatchEvent, WaitEnd> {
        bound.recv(&self.told)
    }

    fn next(&self) -> WatchEvent {
        self.recv(WaitBound::at(clock::now() + LONG)).unwrap()
    }
}

fn deleted(connection: u64) -> WatchEvent {
    WatchEvent::Node { event: EventType::NodeDeleted, connection }
}

fn delete(peer: &mut Peer, path: &str) {
    peer.send(&server::notification(server::DELETED, path));
}

#[test]
fn what_comes_behind_a_frame_that_was_not_understood_is_not_taken() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    // A later reply would move the zxid beyond a change that nobody was told of.
    let [strange, answer] =
        [server::reply(99, 7, 0, b""), server::answer(&request, 1, 0)].map(|it| server::prefixed(&it));
    peer.stream.write_all(&[strange, answer].concat()).unwrap();
    assert!(is_loss(&reply.recv_timeout(LONG).unwrap()));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert_eq!(client.welcome_for(&fake, fake::USUAL_TIMEOUT).1.last_zxid, 0);
}

#[test]
fn many_callers_get_each_their_reply() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 300;
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let server = thread::spawn(move || {
        let mut asked = 0;
        while let Some(request) = peer.next_request() {
            peer.answer(&request);
            // A machine that takes long for this sends heartbeats meanwhile, which are about the root.
            asked += usize::from(request.op == op::SYNC && request.path() != "/");
        }
        asked
    });
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = &client.session;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let path = format!("/{thread}/{round}");
                    match wait(session, &path) {
                        Ok(Ok(Response::Synced { path: synced })) => assert_eq!(synced, path),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    drop(client);
    assert_eq!(server.join().unwrap(), THREADS * ROUNDS);
}

#[test]
fn a_wait_ends_at_its_deadline_whether_the_server_says_nothing_or_never_stops() {
    let machine = Machine::watch();
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let noise = is_loud.then(|| flood(&peer));
        for longest in [0, 5, 21, 25, 31, 100, 250].map(Duration::from_millis) {
            let late = |_| {
                let pending = submit_one(&client.session, sync("/a"));
                peer.request();
                let deadline = clock::now() + longest;
                let answer = pending.wait(WaitBound::at(deadline));
                assert!(matches!(answer, Err(Stopped { end: WaitEnd::Deadline, sent: true })), "{answer:?}");
                since(deadline)
            };
            let late = (0..TRIES).map(late).collect();
            machine.assert_share_at_most(&format!("{longest:?}, loud: {is_loud}: late"), 0.0, late, LATE);
        }
        drop(client);
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn a_wait_ends_when_it_is_cancelled_whether_the_server_says_nothing_or_never_stops() {
    let machine = Machine::watch();
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let noise = is_loud.then(|| flood(&peer));
        for pause in [0, 3, 8, 40].map(Duration::from_millis) {
            let late = |_| {
                let token = CancelToken::new();
                let pending = submit_one(&client.session, sync("/a"));
                peer.request();
                thread::scope(|scope| {
                    let cancelling = scope.spawn(|| {
                        thread::sleep(pause);
                        let now = clock::now();
                        token.cancel();
                        now
                    });
                    let answer = pending.wait(WaitBound { cancel: Some(&token), deadline: None });
                    let ended = clock::now();
                    let is_cancelled = matches!(answer, Err(Stopped { end: WaitEnd::Cancelled, sent: true }));
                    assert!(is_cancelled, "{answer:?}");
                    cancelling.join().unwrap()..ended
                })
            };
            let late = (0..TRIES).map(late).collect();
            machine.assert_share_at_most(&format!("after {pause:?}, loud: {is_loud}: late"), 0.0, late, LATE);
        }
        drop(client);
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn heartbeats_go_out_in_time_though_something_arrives_all_the_time() {
    let machine = Machine::watch();
    // Longer than this machine lets a process stand still.
    const TIMEOUT: Duration = Duration::from_secs(18);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = client.welcome_for(&fake, TIMEOUT).0;
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    let noise = flood(&peer);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&client.session, "/a"));
        // Until its thread runs there may be heartbeats.
        while peer.request().path() != "/a" {}
        let mut before = clock::now();
        for _ in 0..3 {
            let heartbeat = peer.request();
            assert_eq!(heartbeat.path(), "/");
            machine.assert_at_most("a heartbeat", since(before), TIMEOUT / 2);
            before = clock::now();
        }
        hang_up(&peer);
        assert!(matches!(waiting.join().unwrap(), Ok(Err(SessionError::ConnectionLoss(_)))));
    });
    noise.join().unwrap();
}

#[test]
fn a_silent_connection_is_left_in_time_while_callers_wait() {
    let machine = Machine::watch();
    // Two thirds of it are longer than these threads take to begin.
    const TIMEOUT: Duration = Duration::from_secs(15);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = client.welcome_for(&fake, TIMEOUT).0;
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| wait(&client.session, "/a"))).collect();
        for _ in 0..4 {
            // There may be heartbeats in between.
            while peer.request().path() != "/a" {}
        }
        let begun = clock::now();
        assert_eq!(client.event(), SessionEvent::Disconnected);
        machine.assert_at_most("left", since(begun), TIMEOUT);
        for waiting in waiting {
            assert!(matches!(waiting.join().unwrap(), Ok(Err(SessionError::ConnectionLoss(_)))));
        }
    });
}

#[test]
fn the_end_of_a_session_ends_every_wait_at_once() {
    let machine = Machine::watch();
    for is_close in [true, false] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| wait(&client.session, "/a"))).collect();
            let requests: Vec<_> = (0..4).map(|_| peer.request()).collect();
            let begun = clock::now();
            if is_close {
                client.session.close(clock::now());
            } else {
                client.abandon();
            }
            for waiting in waiting {
                match waiting.join().unwrap() {
                    Ok(Err(SessionError::Closed)) if is_close => {}
                    Ok(Err(SessionError::Expired)) if !is_close => {}
                    other => panic!("{other:?}"),
                }
            }
            machine.assert_at_most("told", since(begun), PROMPT);
            if is_close {
                requests.iter().for_each(|request| peer.answer(request));
            } else {
                // It is taken up once more.
                peer.wait_for_the_end();
                peer = fake.accept();
                peer.welcome();
            }
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
fn a_callback_that_panics_ends_the_session_after_the_others_were_told() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let watching = Watching::set(&client, &mut peer, "/watched");
    let on_reply = Box::new(|_| panic!("on purpose"));
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let pending = submit_one(&client.session, sync("/second"));
    let request = peer.request();
    // In one write, so that both are read together: what comes behind the panic is told, too.
    let event = server::prefixed(&server::notification(server::DELETED, "/watched"));
    let reply = server::prefixed(&server::answer(&request, 1, 0));
    peer.stream.write_all(&[reply, event].concat()).unwrap();
    let answer = pending.wait(WaitBound::at(clock::now() + LONG));
    assert!(matches!(answer, Ok(Err(SessionError::Expired))), "{answer:?}");
    assert_eq!(watching.next(), deleted(1));
    assert_eq!(client.event(), SessionEvent::Expired);
    client.wait_until_finished(PROMPT);
    assert!(client.events.try_recv().is_err());
    peer.wait_for_the_end();
}

#[test]
fn a_callback_may_submit_and_drop_and_close() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (sender, done) = bounded(1);
    let session = client.session.clone();
    let on_reply = Box::new(move |_| {
        let unwanted = submit_one(&session, sync("/unwanted"));
        drop(unwanted);
        // Nobody reads meanwhile, so it ends without a reply, but it ends.
        let answer = submit_one(&session, sync("/in vain")).wait(WaitBound::at(clock::now() + MOMENT));
        assert!(matches!(answer, Err(Stopped { end: WaitEnd::Deadline, .. })));
        session.close(clock::now());
        sender.send(()).unwrap_or_default();
    });
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let request = peer.request();
    peer.answer(&request);
    done.recv_timeout(LONG).unwrap();
    let server = thread::spawn(|| peer.answer_all());
    client.wait_until_finished(LONG);
    assert_eq!(server.join().unwrap().last(), Some(&server::CLOSE));
}

#[test]
fn a_waiter_hears_of_a_cut_and_of_the_next_connection_at_once() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let watching = Watching::set(&client, &mut peer, "/a");
    let begun = clock::now();
    hang_up(&peer);
    assert_eq!(watching.next(), WatchEvent::Disconnected);
    machine.assert_at_most("told", since(begun), PROMPT);
    peer = client.welcome(&fake);
    assert_eq!(watching.next(), WatchEvent::Reconnected { connection: 2 });
    let set_watches = peer.request();
    assert_eq!(set_watches.op, server::SET_WATCHES);
    peer.answer(&set_watches);
    delete(&mut peer, "/a");
    assert_eq!(watching.next(), deleted(2));
}

/// The kernel gives `epoll_wait` and its like a thousandth of the wait as slack, and a niced process five. Waits for events are in
/// the contract of all locks (`long_wait`): the channels of unit tests are not those of a build.
#[test]
fn a_long_wait_ends_as_soon_as_a_thread_that_was_parked_as_long() {
    const WAIT: Duration = Duration::from_secs(4);
    const WAITS: u32 = 20;
    let first = clock::now() + WAIT;
    // Not at the same moment: a timer that runs out takes along those that have slack.
    let deadline = |nth: u32| first + nth * Duration::from_millis(30);
    let late = |nth: u32| clock::now().saturating_duration_since(deadline(nth));
    let parked = move |nth| {
        while clock::now() < deadline(nth) {
            thread::park_timeout(deadline(nth).saturating_duration_since(clock::now()));
        }
        late(nth)
    };
    let for_reply = move |nth| {
        let fake = Fake::new();
        let (client, _peer) = Client::connected(&fake);
        let answer = submit_one(&client.session, sync("/a")).wait(WaitBound::at(deadline(nth)));
        let late = late(nth);
        assert!(matches!(answer, Err(Stopped { end: WaitEnd::Deadline, sent: true })), "{answer:?}");
        late
    };
    let waits: [Box<dyn Fn(u32) -> Duration + Send + Sync>; 2] = [Box::new(parked), Box::new(for_reply)];
    // The shortest, as other threads may be in the way of any.
    let [parked, for_reply] = thread::scope(|scope| {
        let threads = [0, 1].map(|kind| {
            let wait = &waits[kind];
            (0..WAITS).map(|nth| scope.spawn(move || wait(2 * nth + u32::try_from(kind).unwrap()))).collect::<Vec<_>>()
        });
        threads.map(|threads| threads.into_iter().map(|thread| thread.join().unwrap()).min().unwrap())
    });
    println!("late: parked {parked:?}, for a reply {for_reply:?}");
    // Half the slack of an epoll_wait.
    let limit = parked + WAIT / 2000;
    assert!(for_reply <= limit, "{for_reply:?}, parked {parked:?}");
}

#[test]
fn waiters_whose_connections_are_cut_at_random_miss_nothing() {
    const WAITERS: usize = 4;
    const CALLERS: usize = 2;
    const CONNECTIONS: usize = 10;
    let fake = Fake::new();
    let (client, first) = Client::connected(&fake);
    let (is_over, told) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (session, is_over, told) = (&client.session, &is_over, &told);
        // A panic here would wait for the waiters, and they for the session.
        let _end = End(is_over, session);
        let mut threads: Vec<_> = (0..WAITERS)
            .map(|waiter| {
                scope.spawn(move || {
                    for round in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        told.fetch_add(
                            usize::from(one_wait(session, &format!("/{waiter}/{round}"))),
                            Ordering::Relaxed,
                        );
                    }
                })
            })
            .collect();
        threads.extend((0..CALLERS).map(|_| {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = wait(session, "/");
                }
            })
        }));
        let mut peer = first;
        for connection in 0..CONNECTIONS {
            serve(peer, 200 + 30 * connection, |number| number % 3 == 0);
            peer = client.welcome(&fake);
        }
        // The last one reports everything, so that the waiters see that it is over.
        let over = scope.spawn(move || {
            let limit = clock::now() + LONG;
            while told.load(Ordering::Relaxed) < 10 * CONNECTIONS && clock::now() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            is_over.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            session.close(clock::now() + LONG);
        });
        serve(peer, usize::MAX, |_| true);
        over.join().unwrap();
    });
    assert!(told.into_inner() >= 10 * CONNECTIONS);
}

/// Ends the waiters of a test, also when that panics.
struct End<'a>(&'a AtomicBool, &'a Arc<dyn Session>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.close(clock::now());
    }
}

/// Watches, and waits for the event as a lock does. `true`: it came.
fn one_wait(session: &Arc<dyn Session>, path: &str) -> bool {
    let Some(watching) = Watching::ask(session, path) else { return false };
    loop {
        match watching.next() {
            WatchEvent::Node { .. } => return true,
            WatchEvent::Disconnected => {}
            WatchEvent::Reconnected { .. } => return false,
            WatchEvent::Ended => panic!("the session has ended"),
        }
    }
}

/// Answers so many requests, reports the end of a watched znode now and then, and hangs up.
fn serve(mut peer: Peer, requests: usize, reports: impl Fn(usize) -> bool) {
    let mut watched = Vec::new();
    for number in 0..requests {
        let Some(request) = peer.next_request() else { return };
        peer.answer(&request);
        if request.op == server::GET_DATA {
            watched.push(request.path());
        }
        if reports(number)
            && let Some(path) = watched.pop()
        {
            delete(&mut peer, &path);
        }
    }
    // Or by the drop, which resets the connection if something is still to be read.
    if requests.is_multiple_of(4) {
        hang_up(&peer);
    }
}
