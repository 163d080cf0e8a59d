//! Semaphore, semaphore mutex and shared count against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod contention;
mod faults;
#[path = "../kept.rs"]
mod kept;
mod leases;
mod mutex;
#[path = "../over.rs"]
mod over;
mod shared_count;
mod shared_value;

#[path = "../../support/mod.rs"]
mod support;
