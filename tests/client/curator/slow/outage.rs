//! Many sessions of one process, after an outage of all servers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    ConnectionState, CuratorFramework, RetryNTimes,
    testing::{FaultProxy, TestingCluster, TestingServer},
};

use crate::support::eventually;

const CLIENTS: usize = 500;

/// At most so many before one is even.
const OUTAGES: usize = 10;

/// Longer than the outage, and than 500 clients take to come back beside other work.
const SESSION: Duration = Duration::from_secs(50);

/// ZooKeeper's usual tick.
const TICK: Duration = Duration::from_secs(2);

/// When each session was told that it has a connection again.
type Returns = Arc<Mutex<HashMap<i64, Instant>>>;

fn client(servers: &str, returns: &Returns) -> CuratorFramework {
    let client = CuratorFramework::builder()
        .connect_string(servers)
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        .build()
        .unwrap();
    let returns = returns.clone();
    client.add_connection_state_listener(move |client, state| {
        if state == ConnectionState::Reconnected {
            returns.lock().unwrap().insert(client.session_id(), Instant::now());
        }
    });
    client.start().unwrap();
    client
}

/// The most that fall into any tick.
fn most_in_a_tick(mut times: Vec<Instant>) -> usize {
    times.sort();
    let from = |(index, begin): (usize, &Instant)| times[index..].partition_point(|time| *time <= *begin + TICK);
    times.iter().enumerate().map(from).max().unwrap_or(0)
}

/// Three servers, each behind a proxy that can refuse, and the clients.
struct Scene {
    cluster: TestingCluster,
    proxies: Vec<FaultProxy>,
    clients: Vec<CuratorFramework>,
    returns: Returns,
}

impl Scene {
    fn new() -> Scene {
        let cluster = TestingCluster::builder(3).sync_limit(40).start().unwrap();
        let start = |server: &TestingServer| FaultProxy::start(server.connect_string()).unwrap();
        let proxies: Vec<FaultProxy> = cluster.servers().iter().map(start).collect();
        let servers = proxies.iter().map(FaultProxy::connect_string).collect::<Vec<_>>().join(",");
        let returns = Returns::default();
        let clients: Vec<CuratorFramework> = (0..CLIENTS).map(|_| client(&servers, &returns)).collect();
        eventually("all are connected", || clients.iter().all(CuratorFramework::is_connected));
        Scene { cluster, proxies, clients, returns }
    }

    /// All servers are gone, and the first comes back that much earlier than the others.
    fn outage(&self, head_start: Duration) {
        self.proxies.iter().for_each(FaultProxy::refuse);
        let is_in_vain = |client: &CuratorFramework| {
            client.connection_error().is_some_and(|error| error.to_string().contains("refused"))
        };
        eventually("all have looked for a server in vain", || {
            self.proxies.iter().for_each(|proxy| _ = proxy.cut());
            self.clients.iter().all(is_in_vain)
        });
        self.returns.lock().unwrap().clear();
        let begin = Instant::now();
        for (index, proxy) in self.proxies.iter().enumerate() {
            if index == 1 {
                thread::sleep(head_start);
            }
            proxy.pass().unwrap();
        }
        eventually("all are back", || self.returns.lock().unwrap().len() == CLIENTS);
        println!("back within {:?}, one server {head_start:?} before the others", begin.elapsed());
    }

    /// When the sessions that a server has now came back.
    fn returns_to(&self, server: &TestingServer) -> Vec<Instant> {
        let connections = server.four_letter_word("cons").unwrap();
        let is_there = |session: &i64| connections.contains(&format!(",sid=0x{session:x},"));
        let returns = self.returns.lock().unwrap();
        returns.iter().filter(|(session, _)| is_there(session)).map(|(_, at)| *at).collect()
    }

    fn is_even(&self) -> bool {
        let mut times: Vec<Vec<Instant>> = Vec::new();
        // One that changes its server while they are asked is named by none of them.
        eventually("the servers name all sessions", || {
            times = self.cluster.servers().iter().map(|server| self.returns_to(server)).collect();
            times.iter().map(Vec::len).sum::<usize>() == CLIENTS
        });
        let sessions: Vec<usize> = times.iter().map(Vec::len).collect();
        let at_once: Vec<usize> = times.into_iter().map(most_in_a_tick).collect();
        println!("sessions of each server: {sessions:?}; at most in two seconds: {at_once:?}");
        sessions.iter().all(|&count| count * 30 <= CLIENTS * 13) && at_once.iter().all(|&count| count <= 200)
    }
}

#[test]
fn five_hundred_sessions_come_back_to_three_servers_alike_and_not_all_at_once() {
    let scene = Scene::new();
    for head_start in [0, 300] {
        // A machine that runs one of the servers late sends the sessions to the others, which they give way to for a part of
        // their time only: at a load of 45 four outages in a row were uneven. Without giving way no outage of twelve was even: 200
        // to 495 sessions on one server.
        let is_even = (0..OUTAGES).any(|_| {
            scene.outage(Duration::from_millis(head_start));
            scene.is_even()
        });
        assert!(is_even, "more than 1.3 of the mean on a server, or more than 200 in two seconds, {OUTAGES} times");
    }
}
