//! Curator's lock recipes on ZooKeeper.

#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
pub mod testing;
