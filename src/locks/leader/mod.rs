//! Leaders: one of many processes that does a job until it gives it up, or may have lost it.
//!
//! [`LeaderSelector`] leads on a thread of its own, inside of a mutex: `selector.rs`, and
//! `selector_task.rs` for what that thread does. [`LeaderLatch`] is told, and needs no thread: `latch.rs`, over the same
//! candidate as the lock of ZooKeeper's own recipe. What whoever leads knows is in `leadership.rs`, one rule for all of
//! them.

pub(in crate::locks) mod latch;
pub(in crate::locks) mod latch_listener;
pub(in crate::locks) mod leadership;
pub(in crate::locks) mod selector;
pub(in crate::locks) mod selector_listener;
mod selector_task;
#[cfg(test)]
mod tests;

pub use latch::LeaderLatch;
pub use latch_listener::{CloseMode, LeaderLatchListener};
pub use leadership::{CancelLeadership, LeaderState, Leadership};
pub use selector::LeaderSelector;
pub use selector_listener::LeaderSelectorListener;
