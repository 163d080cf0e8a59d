//! The whole stack on simulated threads, clock and network.
#![allow(dead_code)]
pub(crate) mod check;
