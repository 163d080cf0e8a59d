//! TLS against real servers.
#![cfg(all(feature = "testing", feature = "tls"))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::BTreeSet,
    fs,
    sync::{Barrier, OnceLock},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    ConnectionState, CuratorFramework, Error, InterProcessMutex, RetryNTimes, TlsConfig,
    testing::{TestingAuthority, TestingServer},
};

use support::{
    PATIENCE, builder_at, eventually, hand_over,
    machine::{Machine, since},
    relay::Relay,
    watchers_at,
};

/// A server with a port for TLS, and who issued its certificate, which names 127.0.0.1 only.
struct Fixture {
    server: TestingServer,
    authority: TestingAuthority,
}

impl Fixture {
    fn start(client_auth: bool) -> Fixture {
        let authority = TestingAuthority::new("authority of the tests").unwrap();
        let tls = authority.server().unwrap().client_auth(client_auth);
        let server =
            TestingServer::builder().secure_client_port(tls).max_session_timeout(3 * PATIENCE).start().unwrap();
        Fixture { server, authority }
    }

    /// The server of all tests that neither stop it nor count what it does.
    fn shared() -> &'static Fixture {
        static SHARED: OnceLock<Fixture> = OnceLock::new();
        SHARED.get_or_init(|| Fixture::start(false))
    }

    fn address(&self) -> String {
        self.server.secure_connect_string().unwrap()
    }

    fn client(&self, namespace: &str) -> CuratorFramework {
        patient(&self.address(), namespace, Some(self.authority.trusted().unwrap()))
    }
}

const SESSION: Duration = Duration::from_secs(10);

fn started(address: &str, namespace: &str, session: Duration, tls: Option<TlsConfig>) -> CuratorFramework {
    started_with(address, namespace, session, Duration::from_secs(2), tls)
}

fn started_with(
    address: &str,
    namespace: &str,
    session: Duration,
    connection_timeout: Duration,
    tls: Option<TlsConfig>,
) -> CuratorFramework {
    let builder = builder_at(address, namespace)
        .session_timeout(session)
        .connection_timeout(connection_timeout)
        .retry_policy(RetryNTimes::new(1, Duration::from_millis(50)));
    let client = match tls {
        Some(tls) => builder.tls(tls).build().unwrap(),
        None => builder.build().unwrap(),
    };
    client.start().unwrap();
    client
}

fn connected(address: &str, namespace: &str, session: Duration, tls: TlsConfig) -> CuratorFramework {
    is_connected(started(address, namespace, session, Some(tls)))
}

/// Neither its session nor a call of it ends while something stands still.
fn patient(address: &str, namespace: &str, tls: Option<TlsConfig>) -> CuratorFramework {
    is_connected(started_with(address, namespace, 3 * PATIENCE, PATIENCE, tls))
}

fn is_connected(client: CuratorFramework) -> CuratorFramework {
    let is_connected = client.block_until_connected(Some(PATIENCE)).unwrap();
    assert!(is_connected, "not connected: {:?}", client.check_exists().for_path("/"));
    client
}

/// What a failing call says of its cause, once it says this.
fn refused_with(client: &CuratorFramework, expected: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = client.check_exists().for_path("/").unwrap_err();
        assert!(matches!(error, Error::ConnectionLoss { .. }), "{error:?}");
        let said = error.to_string();
        if expected.iter().any(|expected| said.contains(expected)) {
            return;
        }
        assert!(Instant::now() < deadline, "it says {said:?}, not {expected:?}");
    }
}

#[test]
fn a_lock_over_tls_excludes_one_over_plain_tcp() {
    let fixture = Fixture::shared();
    let secure = fixture.client("mixed");
    let plain = patient(&fixture.server.connect_string(), "mixed", None);
    let (one, other) =
        (InterProcessMutex::new(&secure, "/lock").unwrap(), InterProcessMutex::new(&plain, "/lock").unwrap());
    let held = one.lock().unwrap();
    assert!(held.is_valid());
    assert!(!other.acquire_timeout(Duration::ZERO).unwrap());
    hand_over(held, &one, &other);
}

#[test]
fn a_server_of_another_authority_is_refused_and_the_cause_is_told() {
    let fixture = Fixture::shared();
    let stranger = TestingAuthority::new("somebody else").unwrap();
    let client = started(&fixture.address(), "", SESSION, Some(stranger.trusted().unwrap()));
    refused_with(&client, &["UnknownIssuer"]);
    assert!(!client.is_connected());
    assert_eq!(client.session_id(), 0);
}

#[test]
fn a_server_whose_certificate_names_another_host_is_refused_unless_that_check_is_off() {
    let fixture = Fixture::shared();
    let address = fixture.address().replace("127.0.0.1", "localhost");
    let checking = started(&address, "", SESSION, Some(fixture.authority.trusted().unwrap()));
    refused_with(&checking, &["not valid for name", "NotValidForName"]);
    let trusting = connected(&address, "", SESSION, fixture.authority.trusted().unwrap().hostname_verification(false));
    assert!(trusting.check_exists().for_path("/").unwrap().is_some());
    let stranger = TestingAuthority::new("somebody else").unwrap().trusted().unwrap().hostname_verification(false);
    refused_with(&started(&address, "", SESSION, Some(stranger)), &["UnknownIssuer"]);
}

#[test]
fn a_server_that_wants_client_certificates_gets_one_or_refuses() {
    let fixture = Fixture::start(true);
    let client = connected(&fixture.address(), "", SESSION, fixture.authority.client("client").unwrap());
    let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
    mutex.lock().unwrap().release().unwrap();

    let without = started(&fixture.address(), "", SESSION, Some(fixture.authority.trusted().unwrap()));
    // TLS 1.2: the server ends the handshake, with an alert or without.
    let refusals = ["alert", "Alert", "handshake", "reset", "end of file", "Broken pipe"];
    refused_with(&without, &refusals);

    let strange = TestingAuthority::new("somebody else").unwrap().issue("client", []).unwrap();
    let with_strange = fixture
        .authority
        .trusted()
        .unwrap()
        .client_certificate_pem(strange.certificate_pem(), strange.key_pem())
        .unwrap();
    refused_with(&started(&fixture.address(), "", SESSION, Some(with_strange)), &refusals);
    assert_eq!(without.session_id(), 0);
}

#[test]
fn a_client_without_tls_gets_no_session_from_a_secure_port_and_the_other_way_round() {
    let fixture = Fixture::shared();
    let plain = started(&fixture.address(), "", SESSION, None);
    let secure = started(&fixture.server.connect_string(), "", SESSION, Some(fixture.authority.trusted().unwrap()));
    assert!(!plain.block_until_connected(Some(Duration::from_secs(2))).unwrap());
    assert!(!secure.block_until_connected(Some(Duration::from_millis(100))).unwrap());
}

/// Until this client waits behind the holder, and its watches are known to the server.
fn await_watcher(server: &TestingServer, namespace: &str, client: &CuratorFramework, lock: &InterProcessMutex) {
    let watches = |path: &String| watchers_at(server, &format!("/{namespace}{path}")).contains(&client.session_id());
    eventually("the waiter watches the holder's znode and its own", || {
        let queue = lock.participant_nodes().unwrap();
        queue.len() == 2 && queue.iter().all(watches)
    });
}

#[test]
fn a_cut_connection_comes_back_over_tls_with_the_session_and_its_lock() {
    let fixture = Fixture::shared();
    let relay = Relay::to(&fixture.address());
    let holder = patient(relay.address(), "cut", Some(fixture.authority.trusted().unwrap()));
    let other = fixture.client("cut");
    let held_by_other = InterProcessMutex::new(&other, "/waited-for").unwrap();
    let waited_for = InterProcessMutex::new(&holder, "/waited-for").unwrap();
    let held = InterProcessMutex::new(&holder, "/held").unwrap();
    let guard = held.lock().unwrap();
    let session = holder.session_id();
    let first = held_by_other.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waited_for.acquire().and_then(|()| waited_for.release()));
        // Before it knows of its znode a cut costs one of its few retries.
        await_watcher(&fixture.server, "cut", &holder, &held_by_other);
        for round in 1..=8 {
            relay.cut();
            eventually("connected again", || relay.accepted() > round && holder.is_connected());
        }
        first.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(holder.session_id(), session);
    eventually("valid again", || guard.is_valid());
    guard.release().unwrap();
}

#[test]
fn threads_share_one_connection_and_data_of_any_size_arrives_whole() {
    let fixture = Fixture::shared();
    let client = fixture.client("parallel");
    thread::scope(|scope| {
        for thread in 0..8_usize {
            let client = &client;
            scope.spawn(move || {
                let mutex = InterProcessMutex::new(client, "/lock").unwrap();
                for round in 0..10_usize {
                    // Around the size of a TLS record, and up to what the server takes.
                    let size = [1, 16_383, 16_384, 16_385, 100_000, 900_000][(thread + round) % 6];
                    let byte = u8::try_from(thread * 10 + round).unwrap();
                    let held = mutex.lock().unwrap();
                    let path = format!("/data-{thread}-{round}");
                    client.create().creating_parents_if_needed().for_path_and_data(&path, vec![byte; size]).unwrap();
                    assert!(client.get_data().for_path(&path).unwrap() == vec![byte; size], "{size} bytes");
                    held.release().unwrap();
                }
            });
        }
    });
    assert_eq!(client.get_children().for_path("/lock").unwrap_or_default(), Vec::<String>::new());
}

/// Whether a thread of this name runs. The system knows the first 15 characters.
fn has_thread(name: &str) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.into_iter().any(|of| of.trim_end() == name)
}

#[test]
fn an_event_comes_through_while_a_write_is_stuck() {
    let fixture = Fixture::shared();
    let relay = Relay::to(&fixture.address());
    // Neither a write that is stuck, which may take a third of the session timeout, nor the writes behind it, which are
    // taken back after the connection timeout, may end before the test has seen what it wants to see.
    let client = patient(relay.address(), "stuck", Some(fixture.authority.trusted().unwrap()));
    let other = fixture.client("stuck");
    let (waited_for, held) =
        (InterProcessMutex::new(&client, "/lock").unwrap(), InterProcessMutex::new(&other, "/lock").unwrap());
    client.create().creating_parents_if_needed().for_path("/data").unwrap();
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waited_for.lock_timeout(3 * PATIENCE).map(|held| held.is_some()));
        await_watcher(&fixture.server, "stuck", &client, &held);
        relay.deafen(true);
        // More than the buffers of both sockets hold.
        let writers: Vec<_> =
            (0..24).map(|_| scope.spawn(|| client.set_data().for_path_and_data("/data", vec![7; 900_000]))).collect();
        eventually("a write is stuck", || has_thread("zk-session-writ"));
        let begin = Instant::now();
        guard.release().unwrap();
        eventually("the waiter was granted the lock", || waiter.is_finished() || !client.is_connected());
        assert!(writers.iter().all(|writer| !writer.is_finished()), "nothing was stuck");
        println!("granted after {:?} beside a stuck write", begin.elapsed());
        assert!(client.is_connected());
        relay.deafen(false);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_black_hole_is_noticed_within_two_thirds_of_the_session_timeout() {
    let machine = Machine::watch();
    let fixture = Fixture::shared();
    let relay = Relay::to(&fixture.address());
    let session = Duration::from_secs(3);
    let client = connected(relay.address(), "hole", session, fixture.authority.trusted().unwrap());
    client.create().creating_parents_if_needed().for_path("/data").unwrap();
    relay.deafen(true);
    relay.silence(true);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| client.set_data().for_path_and_data("/data", vec![7; 900_000]).unwrap_err());
        }
        let is_gone = |state| matches!(state, Some(ConnectionState::Suspended | ConnectionState::Lost));
        eventually("suspended", || is_gone(client.connection_state()));
        machine.assert_at_most("suspended after", since(begin), session * 2 / 3 + Duration::from_millis(500));
    });
    relay.deafen(false);
    relay.silence(false);
    relay.cut();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
}

#[test]
fn the_debug_output_of_a_configuration_has_no_key_in_it() {
    let authority = TestingAuthority::new("authority").unwrap();
    let own = authority.issue("client", []).unwrap();
    let secret: String = own.key_pem().lines().nth(1).unwrap().into();
    let tls = authority.trusted().unwrap().client_certificate_pem(own.certificate_pem(), own.key_pem()).unwrap();
    let text = format!("{tls:?}");
    assert!(!text.contains(&secret) && text.contains("hostname_verification: true"), "{text}");
}

#[test]
fn what_makes_no_configuration_is_told_before_anything_is_opened() {
    let authority = TestingAuthority::new("authority").unwrap();
    let (one, other) = (authority.issue("one", []).unwrap(), authority.issue("other", []).unwrap());
    let build = |tls| {
        CuratorFramework::builder()
            .connect_string("127.0.0.1:1")
            .retry_policy(RetryNTimes::new(0, Duration::ZERO))
            .tls(tls)
            .build()
            .map(drop)
    };
    let argument_of = |error: Error| match error {
        Error::InvalidArgument { name, .. } => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(argument_of(build(TlsConfig::new()).unwrap_err()), "tls");
    let bad = TlsConfig::new().root_certificates_pem("no certificate").unwrap_err();
    assert_eq!(argument_of(bad), "root_certificates_pem");
    let bad = authority.trusted().unwrap().client_certificate_pem(one.certificate_pem(), "no key").unwrap_err();
    assert_eq!(argument_of(bad), "client_certificate_pem");
    let mismatch = authority.trusted().unwrap().client_certificate_pem(one.certificate_pem(), other.key_pem()).unwrap();
    assert_eq!(argument_of(build(mismatch).unwrap_err()), "client_certificate_pem");
    assert!(matches!(TlsConfig::new().root_certificates_file("/no/such/file"), Err(Error::Io { .. })));
    let doubled = CuratorFramework::builder()
        .connect_string("127.0.0.1:1")
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .session_factory(curator_locks::unversioned::NativeSessionFactory)
        .tls(authority.trusted().unwrap())
        .build();
    assert_eq!(argument_of(doubled.unwrap_err()), "tls");
}

#[test]
fn servers_that_are_configured_at_the_same_time_have_files_of_their_own() {
    let authority = TestingAuthority::new("authority").unwrap();
    let certificates: Vec<_> = (0..8).map(|_| authority.issue("server", []).unwrap()).collect();
    let barrier = Barrier::new(certificates.len());
    let configure = &|own| {
        barrier.wait();
        authority.server_with(own).unwrap()
    };
    let configured = thread::scope(|scope| {
        let threads: Vec<_> = certificates.iter().map(|own| scope.spawn(move || configure(own))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let files: BTreeSet<String> = configured.iter().map(|tls| format!("{tls:?}")).collect();
    assert_eq!(files.len(), configured.len(), "{files:?}");
}
