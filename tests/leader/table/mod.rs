//! One table over all leaders: faults, and who believed when that it leads, on the clock that all processes share.
//!
//! Three processes contend in one election, each behind a network of its own. Again and again the leader, or one that
//! waits, is cut off for a moment, cut off until its session has expired, left in a network that swallows everything one
//! way or both, or paused (`SIGSTOP`), for a part of its session or for longer than that. Each process asks
//! `has_leadership` all the time and writes down from when to when the answer was yes. Beside that it writes down from
//! when to when its listener had been told that it leads: who goes by that alone, and works on until somebody says
//! otherwise, is the control, which a pause must bring beside the next leader.
//!
//! `FAULTS` is their number for each kind, and `KINDS` a list of kinds, where not all are to run:
//!
//! ```text
//! FAULTS=334 KINDS=selector cargo test --all-features --test leader table -- --nocapture
//! ```

mod candidate;
mod lane;
mod tally;

use std::time::Instant;

use curator_locks::testing::TestingServer;

use crate::support::lanes::{self, SESSION, TICK};
pub use candidate::run;
use tally::Tally;

const KINDS: [&str; 3] = ["latch", "selector", "write_lock"];

#[test]
fn no_fault_brings_two_that_believe_to_lead() {
    let begin = Instant::now();
    let faults = lanes::tries("FAULTS");
    let kinds: Vec<&'static str> = KINDS.into_iter().filter(|kind| lanes::is_chosen(kind)).collect();
    let server = TestingServer::builder().tick_time(TICK).start().unwrap();
    let found = lanes::run(&kinds, faults, |kind, lane, is_another| lane::run(kind, &server, lane, is_another));
    let found = kinds.iter().zip(found);
    let tallies: Vec<Tally> = found.map(|(kind, lanes)| lanes.into_iter().fold(Tally::new(kind), Tally::and)).collect();
    tally::print(&tallies, begin.elapsed());
    for tally in &tallies {
        assert_eq!(tally.faults(), faults, "{}", tally.kind);
        assert!(tally.terms >= faults / 2, "{}: only {} terms", tally.kind, tally.terms);
        assert!(tally.overlaps.is_empty(), "{}: two leaders at a time: {:?}", tally.kind, tally.overlaps);
        assert!(tally.overlaps_of_told.is_empty(), "{}: two were told: {:?}", tally.kind, tally.overlaps_of_told);
    }
    // Without a pause of a leader beyond its session there is nothing for the control to show.
    let (long_pauses, overlaps) = tallies
        .iter()
        .fold((0, 0), |(pauses, overlaps), tally| (pauses + tally.long_pauses, overlaps + tally.overlaps_of_control));
    assert!(long_pauses == 0 || overlaps > 0, "{long_pauses} long pauses, and the unguarded control shows nothing");
}
