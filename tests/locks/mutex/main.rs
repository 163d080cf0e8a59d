//! The mutex and the client under it, against real servers.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

#[path = "../../support/mod.rs"]
mod support;

#[path = "wire/ahead.rs"]
mod ahead;
#[path = "waiting/cancel.rs"]
mod cancel;
mod close;
#[path = "waiting/deadlines.rs"]
mod deadlines;
mod deletion;
mod exclusion;
mod framework;
mod guard;
#[path = "../kept.rs"]
mod kept;
mod listeners;
#[path = "wire/packets.rs"]
mod packets;
mod paths;
#[path = "waiting/pause.rs"]
mod pause;
mod reentrancy;
mod restart;
#[path = "waiting/timeouts.rs"]
mod timeouts;
#[path = "wire/together.rs"]
mod together;
#[path = "wire/uncontended.rs"]
mod uncontended;
#[path = "wire/watches.rs"]
mod watches;

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = support::child::role() else { return };
    match role.as_str() {
        "contender" => exclusion::contender(&arguments),
        "waiter" => pause::waiter(&arguments),
        "holder" => exclusion::holder(&arguments),
        "dropper" => close::dropper(&arguments),
        other => panic!("no role {other}"),
    }
}
