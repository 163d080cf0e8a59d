//! Tells of a hold's changes, and says when the client's thread has to look for them.

use std::{
    mem, ptr,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{HeldNode, HoldParts, Life};
use crate::{
    base::{
        channel::{Receiver, unbounded},
        clock, log,
        telemetry::spans::HoldSpan,
        unlocked::drop_unlocked,
    },
    error::LostReason,
    framework::{
        events::event::Event,
        held::{
            WATCH_AFTER,
            changes::{DeadlineEvent, HoldState, StateChanges},
            fence,
            subscribers::{Subscriber, is_within, warning},
        },
    },
    session::wait::cancel::CancelToken,
};

/// A subscription to the warnings or the changes of holds. Dropping it ends it.
pub(crate) struct Subscription {
    parts: Vec<(Weak<HeldNode>, u64)>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for (hold, id) in &self.parts {
            let Some(hold) = hold.upgrade() else { continue };
            let mut inner = hold.inner.lock();
            let ended: Vec<_> = inner.subscribers.extract_if(.., |(other, _)| other == id).collect();
            drop_unlocked(inner, ended);
        }
    }
}

impl HoldParts {
    /// Adds a subscriber, and returns its number.
    fn add(&mut self, subscriber: Subscriber) -> u64 {
        self.last_subscriber += 1;
        self.subscribers.push((self.last_subscriber, subscriber));
        self.last_subscriber
    }
}

impl HeldNode {
    /// When the background thread has to look at the hold; `None`: not before something happens. A state without a
    /// listener is worked out on request.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        if inner.life.is_released() {
            return None;
        }
        let (state, valid_for) = self.standing(&inner, now);
        let subscribers = || inner.subscribers.iter().map(|(_, subscriber)| subscriber);
        let pause = subscribers().filter_map(|subscriber| subscriber.next_look(state, valid_for)).min();
        if pause == Some(Duration::ZERO) {
            return Some(now);
        }
        let of_doubt = match state {
            HoldState::Lost(_) | HoldState::Released => return None,
            HoldState::Held => self.certain_until(&inner).filter(|_| inner.was_asked),
            // Nothing tells when the doubt ends; the tokens are cancelled when the session's time is up.
            HoldState::InDoubt => {
                let has_tokens = subscribers().any(|subscriber| matches!(subscriber, Subscriber::Token(_)));
                let of_end = self.session().valid_until().filter(|_| has_tokens);
                of_end.into_iter().chain([now + WATCH_AFTER]).min()
            }
        };
        // Not sooner than that: a limit so short that it is always over would keep the thread busy.
        let of_warning = inner.warns_after.and_then(|after| self.since.checked_add(after));
        let of_warning = of_warning.map(|at| at.max(now + WATCH_AFTER));
        [pause.map(|pause| now + pause), of_doubt, of_warning, inner.ends_at].into_iter().flatten().min()
    }

    /// Whether its state stays for ever. Ask this first, and for the state after it: a loss may come in between, and is told
    /// at the next look only to those who are still there.
    fn is_over(&self, inner: &HoldParts) -> bool {
        inner.life.is_over() || !self.znode.is_lasting()
    }

    /// The state, and for how long `valid_until` still lies ahead.
    fn standing(&self, inner: &HoldParts, now: Instant) -> (HoldState, Duration) {
        (self.state_in(inner, now), self.valid_until_in(inner).saturating_duration_since(now))
    }

    /// Whether the hold is certain for no longer than this.
    pub(crate) fn is_near(&self, margin: Duration) -> bool {
        let (state, valid_for) = self.standing(&self.inner.lock(), clock::now());
        is_within(margin, state, valid_for)
    }

    /// Tells of the state unless it is [`HoldState::Held`], and of every change. A change between the grant and this
    /// call would be missed otherwise.
    pub(crate) fn channel(self: &Arc<Self>) -> StateChanges {
        let (sender, receiver) = unbounded();
        let mut inner = self.inner.lock();
        let is_over = self.is_over(&inner);
        let state = self.state_in(&inner, clock::now());
        if state != HoldState::Held {
            // The receiver is right here.
            let _ = sender.send(state);
        }
        let mut parts = Vec::new();
        // After the end nothing follows the state that is in the channel already.
        if !is_over {
            // A receiver that has gone is about to end its subscription.
            let send = move |state| sender.send(state).unwrap_or_default();
            parts.push((Arc::downgrade(self), inner.add(Subscriber::States(state, Box::new(send)))));
            self.is_asked(&mut inner);
        }
        StateChanges { receiver, _subscription: Arc::new(Subscription { parts }) }
    }

    /// Calls the listener on the dispatch thread with all that [`channel`](Self::channel) tells.
    pub(crate) fn listen(self: &Arc<Self>, listener: Arc<dyn Fn(HoldState) + Send + Sync>) {
        let mut inner = self.inner.lock();
        inner.add(Subscriber::States(HoldState::Held, Box::new(self.dispatched(listener))));
        if !self.is_over(&inner) {
            return self.is_asked(&mut inner);
        }
        let subscribers = self.tell_in(&mut inner, clock::now());
        drop_unlocked(inner, subscribers);
    }

    /// Wraps the listener: the dispatch thread calls it with each event, under no lock.
    fn dispatched<E: Send + 'static>(&self, listener: Arc<dyn Fn(E) + Send + Sync>) -> impl Fn(E) + use<E> {
        let dispatcher = self.znode.dispatcher.clone();
        move |event| {
            let listener = listener.clone();
            dispatcher.run(move || listener(event));
        }
    }

    /// Cancels the tokens, in this order, at [`valid_until`](Self::valid_until) at the latest. No listener delays that.
    pub(crate) fn cancel_at_the_end(self: &Arc<Self>, tokens: &[&CancelToken]) {
        let mut inner = self.inner.lock();
        if self.valid_until_in(&inner) <= clock::now() {
            drop(inner);
            return tokens.iter().for_each(|token| token.cancel());
        }
        for token in tokens {
            inner.add(Subscriber::Token((*token).clone()));
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
        let warn = warning(move |event| sender.send(event).unwrap_or_default());
        let part = |hold: &Arc<HeldNode>| Some((Arc::downgrade(hold), hold.warn(margin, &warn)?));
        (receiver, Subscription { parts: holds.iter().filter_map(part).collect() })
    }

    /// Calls a listener with these events on the dispatch thread, as long as the hold lasts.
    pub(crate) fn on_deadline(self: &Arc<Self>, margin: Duration, listener: Arc<dyn Fn(DeadlineEvent) + Send + Sync>) {
        self.warn(margin, &warning(self.dispatched(listener)));
    }

    /// Adds a subscriber to a warning, which comes at once if too little time is left already.
    fn warn(self: &Arc<Self>, margin: Duration, warn: &Arc<dyn Fn(bool) + Send + Sync>) -> Option<u64> {
        let mut inner = self.inner.lock();
        // No warning after a release.
        if inner.life.is_released() {
            return None;
        }
        let is_over = self.is_over(&inner);
        let (state, valid_for) = self.standing(&inner, clock::now());
        let is_near = is_within(margin, state, valid_for);
        if is_near {
            warn(true);
        }
        if is_over {
            return None;
        }
        self.is_attended(&mut inner);
        // The next look may be planned for later than this needs it.
        self.znode.events.send(Event::Look);
        Some(inner.add(Subscriber::Margin { margin, is_near, warn: warn.clone() }))
    }

    /// The hold has a subscriber from here on, so looks have to be planned.
    fn is_asked(self: &Arc<Self>, inner: &mut HoldParts) {
        if !mem::replace(&mut inner.was_asked, true) {
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
    pub(super) fn tell_in(&self, inner: &mut HoldParts, now: Instant) -> Vec<(u64, Subscriber)> {
        let was_over = self.is_over(inner);
        let (state, valid_for) = self.standing(inner, now);
        if let HoldState::Lost(reason) = state {
            inner.life.lose(reason);
        }
        inner.subscribers.retain_mut(|(_, subscriber)| subscriber.tell(state, valid_for));
        if was_over || inner.life.is_over() { mem::take(&mut inner.subscribers) } else { Vec::new() }
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
        // The hold is over, so the time is irrelevant.
        let subscribers = if inner.subscribers.is_empty() { Vec::new() } else { self.tell_in(&mut inner, self.since) };
        let (is_attended, give_back) = (mem::take(&mut inner.is_attended), inner.give_back.take());
        let is_fenced = mem::take(&mut inner.is_fenced);
        drop_unlocked(inner, subscribers);
        drop_unlocked((), give_back);
        if is_fenced {
            fence::disarm_all(ptr::from_ref(self).addr());
        }
        if is_attended {
            self.znode.attend_no_more(self);
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
            inner.add(Subscriber::Span(span));
            self.is_attended(&mut inner);
            None
        };
        drop_unlocked(inner, over);
    }

    /// Warns at the limit, and each time the hold has lasted twice as long as at the last warning.
    pub(crate) fn warn_if_held_for_long(&self, limit: Duration, now: Instant) {
        let held_for = now.saturating_duration_since(self.since);
        let mut inner = self.inner.lock();
        let is_due = |after: &Duration| held_for >= *after && !inner.life.is_released();
        let Some(after) = inner.warns_after.filter(is_due) else { return };
        inner.warns_after = Some(after.saturating_mul(2));
        drop(inner);
        log::warn!("{}: held for {held_for:?}, longer than the maximum hold time of {limit:?}", self.path());
    }
}
