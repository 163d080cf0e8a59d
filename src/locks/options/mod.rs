//! The options of an acquire: [`acquire`] is set by the caller, [`wait`] the bounds of one attempt that follow from it,
//! [`wait_strategy`] how a waiter waits.

pub(in crate::locks) mod acquire;
pub(in crate::locks) mod wait;
pub(in crate::locks) mod wait_strategy;
