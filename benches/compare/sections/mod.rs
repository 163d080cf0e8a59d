//! What is measured: a file for each kind of question.

pub mod caching;
pub mod contention;
pub mod costs;
pub mod drains;
pub mod uncontended;
