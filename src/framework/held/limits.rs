//! How long holds last: at least, at most, and before they are worth a watch.

use std::time::{Duration, Instant};

/// As good as for ever, and within the clock's range.
pub(in crate::framework) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A hold shorter than this is not watched, so that an uncontended cycle needs no packets besides create, list and delete.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(100);

/// The limits of one hold.
#[derive(Default)]
pub(super) struct Limits {
    /// When the limits begin to count: for a member of a multi lock, once all are held.
    begun: Option<Instant>,
    least: Option<Duration>,
    most: Option<Duration>,
    /// Taken when the hold has lasted too long.
    give_back: Option<GiveBack>,
}

/// Runs on the client's own thread, after the hold was lost for its length.
pub(super) type GiveBack = Box<dyn FnOnce() + Send>;

impl Limits {
    pub(super) fn new(least: Option<Duration>, most: Option<Duration>, give_back: GiveBack) -> Limits {
        Limits { begun: None, least, most, give_back: Some(give_back) }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// The znode stays until then, even if the holder releases it sooner.
    pub(super) fn least(&self) -> Option<Instant> {
        let (begun, least) = (self.begun?, self.least?);
        Some(begun.checked_add(least).unwrap_or(begun + FAR))
    }

    /// The function that gives the lock back, once, if the hold has lasted too long. The end stays: without it the hold
    /// would be certain again up to the loss.
    pub(super) fn take_over(&mut self, now: Instant) -> Option<GiveBack> {
        self.end().filter(|end| now >= *end).and_then(|_| self.give_back.take())
    }

    /// Ends the limits: the hold needs no end any more. The caller drops the result without the lock.
    pub(super) fn ended(&mut self) -> Option<GiveBack> {
        self.most = None;
        self.give_back.take()
    }

    /// When the hold ends at the latest.
    pub(super) fn end(&self) -> Option<Instant> {
        self.begun?.checked_add(self.most?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_range_of_the_clock_is_a_long_one_at_least_and_none_at_most() {
        let (now, day) = (Instant::now(), Duration::from_secs(24 * 3600));
        let mut limits = Limits::new(Some(Duration::MAX), Some(Duration::MAX), Box::new(|| ()));
        assert_eq!(limits.least(), None, "nothing counts yet");
        limits.begin(now);
        assert!(limits.least().is_some_and(|least| least > now + day));
        assert_eq!(limits.end(), None);
    }
}
