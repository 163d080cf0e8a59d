//! The whole stack in a simulator.

pub(crate) mod ensemble;
