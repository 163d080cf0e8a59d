//! A holder's knowledge: the [`hold`] itself, how long it is certain ([`deadline`]), how the holder before it ended
//! ([`death`]), the end of a process in time ([`fence`]), and tokens for storage ([`fencing`]).

pub(in crate::locks) mod deadline;
pub(in crate::locks) mod death;
pub(in crate::locks) mod fence;
pub(in crate::locks) mod fencing;
pub(in crate::locks) mod hold;
