//! One granted znode for many holds of one process.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod local;
mod rivals;
