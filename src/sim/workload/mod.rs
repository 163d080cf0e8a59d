//! What the simulator runs: processes whose threads use locks of every kind, and a director that injects faults.
//!
//! `plan` says what a run consists of, and `draw` draws it from a seed. `run` runs it: `user` and `leaders` are the threads,
//! `objects` their clients and locks, `director` the faults, `notes` the history. `shrink` makes a plan that fails shorter;
//! `soak` runs plan after plan.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod director;
mod draw;
mod leaders;
mod notes;
mod objects;
pub(crate) mod plan;
mod run;
mod shrink;
mod soak;
mod user;
