//! Faults from outside of the client, and what the client has to make of them, in virtual time: what waits for time alone, and not
//! for what real servers do. The rest is in `tests/faults`.
#![allow(clippy::disallowed_types, reason = "tests share what they like")]

mod black_hole;
mod cuts;
mod ensemble;
mod leaving;
mod mixed;
mod multi;
mod replies;
mod testbed;
