//! Who is told some time before holds stop being certain.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::{
    changes::HoldState,
    node::{HeldNode, Inner, WATCH_AFTER},
};
use crate::framework::events::{dispatch::Dispatcher, event::Event};

/// What a [`Deadline`](crate::Deadline) tells.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadlineEvent {
    /// The hold is certain for less than the margin, or in doubt, or lost: time to stop.
    Near,
    /// A heartbeat has moved [`valid_until`](crate::Hold::valid_until) on: there is more time than the margin again.
    Recovered,
}

/// A callback for [`DeadlineEvent`]; runs on the dispatch thread.
pub(crate) type DeadlineListener = Arc<dyn Fn(DeadlineEvent) + Send + Sync>;

enum Ear {
    Channel(Sender<DeadlineEvent>),
    Listener(DeadlineListener),
}

/// One who is told of one hold or several: as soon as the first of them is near its end, and once none is any more.
struct Subscriber {
    /// How many of the holds are near their end.
    near: Mutex<usize>,
    ear: Ear,
}

impl Subscriber {
    /// Not to be called but under the hold's lock: so each hold's changes come in order.
    fn tell(&self, is_near: bool, dispatcher: &Dispatcher) {
        let mut near = self.near.lock();
        let before = *near;
        *near = if is_near { before + 1 } else { before.saturating_sub(1) };
        let event = match (before, *near) {
            (0, 1) => DeadlineEvent::Near,
            (1, 0) => DeadlineEvent::Recovered,
            _ => return,
        };
        match &self.ear {
            // Whoever has dropped the other end is about to sign off.
            Ear::Channel(channel) => drop(channel.send(event)),
            Ear::Listener(listener) => {
                let listener = listener.clone();
                dispatcher.run(move || listener(event));
            }
        }
    }
}

/// What is wanted of one hold.
struct Wanted {
    margin: Duration,
    is_near: bool,
    subscriber: Arc<Subscriber>,
}

/// The deadlines of one hold.
#[derive(Default)]
pub(super) struct Deadlines {
    wanted: BTreeMap<u64, Wanted>,
    next: u64,
}

impl Deadlines {
    /// When to look next at a hold that is certain for so long: at the next of the deadlines, or at once if one has to be
    /// told. Nothing tells when one that was near has recovered; that takes a look after a pause.
    pub(super) fn next_look(&self, left: Duration, now: Instant) -> Option<Instant> {
        let pause = |wanted: &Wanted| match left.checked_sub(wanted.margin) {
            Some(pause) if pause > Duration::ZERO && !wanted.is_near => pause,
            None | Some(Duration::ZERO) if wanted.is_near => WATCH_AFTER,
            _ => Duration::ZERO,
        };
        self.wanted.values().map(|wanted| now + pause(wanted)).min()
    }

    /// `left` is for how long the hold is certain; none at all if it is in doubt or lost.
    pub(super) fn tell(&mut self, left: Duration, dispatcher: &Dispatcher) {
        for wanted in self.wanted.values_mut() {
            let is_near = left <= wanted.margin;
            if mem::replace(&mut wanted.is_near, is_near) != is_near {
                wanted.subscriber.tell(is_near, dispatcher);
            }
        }
    }
}

/// Ends a subscription when it is dropped.
pub(crate) struct Subscription {
    parts: Vec<(Weak<HeldNode>, u64)>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for (node, id) in &self.parts {
            let Some(node) = node.upgrade() else { continue };
            let wanted = node.inner.lock().audience.deadlines.wanted.remove(id);
            // The caller's listener, and what it owns: not under the lock.
            drop(wanted);
        }
    }
}

impl HeldNode {
    /// For how long the hold is certain, from now on.
    pub(super) fn left_in(&self, inner: &Inner, now: Instant) -> Duration {
        if self.state_in(inner, now) != HoldState::Held {
            return Duration::ZERO;
        }
        self.certain_until(inner).map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Whether the hold is certain for no longer than this.
    pub(crate) fn is_near(&self, margin: Duration) -> bool {
        self.left_in(&self.inner.lock(), Instant::now()) <= margin
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
    pub(crate) fn deadline_listener(nodes: &[Arc<HeldNode>], margin: Duration, listener: DeadlineListener) {
        drop(HeldNode::subscribe(nodes, margin, Ear::Listener(listener)));
    }

    fn subscribe(nodes: &[Arc<HeldNode>], margin: Duration, ear: Ear) -> Vec<(Weak<HeldNode>, u64)> {
        let subscriber = Arc::new(Subscriber { near: Mutex::new(0), ear });
        nodes.iter().map(|node| (Arc::downgrade(node), node.want(margin, &subscriber))).collect()
    }

    fn want(self: &Arc<Self>, margin: Duration, subscriber: &Arc<Subscriber>) -> u64 {
        let mut inner = self.inner.lock();
        let id = inner.audience.deadlines.next;
        inner.audience.deadlines.next += 1;
        // Who has given the lock back has nothing to stop.
        if inner.released {
            return id;
        }
        let is_near = self.left_in(&inner, Instant::now()) <= margin;
        if is_near {
            subscriber.tell(true, &self.dispatcher);
        }
        if inner.lost.is_none() {
            self.join_tenure(&mut inner);
            inner.audience.deadlines.wanted.insert(id, Wanted { margin, is_near, subscriber: subscriber.clone() });
            // The next look may be planned for later than this needs it.
            self.events.send(Event::Look);
        }
        id
    }
}
