//! The contract of locks (`tests/contract`) in virtual time: the same cases, for every kind of lock.
//!
//! [`seam`] is what they have here of the machine and of the servers. Each case runs with a few seeds, always the same;
//! `SIM_SEED` names another one, and no other runs then.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "written for real servers as well")]
#![allow(dead_code, reason = "and some of it only for those")]

#[path = "../../../tests/contract/adapters.rs"]
mod adapters;
#[path = "../../../tests/contract/cases/mod.rs"]
mod cases;
#[path = "../../../tests/contract/history.rs"]
mod history;
mod seam;
#[path = "../../../tests/contract/subject.rs"]
mod subject;
#[path = "../../../tests/contract/table.rs"]
mod table;
#[path = "../../../tests/contract/world.rs"]
mod world;

use std::time::Duration;

use self::{subject::Subject, table::*};
use super::{
    ensemble::EnsembleConfig,
    world::{World, WorldConfig},
};

/// How many seeds each case runs with.
const SEEDS: u64 = 2;

/// Runs a case in virtual time.
fn play(subject: &'static Subject, case: fn(&'static Subject)) {
    // As quick as the servers of `tests/support`.
    let servers = EnsembleConfig {
        servers: 1,
        tick: Duration::from_millis(100),
        container_interval: Duration::from_millis(100),
        ..EnsembleConfig::default()
    };
    let config = WorldConfig {
        servers,
        // The cases know no machine that does not run them.
        stall: Some(Duration::ZERO),
        longest: Duration::from_secs(1800),
        most_steps: 10_000_000,
        ..WorldConfig::default()
    };
    let only = std::env::var("SIM_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in only.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        let report = World::run(seed, config.clone(), |_| case(subject));
        println!("seed {seed}: {} steps, {:?}", report.steps, report.time);
        report.assert_ok();
    }
}

/// The locks by name, for processes of a case.
fn subject_of(name: &str) -> &'static Subject {
    let locks = OF_THEIR_OWN.iter().chain(ALIKE).map(|lock| lock.subject);
    locks.into_iter().find(|subject| subject.name == name).unwrap()
}

locks_of_their_own! { contract }
locks_alike! { contract }
