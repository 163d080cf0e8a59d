//! Tells of a hold's changes, and says when the client's thread has to look for them.

use std::{
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, unbounded};

use super::{HeldNode, Inner, WatchState};
use crate::{
    base::{telemetry::spans::HoldSpan, unlocked::drop_unlocked},
    framework::{
        events::event::Event,
        held::{
            changes::{HoldState, StateChanges},
            deadlines::{DeadlineEvent, Ear, Listener, Subscriber},
            limits::WATCH_AFTER,
            subscribers::Subscribers,
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
        for (node, id) in &self.parts {
            let Some(node) = node.upgrade() else { continue };
            let taken = node.inner.lock().subscribers.remove(*id);
            drop(taken);
        }
    }
}

impl HeldNode {
    /// When the background thread has to look at it; `None`: not before something happens. A state that nobody listens to
    /// is worked out when somebody asks for it.
    pub(crate) fn next_look(&self, max_hold_time: Option<Duration>, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        if inner.released {
            return None;
        }
        let state = self.state_in(&inner, now);
        if inner.subscribers.awaits(state) || !inner.subscribers.tokens.is_empty() && self.may_be_anothers(&inner, now)
        {
            // It has changed since they were told.
            return Some(now);
        }
        let of_deadlines = inner.subscribers.deadlines.next_look(self.left_in(&inner, now), now);
        let (of_doubt, of_question) = match state {
            HoldState::Lost(_) | HoldState::Released => return None,
            HoldState::Held => {
                let is_watched = self.grant.is_some() || matches!(inner.watch, WatchState::Present(_));
                let of_doubt = self.certain_until(&inner).filter(|_| inner.subscribers.was_asked);
                let asks_again = || inner.asks_again.map(|at| if at <= now { now + WATCH_AFTER } else { at });
                (of_doubt, if is_watched { asks_again() } else { Some(now + WATCH_AFTER) })
            }
            // Nothing tells when the doubt ends.
            HoldState::InDoubt => {
                let of_end = self.common.session.valid_until().filter(|_| !inner.subscribers.tokens.is_empty());
                (of_end, Some(now + WATCH_AFTER))
            }
        };
        // Not sooner than that: a limit so short that it is always over would keep the thread busy.
        let of_warning = max_hold_time
            .filter(|_| self.keeper.get().is_none())
            .and_then(|limit| self.since.checked_add(inner.next_warning(limit)))
            .map(|at| at.max(now + WATCH_AFTER));
        [of_doubt, of_question, of_deadlines, of_warning, inner.limits.end()].into_iter().flatten().min()
    }

    /// Tells of the state if it is not that in which a hold begins, and of every change. What happened between the grant
    /// and this call would be missed otherwise.
    pub(crate) fn channel(self: &Arc<Self>) -> StateChanges {
        let (sender, receiver) = unbounded();
        let mut inner = self.inner.lock();
        let state = self.state_in(&inner, Instant::now());
        if state != HoldState::Held {
            // The receiver is right here.
            let _ = sender.send(state);
        }
        let id = inner.subscribers.next_id();
        // Else nothing comes besides what is in the channel already.
        if !inner.is_final() {
            inner.subscribers.states.insert(id, (state, Ear::Channel(sender)));
            self.is_asked(&mut inner);
        }
        StateChanges { receiver, _subscription: Arc::new(Subscription { parts: vec![(Arc::downgrade(self), id)] }) }
    }

    /// Calls the listener on the dispatch thread with all that [`channel`](Self::channel) tells.
    pub(crate) fn listen(self: &Arc<Self>, listener: Listener<HoldState>) {
        let mut inner = self.inner.lock();
        let id = inner.subscribers.next_id();
        inner.subscribers.states.insert(id, (HoldState::Held, Ear::Listener(listener)));
        if !inner.is_final() {
            return self.is_asked(&mut inner);
        }
        let subscribers = self.tell_in(&mut inner, Instant::now());
        drop_unlocked(inner, subscribers);
    }

    /// Cancels the tokens, in this order, at [`valid_until`](Self::valid_until) at the latest. No listener delays that.
    pub(crate) fn cancel_at_the_end(self: &Arc<Self>, tokens: &[&CancelToken]) {
        let mut inner = self.inner.lock();
        if !self.may_be_anothers(&inner, Instant::now()) {
            inner.subscribers.tokens.extend(tokens.iter().map(|token| (*token).clone()));
            return self.is_asked(&mut inner);
        }
        drop(inner);
        tokens.iter().for_each(|token| token.cancel());
    }

    /// Tells on a channel when one of these holds comes this near to its end, and when none is any more. What is so at the
    /// call is told, too. The channel ends with the last of the holds.
    pub(crate) fn deadline_channel(
        nodes: &[Arc<HeldNode>],
        margin: Duration,
    ) -> (Receiver<DeadlineEvent>, Subscription) {
        let (sender, receiver) = unbounded();
        (receiver, Subscription { parts: HeldNode::subscribe(nodes, margin, Ear::Channel(sender)) })
    }

    /// The same on the dispatch thread, as long as the holds last.
    pub(crate) fn deadline_listener(nodes: &[Arc<HeldNode>], margin: Duration, listener: Listener<DeadlineEvent>) {
        drop(HeldNode::subscribe(nodes, margin, Ear::Listener(listener)));
    }

    fn subscribe(nodes: &[Arc<HeldNode>], margin: Duration, ear: Ear<DeadlineEvent>) -> Vec<(Weak<HeldNode>, u64)> {
        let subscriber = Subscriber::new(ear);
        nodes.iter().map(|node| (Arc::downgrade(node), node.want(margin, &subscriber))).collect()
    }

    fn want(self: &Arc<Self>, margin: Duration, subscriber: &Arc<Subscriber>) -> u64 {
        let mut inner = self.inner.lock();
        let id = inner.subscribers.next_id();
        // Who has given the lock back has nothing to stop.
        if inner.released {
            return id;
        }
        let is_near = self.left_in(&inner, Instant::now()) <= margin;
        if is_near {
            subscriber.tell(true, &self.common.dispatcher);
        }
        if inner.lost.is_none() {
            self.join_tenure(&mut inner);
            inner.subscribers.deadlines.add(id, margin, is_near, subscriber);
            // The next look may be planned for later than this needs it.
            self.common.events.send(Event::Look);
        }
        id
    }

    /// Somebody wants to be told, so looks have to be planned.
    fn is_asked(self: &Arc<Self>, inner: &mut Inner) {
        if !mem::replace(&mut inner.subscribers.was_asked, true) {
            self.join_tenure(inner);
            self.common.events.send(Event::Look);
        }
    }

    pub(crate) fn tell(&self, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.released {
            return;
        }
        let subscribers = self.tell_in(&mut inner, now);
        drop_unlocked(inner, subscribers);
    }

    /// Tells of the state. Returns the subscribers once nothing more is to be told: the caller drops them without the lock.
    pub(super) fn tell_in(&self, inner: &mut Inner, now: Instant) -> Subscribers {
        let state = self.state_in(inner, now);
        if let HoldState::Lost(reason) = state {
            inner.lost.get_or_insert(reason);
        }
        if inner.told.replace(state).unwrap_or(HoldState::Held) != state {
            self.report(state);
            if let Some(span) = &mut inner.subscribers.span {
                span.ends(state);
            }
        }
        inner.subscribers.tell(state, &self.common.dispatcher);
        if self.may_be_anothers(inner, now) {
            inner.subscribers.tokens.drain(..).for_each(|token| token.cancel());
        }
        // Who has given it back has nothing to stop.
        if state != HoldState::Released {
            let left = self.left_in(inner, now);
            inner.subscribers.deadlines.tell(left, &self.common.dispatcher);
        }
        if inner.is_final() { mem::take(&mut inner.subscribers) } else { Subscribers::default() }
    }

    /// Traced from here on, up to its release or loss.
    pub(crate) fn trace(&self, path: &str) {
        let Some(span) = HoldSpan::begin(path, self.token()) else { return };
        let mut inner = self.inner.lock();
        let over = if inner.is_final() { Some(span) } else { inner.subscribers.span.replace(span) };
        drop_unlocked(inner, over);
    }

    /// At the limit, and each time the hold has lasted twice as long as at the last warning.
    pub(crate) fn warn_if_held_for_long(&self, limit: Duration, now: Instant) {
        if self.keeper.get().is_some() {
            // Nobody holds the znode itself: each of its holds warns.
            return;
        }
        let held_for = now.saturating_duration_since(self.since);
        let mut inner = self.inner.lock();
        if inner.released || held_for < inner.next_warning(limit) {
            return;
        }
        inner.warnings += 1;
        drop(inner);
        log::warn!("{}: held for {held_for:?}, longer than the maximum hold time of {limit:?}", self.path());
    }
}
