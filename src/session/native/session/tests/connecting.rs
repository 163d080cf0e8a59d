//! How connections come and go.

use super::*;
use crate::base::clock;

#[test]
fn a_session_goes_on_over_the_next_connection() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    assert_eq!((client.session.id(), client.session.connection()), (fake::ID, 1));
    let (_, answered) = client.submit(sync("/answered"));
    let request = peer.request();
    peer.send(&server::answer(&request, 42, 0));
    assert!(answered.recv_timeout(LONG).unwrap().is_ok());
    let (_, lost) = client.submit(sync("/lost"));
    peer.request();
    drop(peer);
    assert!(is_loss(&lost.recv_timeout(LONG).unwrap()));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let (_peer, hello) = client.welcome_for(&fake, fake::USUAL_TIMEOUT);
    assert_eq!((hello.session_id, hello.last_zxid), (fake::ID, 42));
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 2, .. }));
    assert_eq!(client.session.connection(), 2);
}

#[test]
fn requests_submitted_without_a_server_are_written_when_there_is_one() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let replies: Vec<_> = (0..10).map(|k| client.submit(sync(&format!("/{k}"))).1).collect();
    let mut peer = client.welcome(&fake);
    for k in 0..10 {
        let request = peer.request();
        assert_eq!(request.path(), format!("/{k}"));
        peer.answer(&request);
    }
    for reply in replies {
        assert!(reply.recv_timeout(LONG).unwrap().is_ok());
    }
}

#[test]
fn another_session_in_the_place_of_the_first_is_the_next_one_of_the_client() {
    let fake = Fake::new();
    let config = fake.config();
    let (client, peer) = Client::connected_with(&config, &fake);
    drop(peer);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let mut peer = fake.accept();
    assert_eq!(peer.hello().session_id, fake::ID);
    peer.send(&Peer::greeting(12_000, fake::ID + 1));
    assert_eq!(client.event(), SessionEvent::Expired);
    assert!(client.session.is_ended() && client.session.left_behind().is_some());
    let next = Client::open(&config);
    assert!(matches!(next.event(), SessionEvent::Connected { connection: 1, .. }));
    assert_eq!(next.session.id(), fake::ID + 1);
    let (_, answered) = next.submit(sync("/"));
    let request = peer.request();
    peer.answer(&request);
    assert!(answered.recv_timeout(LONG).unwrap().is_ok(), "over the connection that there was");
}

#[test]
fn another_session_that_nobody_goes_on_with_is_closed() {
    let fake = Fake::new();
    let config = fake.config();
    let (client, peer) = Client::connected_with(&config, &fake);
    drop(peer);
    let mut peer = fake.accept();
    peer.hello();
    peer.send(&Peer::greeting(12_000, fake::ID + 1));
    while client.event() != SessionEvent::Expired {}
    drop(config.successor.take());
    assert_eq!(peer.request().op, server::CLOSE);
}

#[test]
fn a_session_that_is_left_closes_the_one_that_it_is_given_instead() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    drop(client.welcome_for(&fake, Duration::from_millis(100)));
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let mut peer = fake.accept();
    peer.hello();
    wait_until(LONG, || client.session.valid_until().is_none_or(|until| until < clock::now()));
    client.abandon();
    peer.send(&Peer::greeting(12_000, fake::ID + 1));
    assert_eq!(peer.request().op, server::CLOSE);
}

/// The first two whenever they come, and all others up to then.
fn next_attempt(fake: &Fake, before: usize, until: Instant) -> Option<Peer> {
    if before < 2 { Some(fake.accept()) } else { fake.accept_until(until) }
}

#[test]
fn a_server_that_hangs_up_after_the_handshake_is_not_tried_in_a_spin() {
    let fake = Fake::new();
    let _client = Client::open(&fake.config());
    let until = clock::now() + Duration::from_secs(2);
    let mut attempts = 0;
    while let Some(mut peer) = next_attempt(&fake, attempts, until) {
        peer.welcome();
        attempts += 1;
    }
    assert!((2..=20).contains(&attempts), "{attempts} attempts");
}

#[test]
fn a_server_that_hangs_up_before_the_handshake_is_not_tried_in_a_spin() {
    let fake = Fake::new();
    let _client = Client::open(&fake.config());
    let until = clock::now() + Duration::from_secs(2);
    let mut attempts = 0;
    while next_attempt(&fake, attempts, until).is_some() {
        attempts += 1;
    }
    assert!((2..=20).contains(&attempts), "{attempts} attempts");
}

#[test]
fn a_server_that_sends_nonsense_is_not_tried_in_a_spin() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let until = clock::now() + Duration::from_secs(2);
    let mut attempts = 0;
    while let Some(mut peer) = next_attempt(&fake, attempts, until) {
        peer.welcome();
        peer.send(b"nonsense, and a lot of it");
        attempts += 1;
        peer.wait_for_the_end();
    }
    assert!((2..=20).contains(&attempts), "{attempts} attempts");
    assert!(!client.session.is_ended());
}

#[test]
fn the_next_server_is_tried_when_one_refuses() {
    let (fake, gone) = (Fake::new(), Fake::new().address());
    let hosts = format!("{gone},{},{gone}", fake.address()).parse().unwrap();
    let client = Client::open(&SessionConfig { hosts, ..server::config() });
    let _peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
}

#[test]
fn the_next_server_is_tried_when_one_says_nothing() {
    let (fake, silent) = (Fake::new(), Fake::new());
    let hosts = format!("{},{}", silent.address(), fake.address()).parse().unwrap();
    let client = Client::open(&SessionConfig { hosts, ..server::config() });
    let _peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
}

/// Notes how long an attempt may take, and fails.
struct Nowhere(Sender<Duration>);

impl Transport for Nowhere {
    fn connect(
        &self,
        _host: &str,
        _addresses: &[std::net::SocketAddr],
        limit: Duration,
        _is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        // The test may be over.
        let _ = self.0.send(limit);
        Err(io::ErrorKind::TimedOut.into())
    }
}

#[test]
fn a_transport_with_a_handshake_of_its_own_has_all_the_time_of_an_attempt() {
    let (sender, limits) = unbounded();
    let factory = NativeSessions::over(Arc::new(Nowhere(sender)));
    let _session = factory.open(&server::config(), Arc::new(|_| {})).unwrap();
    let seconds: Vec<u64> = (0..4).map(|_| limits.recv_timeout(LONG).unwrap().as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8]);
}

#[test]
fn new_servers_are_used_from_the_next_connection_on() {
    let (old, new) = (Fake::new(), Fake::new());
    let (client, peer) = Client::connected(&old);
    client.session.update_hosts(&new.address().to_string().parse().unwrap());
    drop(peer);
    let (_peer, hello) = client.welcome_for(&new, fake::USUAL_TIMEOUT);
    assert_eq!(hello.session_id, fake::ID);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 2, .. }));
}

#[test]
fn an_expired_session_ends_its_thread() {
    let fake = Fake::new();
    let (client, peer) = Client::connected(&fake);
    drop(peer);
    assert_eq!(client.event(), SessionEvent::Disconnected);
    let mut peer = fake.accept();
    peer.hello();
    peer.send(&Peer::greeting(0, 0));
    assert_eq!(client.event(), SessionEvent::Expired);
    client.wait_until_finished(LONG);
    assert!(client.session.is_ended());
    assert_eq!((client.session.valid_until(), client.session.connection()), (None, 0));
    assert!(matches!(client.submit(sync("/late")).1.recv_timeout(LONG), Ok(Err(SessionError::Expired))));
    peer.wait_for_the_end();
}

#[test]
fn rejected_credentials_end_the_connection_and_the_session_is_closed_over_another() {
    let fake = Fake::new();
    let authorizations = vec![("digest".into(), b"me:secret".to_vec())];
    let client = Client::open(&SessionConfig { authorizations, ..fake.config() });
    let mut peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    assert_eq!(peer.request().op, server::AUTH);
    peer.send(&server::reply(-4, 0, server::AUTH_FAILED, b""));
    assert!(matches!(client.event(), SessionEvent::AuthFailed { scheme, .. } if scheme == "digest"));
    drop(peer);
    let mut peer = fake.accept();
    peer.welcome();
    assert_eq!(peer.answer_all(), [server::CLOSE]);
    client.wait_until_finished(LONG);
    assert!(client.events.try_recv().is_err());
}

#[test]
fn there_is_no_password_before_a_server_gave_one() {
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    assert!(client.session.password().is_empty());
    let _peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    assert_eq!(client.session.password(), [7; 16]);
}

/// Names by script: `fast` is the fake server, `slow` as well, but only when somebody says so, and `once` for the first
/// one who asks.
struct Scripted {
    address: std::net::SocketAddr,
    gate: Receiver<()>,
    asked_for_slow: Sender<()>,
    resolved_once: AtomicBool,
}

impl Transport for Scripted {
    fn resolve(&self, host: &str, _port: u16) -> io::Result<Vec<std::net::SocketAddr>> {
        if host == "slow" {
            let _ = self.asked_for_slow.send(());
            let _ = self.gate.recv();
        }
        if host == "once" && self.resolved_once.swap(true, Ordering::SeqCst) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(vec![self.address])
    }

    fn connect(
        &self,
        host: &str,
        addresses: &[std::net::SocketAddr],
        limit: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        Tcp.connect(host, addresses, limit, is_over)
    }
}

impl Scripted {
    fn new(fake: &Fake) -> (Arc<Scripted>, Sender<()>, Receiver<()>) {
        let (open, gate) = unbounded();
        let (asked_for_slow, asked) = unbounded();
        let resolved_once = AtomicBool::new(false);
        (Arc::new(Scripted { address: fake.address(), gate, asked_for_slow, resolved_once }), open, asked)
    }

    fn open(self: &Arc<Self>, config: &SessionConfig) -> Client {
        Client::open_with(&NativeSessions::over(self.clone()), config)
    }
}

fn open_scripted(fake: &Fake, hosts: &str) -> (Client, Sender<()>, Receiver<()>) {
    let (transport, open, asked) = Scripted::new(fake);
    let config = SessionConfig { hosts: hosts.parse().unwrap(), ..fake.config() };
    (transport.open(&config), open, asked)
}

#[test]
fn a_name_that_does_not_resolve_keeps_no_session_from_the_other_servers() {
    let machine = Machine::watch();
    let fake = Fake::new();
    let (client, _gate, asked) = open_scripted(&fake, "slow,fast");
    let begin = clock::now();
    let mut peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
    machine.assert_at_most("connected", since(begin), Duration::from_secs(2));
    for connection in 2..5 {
        drop(peer);
        assert_eq!(client.event(), SessionEvent::Disconnected);
        peer = client.welcome(&fake);
        assert_eq!(client.event(), SessionEvent::Connected { connection, read_only: false });
    }
    assert_eq!(asked.len(), 1, "it is looked up again and again");
}

#[test]
fn a_session_leaves_in_time_though_no_name_resolves() {
    let fake = Fake::new();
    let (client, _gate, asked) = open_scripted(&fake, "slow");
    asked.recv_timeout(LONG).unwrap();
    client.session.close(clock::now() + Duration::from_millis(300));
    client.wait_until_finished(Duration::from_secs(2));
}

#[test]
fn a_name_that_answers_late_is_used_then() {
    let fake = Fake::new();
    let (client, gate, asked) = open_scripted(&fake, "slow");
    asked.recv_timeout(LONG).unwrap();
    drop(gate);
    let _peer = client.welcome(&fake);
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
}

#[test]
fn the_next_session_of_a_client_finds_the_servers_though_the_names_resolve_no_more() {
    let fake = Fake::new();
    let (transport, _gate, _asked) = Scripted::new(&fake);
    let config = SessionConfig { hosts: "once".parse().unwrap(), ..fake.config() };
    let first = transport.open(&config);
    let peer = first.welcome(&fake);
    assert!(matches!(first.event(), SessionEvent::Connected { .. }));
    first.session.close(clock::now());
    assert_eq!(peer.answer_all(), [server::CLOSE]);
    first.wait_until_finished(LONG);
    let second = transport.open(&config);
    let _peer = second.welcome(&fake);
    assert!(matches!(second.event(), SessionEvent::Connected { .. }));
}

mod slow {
    use super::*;

    #[test]
    fn a_silent_server_is_left_after_two_thirds_of_the_timeout() {
        const TIMEOUT: Duration = Duration::from_secs(12);
        let machine = Machine::watch();
        let fake = Fake::new();
        let client = Client::open(&fake.config());
        let begun = clock::now();
        let mut peer = client.welcome_for(&fake, TIMEOUT).0;
        assert!(matches!(client.event(), SessionEvent::Connected { .. }));
        assert_eq!(client.event(), SessionEvent::Disconnected);
        let lasted = since(begun);
        assert!(lasted.end - lasted.start >= TIMEOUT * 2 / 3, "{lasted:?}");
        machine.assert_at_most("left", lasted.clone(), TIMEOUT);
        match peer.next_request() {
            Some(heartbeat) => assert_eq!(heartbeat.op, server::SYNC),
            // It was due a third of the timeout before the end.
            None => assert!(machine.lateness(&lasted) >= TIMEOUT / 3, "no heartbeat"),
        }
        peer.wait_for_the_end();
    }

    #[test]
    fn heartbeats_keep_an_idle_session_connected() {
        let fake = Fake::new();
        let client = Client::open(&fake.config());
        // A third of it is longer than this machine lets a process stand still.
        let peer = client.welcome_for(&fake, Duration::from_secs(24)).0;
        assert!(matches!(client.event(), SessionEvent::Connected { .. }));
        let first = client.session.valid_until().unwrap();
        let server = std::thread::spawn(|| peer.answer_all());
        wait_until(3 * LONG, || client.session.valid_until().unwrap() > first + Duration::from_millis(14_400));
        assert!(client.events.try_recv().is_err());
        client.session.close(clock::now() + LONG);
        let ops = server.join().unwrap();
        assert_eq!(ops.last(), Some(&server::CLOSE));
        assert!(ops.len() >= 4 && ops[..ops.len() - 1].iter().all(|op| *op == server::SYNC), "{ops:?}");
    }
}
