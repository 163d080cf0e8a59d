//! A lock's queue, for people to read: [`queue`] is the view, and [`names`] tells the [`kinds`] of znodes apart.

pub(in crate::locks) mod kinds;
mod names;
pub(in crate::locks) mod queue;
