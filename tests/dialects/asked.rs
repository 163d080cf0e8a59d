//! A client asks no server for what it does not know.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Builder, Caching, CreateMode, CuratorFramework, ErrorCode, InterProcessLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessUnfairMutex, LeaderLatch,
    testing::{Dialect, Fault, FaultProxy, RequestMatch, op},
};

use crate::support::{PATIENCE, builder_at, connect, eventually, expire, logs, namespace, server};

/// What a lock can do without.
const QUESTIONABLE: [i32; 8] = [
    op::CREATE_2,
    op::REMOVE_WATCHES,
    op::CREATE_CONTAINER,
    op::CREATE_TTL,
    op::GET_EPHEMERALS,
    op::SET_WATCHES_2,
    op::ADD_WATCH,
    op::WHO_AM_I,
];

fn behind(dialect: Dialect) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start_as(server().connect_string(), dialect).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    (proxy, client)
}

type Make = fn(&CuratorFramework) -> Box<dyn InterProcessLock>;

/// Holds one of each kind, has another one wait in vain, and releases.
fn use_every_kind(client: &CuratorFramework) {
    let other = connect(builder_at(&server().connect_string(), client.namespace()));
    let read_write = |client: &CuratorFramework| InterProcessReadWriteLock::new(client, "/locks/rw").unwrap();
    let kinds: [Make; 4] = [
        |client| Box::new(InterProcessMutex::new(client, "/locks/m").unwrap()),
        |client| Box::new(InterProcessUnfairMutex::new(client, "/locks/u").unwrap()),
        |client| Box::new(InterProcessMutex::new(client, "/locks/c").unwrap().with_caching(Caching::default())),
        |client| Box::new(curator_locks::InterProcessSemaphoreMutex::new(client, "/locks/s").unwrap()),
    ];
    for kind in kinds {
        let (lock, rival) = (kind(client), kind(&other));
        lock.acquire().unwrap();
        assert!(!rival.acquire_timeout(Duration::from_millis(50)).unwrap());
        lock.release().unwrap();
        assert!(rival.acquire_timeout(PATIENCE).unwrap());
        assert!(!lock.acquire_timeout(Duration::from_millis(50)).unwrap(), "it waits in vain");
        rival.release().unwrap();
    }
    let (mine, theirs) = (read_write(client), read_write(&other));
    mine.write_lock().acquire().unwrap();
    mine.read_lock().acquire().unwrap();
    mine.write_lock().release().unwrap();
    assert!(!theirs.write_lock().acquire_timeout(Duration::from_millis(50)).unwrap());
    mine.read_lock().release().unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client, "/locks/leases", 2).unwrap();
    let leases = semaphore.acquire_many(2).unwrap();
    assert!(semaphore.acquire_timeout(Duration::from_millis(50)).unwrap().is_none());
    drop(leases);
    let latch = Arc::new(LeaderLatch::new(client, "/locks/leader").unwrap());
    latch.start().unwrap();
    latch.await_leadership().unwrap();
    latch.close().unwrap();
    other.close();
}

#[test]
fn no_server_is_asked_for_what_it_does_not_know() {
    for dialect in [Dialect::KeeperBefore267, Dialect::Keeper, Dialect::RaftKeeper] {
        let (proxy, client) = behind(dialect);
        use_every_kind(&client);
        assert_eq!(client.dialect(), Some(dialect));
        assert_eq!(proxy.connections(), 1, "{dialect}: no connection was lost");
        let asked: Vec<i32> = QUESTIONABLE.into_iter().filter(|op| proxy.requests(*op) > 0).collect();
        let known: &[i32] = if dialect == Dialect::Keeper { &[op::REMOVE_WATCHES] } else { &[] };
        assert_eq!(asked, known, "{dialect}");
        client.close();
    }
}

#[test]
fn zookeeper_34_tells_by_refusing_once_and_the_session_goes_on() {
    let (proxy, client) = behind(Dialect::ZooKeeper34);
    let session = client.session_id();
    use_every_kind(&client);
    assert_eq!(client.dialect(), Some(Dialect::ZooKeeper34));
    assert_eq!((client.session_id(), proxy.connections()), (session, 2), "one connection was the price");
    let refusals =
        || proxy.log().iter().filter(|request| request.error.is_some_and(|code| [-6, -5].contains(&code))).count();
    let refused = refusals();
    assert!(refused <= 3, "{refused} refusals");
    expire(&client);
    eventually("another session", || client.is_connected() && ![0, session].contains(&client.session_id()));
    use_every_kind(&client);
    assert_eq!((client.dialect(), refusals()), (Some(Dialect::ZooKeeper34), refused), "the client knows it");
    client.close();
}

#[test]
fn a_connection_that_zookeeper_34_ends_by_a_refusal_is_followed_by_the_next_without_a_pause() {
    let proxy = FaultProxy::start_as(server().connect_string(), Dialect::ZooKeeper34).unwrap();
    let median = |configure: fn(Builder) -> Builder| {
        let mut times: Vec<Duration> = (0..15)
            .map(|_| {
                let client = connect(configure(builder_at(&proxy.connect_string(), &namespace())));
                let begin = Instant::now();
                InterProcessMutex::new(&client, "/m").unwrap().run(|_| ()).unwrap();
                client.close();
                begin.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let (known, learnt) = (median(|builder| builder.dialect(Dialect::ZooKeeper34)), median(|builder| builder));
    // A pause is half a second on average.
    assert!(learnt < known * 3 + Duration::from_millis(200), "{learnt:?}, {known:?} where nothing is refused");
}

#[test]
fn who_says_what_the_servers_are_has_them_asked_for_nothing() {
    let proxy = FaultProxy::start_as(server().connect_string(), Dialect::ZooKeeper34).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).dialect(Dialect::ZooKeeper34));
    use_every_kind(&client);
    assert_eq!(proxy.connections(), 1);
    assert!(!proxy.log().iter().any(|request| request.path.as_deref() == Some("/keeper/api_version")));
    client.close();
}

#[test]
fn a_server_is_asked_once_in_each_session_and_before_everything_else() {
    let (proxy, client) = behind(Dialect::Keeper);
    client.check_exists().for_path("/").unwrap();
    let paths: Vec<_> = proxy.log().into_iter().filter_map(|request| request.path).take(2).collect();
    assert_eq!(paths[0], "/keeper/api_version");
    let flags = |proxy: &FaultProxy| {
        proxy.log().iter().filter(|request| request.path.as_deref() == Some("/keeper/feature_flags")).count()
    };
    eventually("it tells of its flags", || flags(&proxy) == 1);
    client.close();

    let (proxy, client) = behind(Dialect::ZooKeeper);
    client.check_exists().for_path("/").unwrap();
    proxy.cut();
    eventually("it is connected again", || proxy.connections() == 2 && client.is_connected());
    client.check_exists().for_path("/").unwrap();
    let asked = proxy.log().iter().filter(|request| request.path.as_deref() == Some("/keeper/api_version")).count();
    assert_eq!((asked, flags(&proxy)), (1, 0), "the session that goes on knows it");
    client.close();
}

#[test]
fn what_is_asked_for_before_the_server_has_told_waits_for_that() {
    let proxy = FaultProxy::start_as(server().connect_string(), Dialect::KeeperBefore267).unwrap();
    let told =
        proxy.inject(RequestMatch::op(op::GET_DATA).path(|path| path.ends_with("api_version")), Fault::HoldReply);
    let client = connect(builder_at(&proxy.connect_string(), ""));
    let path = format!("/{}", namespace());
    std::thread::scope(|scope| {
        let create = scope.spawn(|| client.create().with_mode(CreateMode::Container).for_path(&path));
        told.wait_for_hits(1, PATIENCE).unwrap();
        assert_eq!(proxy.requests(op::CREATE_CONTAINER), 0);
        told.release();
        assert_eq!(create.join().unwrap().unwrap_err().code(), Some(ErrorCode::Unimplemented));
    });
    // A lock that creates its directory in a transaction is not refused by that.
    let unfair = InterProcessUnfairMutex::new(&client, &format!("{path}/unfair")).unwrap();
    unfair.acquire_with(&AcquireOptions::new()).unwrap();
    unfair.release().unwrap();
    assert_eq!(proxy.connections(), 1);
    client.close();
}

#[test]
fn a_keeper_that_is_said_to_know_containers_and_does_not_is_believed() {
    let proxy = FaultProxy::start_as(server().connect_string(), Dialect::Keeper).unwrap();
    let refused = proxy.inject(RequestMatch::op(op::CREATE_CONTAINER).times(100), Fault::Refuse(-8));
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).dialect(Dialect::Keeper));
    let mutex = InterProcessMutex::new(&client, "/locks/m").unwrap();
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    let hits = refused.hits();
    assert!(hits > 0);
    let another = InterProcessMutex::new(&client, "/others/m").unwrap();
    another.acquire().unwrap();
    another.release().unwrap();
    assert_eq!(refused.hits(), hits, "it was learnt");
    client.close();
}

#[test]
fn what_is_made_on_the_way_stays_and_is_said_once() {
    let (_proxy, client) = behind(Dialect::RaftKeeper);
    logs::catch_logs(log::LevelFilter::Info);
    let said = || {
        let logged = logs::logged();
        let is_it = |line: &&str| line.contains("no containers") && line.contains(client.namespace());
        logged.lines().filter(is_it).count()
    };
    assert_eq!(said(), 0);
    for path in ["/deep/down/a", "/deep/down/b", "/other/c"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        let owner = client.check_exists().for_path(path).unwrap().unwrap().ephemeral_owner;
        assert_eq!(owner, 0, "{path} is persistent");
    }
    assert_eq!(said(), 1);
    client.close();
}

#[test]
fn watches_that_lapse_leave_nothing_in_the_process() {
    let (proxy, client) = behind(Dialect::KeeperBefore267);
    let other = connect(builder_at(&server().connect_string(), client.namespace()));
    let holder = InterProcessMutex::new(&other, "/locks/m").unwrap();
    let waiter = InterProcessMutex::new(&client, "/locks/m").unwrap();
    let times = std::env::var("TIMEOUTS").map_or(300, |times| times.parse().unwrap());
    holder.acquire().unwrap();
    for _ in 0..times {
        assert!(!waiter.acquire_timeout(Duration::from_millis(1)).unwrap());
    }
    // An acquire whose time is up waits for no answer: a watch that one leaves is taken back behind it.
    eventually("no watch is left of all these", || client.metrics().watches == 0);
    let watched = server().four_letter_word("wchs").unwrap();
    println!("{times} time-outs: {}", watched.lines().last().unwrap_or_default());
    holder.release().unwrap();
    assert!(waiter.acquire_timeout(PATIENCE).unwrap());
    waiter.release().unwrap();
    assert_eq!(proxy.connections(), 1);
    client.close();
    other.close();
}
