//! Wrong set-ups: each is told in words that help, once, and without the secret.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    sync::OnceLock,
    thread,
};

use curator_locks::testing::{TestingKdc, TestingServer};

use crate::{
    client::{Client, kinit},
    digest,
    kerberos::{Environment, Fixture},
    support::{self, eventually},
};

/// One wrong set-up.
struct Case {
    environment: Environment,
    servers: String,
    settings: Vec<String>,
    /// The error has to say this.
    expected: &'static [&'static str],
}

impl Case {
    /// At the realm's own server.
    fn new(environment: Environment, settings: &[&str], expected: &'static [&'static str]) -> Case {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Case { environment, servers: fixture().server.connect_string(), settings, expected }
    }

    fn at(self, server: &TestingServer) -> Case {
        Case { servers: server.connect_string(), ..self }
    }

    #[track_caller]
    fn check(self) {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let mut client = Client::start(&self.environment, &self.servers, &settings);
        let text = client.ask("connect");
        println!("{text}");
        assert!(text.starts_with("error the client could not authenticate itself with SASL: "), "{text}");
        for expected in self.expected {
            assert!(text.contains(expected), "{text:?} does not say {expected:?}");
        }
        assert!(!text.contains("s3cret"), "{text}");
        // The error stays the same, and no call tries again.
        client.expect("connect", &text);
        client.expect("read /", &text);
    }
}

/// A realm whose principals these tests spoil, each its own.
fn fixture() -> &'static Fixture {
    Fixture::shared()
}

fn kdc() -> &'static TestingKdc {
    &fixture().kdc
}

/// The settings of a principal with a keytab.
fn with_keytab(principal: &str) -> [String; 2] {
    [fixture().keytab(principal), format!("principal={principal}")]
}

/// A client of a principal with a keytab of which something is wrong.
fn keytab_case(settings: [String; 2], expected: &'static [&'static str]) -> Case {
    Case::new(kdc().environment(), &settings.each_ref().map(String::as_str), expected)
}

/// The realm's `krb5.conf` with something else in it.
fn other_configuration(name: &str, change: impl FnOnce(String) -> String) -> Environment {
    let text = change(fs::read_to_string(kdc().configuration()).unwrap());
    let path = kdc().configuration().with_file_name(name);
    fs::write(&path, text).unwrap();
    let [_, cache] = kdc().environment();
    [("KRB5_CONFIG", path.display().to_string()), cache]
}

#[test]
fn no_ticket() {
    Case::new(kdc().environment(), &[], &["no ticket", "run kinit"]).check();
}

#[test]
fn an_expired_ticket() {
    let environment = kdc().environment();
    let keytab = kdc().keytab("late").unwrap().display().to_string();
    kinit(&environment, &["-l", "1s", "-k", "-t", &keytab, "late"]);
    eventually("it has expired", || {
        let mut klist = Command::new("klist");
        !klist.arg("-s").envs(environment.iter().map(|(name, value)| (name, value))).status().unwrap().success()
    });
    Case::new(environment, &[], &["expired", "run kinit again"]).check();
}

#[test]
fn the_ticket_of_another_principal() {
    let environment = fixture().logged_in("shop");
    Case::new(environment, &["principal=stranger"], &["stranger", "principal()"]).check();
}

#[test]
fn a_keytab_that_is_not_there() {
    let settings = ["keytab=/no/such/file".to_owned(), "principal=shop".to_owned()];
    keytab_case(settings, &["/no/such/file", "keytab", "klist -k"]).check();
}

#[test]
fn a_keytab_that_is_none() {
    let path = kdc().configuration();
    let settings = [format!("keytab={}", path.display()), "principal=shop".to_owned()];
    keytab_case(settings, &["keytab", "krb5.conf", "klist -k"]).check();
}

#[test]
fn a_keytab_without_a_key_of_the_principal() {
    let [keytab, _] = with_keytab("shop");
    keytab_case([keytab, "principal=another".to_owned()], &["another", "no suitable keys", "klist -k"]).check();
}

#[test]
fn a_keytab_with_a_key_from_before() {
    let settings = with_keytab("rekeyed");
    kdc().kadmin("cpw -randkey rekeyed").unwrap();
    keytab_case(settings, &["rekeyed", "write the keytab anew"]).check();
}

#[test]
fn a_principal_that_is_gone() {
    let settings = with_keytab("gone");
    kdc().kadmin("delprinc -force gone").unwrap();
    keytab_case(settings, &["gone", "not found in Kerberos database", "has to be known"]).check();
}

#[test]
fn a_principal_that_has_expired() {
    let settings = with_keytab("former");
    kdc().kadmin("modprinc -expire yesterday former").unwrap();
    keytab_case(settings, &["former", "expired"]).check();
}

#[test]
fn a_principal_that_is_locked() {
    let settings = with_keytab("locked");
    kdc().kadmin("modprinc -allow_tix locked").unwrap();
    keytab_case(settings, &["locked", "revoked"]).check();
}

#[test]
fn a_service_that_the_realm_does_not_know() {
    Case::new(fixture().logged_in("shop"), &["service=zoo"], &["zoo/127.0.0.1", "not found", "service()"]).check();
}

#[test]
fn a_servers_principal_that_the_realm_does_not_know() {
    let settings = ["server=zookeeper/elsewhere"];
    Case::new(fixture().logged_in("shop"), &settings, &["zookeeper/elsewhere", "server_principal()"]).check();
}

#[test]
fn a_servers_principal_that_is_another_service() {
    kdc().keytab("http/127.0.0.1").unwrap();
    let case = Case::new(fixture().logged_in("shop"), &["service=http"], &["http/127.0.0.1", "refuses the ticket"]);
    case.check();
}

#[test]
fn a_server_whose_key_was_changed_since() {
    let fixture = Fixture::start(std::time::Duration::from_secs(600));
    fixture.kdc.kadmin("cpw -randkey zookeeper/127.0.0.1").unwrap();
    let case = Case::new(fixture.logged_in("shop"), &[], &["shop@TESTS.EXAMPLE", "current key", "its log"]);
    case.at(&fixture.server).check();
}

#[test]
fn a_realm_that_is_not_in_the_configuration() {
    let [keytab, _] = with_keytab("shop");
    keytab_case([keytab, "principal=shop@tests.example".to_owned()], &["tests.example"]).check();
    let environment = other_configuration("no-kdc.conf", |text| text.replace("TESTS.EXAMPLE = {", "OTHER.EXAMPLE = {"));
    let settings = with_keytab("shop");
    let settings = settings.each_ref().map(String::as_str);
    Case::new(environment, &settings, &["Cannot find KDC", "TESTS.EXAMPLE", "krb5.conf"]).check();
}

#[test]
fn a_configuration_without_a_default_realm() {
    let environment = other_configuration("no-realm.conf", |text| text.replace("default_realm = TESTS.EXAMPLE", ""));
    let settings = with_keytab("shop");
    let settings = settings.each_ref().map(String::as_str);
    Case::new(environment, &settings, &["default realm", "krb5.conf"]).check();
}

#[test]
fn a_configuration_that_is_not_there() {
    let [_, cache] = kdc().environment();
    let environment = [("KRB5_CONFIG", "/no/such/krb5.conf".to_owned()), cache];
    let settings = with_keytab("shop");
    let settings = settings.each_ref().map(String::as_str);
    Case::new(environment, &settings, &["krb5.conf", "KRB5_CONFIG"]).check();
}

#[test]
fn clocks_that_are_too_far_apart() {
    let port = centre_with_another_clock();
    let environment = other_configuration("skew.conf", |text| {
        let at = text.find("  kdc = ").unwrap();
        let (head, rest) = text.split_at(at);
        format!("{head}  kdc = 127.0.0.1:{port}{}", &rest[rest.find('\n').unwrap()..])
    });
    let settings = with_keytab("shop");
    let settings = settings.each_ref().map(String::as_str);
    Case::new(environment, &settings, &["Clock skew", "5 minutes", "NTP"]).check();
}

/// A key distribution centre that answers every request with KRB_AP_ERR_SKEW (37).
fn centre_with_another_clock() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let answer = clock_skew();
            let _ = stream.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes());
            let _ = stream.write_all(&answer);
        }
    });
    port
}

fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    [&[tag, u8::try_from(contents.len()).unwrap()][..], contents].concat()
}

/// The error as RFC 4120 has it (5.9.1), in DER.
fn clock_skew() -> Vec<u8> {
    let number = |tag, value| der(tag, &der(2, &[value]));
    let name = der(0x30, &[number(0xa0, 2), der(0xa1, &der(0x30, &der(0x1b, b"krbtgt")))].concat());
    let fields = [
        number(0xa0, 5),
        number(0xa1, 30),
        der(0xa4, &der(0x18, b"20400101000000Z")),
        number(0xa5, 0),
        number(0xa6, 37),
        der(0xa9, &der(0x1b, b"TESTS.EXAMPLE")),
        der(0xaa, &name),
    ];
    der(0x7e, &der(0x30, &fields.concat()))
}

#[test]
fn a_cache_that_belongs_to_another_principal_is_not_overwritten() {
    let environment = fixture().logged_in("shop");
    let settings = with_keytab("batch");
    let settings = settings.each_ref().map(String::as_str);
    Case::new(environment.clone(), &settings, &["shop@TESTS.EXAMPLE", "a cache of its own"]).check();
    Client::start(&environment, &fixture().server.connect_string(), &["principal=shop"]).expect("connect", "connected");
}

#[test]
fn no_kinit_beside_a_keytab() {
    let [configuration, cache] = kdc().environment();
    let environment = [configuration, cache, ("PATH", "/no/such/directory".to_owned())];
    let settings = with_keytab("shop");
    let mut client =
        Client::start(&environment, &fixture().server.connect_string(), &settings.each_ref().map(String::as_str));
    let text = client.ask("connect");
    assert!(text.contains("cannot run kinit") && text.contains("krb5-user"), "{text}");
}

#[test]
fn tickets_for_a_server_that_takes_passwords() {
    kdc().keytab("zookeeper/127.0.0.1").unwrap();
    let case = Case::new(fixture().logged_in("shop"), &[], &["DigestLoginModule", "Sasl::digest()"]);
    case.at(digest::demanding()).check();
}

#[test]
fn a_password_for_a_server_that_takes_tickets() {
    Case::new(kdc().environment(), &["digest=shop:s3cret"], &["shop", "DigestLoginModule"]).check();
}

#[test]
fn a_user_that_the_server_does_not_know() {
    let case = Case::new(kdc().environment(), &["digest=nobody:s3cret"], &["nobody", "user_nobody"]);
    case.at(digest::demanding()).check();
}

#[test]
fn tickets_for_a_server_without_sasl() {
    Case::new(fixture().logged_in("shop"), &[], &["JAAS section"]).at(support::server()).check();
}

#[test]
fn no_sasl_at_a_server_that_demands_it() {
    let mut client = Client::start(&kdc().environment(), &fixture().server.connect_string(), &["plain=yes"]);
    client.ask("connect");
    let text = client.ask("read /");
    assert!(text.contains("demand it") && text.contains("Builder::sasl()"), "{text}");
}

#[test]
fn a_centre_that_is_away_is_waited_for() {
    static AWAY: OnceLock<Fixture> = OnceLock::new();
    let fixture = AWAY.get_or_init(|| Fixture::start(std::time::Duration::from_secs(600)));
    let keytab = fixture.keytab("shop");
    fixture.kdc.stop().unwrap();
    let mut client =
        Client::start(&fixture.kdc.environment(), &fixture.server.connect_string(), &[&keytab, "principal=shop"]);
    let mut text = client.ask("why");
    eventually("it says what is away", || {
        text = client.ask("why");
        text.contains("key distribution centre")
    });
    println!("{text}");
    fixture.kdc.launch().unwrap();
    client.expect("connect", "connected");
}
