//! [`LocalQueue`] in every schedule: two processes of two or three threads each, readers and writers, against a model of the
//! server. With too many states a scenario is explored up to the depth that it prints; `MODEL_STATES` says how many are enough.
//!
//! The contender at the servers has a model check of its own. Here it is a create, and a grant as soon as its znode is
//! the first; all the rest is as in [`crate::locks::threads::caching::cache`]: the requests and their order, and the
//! replies, which may come late or never.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../../../../tests/support/fingerprint.rs"]
mod fingerprint;
mod process;
mod schedule;
mod server;
mod steps;
mod world;

use std::{collections::VecDeque, env};

use self::{
    fingerprint::fingerprint,
    process::{Omitted, Process, THREADS, Task, Tasks, always},
    schedule::Action,
    world::World,
};
use crate::base::collections::HashMap;
#[cfg(doc)]
use crate::locks::threads::caching::local_queue::LocalQueue;

/// How many states of one scenario are enough by default.
const ENOUGH_STATES: usize = 25_000;

/// How many schedules by chance. A condition that is left out shows within a few hundred.
const SCHEDULES: u64 = 20_000;

/// The tasks of the threads: of the one process, then of the other.
const SCENARIOS: [[Task; 4]; 8] = {
    use Task::{Read, TryRead, TryWrite, Write, WriteThenRead};
    [
        [Write, Write, Write, Write],
        [Read, Read, Read, Read],
        [Read, Write, Read, Write],
        [Read, Read, Write, Read],
        [WriteThenRead, Read, Read, Write],
        [WriteThenRead, Write, WriteThenRead, Read],
        [TryWrite, Read, Read, Write],
        [TryRead, Read, TryWrite, Write],
    ]
};

fn explore_all(rounds: u8, faults: u8) {
    for tasks in SCENARIOS {
        let name = format!("{tasks:?}, {rounds} rounds, {faults} faults");
        assert!(explore(&name, always(tasks), rounds, faults) > 1_000, "{name}");
    }
}

fn explore(name: &str, tasks: Tasks, rounds: u8, faults: u8) -> usize {
    let processes = [1, 2].map(|session| Process::new(session, 2, rounds, true));
    let first = World::new(tasks, processes.into(), faults, Omitted::Nothing);
    let mut parents: HashMap<u64, Option<(u64, Action)>> = [(fingerprint(&first), None)].into_iter().collect();
    let mut queue = VecDeque::from([(first, 0)]);
    let most = env::var("MODEL_STATES").map_or(ENOUGH_STATES, |most| most.parse().unwrap());
    let mut depth = None;
    while let Some((world, steps)) = queue.pop_front() {
        let at = fingerprint(&world);
        let actions = world.actions();
        let fail = |what: String, last: Option<Action>| {
            let mut trace: Vec<Action> = last.into_iter().collect();
            let mut at = at;
            while let Some(Some((before, action))) = parents.get(&at) {
                trace.push(*action);
                at = *before;
            }
            trace.reverse();
            panic!("{name}: {what}, after {trace:#?}");
        };
        if actions.is_empty()
            && let Err(what) = world.check_rest()
        {
            fail(what, None);
        }
        let mut found = Vec::new();
        for action in actions.into_iter().chain(world.faults()) {
            let mut next = world.clone();
            if let Err(what) = next.apply(action) {
                fail(what, Some(action));
            }
            found.push((next, action));
        }
        for (next, action) in found {
            let key = fingerprint(&next);
            if !parents.contains_key(&key) {
                if parents.len() >= most {
                    depth.get_or_insert(steps);
                    continue;
                }
                parents.insert(key, Some((at, action)));
                queue.push_back((next, steps + 1));
            }
        }
    }
    let depth = depth.map_or("all".to_owned(), |steps: usize| format!("up to {steps} steps"));
    println!("{name}: {} states, {depth}", parents.len());
    parents.len()
}

mod slow {
    use super::*;

    #[test]
    fn schedules_by_chance_keep_the_rules() {
        let steps: usize = (1..=SCHEDULES)
            .map(|seed| by_chance(seed, Omitted::Nothing).unwrap_or_else(|what| panic!("seed {seed}: {what}")))
            .sum();
        println!("{SCHEDULES} schedules of {steps} steps");
    }

    #[test]
    fn every_schedule_of_two_processes_keeps_the_rules() {
        explore_all(1, 0);
    }

    #[test]
    fn every_schedule_of_two_processes_keeps_the_rules_in_spite_of_a_fault() {
        explore_all(1, 1);
    }

    #[test]
    fn every_schedule_of_two_rounds_keeps_the_rules() {
        explore_all(2, 0);
    }

    #[test]
    fn every_schedule_keeps_the_rules_in_spite_of_two_faults() {
        explore_all(1, 2);
    }
}

/// One schedule by chance, up to its rest.
fn by_chance(seed: u64, omitted: Omitted) -> Result<usize, String> {
    let mut trace = Vec::new();
    try_by_chance(seed, omitted, &mut trace).map_err(|what| format!("{what}, after {trace:?}"))
}

fn try_by_chance(seed: u64, omitted: Omitted, trace: &mut Vec<Action>) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut task = || {
        [Task::Write, Task::Read, Task::Read, Task::WriteThenRead, Task::TryWrite, Task::TryRead][random.usize(0..6)]
    };
    let tasks = std::array::from_fn(|_| std::array::from_fn(|_| std::array::from_fn(|_| task())));
    let (threads, rounds) = (random.usize(2..=THREADS), random.u8(1..4));
    let processes = [1, 2].map(|session| Process::new(session, threads, rounds, random.u8(..4) != 0));
    let mut world = World::new(tasks, processes.into(), random.u8(0..8), omitted);
    let one_in = [3, 10, 30][random.usize(0..3)];
    for steps in 0..20_000 {
        let (actions, faults) = (world.actions(), world.faults());
        let fault = random.choice(&faults).filter(|_| random.usize(0..one_in) == 0);
        let Some(action) = fault.or_else(|| random.choice(&actions)) else {
            return world.check_rest().map(|()| steps);
        };
        trace.push(*action);
        world.apply(*action)?;
    }
    Err("it never comes to rest".to_owned())
}

#[test]
fn without_any_one_condition_of_a_grant_it_is_found_missing() {
    for omitted in [Omitted::Connection, Omitted::Watch, Omitted::ValidUntil] {
        let found = (1..200_000).find_map(|seed| by_chance(seed, omitted).err().map(|what| (seed, what)));
        println!("without {omitted:?}: {found:?}");
        assert!(found.is_some(), "{omitted:?} is not needed");
    }
}
