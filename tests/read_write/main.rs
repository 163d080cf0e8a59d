//! The read/write lock, against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../locks_support/mod.rs"]
mod locks_support;

mod downgrade;
mod queue;
