//! Leaders: who is told that it leads, when it is told that it does not, and who comes next.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../../support/mod.rs"]
mod support;

mod latch;
#[path = "../leaving.rs"]
mod leaving;
mod probe;
mod selector;
mod selector_faults;
mod suspensions;
mod table;

/// What `ci/test --quick` leaves out.
mod slow {
    mod latch_faults;
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((_, arguments)) = support::child::role() else { return };
    table::run(&arguments);
}
