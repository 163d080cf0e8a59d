//! Limits of time for one thread: others may run while it is kept from running. Each binary uses a part of it.
#![allow(dead_code)]

use std::time::Duration;

use crate::support::machine::ProcessorWaits;

/// How long this thread, ready to run, was kept waiting for a processor from here on.
pub(crate) struct Kept(ProcessorWaits, Duration);

impl Kept {
    pub(crate) fn from_now() -> Kept {
        let waits = ProcessorWaits::of_this_thread();
        let before = waits.total().unwrap_or_default();
        Kept(waits, before)
    }

    pub(crate) fn so_far(&self) -> Duration {
        self.0.total().unwrap_or_default().saturating_sub(self.1)
    }
}

/// What this call gives, and what this thread was kept from running meanwhile.
pub(crate) fn and_kept<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let kept = Kept::from_now();
    let result = call();
    (result, kept.so_far())
}
