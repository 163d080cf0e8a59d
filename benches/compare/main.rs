//! This crate beside Curator, kazoo, the package `zookeeper` and a bare socket, in one run against one server.
//!
//! `ci/bench` is how to run it; `benches/README.md` says what comes out. Each side is a process of its own that takes one
//! command a line. The sides take turns in small slices, so that whatever else the machine does strikes all of them.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::indexing_slicing)]

mod acceptance;
mod contention;
mod costs;
mod drains;
mod heap;
mod machine;
mod peer;
mod plots;
mod relay;
mod results;
mod run;
mod same;
mod sides;
mod uncontended;

use std::{env, path::PathBuf, time::Instant};

use run::{Run, Storage};
use sides::Outcome;

fn main() -> Outcome<()> {
    // `cargo bench` adds its own.
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["side", name] => sides::serve(name),
        words => bench(words),
    }
}

const SECTIONS: [&str; 9] =
    ["uncontended", "drains", "sessions", "paths", "processes", "mixes", "reconnect", "costs", "disk"];

fn bench(words: &[&str]) -> Outcome<()> {
    let (options, sections): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let is_quick = options.contains(&"--quick");
    if options.iter().any(|option| *option != "--quick") || sections.iter().any(|name| !SECTIONS.contains(name)) {
        return Err(format!("usage: ci/bench [--quick] [{}]...", SECTIONS.join("|")).into());
    }
    let wants = |name| sections.is_empty() || sections.contains(&name);
    let began = Instant::now();
    let mut run = Run::start(Storage::Tmpfs, is_quick)?;
    run.say(&machine::describe(&run.directory()));
    same::check(&run)?;
    run.say("\nThe bare socket's requests are those of a mutex, byte for byte, but for the uuids in the names.");
    run.warm_up()?;
    if wants("uncontended") {
        uncontended::measure(&mut run)?;
    }
    if wants("drains") {
        drains::one_client(&mut run)?;
    }
    if wants("sessions") {
        drains::own_sessions(&mut run)?;
    }
    if wants("paths") {
        contention::many_paths(&mut run)?;
    }
    if wants("processes") {
        contention::processes(&mut run)?;
    }
    if wants("mixes") {
        contention::busy_try_lock(&mut run)?;
        contention::mixes(&mut run)?;
    }
    if wants("reconnect") {
        costs::reconnect(&mut run)?;
    }
    if wants("costs") {
        costs::memory(&mut run)?;
        costs::strategies(&mut run)?;
    }
    if wants("disk") {
        let mut on_disk = run.on_disk()?;
        on_disk.warm_up()?;
        uncontended::mutex_only(&mut on_disk)?;
        drains::a_few(&mut on_disk)?;
        run = on_disk;
    }
    let lines = acceptance::lines(&run.results);
    run.say(&acceptance::table(&lines));
    run.say(&acceptance::limit(&run.results));
    run.say(&format!("\nThe run took {} s.", began.elapsed().as_secs()));
    let directory = PathBuf::from(env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into())).join("bench");
    run.results.save(&directory)?;
    plots::draw(&run.results, &directory)?;
    println!("\nwritten to {}: results.json, report.md, *.svg", directory.display());
    Ok(())
}
