//! The subscribers of a hold's changes, and of warnings before its end.

use std::{mem, sync::Arc, time::Duration};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::{
    changes::{DeadlineEvent, HoldState},
    limits::WATCH_AFTER,
};
use crate::{
    base::telemetry::spans::HoldSpan, framework::events::dispatch::Dispatcher, session::wait::cancel::CancelToken,
};

pub(crate) type Listener<E> = Arc<dyn Fn(E) + Send + Sync>;

/// The receiver of events.
pub(super) enum Outlet<E> {
    Channel(Sender<E>),
    /// Called on the dispatch thread.
    Listener(Listener<E>),
}

impl<E: Send + 'static> Outlet<E> {
    /// Call this under the hold's lock only: so each hold's changes come in order.
    fn send(&self, event: E, dispatcher: &Dispatcher) {
        match self {
            // A receiver that has gone is about to end its subscription.
            Outlet::Channel(channel) => drop(channel.send(event)),
            Outlet::Listener(listener) => {
                let listener = listener.clone();
                dispatcher.run(move || listener(event));
            }
        }
    }
}

/// A warning for one hold or several: it comes as soon as the first of them is near its end, and is taken back once none is
/// any more.
pub(super) struct Warning {
    /// How many of the holds are near their end.
    near: Mutex<usize>,
    outlet: Outlet<DeadlineEvent>,
}

impl Warning {
    pub(super) fn new(outlet: Outlet<DeadlineEvent>) -> Arc<Warning> {
        Arc::new(Warning { near: Mutex::new(0), outlet })
    }

    fn send(&self, is_near: bool, dispatcher: &Dispatcher) {
        let mut near = self.near.lock();
        let before = *near;
        *near = if is_near { before + 1 } else { before.saturating_sub(1) };
        let event = match (before, *near) {
            (0, 1) => DeadlineEvent::Near,
            (1, 0) => DeadlineEvent::Recovered,
            _ => return,
        };
        self.outlet.send(event, dispatcher);
    }
}

/// A subscriber, with the last state that it was told.
pub(super) enum Subscriber {
    /// Told of all changes of the state; a hold begins as [`HoldState::Held`].
    States(HoldState, Outlet<HoldState>),
    /// Cancelled as soon as the lock may be another's.
    Token(CancelToken),
    /// Warned when the hold is certain for no longer than this margin.
    Margin { margin: Duration, is_near: bool, warning: Arc<Warning> },
    /// Ends with the hold.
    Span(HoldSpan),
}

/// The state of a hold right now.
pub(super) struct Standing {
    pub(super) state: HoldState,
    /// How long it is certain; zero if it is in doubt or lost.
    pub(super) left: Duration,
    /// Whether `valid_until` has passed.
    pub(super) may_be_anothers: bool,
}

impl Subscriber {
    /// A subscriber to a warning, which comes at once if too little is left already.
    pub(super) fn warned(
        margin: Duration,
        left: Duration,
        warning: &Arc<Warning>,
        dispatcher: &Dispatcher,
    ) -> Subscriber {
        let is_near = left <= margin;
        if is_near {
            warning.send(true, dispatcher);
        }
        Subscriber::Margin { margin, is_near, warning: warning.clone() }
    }

    /// Tells what has changed. `false`: there is nothing more to tell.
    fn tell(&mut self, standing: &Standing, dispatcher: &Dispatcher) -> bool {
        match self {
            Subscriber::States(told, outlet) => {
                if mem::replace(told, standing.state) != standing.state {
                    outlet.send(standing.state, dispatcher);
                }
            }
            Subscriber::Token(token) if standing.may_be_anothers => {
                token.cancel();
                return false;
            }
            Subscriber::Token(_) => {}
            // A hold that was released has nothing to be warned of.
            Subscriber::Margin { .. } if standing.state == HoldState::Released => {}
            Subscriber::Margin { margin, is_near, warning } => {
                let now_near = standing.left <= *margin;
                if mem::replace(is_near, now_near) != now_near {
                    warning.send(now_near, dispatcher);
                }
            }
            Subscriber::Span(span) => span.ends(standing.state),
        }
        true
    }

    /// How soon it needs the next message; `None`: not before something happens.
    fn next_look(&self, standing: &Standing) -> Option<Duration> {
        match self {
            Subscriber::States(told, _) => (*told != standing.state).then_some(Duration::ZERO),
            Subscriber::Token(_) => standing.may_be_anothers.then_some(Duration::ZERO),
            // Nothing tells when one that was near has recovered; that takes a look after a pause.
            Subscriber::Margin { margin, is_near, .. } => Some(match standing.left.checked_sub(*margin) {
                Some(pause) if pause > Duration::ZERO && !is_near => pause,
                None | Some(Duration::ZERO) if *is_near => WATCH_AFTER,
                _ => Duration::ZERO,
            }),
            Subscriber::Span(_) => None,
        }
    }
}

/// All subscribers of one hold.
#[derive(Default)]
pub(super) struct Subscribers {
    /// In the order in which they came, each with its number.
    list: Vec<(u64, Subscriber)>,
    next: u64,
    /// Whether there has ever been a subscriber. The thread plans looks from then on, so that repeated subscriptions
    /// need not wake it each time.
    pub(super) was_asked: bool,
}

impl Subscribers {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn add(&mut self, id: u64, subscriber: Subscriber) {
        self.list.push((id, subscriber));
    }

    /// Returns the subscriber, to be dropped without the lock: it may own values of the caller.
    pub(super) fn remove(&mut self, id: u64) -> Option<impl Sized + use<>> {
        let index = self.list.iter().position(|(other, _)| *other == id)?;
        Some(self.list.remove(index))
    }

    /// Call this under the hold's lock only: the order of the calls is the order of the messages.
    pub(super) fn tell(&mut self, standing: &Standing, dispatcher: &Dispatcher) {
        self.list.retain_mut(|(_, subscriber)| subscriber.tell(standing, dispatcher));
    }

    /// How soon the first of them needs a message.
    pub(super) fn next_look(&self, standing: &Standing) -> Option<Duration> {
        self.list.iter().filter_map(|(_, subscriber)| subscriber.next_look(standing)).min()
    }

    pub(super) fn has_tokens(&self) -> bool {
        self.list.iter().any(|(_, subscriber)| matches!(subscriber, Subscriber::Token(_)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}
