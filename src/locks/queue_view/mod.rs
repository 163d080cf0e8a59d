//! Who stands in a queue, for people to read: [`queue`] is what they see, and [`names`] tells the
//! [`kinds`] of znodes apart.

pub(in crate::locks) mod kinds;
mod names;
pub(in crate::locks) mod queue;
