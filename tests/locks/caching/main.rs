//! One granted znode for many holds of one process.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../support/mod.rs"]
mod support;

mod ends;
mod faults;
mod local;
mod read_write;
mod rivals;
mod seekers;
mod views;
