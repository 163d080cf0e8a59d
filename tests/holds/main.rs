//! What a holder is told and can rely on, for every kind of lock, against real servers.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod cancel;
mod deadline;
mod fencing;
mod job;
#[path = "../locks/kept.rs"]
mod kept;
mod min_validity;
mod owned;
mod revocation;
mod transaction;
mod unclean;
mod waited_for;

use std::time::Duration;

use curator_locks::{CuratorFramework, testing::FaultProxy};

/// The session timeout of most tests.
const T: Duration = Duration::from_secs(3);
const MS: Duration = Duration::from_millis(1);

/// A client behind a proxy of its own, in a namespace of its own.
fn behind_proxy_for(session_timeout: Duration) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let builder = support::builder_at(&proxy.connect_string(), &support::namespace()).session_timeout(session_timeout);
    let client = support::connect(builder);
    (proxy, client)
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = support::child::role() else { return };
    match role.as_str() {
        "fenced" => fencing::child(&arguments),
        "dies" => unclean::child(&arguments),
        other => panic!("no role {other}"),
    }
}
