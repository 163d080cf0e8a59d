//! Tells holders some time before their holds stop being certain.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::limits::WATCH_AFTER;
use crate::framework::events::dispatch::Dispatcher;

/// What a [`Deadline`](crate::Deadline) tells.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{DeadlineEvent, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// // No session lasts for an hour without a heartbeat, so this margin is reached at once.
/// let deadline = held.deadline(Duration::from_secs(3600));
/// assert_eq!(deadline.recv()?, DeadlineEvent::Near);
/// held.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadlineEvent {
    /// The hold is certain for less than the margin, or in doubt, or lost: time to stop.
    Near,
    /// A heartbeat has moved [`valid_until`](crate::Hold::valid_until) on: there is more time than the margin again.
    Recovered,
}

/// Where a subscriber hears.
pub(super) enum Ear<E> {
    Channel(Sender<E>),
    /// Called on the dispatch thread.
    Listener(Listener<E>),
}

pub(crate) type Listener<E> = Arc<dyn Fn(E) + Send + Sync>;

impl<E: Send + 'static> Ear<E> {
    /// To be called under the hold's lock only: so each hold's changes come in order.
    pub(super) fn tell(&self, event: E, dispatcher: &Dispatcher) {
        match self {
            // Whoever has dropped the other end is about to sign off.
            Ear::Channel(channel) => drop(channel.send(event)),
            Ear::Listener(listener) => {
                let listener = listener.clone();
                dispatcher.run(move || listener(event));
            }
        }
    }
}

/// One subscriber of one hold or several. It hears as soon as the first of them is near its end, and once none is any more.
pub(super) struct Subscriber {
    /// How many of the holds are near their end.
    near: Mutex<usize>,
    ear: Ear<DeadlineEvent>,
}

impl Subscriber {
    pub(super) fn new(ear: Ear<DeadlineEvent>) -> Arc<Subscriber> {
        Arc::new(Subscriber { near: Mutex::new(0), ear })
    }

    /// As [`Ear::tell`].
    pub(super) fn tell(&self, is_near: bool, dispatcher: &Dispatcher) {
        let mut near = self.near.lock();
        let before = *near;
        *near = if is_near { before + 1 } else { before.saturating_sub(1) };
        let event = match (before, *near) {
            (0, 1) => DeadlineEvent::Near,
            (1, 0) => DeadlineEvent::Recovered,
            _ => return,
        };
        self.ear.tell(event, dispatcher);
    }
}

/// What one subscriber wants of one hold.
struct Wanted {
    margin: Duration,
    is_near: bool,
    subscriber: Arc<Subscriber>,
}

/// The deadlines of one hold.
#[derive(Default)]
pub(super) struct Deadlines {
    wanted: BTreeMap<u64, Wanted>,
}

impl Deadlines {
    pub(super) fn add(&mut self, id: u64, margin: Duration, is_near: bool, subscriber: &Arc<Subscriber>) {
        self.wanted.insert(id, Wanted { margin, is_near, subscriber: subscriber.clone() });
    }

    /// The caller drops it without the lock: it may own anything of the caller's.
    pub(super) fn remove(&mut self, id: u64) -> Option<impl Sized + use<>> {
        self.wanted.remove(&id)
    }

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
