//! The whole stack in a simulator: clients of several processes, the network and the servers of one run, all from one seed.
//!
//! [`world`] is a run and its report, [`process`] a client's process, [`network`] what lies between processes and servers,
//! `transport` what makes it the session's, [`ensemble`] the servers. `workload` is what runs in it, [`check`] what has to be
//! true of each run. `contract` runs the cases of `tests/contract`.
#![allow(clippy::disallowed_types, reason = "locked for moments in which no other thread runs")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "for tests alone")]

pub(crate) mod check;
#[cfg(feature = "testing")]
mod conformance;
mod contract;
pub(crate) mod ensemble;
mod faults;
pub(crate) mod network;
pub(crate) mod process;
mod proxy;
mod tests;
mod transport;
mod workload;
pub(crate) mod world;
