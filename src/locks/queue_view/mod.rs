//! Who stands in a queue, for people to read: [`queue`] is what they see, [`names`] tells the kinds of znodes apart.

mod names;
pub(in crate::locks) mod queue;
