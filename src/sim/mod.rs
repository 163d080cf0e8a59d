//! The whole stack in a simulator.

#[cfg(feature = "testing")]
mod conformance;
pub(crate) mod ensemble;
