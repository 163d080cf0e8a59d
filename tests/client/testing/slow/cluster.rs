//! `TestingCluster`.

use std::time::Duration;

use curator_locks::testing::{TestingCluster, TestingError, TestingServer, expire_session};

use crate::support::{
    eventually,
    raw::{OK, RawClient},
};

const SESSION: Duration = Duration::from_secs(60);
const ELECTION: Duration = Duration::from_secs(60);

/// So many ticks of half a second one server may stand still, and the others do not elect another leader.
const PATIENT: u32 = 20;

/// Three servers that keep their leader and their connections while one of them stands still.
fn patient() -> TestingCluster {
    TestingCluster::builder(3).sync_limit(PATIENT).start().unwrap()
}

fn connect(cluster: &TestingCluster, index: usize) -> RawClient {
    RawClient::connect(&cluster.servers()[index].connect_string(), SESSION).unwrap()
}

fn follower(cluster: &TestingCluster) -> usize {
    let leader = cluster.wait_for_leader(ELECTION).unwrap();
    (leader + 1) % cluster.servers().len()
}

fn await_no_service(what: &str, server: &TestingServer) {
    let says_so = |srvr: String| srvr.contains("not currently serving");
    eventually(what, || server.four_letter_word("srvr").is_ok_and(says_so));
}

#[test]
fn three_servers_share_their_data_and_their_sessions() {
    let cluster = patient();
    assert_eq!(cluster.connect_string().split(',').count(), 3);
    let mut clients: Vec<RawClient> = (0..3).map(|index| connect(&cluster, index)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        eventually("its server names the session", || cluster.server_of(client.session_id) == Some(index));
        assert_eq!(client.create(&format!("/from{index}"), false).unwrap(), OK);
    }
    eventually("all znodes are at all servers", || {
        clients.iter_mut().all(|client| (0..3).all(|index| client.exists(&format!("/from{index}")).unwrap() == OK))
    });
    let first = &clients[0];
    expire_session(&cluster.servers()[1].connect_string(), first.session_id, &first.password).unwrap();
    let field = format!(",sid=0x{:x},", first.session_id);
    let is_without = |server: &TestingServer| server.four_letter_word("cons").is_ok_and(|cons| !cons.contains(&field));
    eventually("the session has no server", || cluster.servers().iter().all(is_without));
    assert_eq!(cluster.server_of(first.session_id), None);
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back_as_a_follower() {
    let cluster = patient();
    let leader = cluster.wait_for_leader(ELECTION).unwrap();
    assert_eq!(connect(&cluster, leader).create("/kept", false).unwrap(), OK);
    cluster.servers()[leader].kill().unwrap();
    let next = cluster.wait_for_leader(ELECTION).unwrap();
    assert_ne!(next, leader);
    cluster.servers()[leader].restart().unwrap();
    assert_eq!(cluster.wait_for_leader(ELECTION).unwrap(), next);
    assert_eq!(connect(&cluster, leader).exists("/kept").unwrap(), OK);
}

#[test]
fn a_paused_leader_is_replaced() {
    let cluster = TestingCluster::builder(3).sync_limit(2).start().unwrap();
    let leader = cluster.wait_for_leader(ELECTION).unwrap();
    cluster.servers()[leader].pause().unwrap();
    assert_ne!(cluster.wait_for_leader(ELECTION).unwrap(), leader);
    cluster.servers()[leader].resume().unwrap();
    cluster.wait_until_serving(ELECTION).unwrap();
}

#[test]
fn two_of_three_serve_and_one_does_not() {
    let cluster = patient();
    let leader = cluster.wait_for_leader(ELECTION).unwrap();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    cluster.servers()[others[0]].kill().unwrap();
    assert_eq!(connect(&cluster, leader).create("/two", false).unwrap(), OK);
    cluster.servers()[others[1]].kill().unwrap();
    await_no_service("the last server serves no more", &cluster.servers()[leader]);
    let error = cluster.servers()[leader].wait_until_serving(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, TestingError::StartFailed { .. }), "{error}");
    cluster.servers()[others[0]].restart().unwrap();
    assert_eq!(connect(&cluster, others[0]).exists("/two").unwrap(), OK);
}

#[test]
fn a_restart_of_all_keeps_data_and_sessions() {
    let cluster = patient();
    let mut client = connect(&cluster, 0);
    assert_eq!(client.create("/session", true).unwrap(), OK);
    cluster.kill_all().unwrap();
    assert!(cluster.servers().iter().all(|server| !server.is_running()));
    cluster.restart_all().unwrap();
    let address = cluster.servers()[2].connect_string();
    let mut client = RawClient::resume(&address, SESSION, client.session_id, &client.password).unwrap();
    assert_ne!(client.session_id, 0, "the session is gone");
    assert_eq!(client.exists("/session").unwrap(), OK);
}

#[test]
fn a_rolling_restart_leaves_a_majority_at_all_times() {
    let cluster = patient();
    for index in 0..3 {
        cluster.servers()[index].restart().unwrap();
        assert_eq!(connect(&cluster, index).create(&format!("/after{index}"), false).unwrap(), OK);
    }
}

#[test]
fn a_severed_follower_serves_no_more_until_it_is_mended() {
    let cluster = TestingCluster::builder(3).sync_limit(PATIENT).severable(true).start().unwrap();
    let follower = follower(&cluster);
    let leader = cluster.wait_for_leader(ELECTION).unwrap();
    assert_eq!(connect(&cluster, follower).create("/before", false).unwrap(), OK);
    cluster.sever(follower).unwrap();
    await_no_service("the follower notices", &cluster.servers()[follower]);
    assert_eq!(cluster.wait_for_leader(ELECTION).unwrap(), leader);
    assert_eq!(connect(&cluster, leader).create("/meanwhile", false).unwrap(), OK);
    cluster.mend(follower).unwrap();
    cluster.wait_until_serving(ELECTION).unwrap();
    assert_eq!(connect(&cluster, follower).exists("/meanwhile").unwrap(), OK);
}

#[test]
fn a_cluster_without_proxies_cannot_be_severed() {
    let cluster = TestingCluster::start(1).unwrap();
    assert!(matches!(cluster.sever(0), Err(TestingError::Refused(_))));
}
