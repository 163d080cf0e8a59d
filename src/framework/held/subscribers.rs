//! The subscribers of a hold's changes, and of warnings before its end.

use std::{mem, sync::Arc, time::Duration};

use super::{
    WATCH_AFTER,
    changes::{DeadlineEvent, HoldState},
};
use crate::{
    base::{sync::Mutex, telemetry::spans::HoldSpan},
    session::wait::cancel::CancelToken,
};

/// A subscriber, with the last state that it was told. It is told under the hold's lock only, so each hold's changes come in
/// order.
pub(super) enum Subscriber {
    /// It is told of all changes of the state; a hold begins as [`HoldState::Held`].
    States(HoldState, Box<dyn Fn(HoldState) + Send>),
    /// It is cancelled as soon as the lock may be another's.
    Token(CancelToken),
    /// It is told when the hold comes within this margin of its end, and when it is so near no more: see [`warning`].
    Margin { margin: Duration, is_near: bool, warn: Arc<dyn Fn(bool) + Send + Sync> },
    /// It ends with the hold.
    Span(HoldSpan),
}

/// Whether a hold is certain for no longer than the margin. `valid_for`: the time up to its `valid_until`.
pub(super) fn is_within(margin: Duration, state: HoldState, valid_for: Duration) -> bool {
    state != HoldState::Held || valid_for <= margin
}

/// A warning for one hold or several: it comes as soon as the first of them is near its end, and is taken back once none is
/// any more.
pub(super) fn warning(send: impl Fn(DeadlineEvent) + Send + Sync + 'static) -> Arc<dyn Fn(bool) + Send + Sync> {
    let holds_near = Mutex::new(0_usize);
    Arc::new(move |is_near| {
        let mut holds_near = holds_near.lock();
        let before = *holds_near;
        *holds_near = if is_near { before + 1 } else { before.saturating_sub(1) };
        match (before, *holds_near) {
            (0, 1) => send(DeadlineEvent::Near),
            (1, 0) => send(DeadlineEvent::Recovered),
            _ => {}
        }
    })
}

impl Subscriber {
    /// Tells what has changed. `false`: there is nothing more to tell.
    pub(super) fn tell(&mut self, state: HoldState, valid_for: Duration) -> bool {
        match self {
            Subscriber::States(told, send) => {
                if mem::replace(told, state) != state {
                    send(state);
                }
            }
            // A leader's term may end before its hold, and another one begin on it.
            Subscriber::Token(token) if valid_for.is_zero() || token.is_cancelled() => {
                token.cancel();
                return false;
            }
            Subscriber::Token(_) => {}
            // A hold that was released has nothing to be warned of.
            Subscriber::Margin { .. } if state == HoldState::Released => {}
            Subscriber::Margin { margin, is_near, warn } => {
                let now_near = is_within(*margin, state, valid_for);
                if mem::replace(is_near, now_near) != now_near {
                    warn(now_near);
                }
            }
            Subscriber::Span(span) => span.ends(state),
        }
        true
    }

    /// How soon it needs the next message; `None`: not before something happens.
    pub(super) fn next_look(&self, state: HoldState, valid_for: Duration) -> Option<Duration> {
        match self {
            Subscriber::States(told, _) => (*told != state).then_some(Duration::ZERO),
            Subscriber::Token(_) => valid_for.is_zero().then_some(Duration::ZERO),
            Subscriber::Margin { margin, is_near, .. } => Some(match (is_near, is_within(*margin, state, valid_for)) {
                // Nothing tells when one that was near has recovered; that takes a look after a pause.
                (true, true) => WATCH_AFTER,
                (false, false) => valid_for.saturating_sub(*margin),
                _ => Duration::ZERO,
            }),
            Subscriber::Span(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_was_cancelled_is_kept_no_longer() {
        let (token, left) = (CancelToken::new(), Duration::from_secs(1));
        let mut subscriber = Subscriber::Token(token.clone());
        assert!(subscriber.tell(HoldState::Held, left));
        token.cancel();
        assert!(!subscriber.tell(HoldState::Held, left));
    }
}
