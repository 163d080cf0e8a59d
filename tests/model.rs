//! The contender under every lock, against a model of the servers: every schedule.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod model {
    pub mod check;
    pub mod client;
    pub mod explore;
    pub mod random;
    pub mod rules;
    pub mod scenarios;
    pub mod server;
    pub mod shared;
    pub mod shell;
    pub mod world;
}

use std::time::Instant;

use model::{explore::explore, rules::Rules, scenarios};

fn explored(name: &str, rules: &Rules, most_states: usize) {
    let begin = Instant::now();
    let explored = explore(rules, most_states);
    let length = if explored.is_complete { "all".to_owned() } else { format!("up to {} steps", explored.depth) };
    println!(
        "{name:<40} {:>9} states {:>9} steps, {length} ({:.1} s)",
        explored.states,
        explored.steps,
        begin.elapsed().as_secs_f64()
    );
    if let Some(counterexample) = explored.counterexample {
        println!("{name}: {counterexample}");
    }
}

#[test]
fn survey() {
    let most: usize = std::env::var("MODEL_STATES").map_or(300_000, |n| n.parse().unwrap());
    for (faults, name, rules) in [
        (2, "mutex 2", scenarios::mutex(2)),
        (1, "mutex 3", scenarios::mutex(3)),
        (2, "mutex 2 in one process", scenarios::mutex_in_one_process(2)),
        (1, "mutex 3 in two processes", scenarios::mutex_in_one_process(3)),
        (2, "unlisted 1", scenarios::unlisted(1)),
        (1, "unlisted 2", scenarios::unlisted(2)),
        (1, "unlisted 2 in one process", scenarios::unlisted_in_one_process()),
        (1, "mutex 2 that watch all", scenarios::mutex_that_watches_all(2)),
        (1, "mutex, one tries", scenarios::tried(model::rules::Lock::mutex, 1)),
        (1, "unfair, one tries", scenarios::tried(model::rules::Lock::unfair, 1)),
        (1, "mutex 2 with delays", Rules { has_delays: true, ..scenarios::mutex(2) }),
        (1, "mutex 2 without directory", Rules { has_directories: false, ..scenarios::mutex(2) }),
        (1, "unfair 2 without directory", Rules { has_directories: false, ..scenarios::unfair(2) }),
        (1, "two leases of three", scenarios::many_leases(2)),
        (2, "downgrade", scenarios::read_write(0, 0)),
        (2, "downgrade, writer", scenarios::read_write(1, 0)),
        (2, "downgrade, reader", scenarios::read_write(0, 1)),
        (1, "downgrade, writer, reader", scenarios::read_write(1, 1)),
        (2, "downgrade, mutex", scenarios::beside_read_write(1, 0)),
        (1, "downgrade, mutex, reader", scenarios::beside_read_write(1, 1)),
        (1, "semaphore, 1 of 2", scenarios::semaphore(2, 1)),
        (2, "semaphore, 1 of 2", scenarios::semaphore(2, 1)),
        (1, "semaphore, 2 of 3", scenarios::semaphore(3, 2)),
        (2, "unfair 2", scenarios::unfair(2)),
        (1, "unfair 3", scenarios::unfair(3)),
        (2, "classical 2", scenarios::classical(2)),
        (1, "classical 3", scenarios::classical(3)),
    ] {
        explored(&format!("{name}, {faults} faults"), &rules.with_faults(faults), most);
    }
}

#[test]
fn each_condition_of_a_grant_is_needed() {
    use curator_locks::hooks::contender::Condition;
    for condition in [
        Condition::Kind,
        Condition::LastLook,
        Condition::ValidUntil,
        Condition::AgeOfAnswer,
        Condition::OwnWatch,
        Condition::Connection,
    ] {
        let explored = explore(&scenarios::without(condition), 5_000_000);
        match explored.counterexample {
            Some(found) => println!("{condition:?}: {} states, {found}", explored.states),
            None => println!("{condition:?}: NOT NEEDED {explored:?}"),
        }
    }
}

#[test]
fn random_schedules() {
    let count: u64 = std::env::var("MODEL_SCHEDULES").map_or(2000, |n| n.parse().unwrap());
    let base: u64 = std::env::var("MODEL_SEED").map_or(1, |n| n.parse().unwrap());
    let begin = Instant::now();
    let mut steps = 0;
    for seed in base..base + count {
        match model::random::run(seed, &mut model::world::Notes::default()) {
            Ok(more) => steps += more,
            Err(_) => {
                let wrong = model::random::replay(seed);
                panic!("seed {}: {}\n{}", wrong.seed, wrong.what, wrong.lines.join("\n"));
            }
        }
    }
    println!("{count} schedules, {steps} steps, {:?}", begin.elapsed());
}
