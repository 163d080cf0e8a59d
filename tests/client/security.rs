//! Credentials and access control lists against a real server, and secrets that must stay secret.
#![cfg(feature = "testing")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{fmt::Debug, time::Duration};

use curator_locks::{
    Acl, AclProvider, AcquireOptions, CancelToken, ConnectionState, CreateMode, CreatorAllAclProvider,
    CuratorFramework, DefaultAclProvider, Error, ErrorCode, FixedEnsembleProvider, InterProcessLock, InterProcessMutex,
    Locker, RetryNTimes, Stat, perms,
    testing::TestingServer,
    unversioned::{
        Request, SessionConfig, Submission,
        wire::{ConnectRequest, ConnectResponse, FrameBuffer},
    },
};

use support::{
    builder_at, connect, eventually, hand_over,
    logs::{catch_logs, found_in, logged},
    relay::Relay,
};

const SECRET: &str = "shop:correct-horse-battery";
const WRONG: &str = "shop:wrong-horse-battery";

/// The shared server, with everything logged from here on.
fn server() -> &'static TestingServer {
    catch_logs(log::LevelFilter::Trace);
    support::server()
}

/// One that keeps its znodes to those who know the secret.
fn owner(address: &str, namespace: &str) -> CuratorFramework {
    connect(builder_at(address, namespace).authorization("digest", SECRET).acl_provider(CreatorAllAclProvider))
}

fn strangers(address: &str, namespace: &str) -> [(&'static str, CuratorFramework); 2] {
    [
        ("nobody", connect(builder_at(address, namespace))),
        ("one with a wrong password", connect(builder_at(address, namespace).authorization("digest", WRONG))),
    ]
}

#[track_caller]
fn no_auth<T: Debug>(who: &str, result: Result<T, Error>) {
    let error = result.expect_err(who);
    assert_eq!(error.code(), Some(ErrorCode::NoAuth), "{who}: {error:?}");
    assert!(error.to_string().contains("authorization()"), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn a_lock_with_creator_acls_is_closed_to_everybody_without_the_secret() {
    let server = server();
    let owner = owner(&server.connect_string(), "closed");
    let mutex = InterProcessMutex::new(&owner, "/locks/one").unwrap();
    let held = mutex.lock().unwrap();
    let node = held.path().to_owned();
    for (who, stranger) in strangers(&server.connect_string(), "closed") {
        no_auth(who, stranger.get_data().for_path(&node));
        no_auth(who, stranger.get_children().for_path("/locks/one"));
        no_auth(who, stranger.delete().for_path(&node));
        no_auth(who, stranger.delete().guaranteed().for_path(&node));
        no_auth(who, stranger.set_data().for_path_and_data(&node, "mine"));
        no_auth(who, stranger.set_acl().for_path(&node, Acl::open_unsafe()));
        no_auth(who, stranger.create().for_path("/locks/one/intruder"));
        no_auth(
            who,
            stranger.create().with_protection().with_mode(CreateMode::EphemeralSequential).for_path("/locks/one/x-"),
        );
        let lock = InterProcessMutex::new(&stranger, "/locks/one").unwrap();
        no_auth(who, lock.acquire());
        no_auth(who, lock.acquire_timeout(Duration::ZERO));
        no_auth(who, lock.acquire_timeout(support::PATIENCE));
        no_auth(who, lock.participant_nodes());
        assert!(!lock.is_acquired_in_this_process());
    }
    assert_eq!(mutex.participant_nodes().unwrap(), [node], "strangers left something in the queue");
    assert!(held.is_valid());
    held.release().unwrap();
}

#[test]
fn whoever_knows_the_secret_shares_the_lock() {
    let server = server();
    let (one, other) = (owner(&server.connect_string(), "shared"), owner(&server.connect_string(), "shared"));
    let (one, other) =
        (InterProcessMutex::new(&one, "/lock").unwrap(), InterProcessMutex::new(&other, "/lock").unwrap());
    let held = one.lock().unwrap();
    hand_over(held, &one, &other);
}

#[test]
fn lock_nodes_and_the_parents_made_on_the_way_have_the_creators_acl() {
    let server = server();
    let owner = owner(&server.connect_string(), "acls");
    let mutex = InterProcessMutex::new(&owner, "/some/where/lock").unwrap();
    let held = mutex.lock().unwrap();
    for path in ["/some", "/some/where", "/some/where/lock", held.path()] {
        let acl = owner.get_acl().for_path(path).unwrap();
        assert_eq!((acl.len(), acl[0].perms, acl[0].scheme.as_str()), (1, perms::ALL, "digest"), "{path}");
        assert!(acl[0].id.starts_with("shop:") && found_in(&acl[0].id, SECRET.as_bytes()).is_empty(), "{path}");
    }
    held.release().unwrap();
}

/// Closes `/secrets`, and leaves the rest open.
struct SecretsAreOurs;

impl AclProvider for SecretsAreOurs {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        path.starts_with("/by-path/secrets/").then(Acl::creator_all)
    }
}

#[test]
fn an_acl_provider_closes_one_path_and_leaves_another_open() {
    let server = server();
    let address = server.connect_string();
    let owner = connect(builder_at(&address, "by-path").authorization("digest", SECRET).acl_provider(SecretsAreOurs));
    let (closed, open) = (
        InterProcessMutex::new(&owner, "/secrets/lock").unwrap(),
        InterProcessMutex::new(&owner, "/public/lock").unwrap(),
    );
    let (closed, open) = (closed.lock().unwrap(), open.lock().unwrap());
    for (who, stranger) in strangers(&address, "by-path") {
        no_auth(who, InterProcessMutex::new(&stranger, "/secrets/lock").unwrap().acquire());
        let open = InterProcessMutex::new(&stranger, "/public/lock").unwrap();
        assert!(!open.acquire_timeout(Duration::from_millis(50)).unwrap(), "{who}");
    }
    closed.release().unwrap();
    open.release().unwrap();
}

#[test]
fn read_permission_alone_lets_nobody_into_the_queue() {
    let server = server();
    let address = server.connect_string();
    let owner = connect(builder_at(&address, "read").authorization("digest", SECRET));
    let everybody_reads = [Acl::creator_all(), Acl::read_unsafe()].concat();
    owner.create().creating_parents_if_needed().with_acl(everybody_reads).for_path("/lock").unwrap();
    for (who, stranger) in strangers(&address, "read") {
        let lock = InterProcessMutex::new(&stranger, "/lock").unwrap();
        assert_eq!(lock.participant_nodes().unwrap(), Vec::<String>::new());
        no_auth(who, lock.acquire());
    }
    InterProcessMutex::new(&owner, "/lock").unwrap().lock().unwrap().release().unwrap();
}

/// Keeps the client from the server until it has given its session up and begun another.
fn replace_session(relay: &Relay, client: &CuratorFramework) {
    let session = client.session_id();
    relay.deafen(true);
    relay.silence(true);
    eventually("the session is given up", || client.session_id() != session);
    relay.deafen(false);
    relay.silence(false);
    relay.cut();
    eventually("a new session", || client.is_connected() && ![0, session].contains(&client.session_id()));
}

#[test]
fn credentials_that_the_server_cannot_check_end_every_call_with_the_scheme_but_not_the_secret() {
    let server = server();
    let client = builder_at(&server.connect_string(), "").authorization("no-such-scheme", SECRET).build().unwrap();
    client.start().unwrap();
    let mut answer = None;
    eventually("the authorization has failed", || {
        answer = client.check_exists().for_path("/").err();
        matches!(answer, Some(Error::AuthFailed { .. }))
    });
    let error = answer.unwrap();
    let text = format!("{error} {error:?}");
    assert!(text.contains("no-such-scheme"), "{text}");
    assert_eq!(found_in(&text, SECRET.as_bytes()), Vec::<&str>::new());
}

#[test]
fn no_secret_is_logged_or_shown_by_debug_in_the_life_of_a_client() {
    let server = server();
    let relay = Relay::to(&server.connect_string());
    let builder = builder_at(relay.address(), "secret")
        .session_timeout(Duration::from_secs(2))
        .authorization("digest", SECRET)
        .acl_provider(CreatorAllAclProvider);
    let mut shown = vec![show(&builder)];
    let client = connect(builder);
    let mut passwords = vec![client.session_password()];
    let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
    let held = mutex.lock().unwrap();
    shown.extend([show(&client), show(&mutex), show(&held), show(&held.state()), show(&held.fencing_token())]);
    shown.push(show(&mutex.acquire_timeout(Duration::ZERO)));
    mutex.release().unwrap();

    // Errors of all kinds, on the way through the end of a connection and of a session.
    relay.cut();
    shown.push(show(&client.get_data().for_path("/none")));
    shown.push(show(&client.delete().guaranteed().for_path("/lock")));
    replace_session(&relay, &client);
    passwords.push(client.session_password());
    shown.push(show(&held.release()));
    shown.extend(strangers(relay.address(), "secret").map(|(_, stranger)| {
        passwords.push(stranger.session_password());
        show(&InterProcessMutex::new(&stranger, "/lock").unwrap().acquire())
    }));
    shown.push(show(&mutex.lock().map(|held| show(&Locker::new(&mutex as &dyn InterProcessLock)) + &show(&held))));
    shown.extend(requests_and_replies(&passwords[0]));
    client.close();
    shown.push(show(&client));
    shown.push(show(&client.check_exists().for_path("/")));

    assert_eq!(passwords.len(), 4);
    assert!(passwords.iter().all(|password| password.len() == 16 && password.iter().any(|byte| *byte != 0)));
    let logged = logged();
    assert!(logged.contains("connection state") && logged.contains("curator_locks::session"), "nothing was caught");
    for text in [&logged, &shown.join("\n")] {
        for secret in passwords.iter().map(Vec::as_slice).chain([SECRET, WRONG].map(str::as_bytes)) {
            assert_eq!(found_in(text, secret), Vec::<&str>::new());
        }
        // Nor the part behind the colon.
        assert!(!text.contains("horse-battery"), "{text}");
    }
}

/// Both forms of Debug.
fn show(value: &dyn Debug) -> String {
    format!("{value:?}\n{value:#?}\n")
}

/// What the public parts of the wire show of a secret that was put into them.
fn requests_and_replies(password: &[u8]) -> Vec<String> {
    let secret = SECRET.as_bytes().to_vec();
    let auth = Request::Auth { scheme: "digest".into(), auth: secret.clone() };
    let (path, acl, mode) = ("/a".to_owned(), Acl::creator_all(), CreateMode::Persistent);
    let create = Request::Create { path: path.clone(), data: secret.clone(), acl: acl.clone(), mode };
    let set = Request::SetData { path, data: secret.clone(), version: -1 };
    let connect = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: 1,
        session_id: 1,
        password: password.to_vec(),
        read_only: false,
    };
    let mut buffer = FrameBuffer::new(4096);
    let frame = connect.encode();
    buffer.space()[..frame.len()].copy_from_slice(&frame);
    buffer.filled(frame.len());
    let config = SessionConfig {
        hosts: "127.0.0.1:1".parse().unwrap(),
        known: Default::default(),
        dialect: Some(curator_locks::Dialect::ZooKeeper),
        successor: Default::default(),
        session_timeout: support::SESSION,
        connection_timeout: support::SESSION,
        authorizations: vec![("digest".into(), secret.clone())],
        quorum_heartbeats: false,
        max_frame_size: 4096,
        max_request_size: 4096,
        counters: Default::default(),
    };
    vec![
        show(&buffer),
        show(&connect),
        show(&ConnectResponse { timeout_ms: 1, session_id: 1, password: password.to_vec(), read_only: false }),
        show(&auth),
        show(&create),
        show(&set),
        show(&Request::Multi(vec![create, set])),
        show(&Submission { request: auth, watcher: None, on_reply: Box::new(|_| {}) }),
        show(&config),
        show(&AcquireOptions::new().cancel_token(&CancelToken::new())),
        show(&(DefaultAclProvider, FixedEnsembleProvider::new("127.0.0.1:1"), Stat::default())),
        show(&(RetryNTimes::new(1, support::SESSION), ConnectionState::Connected)),
    ]
}

#[test]
fn the_search_for_secrets_finds_every_form_of_one() {
    let secret: Vec<u8> = (120..136).collect();
    let forms = [
        format!("{secret:?}"),
        format!("{secret:#?}"),
        format!("{secret:x?}"),
        format!("{:?}", String::from_utf8_lossy(&secret)),
        String::from_utf8_lossy(&secret).into_owned(),
        secret.escape_ascii().to_string(),
        secret.iter().map(|byte| format!("{byte:02X}")).collect(),
    ];
    for form in forms {
        assert!(!found_in(&format!("before {form} after"), &secret).is_empty(), "{form}");
    }
    assert_eq!(found_in("nothing of the kind", &secret), Vec::<&str>::new());
}

mod slow {
    use super::*;

    #[test]
    fn credentials_are_sent_again_on_every_connection_and_in_every_session() {
        let server = server();
        let relay = Relay::to(&server.connect_string());
        let owner = connect(
            builder_at(relay.address(), "again")
                // Longer than this machine lets a process stand still.
                .session_timeout(Duration::from_secs(8))
                .authorization("digest", SECRET)
                .acl_provider(CreatorAllAclProvider),
        );
        let mutex = InterProcessMutex::new(&owner, "/lock").unwrap();
        let cycle = || mutex.lock().and_then(curator_locks::LockGuard::release).unwrap();
        cycle();
        let session = owner.session_id();
        let before = relay.accepted();
        relay.cut();
        eventually("another connection", || relay.accepted() > before && owner.is_connected());
        assert_eq!(owner.session_id(), session);
        cycle();
        replace_session(&relay, &owner);
        assert_ne!(owner.session_id(), session);
        cycle();
    }
}
