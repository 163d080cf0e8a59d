//! Servers that speak ZooKeeper's protocol and are none, or an old one: what a client asks of them, and what becomes of its
//! locks when they put another session in the place of the one that it had.
//!
//! The contract of locks over them is in `tests/contract`.
#![cfg(feature = "testing")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod asked;
mod cuts;
mod load;
mod zxids;
