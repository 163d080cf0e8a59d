//! How long a hold lasts at least and at most, by its holder's own wish.

use std::time::{Duration, Instant};

use super::node::{HeldNode, Inner};
use crate::{error::LostReason, framework::events::event::Event};

/// The limits of one hold.
#[derive(Default)]
pub(super) struct Limits {
    least: Option<Instant>,
    most: Option<Most>,
}

struct Most {
    at: Instant,
    /// Taken when it ends.
    give_back: Option<Box<dyn FnOnce() + Send>>,
}

impl Limits {
    /// Nobody has to end it any more. Not to be dropped under the lock.
    pub(super) fn ended(&mut self) -> Option<impl Drop + use<>> {
        self.most.take().and_then(|most| most.give_back)
    }

    /// When it ends at the latest.
    pub(super) fn end(&self) -> Option<Instant> {
        self.most.as_ref().map(|most| most.at)
    }
}

impl HeldNode {
    /// `give_back` is called at most once, on the client's own thread, after the hold was lost for its length.
    pub(crate) fn limit(
        &self,
        least: Option<Instant>,
        most: Option<Instant>,
        give_back: impl FnOnce() + Send + 'static,
    ) {
        let most = most.map(|at| Most { at, give_back: Some(Box::new(give_back)) });
        let is_limited = most.is_some();
        self.inner.lock().limits = Limits { least, most };
        if is_limited {
            self.events.send(Event::Look);
        }
    }

    /// For how long its znode has to stay although it was given back.
    pub(crate) fn has_to_stay(&self) -> Option<Duration> {
        let least = self.inner.lock().limits.least?;
        Some(least.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Up to here the lock is held for certain, if its znode is there.
    pub(super) fn certain_until(&self, inner: &Inner) -> Option<Instant> {
        let valid_until = self.session.valid_until()?;
        Some(inner.limits.end().map_or(valid_until, |end| end.min(valid_until)))
    }

    /// Ends a hold for its holder, if it has not ended before.
    pub(crate) fn lose_unless_over(&self, reason: LostReason) -> bool {
        if self.inner.lock().is_final() || !self.mark_lost(reason) {
            return false;
        }
        self.events.send(Event::Look);
        true
    }

    /// Ends a hold that has lasted for too long: first for its holder, then for others.
    pub(super) fn end_if_over(&self, now: Instant) {
        let over = {
            let mut inner = self.inner.lock();
            if inner.is_final() {
                return;
            }
            // The moment stays: without it the hold would be certain again up to the loss.
            inner.limits.most.as_mut().filter(|most| now >= most.at).and_then(|most| most.give_back.take())
        };
        if let Some(give_back) = over
            && self.mark_lost(LostReason::HeldTooLong)
        {
            log::warn!("{}: held for too long, and given back", self.path());
            give_back();
        }
    }
}
