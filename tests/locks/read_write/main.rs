//! The read/write lock, against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../../support/mod.rs"]
mod support;

mod downgrade;
mod queue;
mod upgradable;
