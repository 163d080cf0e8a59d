//! Cancelling a blocked call from another thread.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    thread::{self, Thread},
};

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
    shared: Arc<Mutex<Shared>>,
    cancelled: Receiver<()>,
}

struct Shared {
    /// Dropped to cancel: every receiver wakes, now and for ever.
    alive: Option<Sender<()>>,
    /// Who is to be unparked then, by the number of the sleep.
    sleepers: HashMap<u64, Thread>,
    /// How many sleeps there were.
    sleeps: u64,
}

/// As long as it lives, the cancellation unparks the thread that made it.
pub(crate) struct Woken<'a> {
    token: &'a CancelToken,
    sleep: u64,
}

impl Drop for Woken<'_> {
    fn drop(&mut self) {
        self.token.shared.lock().sleepers.remove(&self.sleep);
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        let (alive, cancelled) = bounded(0);
        let shared = Shared { alive: Some(alive), sleepers: HashMap::new(), sleeps: 0 };
        CancelToken { shared: Arc::new(Mutex::new(shared)), cancelled }
    }

    /// Cancels every call that was given this token or a clone, those under way and those to come.
    pub fn cancel(&self) {
        let mut shared = self.shared.lock();
        shared.alive = None;
        let sleepers = std::mem::take(&mut shared.sleepers);
        drop(shared);
        sleepers.into_values().for_each(|thread| thread.unpark());
    }

    /// Whether the token was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Lets the cancellation unpark this thread, which has to look whether it was cancelled after this call and before it
    /// parks.
    pub(crate) fn unpark_this_thread(&self) -> Woken<'_> {
        let mut shared = self.shared.lock();
        shared.sleeps += 1;
        let sleep = shared.sleeps;
        shared.sleepers.insert(sleep, thread::current());
        Woken { token: self, sleep }
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
