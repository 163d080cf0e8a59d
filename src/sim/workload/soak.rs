//! Runs plan after plan, as long as there is time: what `ci/sim` calls. The environment says for how long and from which seed.
#![allow(clippy::disallowed_methods, reason = "how long runs take is told by the real clock")]

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::{
    plan::Plan,
    run::{Ran, run},
    shrink::shrink,
};

/// The seed of the tests that everybody runs.
const FIRST_SEED: u64 = 20_261_124;

/// How many runs there are without a time.
const FEW: u64 = 2;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// All runs so far.
#[derive(Default)]
struct Totals {
    runs: u64,
    simulated: Duration,
    counts: BTreeMap<String, u64>,
    excused: BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, ran: &Ran) {
        self.runs += 1;
        self.simulated += ran.time;
        for (what, count) in &ran.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        for (excuse, count) in &ran.verdict.excused {
            *self.excused.entry(format!("{excuse:?}")).or_default() += count;
        }
    }

    fn sum(&self, prefix: &str) -> u64 {
        self.counts.iter().filter(|(what, _)| what.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    fn print(&self, since: Instant) {
        let mut text = String::new();
        let (grants, faults) = (self.sum("grants: ") + self.sum("terms: "), self.sum("faults: "));
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let took = since.elapsed().as_secs_f64();
        let _ = writeln!(
            text,
            "sim: {} runs, {hours:.2} simulated hours, {grants} grants, {faults} faults in {took:.1} s",
            self.runs
        );
        for (what, count) in &self.counts {
            let _ = writeln!(text, "sim:   {count:>9} {what}");
        }
        for (excuse, count) in &self.excused {
            let _ = writeln!(text, "sim:   {count:>9} excused: {excuse}");
        }
        print!("{text}");
    }
}

/// Prints a failure with the shortest plan that has it, and fails.
fn fail(plan: &Plan, ran: &Ran, runs: u64) -> ! {
    let failure = ran.failure().unwrap();
    println!("sim: found after {runs} runs: seed {}: {failure}", plan.seed);
    let time = Duration::from_secs(number("SIM_SHRINK").unwrap_or(60));
    let (short, tries) = shrink(plan, failure.rule, time);
    let again = run(&short);
    println!("sim: the shortest of {tries} schedules with that: {short:#?}");
    for line in again.tail.iter().chain([&String::new()]) {
        println!("sim: {line}");
    }
    for violation in again.verdict.violations.iter().take(40) {
        println!("sim: {violation}");
    }
    panic!("seed {}: {failure}; again with: ci/sim 0 {}", plan.seed, plan.seed);
}

/// Every run keeps every promise; the same seed gives the same history.
#[test]
fn every_promise_is_kept_in_every_run() {
    let since = Instant::now();
    // Beside the other unit tests it is the same few runs each time, however slow the machine is.
    let (time, most) = match number("SIM_SECONDS") {
        Some(seconds) => (Duration::from_secs(seconds), u64::MAX),
        None => (Duration::MAX, FEW),
    };
    let first = number("SIM_SEED").unwrap_or(FIRST_SEED);
    let (step, twice) = (number("SIM_STEP").unwrap_or(1), number("SIM_TWICE").unwrap_or(2));
    let mut totals = Totals::default();
    let mut failed = 0;
    loop {
        let plan = Plan::of(first + totals.runs * step);
        let ran = run(&plan);
        totals.add(&ran);
        if let Some(failure) = ran.failure() {
            if number("SIM_GO_ON").is_some() {
                println!("sim: seed {}: {failure}", plan.seed);
                failed += 1;
                if since.elapsed() < time && totals.runs < most {
                    continue;
                }
                break;
            }
            totals.print(since);
            fail(&plan, &ran, totals.runs);
        }
        if totals.runs <= twice {
            let again = run(&plan);
            assert_eq!(ran.hash, again.hash, "seed {} gives another history the second time", plan.seed);
        }
        if since.elapsed() >= time || totals.runs >= most {
            break;
        }
    }
    totals.print(since);
    assert_eq!(failed, 0, "seeds that fail");
}
