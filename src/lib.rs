//! Curator's lock recipes on ZooKeeper.
#![forbid(unsafe_code)]

pub mod proto;
