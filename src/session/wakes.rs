//! A channel whose receiver may sleep elsewhere than on the channel: in its session, which wakes it by what arrives there.
//!
//! Messages come through the channel alone. The bell only ends a sleep, so that the receiver looks into the channel.

use std::{cell::RefCell, fmt, sync::Arc, task::Waker};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use parking_lot::Mutex;

use super::{Session, Stop, WaitEnd};

/// What other threads ring to end a sleep that is none on a channel, see [`Session::sleep_until`].
#[derive(Default)]
pub struct Bell(Mutex<Option<Waker>>);

impl Bell {
    /// From now on a ring calls the waker, once. What the sleep waits for has to be looked at after this and before the
    /// sleep: what came before this call does not ring.
    pub fn arm(&self, waker: &Waker) {
        *self.0.lock() = Some(waker.clone());
    }

    /// From now on a ring does nothing.
    pub fn disarm(&self) {
        *self.0.lock() = None;
    }

    /// Ends the sleep if there is one.
    pub fn ring(&self) {
        // The waker calls the system.
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("is_armed", &self.0.lock().is_some()).finish()
    }
}

/// A bell that is to be rung: it is when this is dropped.
pub(crate) struct Ring(Arc<Bell>);

impl Drop for Ring {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// The end that wakes.
pub(crate) struct WakeSender<T> {
    messages: Sender<T>,
    /// Dropped after the sender: that there are no senders any more is told, too.
    ring: Ring,
}

impl<T> Clone for WakeSender<T> {
    fn clone(&self) -> Self {
        WakeSender { messages: self.messages.clone(), ring: Ring(self.ring.0.clone()) }
    }
}

impl<T> WakeSender<T> {
    pub(crate) fn send(&self, message: T) {
        drop(self.put(message));
    }

    /// Sends, and leaves it to the caller to wake the receiver, under no lock. The receiver may have gone.
    pub(crate) fn put(&self, message: T) -> Ring {
        let _ = self.messages.send(message);
        Ring(self.ring.0.clone())
    }
}

/// The end that sleeps, one thread at a time.
pub(crate) struct WakeReceiver<T> {
    messages: Receiver<T>,
    bell: Arc<Bell>,
}

#[cfg(test)]
impl<T> WakeReceiver<T> {
    /// As if a thread slept.
    pub(crate) fn arm(&self, waker: &Waker) {
        self.bell.arm(waker);
    }
}

impl<T> WakeReceiver<T> {
    /// What has come so far.
    pub(crate) fn try_iter(&self) -> impl Iterator<Item = T> {
        self.messages.try_iter()
    }

    /// Waits for a message, which this session brings or somebody else. A channel whose senders are gone counts as one
    /// that never sends.
    ///
    /// No wake-up can be lost. On the channel it cannot. In the session the thread looks into the channel and at the token
    /// after the bell is armed, and whoever sends or cancels rings afterwards: the look sees it, or the ring ends the sleep.
    pub(crate) fn recv(&self, session: &Arc<dyn Session>, stop: Stop<'_>) -> Result<T, WaitEnd> {
        let received = RefCell::new(None);
        let look = || {
            let mut received = received.borrow_mut();
            if received.is_none() {
                *received = match self.messages.try_recv() {
                    Ok(message) => Some(Ok(message)),
                    Err(TryRecvError::Disconnected) => Some(Err(WaitEnd::Deadline)),
                    Err(TryRecvError::Empty) => None,
                };
            }
            received.is_some() || stop.is_cancelled()
        };
        if !look() {
            let _rung_by_token = stop.cancel.map(|token| token.ring(&self.bell));
            session.sleep_until(&self.bell, stop.deadline, &look);
        }
        received.into_inner().unwrap_or_else(|| stop.recv(&self.messages))
    }
}

/// A channel without a limit, and its bell.
pub(crate) fn wakes<T>() -> (WakeSender<T>, WakeReceiver<T>) {
    let (messages, receiver) = unbounded();
    let bell = Arc::new(Bell::default());
    (WakeSender { messages, ring: Ring(bell.clone()) }, WakeReceiver { messages: receiver, bell })
}
