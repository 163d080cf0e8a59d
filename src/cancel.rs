//! Cancelling a blocked call from another thread.

use std::{fmt, sync::Arc};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use parking_lot::Mutex;

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
    /// Dropped to cancel: every receiver wakes, now and for ever.
    alive: Arc<Mutex<Option<Sender<()>>>>,
    cancelled: Receiver<()>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        let (alive, cancelled) = bounded(0);
        CancelToken { alive: Arc::new(Mutex::new(Some(alive))), cancelled }
    }

    /// Cancels every call that was given this token or a clone, those under way and those to come.
    pub fn cancel(&self) {
        self.alive.lock().take();
    }

    /// Whether the token was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.try_recv() == Err(TryRecvError::Disconnected)
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
