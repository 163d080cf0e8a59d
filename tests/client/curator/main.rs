//! What Curator's own suite tests and no other binary here has at home: drivers of one's own, ACLs path by path, the
//! errors of an acquire, ensembles that lose servers.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../../support/mod.rs"]
mod support;

mod acls;
mod drivers;
mod unhandled;

/// What `ci/test --quick` leaves out.
mod slow {
    mod ensembles;
    mod moving;
    mod outage;
}
