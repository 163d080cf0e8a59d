//! What an acquire may ask for: [`acquire`] is what a caller sets, [`patience`] and [`terms`] how it goes down, and
//! [`wait_strategy`] how a waiter waits.

pub(in crate::locks) mod acquire;
pub(in crate::locks) mod patience;
pub(in crate::locks) mod terms;
pub(in crate::locks) mod wait_strategy;
