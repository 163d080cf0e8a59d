//! How many leases a semaphore has.

use std::{fmt, sync::Arc};

use crate::{base::panics::caught, framework::events::reactions::WakeUp, locks::shared::count::SharedCountReader};

/// The number of leases: fixed, or read from elsewhere and changing.
#[derive(Clone)]
pub(crate) enum Limit {
    Fixed(usize),
    Shared(Arc<dyn SharedCountReader>),
}

impl Limit {
    pub(in crate::locks) fn current(&self) -> usize {
        match self {
            Limit::Fixed(limit) => *limit,
            // Fewer than none is none. The reader may be the caller's code: if it panics, there is no lease.
            Limit::Shared(count) => {
                caught("a semaphore's limit", || count.count()).map_or(0, |count| usize::try_from(count).unwrap_or(0))
            }
        }
    }

    /// Calls `wake` on every change as long as the result lives; it must not block.
    pub(in crate::locks) fn subscribe(&self, wake: impl FnOnce() -> Arc<WakeUp>) -> Option<Arc<WakeUp>> {
        let Limit::Shared(count) = self else { return None };
        let wake = wake();
        count.wake_on_change(Arc::downgrade(&wake));
        Some(wake)
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Fixed(limit) => write!(f, "{limit}"),
            Limit::Shared(_) => write!(f, "shared, now {}", self.current()),
        }
    }
}
