//! What goes over the wire.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Acl, AclProvider, CreateMode, CuratorFramework, HoldState, InterProcessMutex, LostReason, perms,
    testing::{Fault, FaultProxy, RequestMatch, RequestRecord, TestingServer, op},
};

use crate::support::{self, SESSION, builder, builder_at, connect, eventually, mutex, namespace, server};

#[test]
fn an_uncontended_cycle_is_three_packets() {
    const CYCLES: u32 = 1_000;
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "packets").session_timeout(Duration::from_secs(60)));
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    let before = server.packets_received().unwrap();
    let mut slow = 0;
    for _ in 0..CYCLES {
        let begin = Instant::now();
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        // After 100 ms a holder watches its znode, and gives that up again.
        slow += if begin.elapsed() >= Duration::from_millis(100) { 2 } else { 0 };
    }
    let after = server.packets_received().unwrap();
    // The question itself counts as one.
    let packets = after - before - 1;
    let least = 3 * u64::from(CYCLES);
    println!("{packets} packets for {CYCLES} cycles, {slow} of them for slow ones");
    assert!((least..=least * 41 / 40 + slow).contains(&packets), "{packets} packets, {slow} of them for slow cycles");
}

#[test]
fn a_try_of_a_lock_that_is_taken_is_one_read_and_no_write() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "packets"));
    let other = connect(builder(&server, "packets"));
    let (held, tried) = (mutex(&client), mutex(&other));
    held.acquire().unwrap();
    // After 100 ms a holder watches its znode, which would count.
    eventually("the holder's watch", || server.watch_count().unwrap() == 1);
    let zxid = || {
        let srvr = server.four_letter_word("srvr").unwrap();
        srvr.lines().find(|line| line.starts_with("Zxid")).unwrap().to_owned()
    };
    let (last_write, before, begin) = (zxid(), server.packets_received().unwrap(), Instant::now());
    for _ in 0..50 {
        assert!(!tried.acquire_timeout(Duration::ZERO).unwrap());
        assert!(tried.try_lock().unwrap().is_none());
    }
    // The question itself counts as one; heartbeats of two clients come in between.
    let packets = server.packets_received().unwrap() - before - 1;
    let heartbeats = 2 + 2 * begin.elapsed().as_secs() / (SESSION / 4).as_secs();
    assert!((100..=100 + heartbeats).contains(&packets), "{packets} packets for 100 tries");
    assert_eq!(zxid(), last_write, "a try wrote");
    held.release().unwrap();
    assert!(tried.acquire_timeout(Duration::ZERO).unwrap());
}

/// Everybody may do everything with what is called like a contender, but read it.
struct Unreadable;

impl AclProvider for Unreadable {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        let unreadable = |acl| Acl { perms: perms::ALL & !perms::READ, ..acl };
        path.contains("lock-").then(|| Acl::open_unsafe().into_iter().map(unreadable).collect())
    }
}

/// A holder who may not read its own znode, behind a proxy.
fn blind(proxy: &FaultProxy, session: Duration) -> (CuratorFramework, InterProcessMutex) {
    let builder = builder_at(&proxy.connect_string(), &namespace()).session_timeout(session);
    let client = connect(builder.acl_provider(Unreadable));
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    (client, mutex)
}

/// How often a znode is asked for: twice, and then for 3 s no more.
fn questions(proxy: &FaultProxy, path: &str) -> usize {
    let asked = || {
        let is_about = |record: &RequestRecord| record.path.as_ref().is_some_and(|of| of.ends_with(path));
        proxy.log().iter().filter(|record| is_about(record)).count()
    };
    eventually("it asks", || asked() >= 2);
    // Not to wait for something: nothing more is to be sent in that time.
    thread::sleep(Duration::from_secs(3));
    println!("{} questions", asked());
    asked()
}

/// Servers since 3.8.4, and Debian's 3.8.0, send no event about a znode to those who may not read it (CVE-2024-23944).
#[test]
fn a_holder_who_may_not_read_its_znode_learns_of_its_end_although_no_event_tells() {
    let proxy = FaultProxy::start(("127.0.0.1", server().port())).unwrap();
    // It asks once per session timeout.
    let (client, mutex) = blind(&proxy, Duration::from_secs(12));
    let (path, hold) = (mutex.lock_path().unwrap(), mutex.hold().unwrap());
    let is_asked = |of: &RequestRecord| of.path.as_ref().is_some_and(|asked| asked.ends_with(&path));
    let watches = |of: &RequestRecord| of.op == op::EXISTS && of.replied.is_some() && is_asked(of);
    eventually("the watch", || proxy.log().iter().any(watches));
    support::another(&client).delete().for_path(&path).unwrap();
    eventually("it is told", || hold.state() == HoldState::Lost(LostReason::NodeDeleted));
}

#[test]
fn a_holder_who_may_not_read_its_znode_asks_twice_and_learns_of_its_end_with_the_next_connection() {
    let proxy = FaultProxy::start(("127.0.0.1", server().port())).unwrap();
    let (client, mutex) = blind(&proxy, support::SESSION);
    let (path, hold) = (mutex.lock_path().unwrap(), mutex.hold().unwrap());
    assert_eq!(questions(&proxy, &path), 2);
    assert!(hold.is_valid());
    proxy.refuse();
    proxy.cut();
    eventually("the connection is gone", || !client.is_connected());
    support::another(&client).delete().for_path(&path).unwrap();
    proxy.pass().unwrap();
    eventually("it is told", || hold.state() == HoldState::Lost(LostReason::NodeDeleted));
}

/// As servers from 3.8.4 on do, which do not say either whether it is there (ZOOKEEPER-2590).
#[test]
fn a_holder_who_may_not_even_ask_for_its_znode_asks_no_more_often() {
    let proxy = FaultProxy::start(("127.0.0.1", server().port())).unwrap();
    let of_contender = RequestMatch::op(op::EXISTS).path(|path| path.contains("lock-"));
    let refused = proxy.inject(of_contender.times(u64::MAX), Fault::Refuse(-102));
    let (_client, mutex) = blind(&proxy, support::SESSION);
    assert_eq!(questions(&proxy, &mutex.lock_path().unwrap()), 2);
    assert_eq!(refused.hits(), 1);
    assert!(mutex.hold().unwrap().is_valid());
    mutex.release().unwrap();
}

#[test]
fn create_and_get_children_are_on_the_wire_before_the_first_reply() {
    let client = support::client();
    let keep = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    keep.for_path("/locks/m/keeper").unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server().port())).unwrap();
    let through_proxy = connect(builder_at(&proxy.connect_string(), client.namespace()));
    let mutex = InterProcessMutex::new(&through_proxy, "/locks/m").unwrap();
    // Behind the question what the server is.
    through_proxy.check_exists().for_path("/").unwrap();
    let reply = proxy.inject(RequestMatch::creates(), Fault::HoldReply);
    proxy.clear_log();
    let requests = || {
        let ops = proxy.log().into_iter().map(|record| record.op);
        // Heartbeats come when they like.
        ops.filter(|op| ![op::SYNC, op::PING].contains(op)).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let acquiring = scope.spawn(|| mutex.acquire());
        eventually("both requests have arrived", || requests().len() >= 2);
        assert_eq!(requests(), [op::CREATE, op::GET_CHILDREN]);
        reply.release();
        acquiring.join().unwrap().unwrap();
    });
    // A holder watches its znode after 100 ms.
    let requests: Vec<_> = requests().into_iter().filter(|op| *op != op::EXISTS).collect();
    assert_eq!(requests, [op::CREATE, op::GET_CHILDREN], "more than one round trip");
}
