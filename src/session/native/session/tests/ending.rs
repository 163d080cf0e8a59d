//! Closing, abandoning and dropping, whatever the server does.

use std::ops::Range;

use super::*;
use crate::base::clock;

/// Closes within `limit`, and says from when to when.
fn close(client: &Client, limit: Duration) -> Range<Instant> {
    let started = clock::now();
    client.session.close(started + limit);
    since(started)
}

#[test]
fn close_waits_for_the_confirmation() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let (_, in_flight) = client.submit(sync("/a"));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&client, LONG));
        assert!(matches!(in_flight.recv_timeout(LONG).unwrap(), Err(SessionError::Closed)));
        let request = peer.request();
        let close = peer.request();
        assert_eq!(close.op, server::CLOSE);
        assert!(!closing.is_finished());
        peer.answer(&request);
        peer.answer(&close);
        machine.assert_at_most("closed", closing.join().unwrap(), LONG / 2);
    });
    assert!(client.session.is_finished());
    assert!(matches!(client.submit(sync("/late")).1.recv_timeout(LONG), Ok(Err(SessionError::Closed))));
    assert!(client.events.try_recv().is_err());
}

#[test]
fn close_ends_at_its_deadline_when_the_server_is_silent() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let took = close(&client, Duration::from_millis(300));
    assert!(took.end - took.start >= Duration::from_millis(300), "it did not wait");
    machine.assert_at_most("closed", took, Duration::from_millis(600));
    // Neither the thread nor the connection stays.
    client.wait_until_finished(LEAVE_TIME + 2 * LONGEST_READ);
    assert_eq!(peer.request().op, server::CLOSE);
    peer.wait_for_the_end();
}

#[test]
fn close_without_any_time_still_tells_the_server() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    client.session.close(clock::now());
    assert_eq!(peer.answer_all(), [server::CLOSE]);
    client.wait_until_finished(LONG);
}

#[test]
fn close_of_a_session_that_nobody_listens_to_is_quick() {
    let machine = Machine::watch();
    let config = Fake::new().config();
    let client = Client::open(&config);
    let (_, reply) = client.submit(sync("/a"));
    let took = close(&client, LONG);
    machine.assert_at_most("closed", took, Duration::from_secs(1));
    assert!(client.session.is_finished());
    assert!(matches!(reply.recv_timeout(LONG).unwrap(), Err(SessionError::Closed)));
}

#[test]
fn close_ends_at_its_deadline_when_the_servers_are_gone() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    drop(fake);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let took = close(&client, Duration::from_millis(300));
    assert!(took.end - took.start >= Duration::from_millis(300), "it did not wait");
    machine.assert_at_most("closed", took, Duration::from_millis(600));
    client.wait_until_finished(LEAVE_TIME + 2 * LONGEST_READ);
}

#[test]
fn close_does_not_wait_for_a_handshake_that_nobody_answers() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.hello();
    let took = close(&client, LONG);
    machine.assert_at_most("closed", took, Duration::from_secs(1));
    assert!(client.session.is_finished());
    peer.wait_for_the_end();
}

#[test]
fn close_takes_up_a_session_without_a_connection() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&client, LONG));
        wait_until(LONG, || client.session.is_ended());
        let mut peer = fake.accept();
        // The attempt may have begun before the close; then it goes on as one to leave.
        assert_eq!(peer.welcome().session_id, fake::ID);
        assert_eq!(peer.answer_all(), [server::CLOSE]);
        let took = closing.join().unwrap();
        assert!(took.end - took.start < LONG);
    });
    assert!(client.session.is_finished());
    assert!(client.events.try_recv().is_err());
}

#[test]
fn close_can_be_called_by_many_at_once_and_again() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    let server = std::thread::spawn(|| peer.answer_all());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| close(&client, LONG));
        }
    });
    machine.assert_at_most("closed again", close(&client, LONG), Duration::from_secs(1));
    assert_eq!(server.join().unwrap(), [server::CLOSE]);
}

#[test]
fn an_abandoned_session_is_taken_up_once_more_and_closed() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let (_, unsent) = client.submit(sync("/a"));
    client.abandon();
    assert!(client.session.is_ended());
    assert!(matches!(unsent.recv_timeout(LONG).unwrap(), Err(SessionError::Expired)));
    let mut peer = fake.accept();
    assert_eq!(peer.welcome().session_id, fake::ID);
    assert_eq!(peer.answer_all(), [server::CLOSE]);
    client.wait_until_finished(LONG);
    assert!(client.events.try_recv().is_err());
}

#[test]
fn an_abandoned_session_is_closed_when_no_holder_relies_on_it_any_more() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    for lets_go in [true, false] {
        let fake = Fake::new();
        let client = Client::open(&fake.config());
        let peer = client.welcome_for(&fake, TIMEOUT).0;
        assert!(matches!(client.event(), SessionEvent::Connected { .. }));
        let valid_until = client.session.valid_until().unwrap();
        client.session.abandon();
        assert_eq!(peer.answer_all(), [0; 0]);
        if lets_go {
            client.session.nobody_holds();
        }
        let mut peer = fake.accept();
        assert_eq!(peer.welcome().session_id, fake::ID);
        assert!((clock::now() >= valid_until) != lets_go, "{lets_go}");
        assert_eq!(peer.answer_all(), [server::CLOSE]);
        client.wait_until_finished(LONG);
    }
}

#[test]
fn a_handshake_that_is_answered_while_callers_are_told_of_the_end_closes_nothing_under_a_holder() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let mut peer = fake.accept();
    peer.hello();
    let on_reply = Box::new(move |_| std::thread::sleep(Duration::from_millis(300)));
    client.session.submit(vec![Submission { request: sync("/a"), watcher: None, on_reply }]);
    std::thread::scope(|scope| {
        scope.spawn(|| client.session.abandon());
        wait_until(LONG, || client.session.is_ended());
        peer.send(&Peer::greeting(12_000, fake::ID));
        assert_eq!(peer.answer_all(), [0; 0], "closed under its holder");
    });
}

#[test]
fn an_abandoned_session_that_no_server_takes_up_is_given_up_at_last() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.welcome_for(Duration::from_millis(100));
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    drop(peer);
    drop(fake);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    client.abandon();
    assert!(!client.session.is_finished());
    client.wait_until_finished(Duration::from_secs(4));
}

#[test]
fn an_abandoned_session_ends_at_the_deadline_of_a_later_close() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    drop(fake);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    client.abandon();
    close(&client, Duration::from_millis(100));
    client.wait_until_finished(LEAVE_TIME + 2 * LONGEST_READ);
}

#[test]
fn a_session_that_is_dropped_is_closed_at_the_server() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    let started = clock::now();
    drop(client);
    machine.assert_at_most("dropped", since(started), Duration::from_millis(500));
    assert_eq!(peer.answer_all(), [server::CLOSE]);
}

#[test]
fn a_session_that_is_dropped_does_not_stay_at_a_silent_server() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    drop(client);
    let started = clock::now();
    assert_eq!(peer.request().op, server::CLOSE);
    peer.wait_for_the_end();
    machine.assert_at_most("gone", since(started), Duration::from_secs(3));
}

#[test]
fn a_callback_that_panics_does_not_keep_the_server_from_hearing_of_the_end() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    let on_reply = Box::new(|_| panic!("on purpose"));
    client.session.submit(vec![Submission { request: sync("/first"), watcher: None, on_reply }]);
    let (_, next) = client.submit(sync("/second"));
    let requests = [peer.request(), peer.request()];
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&client, LONG));
        assert!(closing.join().is_err());
    });
    assert!(matches!(next.recv_timeout(LONG).unwrap(), Err(SessionError::Closed)));
    requests.iter().for_each(|request| peer.answer(request));
    assert_eq!(peer.answer_all(), [server::CLOSE]);
    client.wait_until_finished(LONG);
}
