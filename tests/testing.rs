//! The test servers and the injected faults, tested against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "testing/cluster.rs"]
mod cluster;
#[path = "testing/expiry.rs"]
mod expiry;
#[path = "testing/proxy.rs"]
mod proxy;
#[path = "testing/raw.rs"]
mod raw;
#[path = "testing/server.rs"]
mod server;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits for an observed state.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 60 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
