//! How long after its last sign of life a session ends: in the model, and on real servers.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    dialogue::{Came, Servers},
    model::Model,
    plain::{PATIENCE, answers, ask, open},
    real::{Real, Streams},
    tests::{ATTEMPTS, PUNCTUAL, patient_cluster},
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
/// Long enough for a late machine to have a follower hand over a ping before the session ends.
const TIMEOUT: Duration = Duration::from_millis(2400);
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
    // On a machine that lets us wait, a session may have ended before its znode is watched, or its ping.
    let mut ends = vec![None; SESSIONS as usize];
    let is_watched: Vec<bool> = (0..SESSIONS).map(|number| is_there(servers, watcher, number, &mut ends)).collect();
    // A session that has just begun is touched by all servers once more.
    servers.pass(TICK);
    let pings = conns.iter().map(|conn| {
        servers.pass(TICK * 3 / SESSIONS / 2);
        let sent = servers.now();
        answers(servers, *conn, &Request::Ping).then(|| sent..servers.now())
    });
    let pings: Vec<Option<Range<Duration>>> = pings.collect();
    while is_watched.iter().zip(&ends).any(|(is_watched, end)| *is_watched && end.is_none()) {
        let frame = frame(servers, watcher);
        note(decode_header(&frame).unwrap().1, servers.now(), &mut ends);
    }
    conns.into_iter().chain([watcher]).for_each(|conn| servers.hang_up(conn));
    let life = |(ping, end): (Option<Range<Duration>>, Option<Duration>)| {
        let (ping, end) = ping.zip(end)?;
        Some(end.saturating_sub(ping.end)..end.saturating_sub(ping.start))
    };
    pings.into_iter().zip(ends).filter_map(life).collect()
}

fn begin<S: Servers>(servers: &mut S, at: &str, number: u32) -> usize {
    let conn = open(servers, at, TIMEOUT);
    let request =
        Request::Create { path: path(number), data: Vec::new(), acl: Acl::open_unsafe(), mode: CreateMode::Ephemeral };
    ask(servers, conn, &request);
    conn
}

fn frame<S: Servers>(servers: &mut S, conn: usize) -> Vec<u8> {
    let Came::Frame(frame) = servers.read(conn, PATIENCE) else { panic!("a session does not end") };
    frame
}

/// Whether the session's znode is there, and watched from here on. Notes the ends that are told meanwhile.
fn is_there<S: Servers>(servers: &mut S, watcher: usize, number: u32, ends: &mut [Option<Duration>]) -> bool {
    servers.write(watcher, &Request::Exists { path: path(number), watch: true }.encode(1));
    loop {
        let frame = frame(servers, watcher);
        let (header, body) = decode_header(&frame).unwrap();
        if header.xid == 1 {
            return header.err == 0;
        }
        note(body, servers.now(), ends);
    }
}

/// Notes when a session's znode went.
fn note(event: &[u8], now: Duration, ends: &mut [Option<Duration>]) {
    let path = Notification::decode(event).unwrap().path;
    ends[path.rsplit('-').next().unwrap().parse::<usize>().unwrap()] = Some(now);
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
    let is_predicted = |life: &Range<Duration>| {
        life.end + MILLISECOND * 2 >= predicted.start && life.start <= predicted.end + PUNCTUAL
    };
    // A machine that stands still lets sessions end before their pings, or before a follower hands the pings over.
    for _ in 0..ATTEMPTS {
        let begin = Instant::now();
        let measured = lifetimes(&mut Streams::new(real), at);
        let late = machine.lateness(&(begin..Instant::now()));
        println!("{at}: predicted {predicted:?}, measured {measured:?}, late by {late:?}");
        if !measured.is_empty() && measured.iter().all(is_predicted) {
            return;
        }
        assert!(late >= PUNCTUAL, "not as predicted on a machine that is in time");
    }
    panic!("not as predicted in {ATTEMPTS} attempts");
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
