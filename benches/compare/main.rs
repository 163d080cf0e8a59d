//! This crate beside Curator, kazoo, the package `zookeeper` and a bare socket, in one run against one server.
//!
//! `ci/bench` is how to run it; `benches/README.md` says what comes out. Each side is a process of its own that takes one
//! command a line. The sides take turns in small slices, so that whatever else the machine does strikes all of them.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::indexing_slicing)]

mod acceptance;
mod heap;
mod machine;
mod peer;
mod plots;
mod relay;
mod results;
mod run;
mod same;
mod sections;
mod sides;

use std::{env, path::PathBuf, time::Instant};

use results::{Results, Storage};
use run::Run;
use sections::{caching, contention, costs, drains, uncontended};
use sides::Outcome;

fn main() -> Outcome<()> {
    // `cargo bench` adds its own.
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["side", name] => sides::serve(name),
        ["draw"] => draw(),
        words => bench(words),
    }
}

/// Draws what a run has measured, once more.
fn draw() -> Outcome<()> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches");
    plots::draw(&Results::read(&directory)?, &directory)
}

type Section = fn(Run) -> Outcome<Run>;

const SECTIONS: [(&str, Section); 10] = [
    ("uncontended", |run| with(run, &[uncontended::measure])),
    ("drains", |run| with(run, &[drains::one_client])),
    ("sessions", |run| with(run, &[drains::own_sessions])),
    ("paths", |run| with(run, &[contention::many_paths])),
    ("processes", |run| with(run, &[contention::processes])),
    ("mixes", |run| with(run, &[contention::busy_try_lock, contention::mixes])),
    ("reconnect", |run| with(run, &[costs::reconnect])),
    ("caching", |run| with(run, &[caching::measure])),
    ("costs", |run| with(run, &[costs::memory, costs::strategies])),
    ("disk", |run| with(run.on_disk()?, &[Run::warm_up, uncontended::a_few, drains::a_few])),
];

fn with(mut run: Run, steps: &[fn(&mut Run) -> Outcome<()>]) -> Outcome<Run> {
    for step in steps {
        step(&mut run)?;
    }
    Ok(run)
}

fn bench(words: &[&str]) -> Outcome<()> {
    let (options, sections): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let is_quick = options.contains(&"--quick");
    let names = SECTIONS.map(|(name, _)| name);
    if options.iter().any(|option| *option != "--quick") || sections.iter().any(|name| !names.contains(name)) {
        return Err(format!("usage: ci/bench [--quick] [{}]...", names.join("|")).into());
    }
    let began = Instant::now();
    let mut run = Run::start(Storage::Tmpfs, is_quick)?;
    run.say(&machine::describe(&run.directory()));
    same::check(&run)?;
    run.say(
        "\nThe bare socket's requests are those of this crate, byte for byte, but for the uuids in the names; where \
         `_unlisted` says so, without the list of children.",
    );
    run.warm_up()?;
    let mut took = vec![("begin", began.elapsed())];
    for (name, measure) in SECTIONS {
        if !sections.is_empty() && !sections.contains(&name) {
            continue;
        }
        let began = Instant::now();
        run = measure(run)?;
        took.push((name, began.elapsed()));
    }
    let lines = acceptance::lines(&run.results);
    run.say(&acceptance::table(&lines));
    run.say(&acceptance::limit(&run.results));
    let took: Vec<_> = took.iter().map(|(name, took)| format!("{name} {}", took.as_secs())).collect();
    run.say(&format!("\nThe run took {} s: {}.", began.elapsed().as_secs(), took.join(", ")));
    let directory = PathBuf::from(env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into())).join("bench");
    run.results.save(&directory)?;
    plots::draw(&run.results, &directory)?;
    println!("\nwritten to {}: results.json, report.md, *.svg", directory.display());
    Ok(())
}
