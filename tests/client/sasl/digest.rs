//! DIGEST-MD5 against ZooKeeper's `DigestLoginModule`.

use std::{sync::OnceLock, time::Duration};

use curator_locks::{
    Acl, CreatorAllAclProvider, CuratorFramework, Error, InterProcessMutex, RetryNTimes, Sasl, perms,
    testing::{FaultProxy, TestingServer, TestingServerBuilder, op},
};

use crate::support::{
    self, PATIENCE, builder_at, connect, eventually, hand_over,
    logs::{catch_logs, logged},
    namespace, quick_server,
    relay::Relay,
};

pub(crate) fn users() -> TestingServerBuilder {
    quick_server().sasl_user("shop", "secret").sasl_user("audit", "p\u{e4}ss \u{20ac}")
}

/// The server of all tests that neither stop it nor count what it does: nobody gets in without SASL.
pub(crate) fn demanding() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    let properties = |builder: TestingServerBuilder| {
        builder.property("sessionRequireClientSASLAuth", "true").property("requireClientAuthScheme", "sasl")
    };
    SERVER.get_or_init(|| properties(users()).start().unwrap())
}

fn client(namespace: &str, sasl: Sasl) -> CuratorFramework {
    connect(builder_at(&demanding().connect_string(), namespace).sasl(sasl).acl_provider(CreatorAllAclProvider))
}

fn shop() -> Sasl {
    Sasl::digest("shop", "secret")
}

/// How every call ends once the servers have said no.
#[track_caller]
pub(crate) fn refused(client: &CuratorFramework) -> String {
    match client.block_until_connected(Some(PATIENCE)) {
        Err(error @ Error::AuthFailed { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn unstarted(servers: &str) -> curator_locks::Builder {
    builder_at(servers, "").retry_policy(RetryNTimes::new(1, Duration::from_millis(20)))
}

#[test]
fn a_lock_passes_between_clients_of_one_user_where_the_servers_demand_sasl() {
    let namespace = namespace();
    let (one, other) = (client(&namespace, shop()), client(&namespace, shop()));
    let (first, second) =
        (InterProcessMutex::new(&one, "/lock").unwrap(), InterProcessMutex::new(&other, "/lock").unwrap());
    let held = first.lock().unwrap();
    let acl = one.get_acl().for_path("/lock").unwrap();
    assert_eq!(acl, [Acl { perms: perms::ALL, scheme: "sasl".into(), id: "shop".into() }]);
    hand_over(held, &first, &second);
}

#[test]
fn what_a_user_creates_is_closed_to_others() {
    let namespace = namespace();
    let (shop, audit) = (client(&namespace, shop()), client(&namespace, Sasl::digest("audit", "p\u{e4}ss \u{20ac}")));
    shop.create().creating_parents_if_needed().for_path("/secret").unwrap();
    let error = audit.get_data().for_path("/secret").unwrap_err();
    assert_eq!(error.code(), Some(curator_locks::ErrorCode::NoAuth), "{error}");
}

#[test]
fn servers_that_enforce_the_scheme_sasl_let_it_in() {
    let server =
        users().property("enforce.auth.enabled", "true").property("enforce.auth.schemes", "sasl").start().unwrap();
    let client = connect(builder_at(&server.connect_string(), "enforced").sasl(shop()));
    InterProcessMutex::new(&client, "/lock").unwrap().lock().unwrap().release().unwrap();
    let stranger = unstarted(&server.connect_string()).build().unwrap();
    stranger.start().unwrap();
    eventually("it is refused", || stranger.check_exists().for_path("/").is_err());
}

#[test]
fn each_connection_authenticates_itself_before_it_sets_watches_again() {
    let relay = Relay::to(&demanding().connect_string());
    let namespace = namespace();
    let held_by = client(&namespace, shop());
    let over_relay = connect(builder_at(relay.address(), &namespace).sasl(shop()).acl_provider(CreatorAllAclProvider));
    let (held, waited_for) = (
        InterProcessMutex::new(&held_by, "/waited-for").unwrap(),
        InterProcessMutex::new(&over_relay, "/waited-for").unwrap(),
    );
    let own = InterProcessMutex::new(&over_relay, "/held").unwrap();
    let (guard, session) = (own.lock().unwrap(), over_relay.session_id());
    let first = held.lock().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| waited_for.acquire().and_then(|()| waited_for.release()));
        eventually("it waits", || held.participant_nodes().unwrap().len() == 2);
        for round in 1..=5 {
            relay.cut();
            eventually("connected again", || relay.accepted() > round && over_relay.is_connected());
        }
        first.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(over_relay.session_id(), session);
    eventually("valid again", || guard.is_valid());
    guard.release().unwrap();
}

#[test]
fn a_wrong_password_is_told_and_not_tried_again() {
    let proxy = FaultProxy::start(demanding().connect_string()).unwrap();
    let client = unstarted(&proxy.connect_string()).sasl(Sasl::digest("shop", "wrong")).build().unwrap();
    client.start().unwrap();
    let text = refused(&client);
    let before = (proxy.connections(), proxy.requests(op::SASL));
    assert!(text.contains("shop") && text.contains("DigestLoginModule") && !text.contains("wrong"), "{text}");
    let error = InterProcessMutex::new(&client, "/lock").unwrap().acquire().unwrap_err();
    assert!(matches!(&error, Error::AuthFailed { scheme, .. } if scheme == "sasl"), "{error:?}");
    // On a machine under load an attempt may have timed out before; none follows the refusal.
    assert_eq!((proxy.connections(), proxy.requests(op::SASL)), before);
}

#[test]
fn no_log_has_a_password_in_it() {
    catch_logs(log::LevelFilter::Trace);
    let namespace = namespace();
    let _client = client(&namespace, shop());
    let wrong = unstarted(&demanding().connect_string()).sasl(Sasl::digest("shop", "wr0ng-pass")).build().unwrap();
    wrong.start().unwrap();
    refused(&wrong);
    eventually("it has logged that", || logged().contains("DigestLoginModule"));
    for secret in ["secret", "wr0ng-pass"] {
        assert!(!logged().contains(secret));
    }
}

#[test]
fn a_client_without_sasl_is_told_that_the_servers_demand_it() {
    let client = unstarted(&demanding().connect_string()).build().unwrap();
    client.start().unwrap();
    let error = client.check_exists().for_path("/").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::AuthFailed { .. }) && text.contains("Builder::sasl"), "{text}");
}

#[test]
fn a_server_without_sasl_is_told_apart_from_a_wrong_password() {
    let client = unstarted(&support::server().connect_string()).sasl(shop()).build().unwrap();
    client.start().unwrap();
    let text = refused(&client);
    assert!(text.contains("JAAS section"), "{text}");
}

#[test]
fn what_makes_no_client_is_told_before_anything_is_opened() {
    let error = unstarted("127.0.0.1:1").sasl(Sasl::digest("", "secret")).build().map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { name: "sasl", .. }), "{error:?}");
    let own = unstarted("127.0.0.1:1").session_factory(curator_locks::unversioned::NativeSessionFactory);
    let error = own.sasl(shop()).build().map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { name: "sasl", .. }), "{error:?}");
    let shown = format!("{:?}", shop());
    assert!(shown.contains("shop") && !shown.contains("secret"), "{shown}");
}
