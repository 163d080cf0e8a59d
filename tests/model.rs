//! The contender under every lock, against a model of the servers: every schedule.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod model {
    pub mod check;
    pub mod client;
    pub mod explore;
    pub mod rules;
    pub mod scenarios;
    pub mod server;
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
        panic!("{name}: {counterexample}");
    }
}

#[test]
fn a_mutex_never_has_two_holders() {
    explored("mutex, 2, no fault", &scenarios::mutex(2), 1_000_000);
    explored("mutex, 2, 1 fault", &scenarios::mutex(2).with_faults(1), 1_000_000);
    explored("mutex, 2, 2 faults", &scenarios::mutex(2).with_faults(2), 1_000_000);
}
