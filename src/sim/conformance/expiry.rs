//! How long after its last sign of life a session ends: in the model, and on real servers.

use std::{ops::Range, time::Duration};

use super::{
    dialogue::{Came, Servers},
    model::Model,
    plain::{PATIENCE, answers, ask, open},
    real::{Real, Streams},
    tests::patient_cluster,
};
use crate::{
    machine::Machine,
    proto::{
        header::decode_header,
        request::Request,
        types::{Acl, CreateMode, Notification},
    },
    sim::ensemble::EnsembleConfig,
    testing::TestingServer,
};

const TICK: Duration = Duration::from_millis(400);
const TIMEOUT: Duration = Duration::from_millis(1200);
const SESSIONS: u32 = 12;

/// Real servers count in milliseconds, and cut what is less.
const MILLISECOND: Duration = Duration::from_millis(1);

fn path(number: u32) -> String {
    format!("/expiry-{number}")
}

/// For each session how long after its last ping its znode went: from the ping's answer, and from the ping.
fn lifetimes<S: Servers>(servers: &mut S, at: &str) -> Vec<Range<Duration>> {
    let conns: Vec<usize> = (0..SESSIONS).map(|number| begin(servers, at, number)).collect();
    let watcher = open(servers, "leader", Duration::from_secs(60));
    ask(servers, watcher, &Request::Sync { path: "/".into() });
    for number in 0..SESSIONS {
        ask(servers, watcher, &Request::Exists { path: path(number), watch: true });
    }
    // A session that has just begun is touched by all servers once more.
    servers.pass(TICK);
    // On a machine that lets us wait, a session may have ended before its ping.
    let pings = conns.iter().map(|conn| {
        servers.pass(TICK * 3 / SESSIONS / 2);
        let sent = servers.now();
        answers(servers, *conn, &Request::Ping).then(|| sent..servers.now())
    });
    let pings: Vec<Option<Range<Duration>>> = pings.collect();
    let ends = ends(servers, watcher);
    conns.into_iter().chain([watcher]).for_each(|conn| servers.hang_up(conn));
    let life = |(ping, end): (&Option<Range<Duration>>, Duration)| {
        ping.as_ref().map(|ping| end.saturating_sub(ping.end)..end.saturating_sub(ping.start))
    };
    pings.iter().zip(ends).filter_map(life).collect()
}

fn begin<S: Servers>(servers: &mut S, at: &str, number: u32) -> usize {
    let conn = open(servers, at, TIMEOUT);
    let request =
        Request::Create { path: path(number), data: Vec::new(), acl: Acl::open_unsafe(), mode: CreateMode::Ephemeral };
    ask(servers, conn, &request);
    conn
}

/// When each session's znode went.
fn ends<S: Servers>(servers: &mut S, watcher: usize) -> Vec<Duration> {
    let mut ends = vec![Duration::ZERO; SESSIONS as usize];
    for _ in 0..SESSIONS {
        let Came::Frame(frame) = servers.read(watcher, PATIENCE) else { panic!("a session does not end") };
        let (_, body) = decode_header(&frame).unwrap();
        let path = Notification::decode(body).unwrap().path;
        let number: usize = path.rsplit('-').next().unwrap().parse().unwrap();
        ends[number] = servers.now();
    }
    ends
}

/// The shortest and the longest life that the model shows, over many seeds.
fn predicted(config: &EnsembleConfig, at: &str) -> Range<Duration> {
    let lives: Vec<_> = (0..100).flat_map(|seed| lifetimes(&mut Model::new(config.clone(), seed), at)).collect();
    lives.iter().map(|life| life.start).min().unwrap()..lives.iter().map(|life| life.end).max().unwrap()
}

fn assert_as_predicted(config: &EnsembleConfig, real: &Real, at: &str, longest: Duration) {
    let predicted = predicted(config, at);
    assert!(predicted.start >= TIMEOUT && predicted.end > longest - TICK / 4, "{predicted:?}");
    assert!(predicted.end <= longest + TICK / 20, "{predicted:?}");
    let machine = Machine::watch();
    let begin = std::time::Instant::now();
    let measured = lifetimes(&mut Streams::new(real), at);
    let late = machine.lateness(&(begin..std::time::Instant::now()));
    println!("{at}: predicted {predicted:?}, measured {measured:?}, late by {late:?}");
    assert!(!measured.is_empty(), "no session was pinged in time");
    for life in &measured {
        assert!(life.end + MILLISECOND * 2 >= predicted.start, "{life:?} is shorter than {predicted:?}");
        assert!(life.start <= predicted.end + late + MILLISECOND * 20, "{life:?} is longer than {predicted:?}");
    }
}

fn config(config: EnsembleConfig) -> EnsembleConfig {
    EnsembleConfig { tick: TICK, min_session_timeout: TICK, ..config }
}

#[test]
fn sessions_of_one_server_end_when_the_model_says() {
    let real = Real::Alone(Box::new(TestingServer::builder().tick_time(TICK).start().unwrap()));
    assert_as_predicted(&config(EnsembleConfig::alone()), &real, "leader", TIMEOUT + TICK);
}

#[test]
fn sessions_of_a_leader_and_of_a_follower_end_when_the_model_says() {
    let real = Real::Cluster(patient_cluster(TICK));
    let config = config(EnsembleConfig::default());
    assert_as_predicted(&config, &real, "leader", TIMEOUT + TICK);
    assert_as_predicted(&config, &real, "follower", TIMEOUT + TICK * 3 / 2);
}
