//! Connections with servers that can only read, and the way to one that can write.

use super::*;

const LOCAL: i64 = 0x77;

/// The session's first connection is with the first server; from the next one on it may go to both.
fn connected_read_only(alone: &Fake, other: &Fake, session_id: i64) -> (Client, Peer) {
    let config = SessionConfig { can_be_read_only: true, ..alone.config() };
    let client = Client::open(&config);
    let mut peer = alone.accept();
    assert_eq!(peer.welcome_read_only(session_id).session_id, 0);
    assert_eq!(client.event(), SessionEvent::Connected { connection: 1, read_only: true });
    client.session.update_hosts(&format!("{},{}", alone.address(), other.address()).parse().unwrap());
    (client, peer)
}

/// Answers what the server is asked until the answer is that it can write; the other says that it cannot.
fn ask_both(alone: &Fake, other: &Fake, refusals: usize) {
    let (mut refused, deadline) = (0, Instant::now() + LONG);
    while Instant::now() < deadline {
        if let Some(mut asked) = alone.accept_until(Instant::now()) {
            asked.say(b"isro", b"ro");
        }
        if let Some(mut asked) = other.accept_until(Instant::now()) {
            let answer: &[u8] = if refused < refusals { b"null" } else { b"rw" };
            asked.say(b"isro", answer);
            if answer == b"rw" {
                return;
            }
            refused += 1;
        }
    }
    panic!("nobody asks");
}

#[test]
fn a_session_of_a_read_only_server_goes_on_as_a_new_one_at_a_server_that_can_write() {
    let (alone, other) = (Fake::new(), Fake::new());
    let (client, _peer) = connected_read_only(&alone, &other, LOCAL);
    assert_eq!(client.session.id(), LOCAL);
    ask_both(&alone, &other, 2);
    // No other server knows the session of that one.
    let mut peer = other.accept();
    assert_eq!(peer.welcome().session_id, 0);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert_eq!(client.event(), SessionEvent::Connected { connection: 2, read_only: false });
    assert_eq!(client.session.id(), fake::ID);
    assert!(client.session.valid_until().is_some());
    // From here on it is known.
    drop(peer);
    let mut peer = other.accept();
    assert_eq!(peer.welcome().session_id, fake::ID);
}

#[test]
fn a_session_that_the_servers_know_goes_over_a_read_only_server_to_one_that_can_write_with_its_watches() {
    let (alone, other) = (Fake::new(), Fake::new());
    let client = Client::open(&SessionConfig { can_be_read_only: true, ..alone.config() });
    let mut peer = alone.accept();
    peer.welcome();
    assert_eq!(client.event(), SessionEvent::Connected { connection: 1, read_only: false });
    let (sender, told) = unbounded();
    let watcher: Watcher = Arc::new(move |event: &WatchEvent| sender.send(event.clone()).unwrap_or_default());
    let request = Request::GetData { path: "/watched".into(), watch: true };
    client.session.submit(vec![Submission { request, watcher: Some(watcher), on_reply: Box::new(drop) }]);
    let request = peer.request();
    peer.answer(&request);
    let valid_until = client.session.valid_until();
    drop(peer);
    let mut peer = alone.accept();
    assert_eq!(peer.welcome_read_only(fake::ID).session_id, fake::ID);
    client.session.update_hosts(&format!("{},{}", alone.address(), other.address()).parse().unwrap());
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert_eq!(client.event(), SessionEvent::Connected { connection: 2, read_only: true });
    // A server without a quorum proves nothing.
    assert_eq!(client.session.valid_until(), valid_until);
    ask_both(&alone, &other, 0);
    let mut peer = other.accept();
    assert_eq!(peer.welcome().session_id, fake::ID);
    assert_eq!(peer.request().op, server::SET_WATCHES);
    let events: Vec<_> = (0..4).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    let connections = [2, 3].map(|connection| WatchEvent::Reconnected { connection });
    assert_eq!(
        events,
        [&WatchEvent::Disconnected, &connections[0], &WatchEvent::Disconnected, &connections[1]].map(Clone::clone)
    );
}

#[test]
fn a_server_that_is_asked_and_says_nothing_holds_nobody_up() {
    let (alone, other) = (Fake::new(), Fake::new());
    let (client, mut peer) = connected_read_only(&alone, &other, LOCAL);
    // Either is asked first.
    let silent = loop {
        if let Some(mut asked) = alone.accept_until(Instant::now()) {
            asked.say(b"isro", b"ro");
        }
        if let Some(asked) = other.accept_until(Instant::now()) {
            break asked;
        }
    };
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    peer.answer(&request);
    assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    // It is given up, and asked again in its turn.
    ask_both(&alone, &other, 0);
    drop(silent);
    assert_eq!(other.accept().welcome().session_id, 0);
}

#[test]
fn a_session_of_a_read_only_server_ends_at_once() {
    let machine = Machine::watch();
    let (alone, other) = (Fake::new(), Fake::new());
    let (client, mut peer) = connected_read_only(&alone, &other, LOCAL);
    let begun = Instant::now();
    client.session.close(Instant::now() + LONG);
    machine.assert_at_most("closed", since(begun), LONGEST_READ / 2);
    assert!(client.session.is_finished());
    peer.wait_for_the_end();
    // No other server knows it, so none has to close it.
    assert!(client.events.is_empty());
}
