//! The options of an acquire: [`acquire`] is set by the caller, and has the bounds of one attempt, which follow from that;
//! [`wait_strategy`] is how a waiter waits.

pub(in crate::locks) mod acquire;
pub(in crate::locks) mod wait_strategy;
