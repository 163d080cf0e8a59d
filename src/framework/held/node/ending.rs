//! How a hold ends: lost, released, or held for too long.

use std::{
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use super::{HeldNode, Inner};
use crate::{
    base::unlocked::drop_unlocked,
    error::LostReason,
    framework::{events::event::Event, held::limits::Limits},
    session::wait::cancel::CancelToken,
};

impl HeldNode {
    /// Listeners hear of it now. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        // The end of a znode that its holder has released must not wake the client's thread at each release.
        if self.mark_lost(reason) {
            self.common.events.send(Event::Look);
        }
    }

    /// `false`: the holder has released it before.
    pub(crate) fn mark_lost(&self, reason: LostReason) -> bool {
        let root = self.root();
        let interrupts = mark(&mut root.inner.lock(), reason);
        root.tell_of_loss(interrupts)
    }

    fn tell_of_loss(&self, interrupts: Option<Vec<Weak<CancelToken>>>) -> bool {
        let Some(interrupts) = interrupts else { return false };
        for token in interrupts.iter().filter_map(Weak::upgrade) {
            token.cancel();
        }
        self.tell_keeper();
        true
    }

    /// Cancels the token when the znode is lost, unless the token has gone by then.
    pub(crate) fn interrupt_on_loss(&self, token: &Arc<CancelToken>) {
        if self.grant.is_some() {
            return self.root().interrupt_on_loss(token);
        }
        let mut inner = self.inner.lock();
        inner.interrupts.retain(|other| other.strong_count() > 0);
        inner.interrupts.push(Arc::downgrade(token));
        let is_lost = self.lost_in(&inner).is_some();
        drop(inner);
        if is_lost {
            token.cancel();
        }
    }

    /// From here on the znode's end is the holder's own doing. Tells all who listen for the last time, on the calling
    /// thread and the dispatch thread: a release must not wake the client's own thread. Gives why it was lost before.
    pub(crate) fn released(&self) -> Option<LostReason> {
        let mut inner = self.inner.lock();
        if inner.released {
            return inner.lost;
        }
        let lost = self.lost_in(&inner);
        inner.lost = lost;
        inner.released = true;
        inner.has_left_others = self.leaves_others();
        if self.grant.is_some() && !inner.is_attended && inner.subscribers.span.is_none() {
            // Nobody has ever asked to be told.
            let over = inner.limits.ended();
            drop_unlocked(inner, over);
            return lost;
        }
        // What time it is does not matter any more.
        let subscribers = self.tell_in(&mut inner, self.since);
        let is_attended = mem::take(&mut inner.is_attended);
        let over = inner.limits.ended();
        drop_unlocked(inner, (subscribers, over));
        if is_attended {
            self.leave_tenure();
        }
        lost
    }

    /// `give_back` is called at most once, on the client's own thread, after the hold was lost for its length. Neither
    /// limit is counted before [`HeldNode::begin_limits`].
    pub(crate) fn limit(
        &self,
        least: Option<Duration>,
        most: Option<Duration>,
        give_back: impl FnOnce() + Send + 'static,
    ) {
        self.inner.lock().limits = Limits::new(least, most, Box::new(give_back));
    }

    pub(crate) fn begin_limits(&self) {
        let is_limited = {
            let mut inner = self.inner.lock();
            inner.limits.begin(Instant::now());
            inner.limits.end().is_some()
        };
        if is_limited {
            self.common.events.send(Event::Look);
        }
    }

    /// How long its znode still has to stay after the holder has released it.
    pub(crate) fn has_to_stay(&self) -> Option<Duration> {
        let least = self.inner.lock().limits.least()?;
        Some(least.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Ends a hold for its holder, if it has not ended before.
    pub(crate) fn lose_unless_over(&self, reason: LostReason) -> bool {
        let interrupts = {
            let mut inner = self.inner.lock();
            if inner.is_final() {
                return false;
            }
            // With the hold's own lock: a release in between would hand the znode on to another one.
            match &self.grant {
                Some(grant) => mark(&mut grant.tenure.inner.lock(), reason),
                None => mark(&mut inner, reason),
            }
        };
        let is_lost = self.root().tell_of_loss(interrupts);
        if is_lost {
            self.common.events.send(Event::Look);
        }
        is_lost
    }

    /// Ends a hold that has lasted for too long: first for its holder, then for others.
    pub(crate) fn end_if_over(&self, now: Instant) {
        let over = {
            let mut inner = self.inner.lock();
            if inner.is_final() {
                return;
            }
            inner.limits.take_over(now)
        };
        if let Some(give_back) = over
            && self.mark_lost(LostReason::HeldTooLong)
        {
            log::warn!("{}: held for too long, and given back", self.path());
            give_back();
        }
    }
}

/// The tokens to cancel; `None`: its holder has released it before. The first reason stays.
fn mark(inner: &mut Inner, reason: LostReason) -> Option<Vec<Weak<CancelToken>>> {
    if inner.released {
        return None;
    }
    inner.lost.get_or_insert(reason);
    Some(mem::take(&mut inner.interrupts))
}
