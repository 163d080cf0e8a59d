//! Faults, injected from outside of the client, and what the client has to make of them. Each test prints its figure.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod black_hole;
mod cleaning;
mod cuts;
mod defects;
mod elections;
mod ensemble;
mod expiry;
mod leaving;
mod mixed;
mod multi;
mod panics;
mod read_only;
mod replies;
mod retries;
mod scene;
mod totals;
