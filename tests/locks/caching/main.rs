//! One granted znode for many holds of one process.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../support/mod.rs"]
mod support;

mod ends;
mod faults;
mod kinds;
mod local;
#[path = "../over.rs"]
mod over;
mod paused;
mod queuing;
mod read_write;
mod rivals;
mod rows;
mod unseen;
mod views;
mod wire;

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    if let Some((role, arguments)) = support::child::role() {
        paused::run(&role, &arguments);
    }
}
