//! A place where one thread that waits for an event sleeps, so that the kernel wakes it when something arrives.
//!
//! An event that the session's thread reads wakes two threads, one after the other. A waiter that sleeps here reads it
//! by itself. There is one place in a session: two would both be woken by every arrival. Whoever else waits for an event
//! sleeps on its channel, and is woken by the waiter here.
//!
//! The place is apart from connections. While there is none, or its end is the session's thread's affair, nothing
//! arrives here; what a waiter is told of then comes from other threads, which ring its bell. So no sleep depends on a
//! socket that is gone, and the next connection finds the waiter in its place.

use std::{
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use super::{
    super::{
        Bell,
        readiness::{Readiness, Target},
    },
    Shared,
};

/// Whether a waiter sleeps there.
#[derive(Default)]
pub(super) enum Place {
    /// There was no connection to read yet.
    #[default]
    NotMade,
    Free(Bed),
    /// By a waiter, which has taken the bed with it.
    Taken(Target),
}

impl Place {
    /// Where arrivals wake the waiter, if there is one.
    pub(super) fn taken(&self) -> Option<&Target> {
        match self {
            Place::Taken(target) => Some(target),
            Place::NotMade | Place::Free(_) => None,
        }
    }
}

/// What one thread sleeps on.
pub(super) struct Bed {
    readiness: Readiness,
    target: Target,
    waker: Waker,
}

/// The waiter in the place, which it leaves when this is dropped.
pub(super) struct Sleeper<'a> {
    shared: &'a Arc<Shared>,
    bed: Option<Bed>,
}

impl Shared {
    /// Takes the place, unless nothing would ever arrive there or a waiter is there already.
    pub(super) fn sleeper(self: &Arc<Self>) -> Option<Sleeper<'_>> {
        let mut reading = self.reading.lock();
        if !reading.is_told {
            return None;
        }
        let Place::Free(Bed { target, .. }) = &reading.place else { return None };
        let taken = Place::Taken(target.clone());
        let Place::Free(bed) = std::mem::replace(&mut reading.place, taken) else { return None };
        // Where somebody reads he switches it on, and where there is no connection the next one does.
        reading.switch_on();
        Some(Sleeper { shared: self, bed: Some(bed) })
    }
}

/// `None` where the system has no files left, for instance: waiters sleep on their channels then.
pub(super) fn make_bed() -> Option<Bed> {
    let made = Readiness::new().and_then(|(readiness, target)| {
        let waker = readiness.waker()?;
        Ok(Bed { readiness, target, waker })
    });
    made.inspect_err(|error| log::debug!("waiters are woken by the session's thread: {error}")).ok()
}

impl Sleeper<'_> {
    /// Reads what arrives, and sleeps while nothing does, until `is_done` or the deadline.
    ///
    /// No wake-up can be lost. What others bring rings the bell, and is looked for after the bell was armed. What arrives
    /// wakes this thread, or is read by whoever has the right to, and rings the bell then; and giving that right back
    /// reports what is still there.
    pub(super) fn sleep_until(mut self, bell: &Bell, deadline: Option<Instant>, is_done: &dyn Fn() -> bool) {
        while let Some(bed) = &mut self.bed {
            bell.arm(&bed.waker);
            let patience = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let woken = if is_done() || patience == Some(Duration::ZERO) {
                None
            } else {
                // It fails only for reasons that no other sleep here would outlast.
                bed.readiness.wait(patience).ok()
            };
            // What this thread reads by itself need not wake it.
            bell.disarm();
            let Some(arrival) = woken else { return };
            // Without an arrival it was the bell, and others need the right to read.
            let Some(arrival) = arrival else { continue };
            let Some(mut turn) = self.shared.turn() else { continue };
            turn.read_arrived(arrival);
            if is_done() {
                // Before the right to read is given back, so that arrivals go straight to the session's thread.
                drop(self);
                drop(turn);
                return;
            }
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(bed) = self.bed.take() {
            let mut reading = self.shared.reading.lock();
            reading.place = Place::Free(bed);
            // From now on arrivals wake the session's thread.
            reading.switch_on();
        }
    }
}
