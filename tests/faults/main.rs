//! Faults, injected from outside of the client, and what the client has to make of them. Each test prints its figure.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

#[path = "network/black_hole.rs"]
mod black_hole;
mod cleaning;
#[path = "network/cuts.rs"]
mod cuts;
mod defects;
#[path = "network/elections.rs"]
mod elections;
#[path = "network/expiry.rs"]
mod expiry;
mod leaving;
mod panics;
mod retries;
mod scene;

/// What `ci/test --quick` leaves out.
mod slow {
    mod ensemble;
    mod totals;
}
