//! One table over leaders and one over holders: faults, and who believed when that it leads or holds the lock, on the
//! clock that all processes share.
//!
//! Three processes contend in one election, each behind a network of its own. Again and again the leader, or one that
//! waits, is cut off for a moment, cut off until its session has expired, left in a network that swallows everything one
//! way or both, or paused (`SIGSTOP`), for a part of its session or for longer than that. Each process asks
//! `has_leadership` all the time and writes down from when to when the answer was yes. Beside that it writes down from
//! when to when its listener had been told that it leads: who goes by that alone, and works on until somebody says
//! otherwise, is the control, which a pause must bring beside the next leader.
//!
//! Holders of locks ask `is_valid` all the time. Their listener is a worker that stops its job when a deadline with a
//! margin says so; one that never asks and finishes its job is the control. Some of them have an ensemble, whose leader
//! is killed now and then.
//!
//! `FAULTS` is their number for each kind, and `KINDS` a list of kinds, where not all are to run:
//!
//! ```text
//! FAULTS=334 KINDS=selector cargo test --all-features --test leader table -- --nocapture
//! FAULTS=200 cargo test --all-features --test leader holders -- --nocapture
//! ```

mod candidate;
mod holder;
mod lane;
mod servers;
mod tally;

use std::time::Instant;

use crate::support::lanes::{self, SESSION, TICK};
pub use candidate::run;
use servers::Servers;
use tally::Tally;

const LEADERS: [&str; 3] = ["latch", "selector", "write_lock"];
const HOLDERS: [&str; 5] = ["mutex", "write", "semaphore_mutex", "unfair", "multi"];

/// So many elections of leaders, or queues of holders, at a time at most. They spend their time in waits.
const LANES: usize = 24;

/// So many faults for each kind, at the servers of each lane, and never two that believe.
fn strike_all<'a>(kinds: &[&'static str], faults: usize, servers: impl Fn(usize) -> &'a Servers + Sync) -> Vec<Tally> {
    let begin = Instant::now();
    let faults = lanes::tries("FAULTS", faults);
    let kinds: Vec<(usize, &'static str)> =
        kinds.iter().copied().filter(|kind| lanes::is_chosen(kind)).enumerate().collect();
    let most = LANES / kinds.len().max(1);
    let found = lanes::run(&kinds, faults, most, |(index, kind), lane, is_another| {
        lane::run(kind, servers(index + lane), lane, is_another)
    });
    let tallies: Vec<Tally> = kinds
        .iter()
        .zip(found)
        .map(|((_, kind), lanes)| lanes.into_iter().fold(Tally::new(kind), Tally::and))
        .collect();
    tally::print(&tallies, begin.elapsed());
    for tally in &tallies {
        assert_eq!(tally.faults(), faults, "{}", tally.kind);
        // Somebody leads before each fault. Few faults may all leave the leader in place.
        let least = if faults < 100 { 1 } else { faults / 2 };
        assert!(tally.terms >= least, "{}: only {} terms", tally.kind, tally.terms);
        assert!(tally.overlaps.is_empty(), "{}: two that asked at a time: {:?}", tally.kind, tally.overlaps);
        assert!(tally.overlaps_of_told.is_empty(), "{}: two were told: {:?}", tally.kind, tally.overlaps_of_told);
    }
    tallies
}

mod slow {
    use super::*;

    #[test]
    fn no_fault_brings_two_that_believe_to_lead() {
        let server = Servers::one();
        let tallies = strike_all(&LEADERS, 12, |_| &server);
        // Half of the pauses of a leader beyond its session bring an overlap: a few may bring none.
        let (long_pauses, overlaps) = tallies.iter().fold((0, 0), |(pauses, overlaps), tally| {
            (pauses + tally.long_pauses, overlaps + tally.overlaps_of_control)
        });
        assert!(long_pauses < 20 || overlaps > 0, "{long_pauses} long pauses, and the unguarded control shows nothing");
    }

    #[test]
    fn no_fault_brings_two_holders_that_ask_or_have_a_deadline() {
        let (server, ensemble) = (Servers::one(), Servers::ensemble());
        let tallies = strike_all(&HOLDERS, 4, |lane| if lane % 2 == 0 { &server } else { &ensemble });
        let (faults, overlaps) = tallies
            .iter()
            .fold((0, 0), |(faults, overlaps), tally| (faults + tally.faults(), overlaps + tally.overlaps_of_control));
        // One fault of eight brings an overlap: a few may bring none.
        assert!(faults < 100 || overlaps > 0, "{faults} faults, and the unguarded control shows nothing");
    }
}
