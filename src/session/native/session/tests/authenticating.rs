//! SASL between the handshake and everything else.

use super::*;
use crate::session::sasl::mechanism::{Authenticator, Begun, Failure, Mechanism};

/// The operation of a round.
const SASL: i32 = 102;

/// The client's side begins with `hello`, and has an answer to every challenge but `welcome`.
#[derive(Clone, Copy)]
enum Credentials {
    Good,
    None,
    /// A centre that would have to give some does not answer.
    Slow,
}

impl Authenticator for Credentials {
    fn begin(&self, _: &str, deadline: Instant, is_over: &dyn Fn() -> bool) -> std::result::Result<Begun, Failure> {
        match self {
            Credentials::Good => Ok((Box::new(Polite), b"hello".to_vec())),
            Credentials::None => Err(Failure::Refused("there is no ticket".to_owned())),
            Credentials::Slow => {
                while Instant::now() < deadline && !is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Failure::NotNow("nobody answers".to_owned()))
            }
        }
    }
}

struct Polite;

impl Mechanism for Polite {
    fn step(&mut self, challenge: &[u8]) -> std::result::Result<Option<Vec<u8>>, Failure> {
        Ok((challenge != b"welcome").then(|| b"please".to_vec()))
    }

    fn why_refused(&self) -> String {
        "the server knows why".to_owned()
    }
}

fn open(fake: &Fake, credentials: Credentials) -> Client {
    let factory = NativeSessions { transport: Arc::new(Tcp), sasl: Some(Arc::new(credentials)) };
    Client::open_with(&factory, &fake.config())
}

/// The server's answer to a round.
fn token(round: &Frame, err: i32, token: &[u8]) -> Vec<u8> {
    server::reply(round.xid, 0, err, &server::prefixed(token))
}

/// The next connection, with the first round on it.
fn first_round(fake: &Fake) -> (Peer, Frame) {
    for _ in 0..ATTEMPTS {
        let mut peer = fake.accept();
        peer.welcome();
        if let Some(round) = peer.next_request() {
            return (peer, round);
        }
    }
    panic!("the client begins no round");
}

fn let_in(fake: &Fake) -> Peer {
    let (mut peer, round) = first_round(fake);
    assert_eq!((round.op, round.body.clone()), (SASL, server::prefixed(b"hello")));
    peer.send(&token(&round, 0, b"who?"));
    let round = peer.request();
    assert_eq!((round.op, round.body.clone()), (SASL, server::prefixed(b"please")));
    peer.send(&token(&round, 0, b"welcome"));
    peer
}

#[test]
fn everything_else_is_held_back_until_the_server_has_let_the_client_in() {
    let fake = Fake::new();
    let client = open(&fake, Credentials::Good);
    let (_, reply) = client.submit(sync("/a"));
    let (mut peer, round) = first_round(&fake);
    assert_eq!((round.op, client.session.connection()), (SASL, 0));
    peer.send(&token(&round, 0, b"welcome"));
    let request = peer.request();
    assert_eq!(request.op, server::SYNC);
    peer.answer(&request);
    assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
}

#[test]
fn watches_are_set_again_behind_sasl() {
    let fake = Fake::new();
    let client = open(&fake, Credentials::Good);
    let mut peer = let_in(&fake);
    let request = Request::GetData { path: "/watched".into(), watch: true };
    let watcher: Watcher = Arc::new(|_: &WatchEvent| {});
    client.session.submit(vec![Submission { request, watcher: Some(watcher), on_reply: Box::new(drop) }]);
    let request = peer.request();
    peer.answer(&request);
    hang_up(&peer);
    let mut peer = let_in(&fake);
    assert_eq!(peer.request().op, server::SET_WATCHES);
}

#[test]
fn a_refusal_ends_the_session_with_its_reason_and_is_not_tried_again() {
    for credentials in [Credentials::Good, Credentials::None] {
        let fake = Fake::new();
        let client = open(&fake, credentials);
        let (_, reply) = client.submit(sync("/a"));
        let mut peer = fake.accept();
        peer.welcome();
        if let Some(round) = peer.next_request() {
            peer.send(&token(&round, server::AUTH_FAILED, b""));
        }
        let why = match credentials {
            Credentials::Good => "the server knows why",
            _ => "there is no ticket",
        };
        let is_told =
            |event| matches!(event, SessionEvent::AuthFailed { scheme, detail } if scheme == "sasl" && detail == why);
        assert!(is_told(client.event()));
        assert!(matches!(reply.recv_timeout(LONG).unwrap(), Err(SessionError::AuthFailed { .. })));
        client.wait_until_finished(LONG);
        assert!(fake.accept_until(Instant::now() + Duration::from_millis(100)).is_none(), "it comes again");
    }
}

#[test]
fn a_server_that_says_nothing_is_left_in_the_time_of_the_handshake() {
    let fake = Fake::new();
    let client = open(&fake, Credentials::Good);
    let (peer, _) = first_round(&fake);
    let _second = let_in(&fake);
    assert!(peer.has_ended());
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
}

type Answer = fn(&Frame) -> Vec<u8>;

#[test]
fn a_server_that_says_anything_else_is_left_and_the_session_goes_on() {
    let fake = Fake::new();
    let client = open(&fake, Credentials::Good);
    let wrong: [Answer; 5] = [
        |_| Vec::new(),
        |_| vec![0xff; 40],
        |round| server::reply(round.xid + 1, 0, 0, &server::prefixed(b"welcome")),
        |round| server::reply(round.xid, 0, 0, b"\x7f\xff\xff\xff"),
        |_| server::notification(server::DELETED, "/a"),
    ];
    for answer in wrong {
        let (mut peer, round) = first_round(&fake);
        peer.send(&answer(&round));
        peer.wait_for_the_end();
    }
    let _peer = let_in(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
}

#[test]
fn a_close_does_not_wait_for_a_server_or_for_credentials() {
    for credentials in [Credentials::Good, Credentials::Slow] {
        let fake = Fake::new();
        let client = open(&fake, credentials);
        let mut peer = fake.accept();
        peer.welcome();
        client.session.close(Instant::now() + LONG);
        client.wait_until_finished(Duration::from_secs(2));
    }
}
