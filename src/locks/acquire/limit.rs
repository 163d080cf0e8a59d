//! How many leases a semaphore has.

use std::sync::Arc;

use crate::{framework::events::reactions::WakeUp, locks::shared_count::SharedCount};

/// The number of leases: fixed, or shared with others and changing.
#[derive(Debug, Clone)]
pub(crate) enum Limit {
    Fixed(usize),
    Shared(SharedCount),
}

impl Limit {
    pub(in crate::locks) fn current(&self) -> usize {
        match self {
            Limit::Fixed(limit) => *limit,
            // Fewer than none is none.
            Limit::Shared(count) => usize::try_from(count.count()).unwrap_or(0),
        }
    }

    /// Calls `wake` on every change as long as the result lives; it must not block.
    pub(in crate::locks) fn subscribe(&self, wake: impl FnOnce() -> Arc<WakeUp>) -> Option<Arc<WakeUp>> {
        let Limit::Shared(count) = self else { return None };
        let wake = wake();
        count.subscribe(&wake);
        Some(wake)
    }
}
