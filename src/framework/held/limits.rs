//! How long holds last: at least, at most, and before they are worth a watch.

use std::time::{Duration, Instant};

/// A hold shorter than this is not watched, so that an uncontended cycle needs no packets besides create and delete.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(100);

/// The limits of one hold.
#[derive(Default)]
pub(super) struct Limits {
    least: Option<Instant>,
    most: Option<Most>,
}

struct Most {
    at: Instant,
    /// Taken when it ends.
    give_back: Option<GiveBack>,
}

/// Runs on the client's own thread, after the hold was lost for its length.
pub(super) type GiveBack = Box<dyn FnOnce() + Send>;

impl Limits {
    pub(super) fn new(
        least: Option<Instant>,
        most: Option<Instant>,
        give_back: impl FnOnce() + Send + 'static,
    ) -> Limits {
        Limits { least, most: most.map(|at| Most { at, give_back: Some(Box::new(give_back)) }) }
    }

    /// The znode stays until then, even if the holder releases it sooner.
    pub(super) fn least(&self) -> Option<Instant> {
        self.least
    }

    /// What gives the lock back, once, if the hold has lasted too long. The moment stays: without it the hold would be
    /// certain again up to the loss.
    pub(super) fn take_over(&mut self, now: Instant) -> Option<GiveBack> {
        self.most.as_mut().filter(|most| now >= most.at).and_then(|most| most.give_back.take())
    }

    /// Nobody has to end the hold any more. The caller drops what this returns without the lock.
    pub(super) fn ended(&mut self) -> Option<GiveBack> {
        self.most.take().and_then(|most| most.give_back)
    }

    /// When it ends at the latest.
    pub(super) fn end(&self) -> Option<Instant> {
        self.most.as_ref().map(|most| most.at)
    }
}
