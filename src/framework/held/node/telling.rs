//! Tells of a hold's changes, and says when the client's thread has to look for them.

use std::{
    mem,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, unbounded};

use super::{HeldNode, HoldParts, Life};
use crate::{
    base::{telemetry::spans::HoldSpan, unlocked::drop_unlocked},
    error::LostReason,
    framework::{
        events::event::Event,
        held::{
            changes::{DeadlineEvent, HoldState, StateChanges},
            limits::WATCH_AFTER,
            subscribers::{Listener, Outlet, Standing, Subscriber, Subscribers, Warning},
        },
    },
    session::wait::cancel::CancelToken,
};

/// Ends the subscription when it is dropped.
pub(crate) struct Subscription {
    parts: Vec<(Weak<HeldNode>, u64)>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for (hold, id) in &self.parts {
            let Some(hold) = hold.upgrade() else { continue };
            let taken = hold.inner.lock().subscribers.remove(*id);
            drop(taken);
        }
    }
}

impl HeldNode {
    /// When the background thread has to look at the hold; `None`: not before something happens. A state without a
    /// listener is worked out on request.
    pub(crate) fn next_look(&self, max_hold_time: Option<Duration>, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        if inner.life.is_released() {
            return None;
        }
        let standing = self.standing(&inner, now);
        let of_subscribers = inner.subscribers.next_look(&standing).map(|pause| now + pause);
        if of_subscribers == Some(now) {
            return of_subscribers;
        }
        let of_doubt = match standing.state {
            HoldState::Lost(_) | HoldState::Released => return None,
            HoldState::Held => self.certain_until(&inner).filter(|_| inner.subscribers.was_asked),
            // Nothing tells when the doubt ends; the tokens are cancelled when the session's time is up.
            HoldState::InDoubt => {
                let of_end = self.session().valid_until().filter(|_| inner.subscribers.has_tokens());
                of_end.into_iter().chain([now + WATCH_AFTER]).min()
            }
        };
        // Not sooner than that: a limit so short that it is always over would keep the thread busy.
        let of_warning = max_hold_time
            .filter(|_| self.is_its_holders())
            .and_then(|limit| self.since.checked_add(inner.next_warning(limit)))
            .map(|at| at.max(now + WATCH_AFTER));
        [of_subscribers, of_doubt, of_warning, inner.limits.end()].into_iter().flatten().min()
    }

    /// Whether its state stays for ever. Ask this first, and for the state after it: a loss may come in between, and is told
    /// at the next look only to those who are still there.
    fn is_over(&self, inner: &HoldParts) -> bool {
        inner.life.is_over() || !self.znode.is_lasting()
    }

    fn standing(&self, inner: &HoldParts, now: Instant) -> Standing {
        let (state, may_be_anothers) = (self.state_in(inner, now), self.may_be_anothers(inner, now));
        Standing { state, left: self.left_in(inner, now), may_be_anothers }
    }

    /// Tells of the state unless it is [`HoldState::Held`], and of every change. A change between the grant and this
    /// call would be missed otherwise.
    pub(crate) fn channel(self: &Arc<Self>) -> StateChanges {
        let (sender, receiver) = unbounded();
        let mut inner = self.inner.lock();
        let is_over = self.is_over(&inner);
        let state = self.state_in(&inner, Instant::now());
        if state != HoldState::Held {
            // The receiver is right here.
            let _ = sender.send(state);
        }
        let id = inner.subscribers.next_id();
        // After the end nothing follows the state that is in the channel already.
        if !is_over {
            inner.subscribers.add(id, Subscriber::States(state, Outlet::Channel(sender)));
            self.is_asked(&mut inner);
        }
        StateChanges { receiver, _subscription: Arc::new(Subscription { parts: vec![(Arc::downgrade(self), id)] }) }
    }

    /// Calls the listener on the dispatch thread with all that [`channel`](Self::channel) tells.
    pub(crate) fn listen(self: &Arc<Self>, listener: Listener<HoldState>) {
        let mut inner = self.inner.lock();
        let id = inner.subscribers.next_id();
        inner.subscribers.add(id, Subscriber::States(HoldState::Held, Outlet::Listener(listener)));
        if !self.is_over(&inner) {
            return self.is_asked(&mut inner);
        }
        let subscribers = self.tell_in(&mut inner, Instant::now());
        drop_unlocked(inner, subscribers);
    }

    /// Cancels the tokens, in this order, at [`valid_until`](Self::valid_until) at the latest. No listener delays that.
    pub(crate) fn cancel_at_the_end(self: &Arc<Self>, tokens: &[&CancelToken]) {
        let mut inner = self.inner.lock();
        if self.may_be_anothers(&inner, Instant::now()) {
            drop(inner);
            return tokens.iter().for_each(|token| token.cancel());
        }
        for token in tokens {
            let id = inner.subscribers.next_id();
            inner.subscribers.add(id, Subscriber::Token((*token).clone()));
        }
        self.is_asked(&mut inner);
    }

    /// Tells on a channel when one of these holds comes this near to its end, and when none is any more. The state at
    /// the call is told, too. The channel ends with the last of the holds.
    pub(crate) fn deadline_channel(
        holds: &[Arc<HeldNode>],
        margin: Duration,
    ) -> (Receiver<DeadlineEvent>, Subscription) {
        let (sender, receiver) = unbounded();
        (receiver, HeldNode::warned(holds, margin, Outlet::Channel(sender)))
    }

    /// Calls a listener with these events on the dispatch thread, as long as the holds last.
    pub(crate) fn deadline_listener(holds: &[Arc<HeldNode>], margin: Duration, listener: Listener<DeadlineEvent>) {
        mem::forget(HeldNode::warned(holds, margin, Outlet::Listener(listener)));
    }

    fn warned(holds: &[Arc<HeldNode>], margin: Duration, outlet: Outlet<DeadlineEvent>) -> Subscription {
        let warning = Warning::new(outlet);
        Subscription { parts: holds.iter().map(|hold| (Arc::downgrade(hold), hold.warn(margin, &warning))).collect() }
    }

    fn warn(self: &Arc<Self>, margin: Duration, warning: &Arc<Warning>) -> u64 {
        let mut inner = self.inner.lock();
        let id = inner.subscribers.next_id();
        // No warning after a release.
        if inner.life.is_released() {
            return id;
        }
        let is_over = self.is_over(&inner);
        let left = self.left_in(&inner, Instant::now());
        let subscriber = Subscriber::warned(margin, left, warning, &self.znode.dispatcher);
        if !is_over {
            self.is_attended(&mut inner);
            inner.subscribers.add(id, subscriber);
            // The next look may be planned for later than this needs it.
            self.znode.events.send(Event::Look);
        }
        id
    }

    /// The hold has a subscriber from here on, so looks have to be planned.
    fn is_asked(self: &Arc<Self>, inner: &mut HoldParts) {
        if !mem::replace(&mut inner.subscribers.was_asked, true) {
            self.is_attended(inner);
            self.znode.events.send(Event::Look);
        }
    }

    pub(crate) fn tell(&self, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.life.is_released() {
            return;
        }
        let subscribers = self.tell_in(&mut inner, now);
        drop_unlocked(inner, subscribers);
    }

    /// Tells of the state. Returns the subscribers after the last message: the caller drops them without the lock.
    pub(super) fn tell_in(&self, inner: &mut HoldParts, now: Instant) -> Subscribers {
        let was_over = self.is_over(inner);
        let standing = self.standing(inner, now);
        if let HoldState::Lost(reason) = standing.state {
            inner.life.lose(reason);
        }
        inner.subscribers.tell(&standing, &self.znode.dispatcher);
        if was_over || inner.life.is_over() { mem::take(&mut inner.subscribers) } else { Subscribers::default() }
    }

    /// Ends the hold by the holder's own doing. Tells all subscribers for the last time, on the calling thread and the
    /// dispatch thread: a release must not wake the client's own thread. Returns why it was lost before.
    pub(crate) fn released(&self) -> Option<LostReason> {
        let mut inner = self.inner.lock();
        if let Life::Released(lost) = inner.life {
            return lost;
        }
        let lost = self.lost_in(&inner);
        inner.life = Life::Released(lost);
        inner.has_left_others = self.tenure.is_some() && self.znode.out.fetch_sub(1, Ordering::AcqRel) > 1;
        if !inner.is_attended && inner.subscribers.is_empty() {
            // The hold never had a subscriber.
            let over = inner.limits.ended();
            drop_unlocked(inner, over);
        } else {
            // The hold is over, so the time is irrelevant.
            let subscribers = self.tell_in(&mut inner, self.since);
            let is_attended = mem::take(&mut inner.is_attended);
            let over = inner.limits.ended();
            drop_unlocked(inner, (subscribers, over));
            if is_attended {
                self.znode.attend_no_more(self);
            }
        }
        if self.tenure.is_none() {
            self.znode.released();
        }
        lost
    }

    /// Traces the hold from here on, up to its release or loss.
    pub(crate) fn trace(self: &Arc<Self>, path: &str) {
        let Some(span) = HoldSpan::begin(path, self.token()) else { return };
        let mut inner = self.inner.lock();
        let over = if self.is_over(&inner) {
            Some(span)
        } else {
            let id = inner.subscribers.next_id();
            inner.subscribers.add(id, Subscriber::Span(span));
            self.is_attended(&mut inner);
            None
        };
        drop_unlocked(inner, over);
    }

    /// Warns at the limit, and each time the hold has lasted twice as long as at the last warning.
    pub(crate) fn warn_if_held_for_long(&self, limit: Duration, now: Instant) {
        let held_for = now.saturating_duration_since(self.since);
        let mut inner = self.inner.lock();
        if !self.is_its_holders() || inner.life.is_released() || held_for < inner.next_warning(limit) {
            return;
        }
        inner.warnings += 1;
        drop(inner);
        log::warn!("{}: held for {held_for:?}, longer than the maximum hold time of {limit:?}", self.path());
    }
}
