//! A lock's queue, for people to read: [`queue`] is the view, [`names`] tells the [`kinds`] of znodes apart, and [`table`]
//! prints it.

pub(in crate::locks) mod kinds;
mod names;
pub(in crate::locks) mod queue;
pub(crate) mod table;
