//! For how long a server that is cut off from the others goes on with its clients: in the model, and on real servers.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    dialogue::{Came, Servers},
    model::Model,
    plain::open,
    real::{Real, Streams},
    tests::{ATTEMPTS, PUNCTUAL},
};
use crate::{machine::Machine, proto::request::Request, sim::ensemble::EnsembleConfig, testing::TestingCluster};

const TICK: Duration = Duration::from_millis(400);
const SYNC_LIMIT: u32 = 4;
/// How often the client asks.
const PACE: Duration = Duration::from_millis(20);

/// How long after the cut the server ended its client's connection: at least, and at most.
fn goes_on_for<S: Servers>(servers: &mut S, at: &str) -> Range<Duration> {
    let client = open(servers, at, Duration::from_secs(60));
    let writer = open(servers, at, Duration::from_secs(60));
    servers.pass(TICK);
    let before = servers.now();
    servers.cut_off(at);
    let after = servers.now();
    servers.write(writer, &Request::Delete { path: "/none".into(), version: -1 }.encode(1));
    let mut answered = servers.now();
    loop {
        servers.write(client, &Request::Exists { path: "/".into(), watch: false }.encode(1));
        match servers.read(client, TICK * 10) {
            Came::Frame(_) => answered = servers.now(),
            Came::End => break,
            Came::Nothing => panic!("neither an answer nor an end"),
        }
        servers.pass(PACE);
    }
    let ended = servers.now();
    // Nothing was written meanwhile.
    assert_eq!(servers.read(writer, TICK), Came::End);
    answered.saturating_sub(after)..ended - before
}

fn assert_as_predicted(config: &EnsembleConfig, at: &str) {
    let predicted: Vec<_> = (0..100).map(|seed| goes_on_for(&mut Model::new(config.clone(), seed), at)).collect();
    let shortest = predicted.iter().map(|time| time.start).min().unwrap();
    let longest = predicted.iter().map(|time| time.end).max().unwrap();
    let machine = Machine::watch();
    // A machine that stands still lets servers hear of each other late, and count from then.
    for _ in 0..ATTEMPTS {
        let real = TestingCluster::builder(3).tick_time(TICK).sync_limit(SYNC_LIMIT).severable(true).start().unwrap();
        let real = Real::Cluster(real);
        let begin = Instant::now();
        let measured = goes_on_for(&mut Streams::new(&real), at);
        let late = machine.lateness(&(begin..Instant::now()));
        println!("{at}: predicted {shortest:?} to {longest:?}, measured {measured:?}, late by {late:?}");
        if measured.end + PACE >= shortest && measured.start <= longest + PACE {
            return;
        }
        assert!(late >= PUNCTUAL, "not as predicted on a machine that is in time");
    }
    panic!("not as predicted in {ATTEMPTS} attempts");
}

fn config() -> EnsembleConfig {
    EnsembleConfig { tick: TICK, sync_limit: SYNC_LIMIT, ..EnsembleConfig::default() }
}

#[test]
fn a_leader_that_is_cut_off_goes_on_with_its_clients_as_long_as_the_model_says() {
    assert_as_predicted(&config(), "leader");
}

#[test]
fn a_follower_that_is_cut_off_goes_on_with_its_clients_as_long_as_the_model_says() {
    assert_as_predicted(&config(), "follower");
}
