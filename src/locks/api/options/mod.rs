//! What an acquire may ask for: [`acquire`] is what a caller sets, [`terms`] and [`validity`] what becomes of it.

pub(in crate::locks) mod acquire;
pub(in crate::locks) mod patience;
pub(in crate::locks) mod terms;
pub(in crate::locks) mod validity;
pub(in crate::locks) mod wait_strategy;
