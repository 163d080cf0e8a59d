//! Requests and replies of many threads, and servers that do not take or send as they should.

use std::io::Write;

use super::*;
use crate::base::clock;

#[test]
fn requests_of_many_threads_arrive_in_the_order_of_submission() {
    const THREADS: usize = 8;
    const BATCHES: usize = 300;
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (replies, replied) = unbounded();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (session, replies) = (&client.session, replies.clone());
            scope.spawn(move || {
                for batch in 0..BATCHES {
                    let submission = |part: usize| {
                        let replies = replies.clone();
                        let on_reply = Box::new(move |reply: Reply| replies.send(reply.is_ok()).unwrap_or_default());
                        let request = sync(&format!("{thread} {batch} {part}"));
                        Submission { request, watcher: None, on_reply }
                    };
                    session.submit((0..3).map(submission).collect());
                }
            });
        }
        let mut next = [0; THREADS];
        for xid in (1..).take(THREADS * BATCHES * 3) {
            let request = peer.request();
            assert_eq!(request.xid, xid);
            let path = request.path();
            let numbers: Vec<usize> = path.split(' ').map(|number| number.parse().unwrap()).collect();
            // Batches stay together, and come in their thread's order.
            assert_eq!((numbers[1], numbers[2]), (next[numbers[0]] / 3, (xid as usize - 1) % 3));
            next[numbers[0]] += 1;
            peer.answer(&request);
        }
    });
    for _ in 0..THREADS * BATCHES * 3 {
        assert!(replied.recv_timeout(LONG).unwrap());
    }
}

#[test]
fn a_reply_that_comes_byte_by_byte_is_a_reply() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    for byte in server::prefixed(&server::answer(&request, 1, 0)) {
        peer.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(reply.recv_timeout(LONG).unwrap().unwrap(), Response::Synced { path: "/a".into() });
}

#[test]
fn frames_that_come_with_the_handshake_are_read() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.hello();
    let (_, reply) = client.submit(sync("/a"));
    // The reply to a request that was not written yet: a violation that only a client sees that looks at it.
    let greeting = server::prefixed(&Peer::greeting(12_000, fake::ID));
    let unasked = server::prefixed(&server::reply(99, 1, 0, b""));
    peer.stream.write_all(&[greeting, unasked].concat()).unwrap();
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert!(is_loss(&reply.recv_timeout(LONG).unwrap()));
}

#[test]
fn a_server_that_takes_nothing_holds_up_nobody_and_is_left() {
    let machine = Machine::watch();
    const TIMEOUT: Duration = Duration::from_secs(6);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let _silent = client.welcome_for(&fake, TIMEOUT).0;
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    let large = sync(&"x".repeat(1024 * 1024));
    let started = clock::now();
    let pending: Vec<_> = (0..40).map(|_| client.submit(large.clone())).collect();
    machine.assert_at_most("submitted", since(started), TIMEOUT / 3);
    // The last ones cannot have been written: 40 MiB fit in no socket.
    assert!(client.session.withdraw(pending[39].0));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    machine.assert_at_most("noticed", since(started), TIMEOUT);
    assert!(is_loss(&pending[0].1.recv_timeout(LONG).unwrap()));
    // What was not written is still waiting, and arrives over the next connection.
    assert!(client.session.withdraw(pending[38].0));
    let waiting = pending[1..38].iter().filter(|(_, reply)| reply.is_empty()).count();
    assert!(waiting > 0);
    let mut peer = client.welcome_for(&fake, LONG * 3).0;
    for _ in 0..waiting {
        let request = peer.request();
        assert_eq!(request.size, large.encode(0).len());
        peer.answer(&request);
    }
    for (_, reply) in &pending[38 - waiting..38] {
        assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    }
}

#[test]
fn a_server_that_takes_its_time_gets_everything() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let large = sync(&"x".repeat(1024 * 1024));
    let replies: Vec<_> = (0..40).map(|_| client.submit(large.clone()).1).collect();
    for xid in 1..=40 {
        let request = peer.request();
        assert_eq!((request.xid, request.size), (xid, large.encode(0).len()));
        peer.send(&server::reply(xid, 1, 0, &server::prefixed(b"/")));
    }
    for reply in replies {
        assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    }
}

#[test]
fn a_reply_above_the_limit_is_told_to_its_caller_even_if_its_length_comes_alone() {
    let fake = Fake::new();
    let client = Client::open(&SessionConfig { max_frame_size: 1000, ..fake.config() });
    // A heartbeat comes after a third of it, and as long after that the rest of the reply is waited for.
    let mut peer = client.welcome_for(&fake, Duration::from_secs(24)).0;
    let (_, too_large) = client.submit(Request::GetData { path: "/large".into(), watch: false });
    let (_, next) = client.submit(sync("/next"));
    let request = peer.request();
    peer.stream.write_all(&1001_i32.to_be_bytes()).unwrap();
    // The heartbeat shows that the client has seen the length and waits for more.
    while peer.request().path() != "/" {}
    peer.stream.write_all(&request.xid.to_be_bytes()).unwrap();
    assert!(matches!(
        too_large.recv_timeout(LONG).unwrap(),
        Err(SessionError::FrameTooLarge { size: 1001, limit: 1000 })
    ));
    assert!(is_loss(&next.recv_timeout(LONG).unwrap()));
}

#[test]
fn watches_fire_and_are_set_again_over_the_next_connection() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (sender, seen) = unbounded();
    let watcher: Watcher = Arc::new(move |event: &WatchEvent| sender.send(event.clone()).unwrap_or_default());
    let request = Request::GetData { path: "/a".into(), watch: true };
    client.session.submit(vec![Submission { request, watcher: Some(watcher), on_reply: Box::new(drop) }]);
    let request = peer.request();
    peer.answer(&request);
    // The reply was taken in once the next one is here.
    let (_, reply) = client.submit(sync("/"));
    let request = peer.request();
    peer.answer(&request);
    reply.recv_timeout(LONG).unwrap().unwrap();
    drop(peer);
    let mut peer = client.welcome(&fake);
    let set_watches = peer.request();
    assert_eq!(set_watches.set_watches().1[0], ["/a"]);
    peer.answer(&set_watches);
    peer.send(&server::notification(server::DELETED, "/a"));
    assert_eq!(seen.recv_timeout(LONG).unwrap(), WatchEvent::Disconnected);
    assert_eq!(seen.recv_timeout(LONG).unwrap(), WatchEvent::Reconnected { connection: 2 });
    let event = crate::proto::types::EventType::NodeDeleted;
    assert_eq!(seen.recv_timeout(LONG).unwrap(), WatchEvent::Node { event, connection: 2 });
    // Used up, so nobody holds the sender any more.
    assert!(seen.recv_timeout(LONG).is_err());
}

#[test]
fn the_last_handle_may_go_with_a_watcher_that_the_session_drops() {
    let fake = Fake::new();
    let (Client { session, .. }, mut peer) = Client::connected(&fake);
    let handle = session.clone();
    let watcher: Watcher = Arc::new(move |_: &WatchEvent| assert_ne!(handle.id(), 0));
    let request = Request::GetData { path: "/a".into(), watch: true };
    let submission = Submission { request, watcher: Some(watcher), on_reply: Box::new(drop) };
    let ticket = session.submit(vec![submission])[0];
    let request = peer.request();
    session.unwatch(ticket);
    drop(session);
    peer.answer(&request);
    assert_eq!(peer.answer_all(), [server::REMOVE_WATCHES, server::CLOSE]);
}

#[test]
fn a_callback_may_submit() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (sender, reply) = bounded(1);
    let session = client.session.clone();
    let on_reply = Box::new(move |_| {
        let on_reply = Box::new(move |reply| sender.send(reply).unwrap_or_default());
        session.submit(vec![Submission { request: sync("/second"), watcher: None, on_reply }]);
    });
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    for path in ["/first", "/second"] {
        let request = peer.request();
        assert_eq!(request.path(), path);
        peer.answer(&request);
    }
    assert!(reply.recv_timeout(LONG).unwrap().is_ok());
}

#[test]
fn a_callback_that_panics_ends_the_session_and_leaves_nobody_waiting() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let on_reply = Box::new(|_| panic!("on purpose"));
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let (_, reply) = client.submit(sync("/second"));
    let request = peer.request();
    peer.answer(&request);
    assert!(matches!(reply.recv_timeout(LONG).unwrap(), Err(SessionError::Expired)));
    assert_eq!(client.event(), SessionEvent::Expired);
    client.wait_until_finished(LONG);
    assert!(client.session.is_ended());
    peer.wait_for_the_end();
}
