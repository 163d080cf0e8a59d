//! On which terms a lock is acquired: how long the queue may be, for how long it is certain, how long it is held.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::framework::held::node::HeldNode;

/// On which terms a lock is acquired; by default on none but the one that it is certain at the return.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// For so long the lock has to be certain when it is granted.
    pub(crate) min_validity: Duration,
    /// So many may stand in front.
    pub(crate) max_ahead: Option<usize>,
    /// The end of the time is an error.
    pub(crate) has_to_say: bool,
    pub(in crate::locks) hold_at_least: Option<Duration>,
    pub(in crate::locks) hold_at_most: Option<Duration>,
    /// Of an acquire of several locks: the holds whose length counts once all are had.
    pub(in crate::locks) limited: Option<Arc<Mutex<Vec<Arc<HeldNode>>>>>,
}

impl Terms {
    /// For a queue that leads to something else.
    pub(in crate::locks) fn of_queue(&self) -> Terms {
        Terms { max_ahead: self.max_ahead, has_to_say: self.has_to_say, ..Terms::default() }
    }

    /// Whether anybody wants to know how many stand in front.
    pub(in crate::locks) fn counts(&self) -> bool {
        self.has_to_say || self.max_ahead.is_some()
    }
}
