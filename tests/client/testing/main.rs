//! The test servers and the injected faults, tested against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod expiry;
mod proxy;
mod server;
#[path = "../../support/mod.rs"]
mod support;

/// What `ci/test --quick` leaves out.
mod slow {
    mod cluster;
}
