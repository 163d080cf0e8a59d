//! Processes that are paused (`SIGSTOP`) around the hand-over of a lock, for every kind of lock.
//!
//! Two processes hand one lock over. Again and again one of them is paused at a random moment around the hand-over, for
//! a part of its session or for longer than that. Both write down, on the clock that all processes share, when an
//! acquire returned, in which state the hold was right then, and from when to when they believed it valid.
//!
//! `PAUSES` is the number of pauses for each kind, and `KINDS` a list of kinds, where not all are to run:
//!
//! ```text
//! PAUSES=1000 KINDS=unfair,lease cargo test --all-features --test pauses -- --nocapture
//! ```
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod kinds;
mod lane;
mod prober;
mod tally;

use std::{
    env,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::testing::TestingServer;
use kinds::Kind;
use tally::Tally;

/// Expiry is exact to a tick.
const TICK: Duration = Duration::from_millis(200);
const SESSION: Duration = Duration::from_secs(2);

/// So many pairs of processes for a kind at most. A pair spends its time in pauses.
const LANES: usize = 8;
const PAUSES_OF_A_LANE: usize = 4;

#[test]
fn no_pause_brings_a_hold_in_doubt_or_two_that_are_believed_valid() {
    let begin = Instant::now();
    let pauses = env::var("PAUSES").map_or(12, |pauses| pauses.parse().unwrap());
    let kinds: Vec<&Kind> = match env::var("KINDS") {
        Ok(names) => names.split(',').map(Kind::named).collect(),
        Err(_) => kinds::ALL.iter().collect(),
    };
    let server = TestingServer::builder().tick_time(TICK).start().unwrap();
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let running: Vec<_> = kinds.iter().map(|kind| scope.spawn(|| probe(kind, &server, pauses))).collect();
        running.into_iter().map(|kind| kind.join().unwrap()).collect()
    });
    tally::print(&tallies, begin.elapsed());
    for tally in &tallies {
        assert!(tally.pauses >= pauses && tally.returns >= pauses, "{tally:?}");
    }
    let is_wrong = |tally: &&Tally| !tally.in_doubt.is_empty() || !tally.overlaps.is_empty();
    let wrong: Vec<&str> = tallies.iter().filter(is_wrong).map(|tally| tally.kind).collect();
    assert!(wrong.is_empty(), "{wrong:?}: returns in doubt, or two holders at a time");
}

fn probe(kind: &'static Kind, server: &TestingServer, pauses: usize) -> Tally {
    let left = AtomicUsize::new(pauses);
    let is_another = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let lanes = pauses.div_ceil(PAUSES_OF_A_LANE).min(LANES);
    thread::scope(|scope| {
        let lanes: Vec<_> =
            (0..lanes).map(|lane| scope.spawn(move || lane::run(kind, server, lane, &is_another))).collect();
        let tallies = lanes.into_iter().map(|lane| lane.join().unwrap());
        tallies.fold(Tally::new(kind.name), Tally::and)
    })
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((_, arguments)) = support::child::role() else { return };
    prober::run(&arguments);
}
