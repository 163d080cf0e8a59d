//! `LeaderSelector` where something does.

use std::{
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::bounded;
use curator_locks::{
    CancelLeadership, ConnectionState, ConnectionStateErrorPolicy, CuratorFramework, Error, InterProcessMutex,
    LeaderLatch, LeaderSelector, LeaderSelectorListener, Leadership,
    testing::{Direction, Fault, FaultProxy, RequestMatch, expire_session},
};

use crate::{
    probe::*,
    support::{
        PATIENCE, another, await_queue, builder, builder_at, client, connect, eventually,
        logs::{catch_logs, has_logged, logged},
        machine::Machine,
        namespace, queue, quick_server, server,
    },
};

/// Whoever closes the client wants no leader either.
#[test]
fn a_client_that_is_closed_under_those_who_lead_and_wait_is_no_error() {
    catch_logs(log::LevelFilter::Debug);
    let (client, path) = (client(), "/leaders/closed");
    let quiet = |_: &CuratorFramework, leadership: &Leadership| {
        let _ = leadership.cancelled().recv();
        Ok(())
    };
    let selectors = [(); 2].map(|()| LeaderSelector::new(&client, path, quiet).unwrap());
    let latches = [(); 2].map(|()| LeaderLatch::new(&client, path).unwrap());
    selectors.iter().for_each(|selector| selector.start().unwrap());
    latches.iter().for_each(|latch| latch.start().unwrap());
    await_queue(&client, path, 4);
    client.close();
    eventually("all have ended", || {
        let ended = |latch: &LeaderLatch| matches!(latch.await_leadership(), Err(Error::ClientClosed));
        latches.iter().all(ended) && selectors.iter().all(|selector| matches!(selector.requeue(), Ok(true)))
    });
    for level in ["ERROR", "WARN"] {
        assert!(!has_logged(&[level, path]), "{}", logged());
    }
    assert!(!has_logged(&["ERROR", "the client is closed"]), "{}", logged());
}

/// On a link on which no heartbeat makes its session certain, a candidate that stands first says so, and lets those behind it
/// lead.
#[test]
fn a_candidate_on_a_slow_link_lets_those_behind_it_lead() {
    let namespace = namespace();
    let (session, others) = (Duration::from_secs(2), connect(builder(server(), &namespace)));
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let slow = connect(builder_at(&proxy.connect_string(), &namespace).session_timeout(session));
    let probe = InterProcessMutex::new(&slow, "/probe").unwrap();
    let probe = probe.lock().unwrap();
    let (selector, terms) = stubborn(&slow);
    let slow_latch = LeaderLatch::new(&slow, "/leaders/two").unwrap();
    proxy.delay(session / 5);
    eventually("nothing is certain any more", || probe.valid_until() <= Instant::now());
    selector.start().unwrap();
    slow_latch.start().unwrap();
    let (next, terms_of_next) = stubborn(&others);
    let next_latch = LeaderLatch::new(&others, "/leaders/two").unwrap();
    eventually("they stand first", || [PATH, "/leaders/two"].iter().all(|path| queue(&others, path).len() == 1));
    next.start().unwrap();
    next_latch.start().unwrap();
    let failure = terms.failures.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(failure, Error::Uncertain { .. }), "{failure}");
    let _term = terms_of_next.next();
    assert!(next_latch.await_leadership_timeout(PATIENCE).unwrap());
    assert!(terms.terms.is_empty() && !slow_latch.has_leadership());
    await_queue(&others, PATH, 2);
    await_queue(&others, "/leaders/two", 2);
}

/// As Curator, which was told nothing, did not (CURATOR-171).
#[test]
fn a_leader_whose_znode_is_deleted_is_told_and_another_leads() {
    let client = client();
    let admin = another(&client);
    let ((leader, terms), (next, terms_of_next)) = (stubborn(&client), stubborn(&client));
    leader.start().unwrap();
    let term = terms.next();
    next.start().unwrap();
    await_queue(&admin, PATH, 2);
    admin.delete().for_path(term.leadership.path()).unwrap();
    eventually("it is asked to stop", || term.leadership.cancel_token().is_cancelled());
    assert!(!leader.has_leadership() && !term.leadership.has_leadership());
    assert!(terms_of_next.next().leadership.has_leadership());
}

#[test]
fn a_waiter_whose_znode_is_deleted_queues_again() {
    let client = client();
    let admin = another(&client);
    let ((leader, terms), (waiter, terms_of_waiter)) = (stubborn(&client), stubborn(&client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    let nodes = await_queue(&admin, PATH, 2);
    admin.delete().for_path(&nodes[1]).unwrap();
    eventually("it queues again", || queue(&admin, PATH).get(1).is_some_and(|node| *node != nodes[1]));
    drop(term);
    terms_of_waiter.next();
}

/// CURATOR-696: it led on with the znode of the session before.
#[test]
fn a_leader_whose_session_expires_never_leads_again_in_that_term() {
    let namespace = namespace();
    let clients = [connect(builder(server(), &namespace)), connect(builder(server(), &namespace))];
    let ((leader, terms), (next, terms_of_next)) = (stubborn(&clients[0]), stubborn(&clients[1]));
    leader.auto_requeue();
    leader.start().unwrap();
    let term = terms.next();
    next.start().unwrap();
    await_queue(&clients[1], PATH, 2);
    let session = clients[0].session_id();
    expire_session(&server().connect_string(), session, &clients[0].session_password()).unwrap();
    let of_next = terms_of_next.next();
    eventually("it is told", || term.leadership.cancel_token().is_cancelled());
    eventually("it has another session", || ![0, session].contains(&clients[0].session_id()));
    assert!(!leader.has_leadership() && !term.leadership.has_leadership());
    assert!(terms.terms.is_empty(), "its term has not returned");
    drop(term);
    await_queue(&clients[1], PATH, 2);
    assert!(of_next.leadership.has_leadership() && terms.terms.is_empty());
    drop(of_next);
    let again = terms.next();
    assert!(again.leadership.has_leadership());
}

/// CURATOR-110 and its like: a leader that is interrupted while no server can be reached.
#[test]
fn a_leader_that_returns_while_the_server_is_away_leaves_no_znode() {
    let server = quick_server().start().unwrap();
    let client = connect(builder(&server, ""));
    let (leader, terms) = selector(&client);
    leader.start().unwrap();
    let term = terms.next();
    server.stop().unwrap();
    // By the default policy.
    eventually("it is told", || term.leadership.cancel_token().is_cancelled());
    assert!(!leader.has_leadership());
    server.restart().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    await_queue(&client, PATH, 0);
    eventually("it can be queued again", || leader.requeue().unwrap());
    terms.next();
}

#[test]
fn the_standard_policy_ends_a_term_at_the_first_suspension_and_the_waiter_keeps_its_place() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let (leader_client, observer) = (connect(behind.session_timeout(PATIENCE)), connect(builder(server(), &namespace)));
    let ((leader, terms), (waiter, terms_of_waiter)) = (stubborn(&leader_client), stubborn(&leader_client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    let nodes = await_queue(&observer, PATH, 2);
    proxy.cut();
    eventually("it is told", || term.leadership.cancel_token().is_cancelled());
    assert!(!leader.has_leadership() && !term.leadership.has_leadership());
    eventually("it is connected again", || leader_client.is_connected());
    assert_eq!(queue(&observer, PATH), nodes, "both keep their places");
    assert!(!term.leadership.has_leadership(), "a term that has ended stays so");
    drop(term);
    assert_eq!(terms_of_waiter.next().leadership.path(), nodes[1]);
}

#[test]
fn the_session_policy_leads_on_over_a_blip() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let behind = behind.session_timeout(PATIENCE).connection_state_error_policy(ConnectionStateErrorPolicy::Session);
    let client = connect(behind);
    let (leader, terms) = stubborn(&client);
    leader.start().unwrap();
    let term = terms.next();
    for _ in 1..4 {
        let connections = proxy.connections();
        proxy.cut();
        eventually("it is connected again", || proxy.connections() > connections && client.is_connected());
        eventually("its znode was seen again", || term.leadership.is_valid());
    }
    assert!(!term.leadership.is_cancelled() && leader.has_leadership());
}

/// Asks for no leadership to be given up, whatever the connection.
struct Blind(Probe);

impl LeaderSelectorListener for Blind {
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership) -> LeaderResult {
        self.0.take_leadership(client, leadership)
    }

    fn state_changed(&self, _: &CuratorFramework, _: ConnectionState) -> Result<(), CancelLeadership> {
        Ok(())
    }
}

/// The one that leads is behind a network that has died without a word; a slow listener blocks the dispatch thread.
#[test]
fn a_term_ends_before_the_server_expires_the_session_whatever_the_policy_and_however_slow_a_listener_is() {
    let (machine, begin, namespace) = (Machine::watch(), Instant::now(), namespace());
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let (client, observer) = (connect(behind), connect(builder(server(), &namespace)));
    let (release, blocked) = bounded::<()>(0);
    let (enter, entered) = bounded(1);
    client.add_connection_state_listener(move |_, _| {
        let _ = enter.try_send(());
        let _ = blocked.recv();
    });
    let (probe, terms) = probe(false);
    let leader = LeaderSelector::new(&client, PATH, Blind(probe)).unwrap();
    leader.start().unwrap();
    let (next, terms_of_next) = stubborn(&observer);
    let term = terms.next();
    next.start().unwrap();
    await_queue(&observer, PATH, 2);
    let leadership = term.leadership.clone();
    proxy.black_hole(Direction::Both);
    let told = thread::spawn(move || {
        leadership.cancelled().recv_timeout(PATIENCE).unwrap_err();
        assert!(!leadership.has_leadership());
        Instant::now()
    });
    let _of_next = terms_of_next.next();
    let (next_leads, told) = (Instant::now(), told.join().unwrap());
    let (too_late, late) = (told.saturating_duration_since(next_leads), machine.lateness(&(begin..told)));
    assert!(too_late <= late, "told {too_late:?} too late, the machine late by {late:?}");
    assert!(!leader.has_leadership());
    entered.recv_timeout(PATIENCE).expect("the dispatch thread was never blocked");
    drop(release);
    proxy.pass().unwrap();
}

/// Whoever has seen the end of `valid_until` has seen the end of the term: a session that turns out to live changes
/// nothing.
#[test]
fn a_term_that_was_seen_to_end_does_not_begin_again() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let client = connect(behind.connection_state_error_policy(ConnectionStateErrorPolicy::Session));
    let (leader, terms) = stubborn(&client);
    leader.start().unwrap();
    let term = terms.next();
    proxy.refuse();
    proxy.cut();
    let hold = term.leadership.hold();
    eventually("it may be another's", || hold.valid_until() <= Instant::now());
    assert!(!leader.has_leadership());
    proxy.pass().unwrap();
    eventually("the doubt has passed, or the session", || hold.is_valid() || hold.is_lost());
    assert!(!leader.has_leadership() && !term.leadership.has_leadership() && term.leadership.is_cancelled());
}

#[test]
fn a_lost_reply_to_the_create_leaves_no_second_znode() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let client = connect(behind.session_timeout(PATIENCE));
    let observer = connect(builder(server(), &namespace));
    // So that the first create of the contender is carried out.
    observer.create().creating_parents_if_needed().for_path(PATH).unwrap();
    let (leader, terms) = stubborn(&client);
    leader.auto_requeue();
    let fault = proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
    leader.start().unwrap();
    let term = terms.next();
    assert_eq!(fault.hits(), 1);
    eventually("one znode", || queue(&observer, PATH) == [term.leadership.path()]);
    drop(term);
    let fault = proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
    drop(terms.next());
    let _ = fault;
    leader.close().unwrap();
    await_queue(&observer, PATH, 0);
}

#[test]
fn a_selector_whose_session_is_lost_while_it_waits_leads_when_it_is_its_turn() {
    let server = quick_server().start().unwrap();
    let (holder, client) = (connect(builder(&server, "")), connect(builder(&server, "")));
    let ((leader, terms), (waiter, terms_of_waiter)) = (stubborn(&holder), stubborn(&client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    let nodes = await_queue(&holder, PATH, 2);
    expire_session(&server.connect_string(), client.session_id(), &client.session_password()).unwrap();
    eventually("it queues again", || {
        let now = queue(&holder, PATH);
        now.len() == 2 && now[1] != nodes[1]
    });
    drop(term);
    assert!(terms_of_waiter.next().leadership.has_leadership());
}
