//! Tickets that expire while locks are held.

use std::time::Duration;

use curator_locks::testing::TestingKdc;

use crate::{
    client::{Client, kinit},
    kerberos::{Environment, Fixture},
    support::{eventually, relay::Relay},
};

/// How many tickets of this kind the centre has given out for a principal.
fn issued(kdc: &TestingKdc, request: &str, principal: &str) -> usize {
    let is_one = |line: &&str| line.contains(request) && line.contains("ISSUE") && line.contains(principal);
    kdc.log().lines().filter(is_one).count()
}

/// Cuts the connection, and checks that the client comes back with its session and its lock.
#[track_caller]
fn check_after_a_cut(relay: &Relay, client: &mut Client) {
    let (before, session) = (relay.accepted(), client.ask("session"));
    relay.cut();
    eventually("connected again", || relay.accepted() > before && client.ask("connected") == "true");
    client.expect("valid", "valid");
    client.expect("session", &session);
}

#[test]
fn a_lock_is_kept_while_the_tickets_of_a_keytab_expire_and_over_a_reconnect() {
    let fixture = Fixture::start(Duration::from_secs(12));
    let relay = Relay::to(&fixture.server.connect_string());
    let settings = [fixture.keytab("shop"), "principal=shop".to_owned()];
    let settings = settings.each_ref().map(String::as_str);
    let mut client = Client::start(&fixture.kdc.environment(), relay.address(), &settings);
    client.expect("connect", "connected");
    client.expect("lock /lock", "locked");
    // The first ticket would have expired by the second renewal.
    eventually("the tickets are renewed", || issued(&fixture.kdc, "AS_REQ", "shop@") >= 3);
    check_after_a_cut(&relay, &mut client);
    client.expect("release", "released");
}

#[test]
fn a_lock_is_kept_while_the_ticket_of_the_cache_is_renewed_and_over_a_reconnect() {
    // The client has to start within it.
    let fixture = Fixture::start(Duration::from_secs(12));
    let relay = Relay::to(&fixture.server.connect_string());
    let environment = fixture.kdc.environment();
    let keytab = fixture.kdc.keytab("shop").unwrap().display().to_string();
    kinit(&environment, &["-r", "1d", "-k", "-t", &keytab, "shop"]);
    let mut client = Client::start(&environment, relay.address(), &[]);
    client.expect("connect", "connected");
    client.expect("lock /lock", "locked");
    // Besides a ticket for the server on the first connection.
    eventually("the ticket is renewed", || issued(&fixture.kdc, "TGS_REQ", "krbtgt/") >= 2);
    check_after_a_cut(&relay, &mut client);
    client.expect("release", "released");
}

#[test]
fn a_lock_outlives_an_expired_ticket_until_the_next_connection_which_says_so() {
    let fixture = Fixture::start(Duration::from_secs(8));
    let relay = Relay::to(&fixture.server.connect_string());
    let environment: Environment = fixture.kdc.environment();
    let keytab = fixture.kdc.keytab("shop").unwrap().display().to_string();
    kinit(&environment, &["-r", "8s", "-k", "-t", &keytab, "shop"]);
    let mut client = Client::start(&environment, relay.address(), &[]);
    client.expect("connect", "connected");
    client.expect("lock /lock", "locked");
    eventually("the ticket has expired", || {
        let mut klist = std::process::Command::new("klist");
        !klist.arg("-s").envs(environment.iter().map(|(name, value)| (name, value))).status().unwrap().success()
    });
    client.expect("valid", "valid");
    relay.cut();
    eventually("it is told", || client.ask("read /").contains("expired"));
    client.expect("valid", "lost");
}

#[test]
fn two_hundred_renewals_under_held_locks_lose_none() {
    const CLIENTS: usize = 20;
    let fixture = Fixture::start(Duration::from_secs(4));
    let keytabs: Vec<String> = (0..CLIENTS).map(|client| fixture.keytab(&format!("shop{client}"))).collect();
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|client| {
            let principal = format!("principal=shop{client}");
            let settings = [&*keytabs[client], &principal];
            Client::start(&fixture.kdc.environment(), &fixture.server.connect_string(), &settings)
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.expect("connect", "connected");
        client.expect(&format!("lock /lock{number}"), "locked");
    }
    eventually("they are renewed", || issued(&fixture.kdc, "AS_REQ", "shop") >= 200 + CLIENTS);
    for client in &mut clients {
        client.expect("valid", "valid");
        client.expect("release", "released");
    }
}
