//! `LeaderLatch` where something does.

use std::{
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::bounded;
use curator_locks::{
    CloseMode, ConnectionStateErrorPolicy, CuratorFramework, FixedEnsembleProvider, LeaderLatch, LeaderLatchListener,
    LeaderSelector, Leadership,
    testing::{Direction, Fault, RequestMatch, TestingCluster, op},
};

use crate::{
    leaving::left,
    probe::{
        PATH, SHORT,
        Told::{Ends, Leads},
        behind_proxy, close, latch, notifying,
    },
    support::{
        PATIENCE, another, await_queue, builder, builder_at, client, connect, eventually, eventually_and_at_once,
        expire, machine::Machine, namespace, queue, quick_server, server,
    },
};

/// As Curator, which tells nobody, does not (CURATOR-171).
#[test]
fn a_leader_whose_znode_is_deleted_is_told_and_queues_again() {
    let client = client();
    let admin = another(&client);
    let ((leader, told), (next, told_next)) = (latch(&client), latch(&client));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    next.start().unwrap();
    await_queue(&admin, PATH, 2);
    admin.delete().for_path(&leader.our_path().unwrap()).unwrap();
    assert_eq!(told.next(), Ends);
    assert_eq!(told_next.next(), Leads);
    assert!(!leader.has_leadership());
    await_queue(&admin, PATH, 2);
    close(&admin, &next);
    assert_eq!(told.next(), Leads);
}

/// CURATOR-696, CURATOR-620: it led on with the znode of the session before.
#[test]
fn a_leader_whose_session_expires_is_told_and_leads_again_only_in_its_turn() {
    let one = client();
    let other = another(&one);
    let ((leader, told), (next, told_next)) = (latch(&one), latch(&other));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let (term, session) = (leader.leadership().unwrap(), one.session_id());
    next.start().unwrap();
    await_queue(&other, PATH, 2);
    expire(&one);
    assert_eq!(told_next.next(), Leads);
    assert_eq!(told.next(), Ends);
    assert!(!leader.has_leadership() && !term.has_leadership());
    await_queue(&other, PATH, 2);
    assert_ne!(one.session_id(), session);
    assert!(told.is_empty() && next.has_leadership());
    close(&other, &next);
    assert_eq!(told.next(), Leads);
    assert!(!term.has_leadership(), "it is another term");
}

/// CURATOR-724: whoever was a waiter there never came back.
#[test]
fn a_directory_that_is_removed_is_made_again() {
    let client = client();
    let admin = another(&client);
    let ((leader, told), (waiter, told_waiter)) = (latch(&client), latch(&client));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    waiter.start().unwrap();
    await_queue(&admin, PATH, 2);
    admin.delete().deleting_children_if_needed().for_path(PATH).unwrap();
    assert_eq!(told.next(), Ends);
    await_queue(&admin, PATH, 2);
    eventually("one of them leads", || leader.has_leadership() != waiter.has_leadership());
    // The znodes go one after the other, so either may have led for a moment: each is told of a beginning, then of its end.
    for told in [told, told_waiter] {
        let told: Vec<_> = told.try_iter().collect();
        assert!(told.iter().enumerate().all(|(k, told)| *told == if k % 2 == 0 { Leads } else { Ends }), "{told:?}");
    }
}

#[test]
fn by_the_standard_policy_a_suspension_ends_leadership_and_the_same_znode_leads_again() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let client = connect(behind.session_timeout(PATIENCE));
    let (leader, told) = latch(&client);
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let (path, term) = (leader.our_path(), leader.leadership().unwrap());
    for _ in 0..3 {
        proxy.cut();
        assert_eq!(told.next(), Ends);
        assert!(!term.has_leadership());
        assert_eq!(told.next(), Leads);
        assert!(leader.has_leadership() && leader.our_path() == path);
    }
}

#[test]
fn by_the_session_policy_a_leader_leads_on_over_a_blip() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let behind = behind.session_timeout(PATIENCE).connection_state_error_policy(ConnectionStateErrorPolicy::Session);
    let client = connect(behind);
    let (leader, told) = latch(&client);
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let term = leader.leadership().unwrap();
    for _ in 1..4 {
        let connections = proxy.connections();
        proxy.cut();
        eventually("it is connected again", || proxy.connections() > connections && client.is_connected());
        eventually("its znode was seen again", || term.is_valid());
    }
    assert!(leader.has_leadership() && term.has_leadership() && told.is_empty());
}

/// druid#17546: it leads again while the listener is still busy with the end.
#[test]
fn it_does_not_lead_again_before_not_leader_has_returned() {
    struct Slow(crossbeam_channel::Sender<&'static str>, crossbeam_channel::Receiver<()>);
    impl LeaderLatchListener for Slow {
        fn is_leader(&self, _leadership: &Leadership) {
            let _ = self.0.send("leads");
        }
        fn not_leader(&self) {
            let _ = self.0.send("ends");
            let _ = self.1.recv();
            let _ = self.0.send("ended");
        }
    }
    for with_executor in [false, true] {
        let namespace = namespace();
        let (proxy, behind) = behind_proxy(server(), &namespace);
        let client = connect(behind.session_timeout(PATIENCE));
        let (say, said) = crossbeam_channel::unbounded();
        let (go_on, goes_on) = bounded(0);
        let latch = LeaderLatch::new(&client, PATH).unwrap();
        if with_executor {
            latch.add_listener_with_executor(Slow(say, goes_on), |task| drop(thread::spawn(task)));
        } else {
            latch.add_listener(Slow(say, goes_on));
        }
        latch.start().unwrap();
        assert_eq!(said.recv_timeout(PATIENCE), Ok("leads"));
        proxy.cut();
        assert_eq!(said.recv_timeout(PATIENCE), Ok("ends"));
        eventually("it is connected again", || client.is_connected());
        assert!(!latch.await_leadership_timeout(Duration::from_millis(300)).unwrap(), "while it is told otherwise");
        go_on.send(()).unwrap();
        assert_eq!([0, 1].map(|_| said.recv_timeout(PATIENCE).unwrap()), ["ended", "leads"]);
        latch.await_leadership().unwrap();
        close(&client, &latch);
    }
}

/// The one that leads is behind a network that has died without a word.
#[test]
fn a_leader_is_told_before_the_next_whatever_the_policy() {
    let machine = Machine::watch();
    for policy in [ConnectionStateErrorPolicy::Standard, ConnectionStateErrorPolicy::Session] {
        let (begin, namespace) = (Instant::now(), namespace());
        let (proxy, behind) = behind_proxy(server(), &namespace);
        let (client, others) =
            (connect(behind.connection_state_error_policy(policy)), connect(builder(server(), &namespace)));
        let ((leader, told), (next, told_next)) = (latch(&client), latch(&others));
        leader.start().unwrap();
        assert_eq!(told.next(), Leads);
        let term = leader.leadership().unwrap();
        next.start().unwrap();
        await_queue(&others, PATH, 2);
        proxy.black_hole(Direction::Both);
        let of_leader = thread::spawn(move || {
            assert_eq!(told.next(), Ends);
            Instant::now()
        });
        assert_eq!(told_next.next(), Leads);
        let (next_leads, told) = (Instant::now(), of_leader.join().unwrap());
        let (too_late, late) = (told.saturating_duration_since(next_leads), machine.lateness(&(begin..told)));
        assert!(too_late <= late, "{policy:?}: told {too_late:?} too late, the machine late by {late:?}");
        assert!(!leader.has_leadership() && !term.has_leadership());
        proxy.pass().unwrap();
    }
}

/// A listener keeps the dispatch thread: nobody can be told, but who asks has the answer.
#[test]
fn has_leadership_ends_in_time_however_slow_a_listener_is() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let behind = behind.connection_state_error_policy(ConnectionStateErrorPolicy::Session);
    let (client, others) = (connect(behind), connect(builder(server(), &namespace)));
    let (release, blocked) = bounded::<()>(0);
    let ((leader, told), (next, told_next)) = (latch(&client), latch(&others));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let term = leader.leadership().unwrap();
    let (enters, entered) = bounded(1);
    // As near to its end as this it always is, so it is told at once.
    term.on_deadline(SHORT * 10, move |_| {
        let _ = enters.try_send(());
        let _ = blocked.recv();
    });
    entered.recv_timeout(PATIENCE).unwrap();
    next.start().unwrap();
    await_queue(&others, PATH, 2);
    proxy.black_hole(Direction::Both);
    let asking = thread::spawn(move || {
        let mut last = Instant::now();
        loop {
            // The clock comes first: who leads later led then.
            let at = Instant::now();
            if !leader.has_leadership() {
                return (last, leader);
            }
            last = at;
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(told_next.next(), Leads);
    let (next_leads, (last, leader)) = (Instant::now(), asking.join().unwrap());
    assert!(last < next_leads, "it led {:?} beside the next", last - next_leads);
    assert!(term.cancel_token().is_cancelled() && told.is_empty());
    drop(release);
    assert_eq!(told.next(), Ends);
    proxy.pass().unwrap();
    drop(leader);
}

/// By the client's policy a suspension ends leadership, whatever a listener does, and long before `valid_until`.
#[test]
fn a_listener_that_never_returns_keeps_nobody_leading_while_the_connection_is_gone() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let client = connect(behind.session_timeout(20 * PATIENCE));
    let (release, blocked) = bounded::<()>(0);
    let (leader, told) = latch(&client);
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let term = leader.leadership().unwrap();
    let (enters, entered) = bounded(1);
    term.on_deadline(30 * PATIENCE, move |_| {
        let _ = enters.try_send(());
        let _ = blocked.recv();
    });
    entered.recv_timeout(PATIENCE).unwrap();
    proxy.refuse();
    proxy.cut();
    eventually("its term has ended", || !term.has_leadership() && !leader.has_leadership());
    assert!(term.cancel_token().is_cancelled() && term.valid_until() > Instant::now() && told.is_empty());
    drop(release);
    assert_eq!(told.next(), Ends);
}

/// CURATOR-45, CURATOR-202.
#[test]
fn a_lost_reply_to_the_create_leaves_one_znode_and_a_leader() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let (client, observer) = (connect(behind.session_timeout(PATIENCE)), connect(builder(server(), &namespace)));
    // So that the first create of the contender is carried out.
    observer.create().creating_parents_if_needed().for_path(PATH).unwrap();
    let (leader, told) = notifying(&client);
    let fault = proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    assert_eq!(fault.hits(), 1);
    eventually("one znode", || queue(&observer, PATH) == leader.our_path().into_iter().collect::<Vec<_>>());
    close(&observer, &leader);
    await_queue(&observer, PATH, 0);
}

/// CURATOR-3, CURATOR-18: closed while its create is under way.
#[test]
fn a_latch_that_is_closed_while_its_create_is_under_way_leaves_nothing() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    let (client, observer) = (connect(behind.session_timeout(PATIENCE)), connect(builder(server(), &namespace)));
    observer.create().creating_parents_if_needed().for_path(PATH).unwrap();
    for fault in [Fault::HoldReply, Fault::HoldRequest] {
        let (latch, told) = latch(&client);
        let held_back = proxy.inject(RequestMatch::creates(), fault);
        latch.start().unwrap();
        held_back.wait_for_hits(1, PATIENCE).unwrap();
        close(&observer, &latch);
        held_back.release();
        // Whatever was sent before this has been answered.
        client.sync().for_path("/").unwrap();
        await_queue(&observer, PATH, 0);
        assert!(told.is_empty());
    }
}

#[test]
fn a_server_restart_keeps_the_places_of_leader_and_waiter() {
    let server = quick_server().start().unwrap();
    let policy = ConnectionStateErrorPolicy::Session;
    let clients = [0, 1].map(|_| connect(builder(&server, "").connection_state_error_policy(policy)));
    let ((leader, told), (waiter, told_waiter)) = (latch(&clients[0]), latch(&clients[1]));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    waiter.start().unwrap();
    let nodes = await_queue(&clients[0], PATH, 2);
    server.restart().unwrap();
    for client in &clients {
        assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    }
    eventually("it leads", || leader.has_leadership());
    assert_eq!(queue(&clients[0], PATH), nodes);
    assert!(told_waiter.is_empty());
    left(&clients[0], leader.our_path(), leader.close_with(CloseMode::Silent)).unwrap();
    assert_eq!(told_waiter.next(), Leads);
}

/// In Curator its znode of the session before was kept, and when that went nobody stood in the queue.
#[test]
fn a_waiter_whose_session_expires_queues_again_and_leads_in_its_turn() {
    let one = client();
    let other = another(&one);
    let ((leader, told), (waiter, told_waiter)) = (latch(&one), latch(&other));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    waiter.start().unwrap();
    let nodes = await_queue(&one, PATH, 2);
    expire(&other);
    eventually("it queues again", || queue(&one, PATH).get(1).is_some_and(|node| *node != nodes[1]));
    assert!(!waiter.has_leadership() && told_waiter.is_empty());
    close(&one, &leader);
    assert_eq!(told_waiter.next(), Leads);
    assert_eq!(queue(&one, PATH), [waiter.our_path().unwrap()]);
}

/// Both kinds, whichever server their clients are connected to.
#[test]
fn one_leads_when_the_leader_of_the_ensemble_is_killed() {
    let cluster = TestingCluster::builder(3).tick_time(Duration::from_millis(200)).start().unwrap();
    let clients = [0, 1].map(|_| connect(builder_at(&cluster.connect_string(), "")));
    let latches = clients.each_ref().map(latch);
    let selectors = clients.each_ref().map(|client| {
        let lead = |_: &CuratorFramework, leadership: &Leadership| {
            let _ = leadership.cancelled().recv();
            Ok(())
        };
        LeaderSelector::new(client, "/leaders/other", lead).unwrap()
    });
    for ((latch, _), selector) in latches.iter().zip(&selectors) {
        latch.start().unwrap();
        selector.auto_requeue();
        selector.start().unwrap();
    }
    let leading = || {
        (
            latches.iter().filter(|(latch, _)| latch.has_leadership()).count(),
            selectors.iter().filter(|selector| selector.has_leadership()).count(),
        )
    };
    eventually("one of each leads", || leading() == (1, 1));
    for _ in 0..2 {
        let leader = cluster.wait_for_leader(PATIENCE).unwrap();
        cluster.servers()[leader].kill().unwrap();
        // Two would lead for a moment only.
        eventually_and_at_once("one of each leads again", || {
            let leading = leading();
            assert!(leading.0 <= 1 && leading.1 <= 1, "{leading:?}");
            leading == (1, 1) && clients.iter().all(CuratorFramework::is_connected)
        });
        cluster.servers()[leader].restart().unwrap();
    }
}

/// CURATOR-724: another server, which knows neither the session nor the directory.
#[test]
fn at_an_empty_server_in_place_of_the_old_one_one_leads_again() {
    let [old, new] = [0, 1].map(|_| quick_server().start().unwrap());
    let servers = FixedEnsembleProvider::new(old.connect_string());
    let clients = [0, 1].map(|_| {
        let builder = builder(&old, "").ensemble_provider(servers.clone()).session_timeout(SHORT * 2);
        connect(builder.connection_timeout(Duration::from_secs(1)))
    });
    let sessions = clients.each_ref().map(CuratorFramework::session_id);
    let ((leader, told), (waiter, told_waiter)) = (latch(&clients[0]), latch(&clients[1]));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    let term = leader.leadership().unwrap();
    waiter.start().unwrap();
    await_queue(&clients[0], PATH, 2);
    assert!(told_waiter.is_empty());
    servers.set_connection_string(new.connect_string());
    old.kill().unwrap();
    assert_eq!(told.next(), Ends);
    let observer = connect(builder(&new, ""));
    await_queue(&observer, PATH, 2);
    eventually("one of them leads", || leader.has_leadership() != waiter.has_leadership());
    assert!(!term.has_leadership(), "that term is over for good");
    assert!(clients.iter().zip(sessions).all(|(client, session)| client.session_id() != session));
}

/// In Curator the reply to an attempt that was given up deletes the znode that leads by then.
#[test]
fn a_reply_to_its_create_that_comes_when_it_leads_already_changes_nothing() {
    let namespace = namespace();
    let (proxy, behind) = behind_proxy(server(), &namespace);
    // A third of it is left for the next connection.
    let behind = behind.session_timeout(SHORT * 2);
    let (client, observer) = (connect(behind), connect(builder(server(), &namespace)));
    observer.create().creating_parents_if_needed().for_path(PATH).unwrap();
    let (session, connections) = (client.session_id(), proxy.connections());
    let (leader, told) = latch(&client);
    let held_back = proxy.inject(RequestMatch::creates(), Fault::HoldReply);
    leader.start().unwrap();
    held_back.wait_for_hits(1, PATIENCE).unwrap();
    let nodes = await_queue(&observer, PATH, 1);
    // No heartbeat is answered any more, so the client gives the connection up, and finds its znode over the next one.
    assert_eq!(told.next(), Leads);
    assert!(proxy.connections() > connections);
    assert_eq!(client.session_id(), session);
    held_back.release();
    // Whatever was sent before this has been answered.
    client.sync().for_path("/").unwrap();
    assert!(leader.has_leadership() && told.is_empty());
    assert_eq!(leader.our_path().as_ref(), nodes.first());
    assert_eq!(queue(&observer, PATH), nodes);
}

/// In Curator such a read costs the place in the queue, and `NoAuth` is read again without a pause.
#[test]
fn a_leader_that_cannot_read_its_own_znode_keeps_its_place_and_asks_in_moderation() {
    const NO_AUTH: i32 = -102;
    const OVERLOADED: i32 = -127;
    for refusal in [NO_AUTH, OVERLOADED] {
        let namespace = namespace();
        let (proxy, behind) = behind_proxy(server(), &namespace);
        // Who may not read is asked again after a session timeout.
        let behind = behind.session_timeout(Duration::from_secs(12));
        let (client, observer) = (connect(behind), connect(builder(server(), &namespace)));
        let (leader, told) = latch(&client);
        let (own, since) = (RequestMatch::ops([op::EXISTS, op::GET_DATA]), Instant::now());
        let own = own.path(|path| path.contains("latch-")).times(u64::MAX);
        let refused = proxy.inject(own, Fault::Refuse(refusal));
        leader.start().unwrap();
        assert_eq!(told.next(), Leads);
        let nodes = await_queue(&observer, PATH, 1);
        proxy.cut();
        assert_eq!(told.next(), Ends);
        eventually("it wants to see its znode", || client.is_connected() && refused.hits() > 0);
        thread::sleep(Duration::from_secs(1));
        let moments = since.elapsed().as_millis() / 100;
        assert!(u128::from(refused.hits()) < 10 + 2 * moments, "{} reads in {moments} moments", refused.hits());
        refused.release();
        assert_eq!(told.next(), Leads);
        assert_eq!((queue(&observer, PATH), leader.our_path()), (nodes.clone(), nodes.first().cloned()));
    }
}

/// It has led, and its session lives: nobody else would lead for as long as that lasts.
#[test]
fn a_leader_that_stays_uncertain_gives_its_place_up() {
    const NO_AUTH: i32 = -102;
    for may_read in [true, false] {
        let namespace = namespace();
        let (proxy, behind) = behind_proxy(server(), &namespace);
        let (client, observer) = (connect(behind), connect(builder(server(), &namespace)));
        let ((leader, told), (next, told_next)) = (latch(&client), latch(&observer));
        leader.start().unwrap();
        assert_eq!(told.next(), Leads);
        next.start().unwrap();
        await_queue(&observer, PATH, 2);
        let session = client.session_id();
        if may_read {
            // Round trips of 0.35 of the session timeout.
            proxy.delay(SHORT * 7 / 40);
        } else {
            let own = RequestMatch::ops([op::EXISTS, op::GET_DATA]).path(|path| path.contains("latch-"));
            proxy.inject(own.times(u64::MAX), Fault::Refuse(NO_AUTH));
            proxy.cut();
        }
        assert_eq!(told_next.next(), Leads, "may read: {may_read}");
        assert_eq!(told.next(), Ends);
        assert_eq!(client.session_id(), session);
        proxy.pass().unwrap();
        close(&observer, &next);
    }
}
