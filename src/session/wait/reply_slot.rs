//! The slot for one reply, or one other wake-up, of one thread.
//!
//! Not a channel: the thread that was just woken would have to wait for the channel's locks.

use std::sync::Arc;

use super::{
    cancel::CancelToken,
    deadline::{WaitBound, WaitEnd},
};
use crate::{
    base::{
        clock,
        sync::Mutex,
        threads::{Thread, current, park, park_timeout},
    },
    session::api::Reply,
};

enum Slot<T> {
    Empty,
    /// This thread sleeps, or is about to.
    Waiting(Thread),
    Full(T),
    /// No reply comes any more: it was taken, or its sender is gone.
    Done,
}

/// The end that waits.
pub(crate) struct ReplySlot<T = Reply>(Arc<Mutex<Slot<T>>>);

/// The end that puts the reply there, once.
pub(crate) struct ReplySender<T = Reply>(Option<Arc<Mutex<Slot<T>>>>);

pub(crate) fn reply_slot<T>() -> (ReplySender<T>, ReplySlot<T>) {
    let state = Arc::new(Mutex::new(Slot::Empty));
    (ReplySender(Some(state.clone())), ReplySlot(state))
}

impl<T> ReplySender<T> {
    pub(crate) fn send(mut self, reply: T) {
        self.put(Slot::Full(reply));
    }

    /// Only the first call takes the lock: the woken thread wants it at once.
    fn put(&mut self, new: Slot<T>) {
        let Some(slot) = self.0.take() else { return };
        let before = std::mem::replace(&mut *slot.lock(), new);
        if let Slot::Waiting(thread) = before {
            thread.unpark();
        }
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        self.put(Slot::Done);
    }
}

impl<T> ReplySlot<T> {
    pub(crate) fn try_take(&self) -> Option<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, Slot::Done) {
            Slot::Full(reply) => Some(reply),
            before => {
                *state = before;
                None
            }
        }
    }

    /// Whether there is nothing to wait for: the reply is here, or none will come.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(*self.0.lock(), Slot::Full(_) | Slot::Done)
    }

    /// Sleeps until the reply is here, and takes it. A reply that will never come counts as the end of the time.
    pub(crate) fn wait(&self, bound: WaitBound<'_>) -> Result<T, WaitEnd> {
        let end = self.wait_until_settled(bound);
        self.try_take().ok_or(end.unwrap_or(WaitEnd::Deadline))
    }

    /// Sleeps until there is nothing to wait for; `Some`: the wait was stopped before.
    ///
    /// No wake-up can be lost: the thread leaves its name under the lock under which the reply is put, and with the token
    /// before it looks whether that is cancelled; and a thread that is unparked before it parks does not sleep.
    pub(crate) fn wait_until_settled(&self, bound: WaitBound<'_>) -> Option<WaitEnd> {
        if self.is_settled() {
            return None;
        }
        let _woken_by_token = bound.cancel.map(CancelToken::unpark_this_thread);
        loop {
            let over = bound.is_over();
            {
                let mut state = self.0.lock();
                match *state {
                    Slot::Full(_) | Slot::Done => return None,
                    Slot::Empty | Slot::Waiting(_) if over.is_some() => {
                        *state = Slot::Empty;
                        return over;
                    }
                    Slot::Empty | Slot::Waiting(_) => *state = Slot::Waiting(current()),
                }
            }
            match bound.deadline {
                Some(deadline) => park_timeout(clock::until(deadline)),
                None => park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "real threads, in real time")]

    use std::{thread, time::Duration};

    use super::*;
    use crate::proto::response::Response;

    const LONG: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(20);

    fn long() -> WaitBound<'static> {
        WaitBound::at(clock::now() + LONG)
    }

    #[test]
    fn a_reply_ends_the_wait_whenever_it_comes() {
        for pause in [Duration::ZERO, MOMENT] {
            let (sender, slot) = reply_slot::<Reply>();
            thread::scope(|scope| {
                scope.spawn(move || {
                    thread::sleep(pause);
                    sender.send(Ok(Response::Done));
                });
                assert!(matches!(slot.wait(long()), Ok(Ok(Response::Done))));
            });
            assert!(slot.is_settled() && slot.try_take().is_none());
        }
    }

    #[test]
    fn no_wake_up_is_lost() {
        for _ in 0..10_000 {
            let (sender, slot) = reply_slot::<Reply>();
            let other = thread::spawn(move || sender.send(Ok(Response::Done)));
            assert!(slot.wait(WaitBound::default()).is_ok());
            other.join().unwrap();
        }
    }

    #[test]
    fn a_sender_that_is_gone_ends_the_wait() {
        let (sender, slot) = reply_slot::<Reply>();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(MOMENT);
                drop(sender);
            });
            assert_eq!(slot.wait(long()).unwrap_err(), WaitEnd::Deadline);
        });
        assert_eq!(slot.wait(long()).unwrap_err(), WaitEnd::Deadline);
    }

    #[test]
    fn a_wait_that_was_stopped_can_be_taken_up_again() {
        let (sender, slot) = reply_slot::<Reply>();
        assert_eq!(slot.wait(WaitBound::at(clock::now() + MOMENT)).unwrap_err(), WaitEnd::Deadline);
        let token = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(MOMENT);
                token.cancel();
            });
            let bound = WaitBound { cancel: Some(&token), ..long() };
            assert_eq!(slot.wait(bound).unwrap_err(), WaitEnd::Cancelled);
        });
        assert!(!slot.is_settled() && slot.try_take().is_none());
        sender.send(Ok(Response::Done));
        // The reply is here, so it counts, whatever the token says.
        let bound = WaitBound { cancel: Some(&token), deadline: None };
        assert!(slot.wait(bound).is_ok());
    }

    #[test]
    fn who_is_unparked_for_another_reason_sleeps_on() {
        let (sender, slot) = reply_slot::<Reply>();
        let this = thread::current();
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..10 {
                    this.unpark();
                    thread::sleep(Duration::from_millis(1));
                }
                sender.send(Ok(Response::Done));
            });
            assert!(slot.wait(long()).is_ok());
        });
    }
}
