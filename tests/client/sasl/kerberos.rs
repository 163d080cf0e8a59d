//! Kerberos, with a realm, a server and clients of the test's own.

use std::{sync::OnceLock, time::Duration};

use curator_locks::testing::{TestingKdc, TestingServer};

use crate::{
    client::{Client, log_in},
    support::{eventually, namespace, quick_server, relay::Relay},
};

pub(crate) type Environment = [(&'static str, String); 2];

/// A realm, and a server in it that nobody gets into without SASL.
pub(crate) struct Fixture {
    pub(crate) kdc: TestingKdc,
    pub(crate) server: TestingServer,
}

impl Fixture {
    pub(crate) fn start(lifetime: Duration) -> Fixture {
        let kdc = TestingKdc::start(lifetime).unwrap();
        let server = quick_server().kerberos(&kdc).unwrap().property("sessionRequireClientSASLAuth", "true");
        Fixture { server: server.start().unwrap(), kdc }
    }

    /// For all tests that neither stop it nor count what it does.
    pub(crate) fn shared() -> &'static Fixture {
        static SHARED: OnceLock<Fixture> = OnceLock::new();
        SHARED.get_or_init(|| Fixture::start(Duration::from_secs(600)))
    }

    pub(crate) fn keytab(&self, principal: &str) -> String {
        format!("keytab={}", self.kdc.keytab(principal).unwrap().display())
    }

    /// A process whose cache holds a ticket of this principal.
    pub(crate) fn logged_in(&self, principal: &str) -> Environment {
        let environment = self.kdc.environment();
        log_in(&self.kdc, &environment, principal);
        environment
    }
}

#[test]
fn a_lock_passes_between_a_ticket_from_the_cache_and_one_from_a_keytab() {
    let fixture = Fixture::shared();
    let (servers, namespace) = (fixture.server.connect_string(), format!("namespace={}", namespace()));
    let mut cached = Client::start(&fixture.logged_in("shop"), &servers, &[&namespace, "creator=yes"]);
    let keytab = fixture.keytab("shop");
    let settings = [&namespace, "creator=yes", &keytab, "principal=shop"];
    let mut with_keytab = Client::start(&fixture.kdc.environment(), &servers, &settings);
    cached.expect("connect", "connected");
    with_keytab.expect("connect", "connected");
    cached.expect("identity", "sasl:shop@TESTS.EXAMPLE");
    cached.expect("lock /lock", "locked");
    with_keytab.tell("lock /lock");
    eventually("both are in the queue", || cached.ask("read /lock") == "2");
    cached.expect("release", "released");
    assert_eq!(with_keytab.hear(), "locked");
    with_keytab.expect("release", "released");
}

#[test]
fn each_connection_authenticates_itself_again() {
    let fixture = Fixture::shared();
    let relay = Relay::to(&fixture.server.connect_string());
    let namespace = format!("namespace={}", namespace());
    let mut client = Client::start(&fixture.logged_in("shop"), relay.address(), &[&namespace]);
    client.expect("connect", "connected");
    client.expect("lock /lock", "locked");
    let session = client.ask("session");
    for round in 1..=3 {
        relay.cut();
        eventually("connected again", || relay.accepted() > round && client.ask("connected") == "true");
    }
    client.expect("valid", "valid");
    client.expect("session", &session);
    client.expect("release", "released");
}

#[test]
fn the_servers_principal_may_be_given_or_be_made_of_the_host() {
    let fixture = Fixture::shared();
    let servers = fixture.server.connect_string();
    let environment = fixture.logged_in("shop");
    for settings in [
        &["server=zookeeper/127.0.0.1@TESTS.EXAMPLE"][..],
        &["server=zookeeper/127.0.0.1", "service=unused"],
        &["canonicalize=false"],
        &["service=zookeeper", "principal=shop"],
    ] {
        Client::start(&environment, &servers, settings).expect("connect", "connected");
    }
}

#[test]
fn a_ticket_works_over_tls_too() {
    let authority = curator_locks::testing::TestingAuthority::new("tests").unwrap();
    let fixture = Fixture::shared();
    let builder = quick_server().kerberos(&fixture.kdc).unwrap().secure_client_port(authority.server().unwrap());
    let server = builder.property("sessionRequireClientSASLAuth", "true").start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let settings = [format!("tls={}", ca.display()), "creator=yes".to_owned()];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut client = Client::start(&fixture.logged_in("shop"), &server.secure_connect_string().unwrap(), &settings);
    client.expect("connect", "connected");
    client.expect("identity", "sasl:shop@TESTS.EXAMPLE");
}

#[test]
fn a_reconnect_needs_no_centre_while_the_ticket_is_good() {
    let fixture = Fixture::start(Duration::from_secs(600));
    let relay = Relay::to(&fixture.server.connect_string());
    let mut client = Client::start(&fixture.logged_in("shop"), relay.address(), &[]);
    client.expect("connect", "connected");
    client.expect("lock /lock", "locked");
    fixture.kdc.stop().unwrap();
    relay.cut();
    eventually("connected again", || relay.accepted() > 1 && client.ask("connected") == "true");
    client.expect("valid", "valid");
    client.expect("release", "released");
}

#[test]
fn nothing_of_a_client_is_left_when_it_is_dropped() {
    let fixture = Fixture::shared();
    let mut client = Client::start(&fixture.logged_in("shop"), &fixture.server.connect_string(), &[]);
    client.expect("connect", "connected");
    client.expect("lock /dropped", "locked");
    client.expect("end", "ended");
}
