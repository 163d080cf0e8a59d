//! What a holder knows: the hold itself, how long it is certain, and how the one before it ended.

pub(in crate::locks) mod deadline;
pub(in crate::locks) mod death;
pub(in crate::locks) mod hold;
pub(in crate::locks) mod unclean;
