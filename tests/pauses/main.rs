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

#[cfg(target_os = "linux")]
mod fenced;
mod kinds;
mod lane;
mod prober;
mod tally;

use std::time::Instant;

use curator_locks::testing::TestingServer;
use kinds::Kind;
use support::{
    lanes::{self, SESSION, TICK},
    machine::Machine,
    raw::heartbeats,
};
use tally::Tally;

/// So many pairs of processes for a kind at most.
const LANES: usize = 8;

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = support::child::role() else { return };
    match role.as_str() {
        #[cfg(target_os = "linux")]
        "fenced" => fenced::child(&arguments),
        _ => prober::run(&arguments),
    }
}

mod slow {
    use super::*;

    #[test]
    fn no_pause_brings_a_hold_in_doubt_or_two_that_are_believed_valid() {
        let begin = Instant::now();
        let pauses = lanes::tries("PAUSES", 12);
        let kinds: Vec<&'static Kind> = kinds::ALL.iter().filter(|kind| lanes::is_chosen(kind.name)).collect();
        assert!(!kinds.is_empty(), "KINDS names no kind");
        let server = TestingServer::builder().tick_time(TICK).start().unwrap();
        // The witness is never paused.
        let answers = Machine::unwatched().and(heartbeats(server.connect_string()));
        let run = |kind: &&'static Kind, lane, is_another: &dyn Fn() -> bool| {
            lane::run(kind, &server, &answers, lane, is_another)
        };
        let found = lanes::run(&kinds, pauses, LANES, run);
        let found = kinds.iter().zip(found);
        let tallies: Vec<Tally> =
            found.map(|(kind, lanes)| lanes.into_iter().fold(Tally::new(kind.name), Tally::and)).collect();
        tally::print(&tallies, begin.elapsed());
        for tally in &tallies {
            assert!(tally.pauses >= pauses && tally.returns >= pauses, "{tally:?}");
        }
        let is_wrong = |tally: &&Tally| !tally.in_doubt.is_empty() || !tally.overlaps.is_empty() || tally.gave_up() > 0;
        let wrong: Vec<&str> = tallies.iter().filter(is_wrong).map(|tally| tally.kind).collect();
        assert!(wrong.is_empty(), "{wrong:?}: returns in doubt, two holders at a time, or an acquire that gave up");
    }
}
