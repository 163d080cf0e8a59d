//! Leader election: one of many processes leads, and is told to stop before another one can.
//!
//! Both recipes queue and lead on a thread of their own: `campaign` in `candidate.rs`. [`LeaderSelector`] leads in a call
//! on that thread, inside of a mutex: `selector.rs`. [`LeaderLatch`] tells listeners: `latch.rs`, over the same candidate as
//! the lock of ZooKeeper's own recipe, `candidate.rs`. A term is `leadership.rs`, one rule for all of them.

pub(in crate::locks) mod candidate;
pub(in crate::locks) mod latch;
pub(in crate::locks) mod leadership;
mod methods;
pub(in crate::locks) mod participant;
pub(in crate::locks) mod selector;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;

pub use latch::{LeaderLatch, LeaderLatchListener};
pub use leadership::{CancelLeadership, CloseMode, LeaderState, Leadership};
pub use participant::Participant;
pub use selector::{LeaderSelector, LeaderSelectorListener};
