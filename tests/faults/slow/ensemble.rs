//! Three servers: leaders that die or pause, rolling restarts, lost quorums, a follower cut off.

use std::time::{Duration, Instant};

use curator_locks::{
    CuratorFramework, Error, HoldState, InterProcessMutex, LockGuard, LostReason,
    testing::{Fault, FaultProxy, InjectedFault, RequestMatch, RequestRecord, TestingCluster, TestingServer, op},
};
use nix::time::{ClockId, clock_gettime};

use crate::scene::*;

const TICK: Duration = Duration::from_millis(500);
const SYNC_LIMIT: u32 = 4;
/// Three servers that start at one time are away for longer than most sessions.
const SESSION: Duration = Duration::from_secs(30);

fn cluster(severable: bool) -> TestingCluster {
    let builder = TestingCluster::builder(3).tick_time(TICK).sync_limit(SYNC_LIMIT);
    let cluster = builder.severable(severable).start().unwrap();
    cluster.wait_for_leader(LONG).unwrap();
    cluster
}

fn client(connect_string: &str) -> CuratorFramework {
    let client = CuratorFramework::builder()
        .connect_string(connect_string)
        .session_timeout(SESSION)
        .connection_timeout(3000 * MS)
        .retry_policy(curator_locks::RetryNTimes::new(100, 100 * MS))
        .build()
        .unwrap();
    start(&client);
    client
}

/// The holder keeps its lock over the fault, and the hand-over after it comes in time.
fn lock_is_kept_over(fault: impl FnOnce(&TestingCluster, &CuratorFramework), after: impl FnOnce(&TestingCluster)) {
    lock_of_cluster_is_kept_over(&cluster(false), fault, after);
}

fn lock_of_cluster_is_kept_over(
    cluster: &TestingCluster,
    fault: impl FnOnce(&TestingCluster, &CuratorFramework),
    after: impl FnOnce(&TestingCluster),
) {
    let machine = Machine::watch();
    let [holding, waiting] = [0; 2].map(|_| client(&cluster.connect_string()));
    let session = holding.session_id();
    let holder = mutex(&holding);
    let held = holder.lock().unwrap();
    let waiter = spawn(move || {
        let mutex = mutex(&waiting);
        let held = mutex.lock().unwrap();
        (held.fencing_token(), held.is_valid(), held.release())
    });
    wait_for_nodes(&holding, 2);
    let token = held.fencing_token();
    let begin = Instant::now();
    fault(cluster, &holding);
    eventually("the lock is held for certain", || {
        assert!(!held.is_lost(), "{:?} {:?} after the fault", held.state(), begin.elapsed());
        held.is_valid() && holding.is_connected()
    });
    figure("ensemble: held for certain again after", begin.elapsed());
    assert_eq!(holding.session_id(), session);
    let released = Instant::now();
    // Without a leader the server cannot confirm it in time; the background goes on.
    let confirmed = held.release();
    if let Err(error) = confirmed {
        assert!(error.is_retryable(), "{error}");
    }
    let (granted, (next, valid, result)) = join(&waiter);
    result.unwrap();
    assert!(valid && next > token);
    let limit = SESSION + TICK * SYNC_LIMIT + Duration::from_secs(2);
    machine.assert_at_most("ensemble: hand-over after the fault", released..granted, limit);
    after(cluster);
}

fn leader(cluster: &TestingCluster) -> &TestingServer {
    &cluster.servers()[cluster.wait_for_leader(LONG).unwrap()]
}

#[test]
fn a_lock_is_kept_when_the_leader_is_killed() {
    lock_is_kept_over(|cluster, _| leader(cluster).kill().unwrap(), |_| {});
}

#[test]
fn a_lock_is_kept_when_the_leader_is_paused() {
    lock_is_kept_over(
        |cluster, _| leader(cluster).pause().unwrap(),
        |cluster| cluster.servers().iter().for_each(|server| server.resume().unwrap()),
    );
}

#[test]
fn a_lock_is_kept_over_a_rolling_restart() {
    lock_is_kept_over(
        |cluster, _| {
            for server in cluster.servers() {
                server.stop().unwrap();
                server.restart().unwrap();
                cluster.wait_for_leader(LONG).unwrap();
            }
        },
        |_| {},
    );
}

#[test]
fn a_lock_is_kept_when_the_quorum_is_paused_for_a_moment() {
    lock_is_kept_over(
        |cluster, _| {
            let paused = &cluster.servers()[..2];
            paused.iter().for_each(|server| server.pause().unwrap());
            std::thread::sleep(1500 * MS);
            paused.iter().for_each(|server| server.resume().unwrap());
        },
        |_| {},
    );
}

#[test]
fn a_lock_is_kept_when_a_follower_is_cut_off() {
    lock_of_cluster_is_kept_over(
        &cluster(true),
        |cluster, holding| {
            let leader = cluster.wait_for_leader(LONG).unwrap();
            // The holder's own server, if that is a follower.
            let own = cluster.server_of(holding.session_id()).filter(|index| *index != leader);
            figure("ensemble: the follower cut off is the holder's server", own.is_some());
            cluster.sever(own.unwrap_or((leader + 1) % 3)).unwrap();
        },
        |_| {},
    );
}

#[test]
fn a_lock_is_kept_when_all_servers_are_restarted_with_their_data() {
    lock_is_kept_over(
        |cluster, _| {
            cluster.stop_all().unwrap();
            cluster.restart_all().unwrap();
            cluster.wait_for_leader(LONG).unwrap();
        },
        |_| {},
    );
}

/// Two of three servers are paused: sessions live on, and nothing can be done in them.
#[test]
fn close_and_drop_return_within_a_second_while_the_quorum_is_gone() {
    let machine = Machine::watch();
    let cluster = cluster(false);
    let leader = cluster.wait_for_leader(LONG).unwrap();
    let follower = &cluster.servers()[(leader + 1) % 3];
    let [closed, dropped] = [0; 2].map(|_| client(&follower.connect_string()));
    let holder = mutex(&closed);
    holder.acquire().unwrap();
    let waiting = closed.clone();
    let waiter = spawn(move || mutex(&waiting).acquire());
    wait_for_nodes(&closed, 2);
    for index in [leader, (leader + 2) % 3] {
        cluster.servers()[index].pause().unwrap();
    }
    let begin = Instant::now();
    closed.close();
    machine.assert_at_most("close, quorum gone", since(begin), 1000 * MS);
    let (at, result) = join(&waiter);
    assert!(matches!(result, Err(curator_locks::Error::ClientClosed)), "{result:?}");
    machine.assert_at_most("caller woken, quorum gone", begin..at, 1000 * MS);
    let begin = Instant::now();
    drop(dropped);
    machine.assert_at_most("drop, quorum gone", since(begin), 1000 * MS);
    cluster.servers().iter().for_each(|server| server.resume().unwrap());
}

/// A leader that is cut off answers a `sync` by itself until it notices that nobody follows it.
#[test]
fn a_leader_that_is_cut_off_proves_no_session_by_heartbeats_that_need_a_quorum() {
    let (tick, session) = (Duration::from_secs(1), Duration::from_secs(8));
    let cluster = TestingCluster::builder(3).tick_time(tick).sync_limit(20).severable(true).start().unwrap();
    let leader = cluster.wait_for_leader(LONG).unwrap();
    let client = CuratorFramework::builder()
        .connect_string(cluster.servers()[leader].connect_string())
        .session_timeout(session)
        .retry_policy(curator_locks::RetryNTimes::new(100, 100 * MS))
        .quorum_heartbeats(true)
        .build()
        .unwrap();
    start(&client);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let of_grant = held.valid_until();
    eventually("heartbeats prove that the session lives", || held.valid_until() > of_grant);
    cluster.sever(leader).unwrap();
    let cut = Instant::now();
    while cut.elapsed() < session * 3 / 2 {
        assert!(held.valid_until() < cut + session, "{:?} after the cut", held.valid_until() - cut);
        std::thread::sleep(10 * MS);
    }
    assert!(!held.is_valid());
    cluster.mend(leader).unwrap();
}

/// A session that is ended through another server: the server that the holder talks to reports the end of the znode first,
/// and ends the connection after that.
#[test]
fn a_holder_whose_session_expires_is_never_told_that_somebody_deleted_its_znode() {
    const TIMES: usize = 20;
    let cluster = cluster(false);
    let servers: Vec<String> = cluster.servers().iter().map(TestingServer::connect_string).collect();
    let client = client(&servers[0]);
    let mutex = mutex(&client);
    let mut deleted = 0;
    for time in 0..TIMES {
        let held = mutex.lock().unwrap();
        let changes = held.state_changes();
        let is_watched = || cluster.servers()[0].four_letter_word("wchp").unwrap().contains(held.path());
        eventually("the watch on the own znode", is_watched);
        let other = &servers[1 + time % 2];
        curator_locks::testing::expire_session(other, client.session_id(), &client.session_password()).unwrap();
        let told: Vec<HoldState> = changes.iter().collect();
        let reason = told.last().copied();
        if reason == Some(HoldState::Lost(LostReason::NodeDeleted)) {
            deleted += 1;
        } else {
            assert_eq!(reason, Some(HoldState::Lost(LostReason::SessionExpired)), "{told:?}");
        }
        assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    }
    figure("ensemble: of so many expiries, told as deleted", (TIMES, deleted));
    assert_eq!(deleted, 0);
}

/// The tick of the servers whose leader misses a touch; the session timeout is two of them.
const SLOW_TICK: Duration = Duration::from_secs(3);

/// A holder whose first heartbeat is late on its way to a server that is no leader.
struct LateHolder {
    proxy: FaultProxy,
    late: InjectedFault,
    client: CuratorFramework,
    directory: &'static str,
}

impl LateHolder {
    fn start(server: &TestingServer, directory: &'static str) -> LateHolder {
        let proxy = FaultProxy::start(server.connect_string()).unwrap();
        let late = proxy.inject(RequestMatch::op(op::SYNC), Fault::HoldRequest);
        let client = client_of(&proxy.connect_string(), 2 * SLOW_TICK);
        client.start().unwrap();
        LateHolder { proxy, late, client, directory }
    }

    fn lock(&self) -> InterProcessMutex {
        InterProcessMutex::new(&self.client, self.directory).unwrap()
    }

    fn heartbeats(&self) -> Vec<RequestRecord> {
        self.proxy.log().into_iter().filter(|request| request.op == op::SYNC).collect()
    }

    /// Lets the first heartbeat go on this long after it was sent.
    fn release_after(&self, hold: Duration) {
        self.late.wait_for_hits(1, LONG).unwrap();
        sleep_until(self.heartbeats()[0].received + hold);
        self.late.release();
    }

    fn await_second_answer(&self) {
        eventually("the second heartbeat is answered", || {
            self.heartbeats().get(1).is_some_and(|second| second.replied.is_some())
        });
    }
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// Servers expire sessions when the clock that all processes share comes to a multiple of the tick.
fn next_expiry(after: Instant) -> Instant {
    let now = Instant::now();
    let clock = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()) + after.saturating_duration_since(now);
    let since = clock.as_nanos() % SLOW_TICK.as_nanos();
    after + SLOW_TICK - Duration::from_nanos(u64::try_from(since).unwrap())
}

/// The leader's pings, half a tick apart, fall right before the first heartbeat arrives and right after the second one
/// was answered. So the leader gets none of the two, is paused, and expires the session by what it had before them.
#[test]
fn no_node_vanishes_before_its_holders_valid_until_though_its_heartbeat_came_late() {
    let cluster = TestingCluster::builder(3).observers(1).tick_time(SLOW_TICK).start().unwrap();
    assert!(cluster.servers()[3].four_letter_word("srvr").unwrap().contains("Mode: observer"));
    let leader = cluster.wait_for_leader(LONG).unwrap();
    let [follower, other] = [1, 2].map(|k| &cluster.servers()[(leader + k) % 3]);
    let onlooker = client_of(&other.connect_string(), LONG);
    start(&onlooker);
    for _ in 0..3 {
        let leader = &cluster.servers()[leader];
        // A leader that missed its ping sends it when it goes on, and the next ones from then on.
        leader.pause().unwrap();
        let resumed = next_expiry(Instant::now() + SLOW_TICK / 2) + 1400 * MS;
        sleep_until(resumed);
        leader.resume().unwrap();
        sleep_until(resumed + 300 * MS);
        let holders = [(follower, "/locks/follower"), (&cluster.servers()[3], "/locks/observer")]
            .map(|(server, directory)| LateHolder::start(server, directory));
        // What the leader hears of next, 1.5 s after it was resumed: 0.1 s and two ticks before a multiple of the tick.
        let locks = holders.each_ref().map(LateHolder::lock);
        let held = locks.each_ref().map(|lock| lock.lock().unwrap());
        // The heartbeats are sent 2.3 s and 4.3 s after the leader was resumed. Its pings come 3 and 4.5 s after that.
        holders.iter().for_each(|holder| holder.release_after(850 * MS));
        holders.iter().for_each(LateHolder::await_second_answer);
        leader.pause().unwrap();
        let expiry = next_expiry(resumed + SLOW_TICK / 2 + 2 * SLOW_TICK);
        let last = await_end(&onlooker, held, || {
            if Instant::now() >= expiry {
                leader.resume().unwrap();
            }
            Instant::now() >= expiry + SLOW_TICK
        });
        figure("heartbeat late: vanished after valid_until by (follower, observer)", last);
        holders.iter().for_each(|holder| holder.client.close());
    }
}

/// How long after their holders' `valid_until` the znodes vanish, those that do before it is over.
fn await_end<const N: usize>(
    onlooker: &CuratorFramework,
    held: [LockGuard; N],
    is_over: impl Fn() -> bool,
) -> [Option<Duration>; N] {
    let mut valid_until = held.each_ref().map(|held| held.valid_until());
    let mut vanished: [Option<Duration>; N] = [None; N];
    while !is_over() && vanished.iter().any(Option::is_none) {
        for (k, held) in held.iter().enumerate().filter(|(_, held)| !held.is_lost()) {
            valid_until[k] = valid_until[k].max(held.valid_until());
        }
        for k in 0..N {
            if vanished[k].is_none() && matches!(onlooker.check_exists().for_path(held[k].path()), Ok(None)) {
                let now = Instant::now();
                assert!(now >= valid_until[k], "{} vanished {:?} too early", held[k].path(), valid_until[k] - now);
                vanished[k] = Some(now - valid_until[k]);
            }
        }
        std::thread::sleep(5 * MS);
    }
    vanished
}
