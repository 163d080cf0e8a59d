//! Leaders: one of many processes that does a job until it gives it up, or may have lost it.
//!
//! [`LeaderSelector`] leads on a thread of its own, inside of a mutex; see `selector.rs`. What whoever leads knows is
//! in `leadership.rs`, the same for all of them.

mod leadership;
mod selector;

pub use leadership::{CancelLeadership, LeaderState, Leadership};
pub use selector::{LeaderSelector, LeaderSelectorListener};

/// Runs a task on some thread.
type Executor = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;
