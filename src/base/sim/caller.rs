//! A simulated thread, as it knows itself: what it does at each call of the seam.

use std::{
    panic::{Location, resume_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use super::{
    Until, Wake, What,
    clock::instant,
    run::{Baton, Outcome, Run, TheEnd},
};

/// A simulated thread, as it knows itself.
pub(crate) struct Me {
    pub(crate) run: Arc<Run>,
    pub(crate) id: usize,
    pub(super) baton: Arc<Baton>,
}

/// How often a thread may wait while it unwinds at the end, before it is left behind.
const LATE_WAITS: u32 = 100_000;
/// For how long each wait and each look at the clock takes then: what has a deadline reaches it.
const LATE_WAIT: u64 = 1_000_000_000;

impl Me {
    /// A call of the seam: another thread may go on.
    pub(crate) fn point(&self, at: &'static Location<'static>) {
        self.step(at);
        self.die_at_the_end();
    }

    /// As [`point`](Me::point), where the thread must not unwind.
    #[track_caller]
    pub(crate) fn point_in_drop(&self) {
        self.step(Location::caller());
    }

    fn step(&self, at: &'static Location<'static>) {
        let mut table = self.run.table.lock();
        if table.is_ending {
            return;
        }
        table.steps += 1;
        let time = table.choices.step();
        table.now += time;
        if table.steps.is_multiple_of(1024) {
            self.run.look_at_time(&mut table);
        }
        while table.now >= table.due() && !table.is_ending {
            table = self.run.happen(table);
        }
        if let Some(stall) = table.choices.stall().filter(|_| self.id != 0 && !table.is_ending) {
            let until = table.now + stall;
            table.begin_wait(self.id, &[], Until::TrueTime(until), What { label: "standing still", at });
        } else if !table.switches(self.id) && table.may_run(self.id) {
            return;
        }
        self.run.dispatch(table, Some(self));
    }

    /// Waits until one of the keys is woken, or the time is up. The wake-up may be for nothing.
    ///
    /// Between the look that found nothing and this call there must be no other call of the seam: no other thread runs in
    /// between, so no wake-up is lost.
    pub(crate) fn wait(&self, keys: &[usize], until: Until, what: What) -> Wake {
        if self.is_late() {
            return self.wait_late();
        }
        let mut table = self.run.table.lock();
        table.steps += 1;
        table.now += table.choices.step();
        table.begin_wait(self.id, keys, until, what);
        self.run.dispatch(table, Some(self));
        self.die_at_the_end();
        if self.run.table.lock().threads[self.id].has_timed_out { Wake::TimedOut } else { Wake::Woken }
    }

    /// Waits until a lock may be free. Also at the end of the run: who has it gives it back when it unwinds.
    pub(crate) fn wait_for_lock(&self, key: usize, holder: Option<usize>, what: What) {
        self.die_at_the_end();
        let mut table = self.run.table.lock();
        table.begin_wait(self.id, &[key], Until::Woken, what);
        table.waits_for(self.id, holder);
        if !table.is_ending && table.waits_for_itself(self.id) {
            // Other threads may still have timers, and would go on for ever.
            let waiting = table.waiting();
            table.begin_end(Outcome::Deadlock(waiting));
        }
        self.run.dispatch(table, Some(self));
        self.die_at_the_end();
    }

    /// Whether the run has ended, and this thread is unwinding.
    fn is_late(&self) -> bool {
        self.die_at_the_end();
        self.run.is_ending()
    }

    fn wait_late(&self) -> Wake {
        let mut table = self.run.table.lock();
        table.now += LATE_WAIT;
        let late = &mut table.threads[self.id].late_waits;
        *late += 1;
        if *late > LATE_WAITS {
            // It waits for what cannot come any more.
            table.begin_wait(self.id, &[], Until::Woken, What::here("nothing"));
        }
        self.run.dispatch(table, Some(self));
        Wake::TimedOut
    }

    /// Unwinds, if the run has ended and this thread does not unwind already.
    pub(super) fn die_at_the_end(&self) {
        if !thread::panicking() && self.run.is_ending() {
            resume_unwind(Box::new(TheEnd));
        }
    }

    /// Yields: all others come first.
    pub(crate) fn yield_now(&self, at: &'static Location<'static>) {
        self.point(at);
        let mut table = self.run.table.lock();
        table.fall_behind(self.id);
        self.run.dispatch(table, Some(self));
        self.die_at_the_end();
    }

    /// What the clock of its process shows.
    pub(crate) fn now(&self, at: &'static Location<'static>) -> Instant {
        self.point(at);
        let mut table = self.run.table.lock();
        if table.is_ending {
            table.now += LATE_WAIT;
        }
        let process = table.threads[self.id].process;
        instant(table.processes[process].clock.shows(table.now))
    }

    pub(crate) fn process(&self) -> usize {
        self.run.table.lock().threads[self.id].process
    }

    /// Runs as if the thread belonged to that process.
    pub(crate) fn within<T>(&self, process: usize, run: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Me, usize);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.run.table.lock().adopt(self.0.id, self.1);
            }
        }
        let before = self.run.table.lock().adopt(self.id, process);
        let _back = Back(self, before);
        run()
    }

    /// Takes the mark that the thread was unparked.
    pub(super) fn take_unparked(&self) -> bool {
        std::mem::take(&mut self.run.table.lock().threads[self.id].is_unparked)
    }

    pub(super) fn park_key(id: usize) -> usize {
        4 * id + 1
    }
}
