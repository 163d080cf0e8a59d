//! Simulated threads, in virtual time, from one seed; for the unit tests of this crate alone.
//!
//! A simulated thread is a thread of the operating system that runs only while it has the baton. At every call of the seam
//! (the rest of [`base`](super), the simulated connections) the schedule may give the baton to another one; a thread that has
//! to wait does so in the table of the [`run`], and time jumps when all of them wait. All else is the crate as it is shipped.
//!
//! [`run`] is the baton and the life of threads, [`caller`] what a thread does at a call of the seam, `table` who waits for what,
//! [`schedule`] the choice of who goes on, [`clock`] what the clock of a process shows; [`sync`], [`channel`], [`select`],
//! [`thread`] and [`collections`] are what the seam has in a test build. A thread that is not simulated
//! gets the real thing from each of them, so that other unit tests run as ever.
#![allow(clippy::indexing_slicing, reason = "a number that no thread has is a defect of the simulator")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "for tests alone")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "made of the originals")]
#![allow(unreachable_pub, reason = "they stand for types that are public in a build")]

pub(crate) mod caller;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod collections;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod select;
pub(crate) mod sync;
mod table;
mod tests;
pub(crate) mod thread;

use std::{
    cell::{Cell, RefCell},
    panic::Location,
    rc::Rc,
    time::Instant,
};

use caller::Me;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Me>>> = const { RefCell::new(None) };
    /// Whether the thread does the network's work, or the scheduler's, which is nobody's turn.
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread, if it is a simulated one.
pub(crate) fn me() -> Option<Rc<Me>> {
    if IS_ASIDE.try_with(Cell::get).unwrap_or(true) {
        return None;
    }
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Makes the calling thread a simulated one, or an ordinary one again.
fn set_me(me: Option<Rc<Me>>) -> Option<Rc<Me>> {
    CURRENT.with(|current| current.replace(me))
}

/// Runs what is no simulated thread's doing: the seam is the real thing meanwhile, and no other thread gets a turn.
pub(crate) fn aside<T>(run: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_ASIDE.set(self.0);
        }
    }
    let _back = Back(IS_ASIDE.replace(true));
    run()
}

pub(crate) fn is_simulated() -> bool {
    me().is_some()
}

/// What the clock of the calling thread's process shows, if it is a simulated thread.
#[track_caller]
pub(crate) fn now() -> Option<Instant> {
    me().map(|me| me.now(Location::caller()))
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Woken,
    TimedOut,
}

/// Until when a thread waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Woken,
    /// Its process's clock shows this; later by what its machine sleeps meanwhile.
    Shows(Instant),
    /// Nanoseconds since the run began, whatever any clock shows.
    TrueTime(u64),
}

/// The place where a thread waits, for a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct What {
    pub(crate) label: &'static str,
    pub(crate) at: &'static Location<'static>,
}

impl What {
    #[track_caller]
    pub(crate) fn here(label: &'static str) -> What {
        What { label, at: Location::caller() }
    }
}
