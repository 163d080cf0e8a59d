//! SASL against real servers: DIGEST-MD5, and Kerberos with a realm of its own. What MIT's library reads it reads from the
//! environment, so clients with Kerberos are processes of their own.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "../../support/mod.rs"]
mod support;

mod client;
mod digest;
mod kerberos;
mod wrong;

/// What `ci/test --quick` leaves out.
mod slow {
    mod renewals;
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((_, arguments)) = support::child::role() else { return };
    client::run(&arguments);
}
