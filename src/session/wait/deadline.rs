//! The wait bound: until when a caller waits, and its cancel token.

use std::time::{Duration, Instant};

use super::cancel::CancelToken;
use crate::base::{
    channel::{Receiver, never, select_biased},
    clock,
};

/// The bounds of a wait: a deadline and a cancel token.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitBound<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a CancelToken>,
}

/// Why a wait ended without the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Deadline,
    Cancelled,
}

impl<'a> WaitBound<'a> {
    pub(crate) fn at(deadline: Instant) -> WaitBound<'static> {
        WaitBound { deadline: Some(deadline), cancel: None }
    }

    /// This wait bound, with this deadline if that is earlier.
    pub(crate) fn by(self, deadline: Instant) -> WaitBound<'a> {
        WaitBound { deadline: Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline))), ..self }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    pub(crate) fn is_over(&self) -> Option<WaitEnd> {
        if self.is_cancelled() {
            Some(WaitEnd::Cancelled)
        } else if self.deadline.is_some_and(|deadline| clock::now() >= deadline) {
            Some(WaitEnd::Deadline)
        } else {
            None
        }
    }

    /// Waits for a message. A channel whose senders are gone counts as one that never sends.
    ///
    /// Not `recv`, which spins and yields before it parks: nothing here comes sooner than a round trip, and a hundred
    /// threads that yield to each other keep the reader thread from its work. The macro allocates nothing.
    pub(crate) fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, WaitEnd> {
        let never = never();
        // Nothing is ever sent there: the channel ends.
        let cancelled = self.cancel.map_or(&never, CancelToken::signal);
        // A time beyond what the clock can count has no end.
        let time = self.deadline.map_or(Duration::MAX, clock::until);
        select_biased! {
            recv(channel) -> message => message.map_err(|_| WaitEnd::Deadline),
            recv(cancelled) -> _ => Err(WaitEnd::Cancelled),
            default(time) => Err(WaitEnd::Deadline),
        }
    }
}
