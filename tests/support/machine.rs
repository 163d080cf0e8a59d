//! Limits of time, on a machine that others use too.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long each pause beside a test lasts, if the machine ends it in time.
const PAUSE: Duration = Duration::from_millis(5);

const WITNESSES: usize = 4;

/// A thread that does not run for so long will not run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that do nothing but pause, beside what a test measures. What their pauses last too long is the machine's doing,
/// and so much more time a test has to grant. A witness of a server asks it for a heartbeat after each pause.
pub struct Machine {
    witnesses: Vec<Arc<Mutex<Vec<Range<Instant>>>>>,
    has_ended: Arc<AtomicBool>,
}

impl Machine {
    /// Begins to watch the machine. Nothing that began before can be judged.
    pub fn watch() -> Machine {
        (0..WITNESSES).fold(Machine::unwatched(), |machine, _| machine.and(|| ()))
    }

    /// Begins with no witness: nothing is known until one comes.
    pub fn unwatched() -> Machine {
        Machine { witnesses: Vec::new(), has_ended: Arc::default() }
    }

    /// Adds a witness: what it does after each pause is late, too, for as long as that takes.
    pub fn and(mut self, mut after_pause: impl FnMut() + Send + 'static) -> Machine {
        let late = Arc::<Mutex<Vec<Range<Instant>>>>::default();
        let (seen, has_ended) = (late.clone(), self.has_ended.clone());
        thread::spawn(move || {
            let mut due = Instant::now() + PAUSE;
            while !has_ended.load(Ordering::Relaxed) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                after_pause();
                let woken = Instant::now();
                seen.lock().unwrap().push(due..woken);
                due = woken + PAUSE;
            }
        });
        self.witnesses.push(late);
        self
    }

    /// How long the unluckiest of the pausing threads was kept waiting for a processor within this time.
    pub fn lateness(&self, during: &Range<Instant>) -> Duration {
        self.of_the_unluckiest(during, |waits| waits.sum())
    }

    /// And how long at a stretch.
    pub fn longest_wait(&self, during: &Range<Instant>) -> Duration {
        self.of_the_unluckiest(during, |waits| waits.max().unwrap_or_default())
    }

    fn of_the_unluckiest(
        &self,
        during: &Range<Instant>,
        of: impl Fn(&mut dyn Iterator<Item = Duration>) -> Duration,
    ) -> Duration {
        let of = |witness: &Arc<Mutex<Vec<Range<Instant>>>>| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let seen = witness.lock().unwrap();
                if seen.last().is_some_and(|pause| pause.end >= during.end) {
                    let within = |late: &Range<Instant>| {
                        late.end.min(during.end).saturating_duration_since(late.start.max(during.start))
                    };
                    return of(&mut seen.iter().rev().take_while(|late| late.end > during.start).map(within));
                }
                drop(seen);
                assert!(Instant::now() < deadline, "this machine runs no thread");
                thread::sleep(PAUSE);
            }
        };
        self.witnesses.iter().map(of).max().unwrap_or_default()
    }

    /// That this took no longer than the limit, beside what the machine was late by at the same time.
    #[track_caller]
    pub fn assert_at_most(&self, what: &str, took: Range<Instant>, limit: Duration) {
        self.assert_share_at_most(what, 0.0, vec![took], limit);
    }

    /// The same for the median of several.
    #[track_caller]
    pub fn assert_median_at_most(&self, what: &str, took: Vec<Range<Instant>>, limit: Duration) {
        self.assert_share_at_most(what, 0.5, took, limit);
    }

    /// The same for the one of several that this share of all stands in front of.
    #[track_caller]
    pub fn assert_share_at_most(&self, what: &str, share: f64, took: Vec<Range<Instant>>, limit: Duration) {
        self.assert_over_at_most(what, share, took.into_iter().map(|took| (took, Duration::ZERO)).collect(), limit);
    }

    /// The same for what each took beyond a time of its own.
    #[track_caller]
    pub fn assert_over_at_most(&self, what: &str, share: f64, took: Vec<(Range<Instant>, Duration)>, limit: Duration) {
        let judge = |(span, own): (Range<Instant>, Duration)| {
            let over = span.end.saturating_duration_since(span.start).saturating_sub(own);
            let late = self.lateness(&span);
            (over.saturating_sub(late), over, late)
        };
        let mut judged: Vec<(Duration, Duration, Duration)> = took.into_iter().map(judge).collect();
        judged.sort_unstable();
        let (net, over, late) = judged[(judged.len() as f64 * share) as usize];
        println!("{what}: {over:?}, the machine late by {late:?}, limit {limit:?}");
        assert!(net <= limit, "{what}: {over:?}, with the machine late by {late:?}: more than {limit:?}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// What began then and has ended now.
pub fn since(begin: Instant) -> Range<Instant> {
    begin..Instant::now()
}

/// The kernel's account of how long one thread, ready to run, was kept waiting for a processor.
///
/// It judges this one thread: a [`Machine`]'s threads pause most of the time, for which schedulers let them run at once,
/// while a thread beside them that has just worked is kept waiting for tens of milliseconds. No sleep and no wait for
/// another thread counts here.
pub struct ProcessorWaits(PathBuf);

impl ProcessorWaits {
    pub fn of_this_thread() -> ProcessorWaits {
        ProcessorWaits(Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap()).join("schedstat"))
    }

    /// All of its waits that are over. `None`: the thread has ended, or this kernel keeps no account.
    pub fn total(&self) -> Option<Duration> {
        // On the processor, waiting for it (both in nanoseconds), and how often it got one.
        let account = fs::read_to_string(&self.0).ok()?;
        Some(Duration::from_nanos(account.split_whitespace().nth(1).unwrap().parse().unwrap()))
    }
}
