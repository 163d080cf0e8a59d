//! Processes of this crate, of Curator, of ZooKeeper's own recipes and of kazoo on the same paths, and one history of
//! what each of them held. What the others are made of is in `tests/peers`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod arena;
mod history;
mod login;
mod peer;
mod rust_leader;
mod rust_peer;

/// What `ci/test --quick` leaves out.
mod slow {
    mod contention;
    mod faults;
    mod keeper;
    mod leaders;
    mod nodes;
    mod revocation;
    #[cfg(feature = "kerberos")]
    mod sasl;
    mod shared_count;
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = support::child::role() else { return };
    match role.as_str() {
        "peer" => rust_peer::run(&arguments),
        "leader" => rust_leader::run(&arguments),
        other => panic!("no role {other}"),
    }
}
