//! The whole stack in a simulator: clients of several processes, the network and the servers of one run, all from one seed.
//!
//! [`world`] is a run and its report, [`process`] a client's process, [`network`] what lies between processes and servers, and
//! `transport` what makes it the session's.
#![allow(clippy::disallowed_types, reason = "locked for moments in which no other thread runs")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "for tests alone")]
#![allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "small numbers"
)]

pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod stub;
mod tests;
mod transport;
pub(crate) mod world;

pub(crate) use stub as ensemble;
