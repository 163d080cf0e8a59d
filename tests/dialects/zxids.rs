//! A fencing token is the zxid in the header of a create's reply: it has to be the czxid that the server shows.
//!
//! `ZXIDS=100000` asks for so many creates of each kind and server.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use curator_locks::{
    Acl, CreateMode,
    testing::{TestingCluster, TestingServer},
    unversioned::{Request, Response},
};

use crate::support::{PATIENCE, eventually, quick_server, session::RawSession};

/// How many creates go out in one write.
const BATCH: usize = 20;

/// How many there are of each kind on each server, if the environment does not say.
const CREATES: usize = 400;

const CLIENTS: usize = 4;
const WRITERS: usize = 2;

#[test]
fn a_replys_zxid_is_the_znodes_czxid_on_a_single_server() {
    let server = quick_server().start().unwrap();
    try_all(&server, &[&server], "single");
}

#[test]
fn a_replys_zxid_is_the_znodes_czxid_at_leader_follower_and_observer() {
    let cluster = TestingCluster::builder(3).observers(1).start().unwrap();
    cluster.wait_until_serving(PATIENCE).unwrap();
    let servers: Vec<_> = cluster.servers().iter().collect();
    let leader = cluster.wait_for_leader(PATIENCE).unwrap();
    let follower = (0..3).find(|index| *index != leader).unwrap();
    for (index, name) in [(leader, "leader"), (follower, "follower"), (3, "observer")] {
        try_all(servers[index], &servers, name);
    }
}

/// Creates on one server by several clients, beside others that write through all of them.
fn try_all(server: &TestingServer, all: &[&TestingServer], name: &str) {
    let creates = env::var("ZXIDS").map_or(CREATES, |wanted| wanted.parse().unwrap());
    let is_over = AtomicBool::new(false);
    let setting_up = RawSession::open(server);
    let root = format!("/{name}");
    setting_up.ask([create(&root, CreateMode::Persistent)]);
    let rounds = creates.div_ceil(CLIENTS * BATCH);
    thread::scope(|scope| {
        for writer in 0..WRITERS * all.len() {
            let (busy, is_over) = (all[writer % all.len()], &is_over);
            scope.spawn(move || write(&RawSession::open(busy), &format!("/busy-{name}-{writer}"), is_over));
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let path = format!("{root}/{client}-");
                scope.spawn(move || look_at(&RawSession::open(server), &path, rounds))
            })
            .collect();
        let wrong: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        is_over.store(true, Ordering::SeqCst);
        println!("{name}: {} creates, plain and in transactions, {} wrong", 2 * rounds * CLIENTS * BATCH, wrong.len());
        assert!(wrong.is_empty(), "{name}: {:?}", wrong.first());
    });
}

/// Writes as fast as it goes.
fn write(session: &RawSession, path: &str, is_over: &AtomicBool) {
    session.ask([create(path, CreateMode::Ephemeral)]);
    while !is_over.load(Ordering::SeqCst) {
        session.ask((0..BATCH).map(|_| Request::SetData { path: path.to_owned(), data: vec![1; 64], version: -1 }));
    }
}

/// The creates whose reply and whose znode name different transactions.
fn look_at(session: &RawSession, path: &str, rounds: usize) -> Vec<(String, i64, i64)> {
    let mut wrong = Vec::new();
    for _ in 0..rounds {
        let plain = (0..BATCH).map(|_| create(path, CreateMode::EphemeralSequential));
        let check = || Request::Check { path: "/".into(), version: -1 };
        let within = (0..BATCH).map(|_| Request::Multi(vec![check(), create(path, CreateMode::EphemeralSequential)]));
        let made: Vec<(String, i64)> =
            session.ask(plain.chain(within)).into_iter().map(|reply| created(reply.unwrap())).collect();
        let shown = session.ask(made.iter().map(|(path, _)| Request::Exists { path: path.clone(), watch: false }));
        for ((path, zxid), shown) in made.iter().zip(shown) {
            let Ok(Response::Stat(stat)) = shown else { panic!("{path}: {shown:?}") };
            if stat.czxid != *zxid {
                wrong.push((path.clone(), *zxid, stat.czxid));
            }
        }
        session.delete(&made.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>());
    }
    wrong
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create { path: path.to_owned(), data: b"192.0.2.1".to_vec(), acl: Acl::open_unsafe(), mode }
}

fn created(response: Response) -> (String, i64) {
    match response {
        Response::Created { path, czxid } => (path, czxid),
        Response::Multi(mut results) => created(results.pop().unwrap().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The znodes of the sessions above go with them: nothing else of theirs is looked for.
#[test]
fn a_transaction_is_answered_with_one_zxid() {
    let server = quick_server().start().unwrap();
    let session = RawSession::open(&server);
    let both = Request::Multi(vec![create("/a", CreateMode::Persistent), create("/b", CreateMode::Container)]);
    let Response::Multi(results) = session.ask([both]).pop().unwrap().unwrap() else { panic!("no transaction") };
    let zxids: Vec<i64> = results.into_iter().map(|result| created(result.unwrap()).1).collect();
    assert_eq!(zxids[0], zxids[1]);
    let shown = |path: &str| {
        let exists = Request::Exists { path: path.into(), watch: false };
        matches!(session.ask([exists]).pop(), Some(Ok(Response::Stat(stat))) if stat.czxid == zxids[0])
    };
    eventually("both are there", || shown("/a") && shown("/b"));
}
