//! The whole stack in a simulator.
#![allow(dead_code)]

pub(crate) mod check;
pub(crate) mod ensemble;
