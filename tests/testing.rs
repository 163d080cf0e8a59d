//! The test servers and the injected faults, tested against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "testing/cluster.rs"]
mod cluster;
#[path = "testing/expiry.rs"]
mod expiry;
#[path = "testing/proxy.rs"]
mod proxy;
#[path = "testing/server.rs"]
mod server;
mod support;
