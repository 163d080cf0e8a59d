//! What an acquire may ask for: [`acquire`] is what a caller sets, [`wait`] the bounds that this puts
//! to one attempt, [`wait_strategy`] whom a waiter watches.

pub(in crate::locks) mod acquire;
pub(in crate::locks) mod wait;
pub(in crate::locks) mod wait_strategy;
