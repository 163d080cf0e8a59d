//! Cancelling a blocked call from another thread.

use std::{fmt, sync::Arc};

use crate::base::{
    channel::{Receiver, Sender, TryRecvError, bounded},
    collections::HashMap,
    sync::Mutex,
    threads::{Thread, current},
};

/// Ends a blocked call from another thread, as `Thread.interrupt` does in Java.
///
/// Clones share one state, and a token once cancelled stays so. A call that is cancelled fails with
/// [`Error::Cancelled`](crate::Error::Cancelled) and leaves no znode behind.
///
/// ```
/// let token = curator_locks::CancelToken::new();
/// assert!(!token.is_cancelled());
/// token.clone().cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone)]
pub struct CancelToken {
    shared: Arc<Mutex<TokenState>>,
    cancelled: Receiver<()>,
}

struct TokenState {
    /// Dropped to cancel: every receiver wakes, now and for ever.
    alive: Option<Sender<()>>,
    /// Further waiters that the cancellation wakes, by number.
    wakers: HashMap<u64, Waker>,
    /// How many were registered so far.
    registered: u64,
}

/// A waiter that a cancellation wakes besides those on its channel.
enum Waker {
    Parked(Thread),
    /// For waiters that sleep with another token.
    Token(CancelToken),
}

/// A registered waiter, which the cancellation wakes while this lives.
pub(crate) struct Registration<'a> {
    token: &'a CancelToken,
    number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.token.shared.lock().wakers.remove(&self.number);
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        let (alive, cancelled) = bounded(0);
        let shared = TokenState { alive: Some(alive), wakers: HashMap::default(), registered: 0 };
        CancelToken { shared: Arc::new(Mutex::new(shared)), cancelled }
    }

    /// Cancels every call that was given this token or a clone, those under way and those to come.
    pub fn cancel(&self) {
        let mut shared = self.shared.lock();
        shared.alive = None;
        let wakers = std::mem::take(&mut shared.wakers);
        drop(shared);
        for waker in wakers.into_values() {
            match waker {
                Waker::Parked(thread) => thread.unpark(),
                Waker::Token(token) => token.cancel(),
            }
        }
    }

    /// Whether the token was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Lets the cancellation unpark this thread. The thread must look whether the token is cancelled after this call and
    /// before it parks.
    pub(crate) fn unpark_this_thread(&self) -> Registration<'_> {
        self.wake(Waker::Parked(current()))
    }

    /// Lets the cancellation cancel another token, too: at once if this one is cancelled already.
    pub(crate) fn pass_on(&self, other: &CancelToken) -> Registration<'_> {
        let registration = self.wake(Waker::Token(other.clone()));
        if self.is_cancelled() {
            other.cancel();
        }
        registration
    }

    fn wake(&self, waker: Waker) -> Registration<'_> {
        let mut shared = self.shared.lock();
        shared.registered += 1;
        let number = shared.registered;
        shared.wakers.insert(number, waker);
        Registration { token: self, number }
    }

    /// Disconnected when the token is cancelled; nothing is ever sent.
    pub(crate) fn signal(&self) -> &Receiver<()> {
        &self.cancelled
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        CancelToken::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}
