//! One run: the baton, and the begin and the end of its threads.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    Until, What, aside,
    caller::Me,
    clock::{Clock, NEVER, duration},
    schedule::{Choices, Schedule},
    set_me,
    table::Table,
};
use crate::base::panics::message;

/// When a run is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// In true time.
    pub(crate) time: Duration,
    pub(crate) steps: u64,
}

/// How a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The director has returned.
    Done,
    /// All threads wait, and nothing will ever wake one.
    Deadlock(Vec<Waiting>),
    /// The steps were used up.
    Livelock(Vec<Waiting>),
    /// The time was used up.
    OutOfTime(Vec<Waiting>),
    /// A thread has panicked.
    Panic { thread: String, message: String },
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Deadlock(_) => "a DEADLOCK: nothing will ever wake one of these",
            Outcome::Livelock(_) => "a LIVELOCK: the steps are used up",
            Outcome::OutOfTime(_) => "OUT OF TIME",
            Outcome::Panic { .. } => "a PANIC",
        }
    }
}

/// A thread that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) process: String,
    pub(crate) thread: String,
    pub(crate) what: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {} waits for {}", self.process, self.thread, self.what)
    }
}

/// What a run has come to.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    pub(crate) switches: u64,
    pub(crate) time: Duration,
    /// The last notes, and who was still there when the director had returned.
    pub(crate) tail: Vec<String>,
    /// Threads that did not end. There should be none.
    pub(crate) leaked: usize,
}

/// What happens in a run besides its threads: the network and the servers.
pub(crate) trait Events: Send + Sync {
    /// Does what is due. It tells the run when it is due next ([`Run::set_next_event`]).
    fn happen(&self, now: u64);
}

/// The payload by which a simulated thread unwinds at the end of its run.
pub(super) struct TheEnd;

/// Passed from thread to thread: only who has it runs.
#[derive(Default)]
pub(super) struct Baton {
    is_here: AtomicBool,
    thread: OnceLock<thread::Thread>,
}

impl Baton {
    fn give(&self) {
        self.is_here.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn take(&self) {
        while !self.is_here.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// One run.
pub(crate) struct Run {
    pub(super) table: Mutex<Table>,
    events: Mutex<Option<Arc<dyn Events>>>,
    /// What its threads find by [`Run::surroundings`].
    surroundings: OnceLock<Weak<dyn Any + Send + Sync>>,
    seed: u64,
}

/// A run whose director is the calling thread.
pub(crate) struct Begun {
    pub(crate) run: Arc<Run>,
    me: Rc<Me>,
    /// The state of the thread's generator of random numbers before.
    before: u64,
}

impl Begun {
    /// Returns when all threads have ended. By the panic the director has unwound, if it has.
    pub(crate) fn end(self, panic: Option<Box<dyn Any + Send>>) -> Ended {
        let Begun { run, me, before } = self;
        run.finish(&me, panic);
        set_me(None);
        fastrand::seed(before);
        run.ended()
    }
}

/// The stack of a simulated thread.
const STACK: usize = 1 << 20;

impl Run {
    /// Runs the director on the calling thread. Returns when all threads have ended.
    pub(crate) fn run(
        seed: u64,
        schedule: Schedule,
        stall: Option<Duration>,
        limits: Limits,
        director: impl FnOnce(&Arc<Run>),
    ) -> Ended {
        let begun = Run::begin(seed, schedule, stall, limits);
        let directed = catch_unwind(AssertUnwindSafe(|| director(&begun.run)));
        begun.end(directed.err())
    }

    /// Makes the calling thread the director, the first thread of the first process.
    pub(crate) fn begin(seed: u64, schedule: Schedule, stall: Option<Duration>, limits: Limits) -> Begun {
        assert!(super::me().is_none(), "a run inside of a run");
        let table = Table::new(Choices::new(seed, schedule, stall), limits);
        let (events, surroundings) = (Mutex::default(), OnceLock::new());
        let run = Arc::new(Run { table: Mutex::new(table), events, surroundings, seed });
        let baton = Arc::new(Baton::default());
        baton.thread.get_or_init(thread::current);
        let id = {
            let mut table = run.table.lock();
            table.add_process("the director", 0);
            table.add_thread("the director", 0, baton.clone())
        };
        let before = fastrand::get_seed();
        fastrand::seed(run.seed_of(id));
        let me = Rc::new(Me { run: run.clone(), id, baton });
        set_me(Some(me.clone()));
        Begun { run, me, before }
    }

    /// What happens besides the threads.
    pub(crate) fn set_events(&self, events: Arc<dyn Events>) {
        *self.events.lock() = Some(events);
    }

    /// What the run's threads may find, wherever they are.
    pub(crate) fn surround(&self, surroundings: Weak<dyn Any + Send + Sync>) {
        let _ = self.surroundings.set(surroundings);
    }

    pub(crate) fn surroundings(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.surroundings.get()?.upgrade()
    }

    /// When the events are due next, in nanoseconds of true time.
    pub(crate) fn set_next_event(&self, at: Option<u64>) {
        let mut table = self.table.lock();
        if !table.is_ending {
            table.next_event = at.unwrap_or(NEVER);
        }
    }

    /// True time, in nanoseconds since the begin.
    pub(crate) fn time(&self) -> u64 {
        self.table.lock().now
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.table.lock().is_ending
    }

    /// Puts a number into the history's hash.
    pub(crate) fn mix(&self, number: u64) {
        self.table.lock().mix(number);
    }

    /// Puts a line into the history, and into its hash.
    pub(crate) fn note(&self, line: &str) {
        let mut table = self.table.lock();
        for byte in line.bytes() {
            table.mix(u64::from(byte));
        }
        table.note(|| line.to_owned());
    }

    /// Prints a line, where the history is printed as it happens: it is no part of it.
    pub(crate) fn whisper(&self, line: impl FnOnce() -> String) {
        self.table.lock().whisper(line);
    }

    pub(crate) fn wake(&self, key: usize) {
        self.table.lock().wake(key);
    }

    /// Lets that thread go on, or not sleep when it parks next.
    pub(super) fn unpark(&self, id: usize) {
        let mut table = self.table.lock();
        table.threads[id].is_unparked = true;
        table.wake(Me::park_key(id));
    }

    /// Adds a process whose clock shows this now.
    pub(crate) fn add_process(&self, name: &str, local: u64) -> usize {
        self.table.lock().add_process(name, local)
    }

    /// The process stands still for that time. If its machine sleeps, its waits last longer by it.
    pub(crate) fn stand_still(&self, process: usize, time: Duration, sleeps: bool) {
        let mut table = self.table.lock();
        let until = table.now.saturating_add(duration(time));
        table.mix(until);
        table.stand_still(process, until, sleeps);
    }

    /// The process goes on, whenever it was to.
    pub(crate) fn go_on(&self, process: usize) {
        self.table.lock().go_on_now(process);
    }

    pub(crate) fn kill(&self, process: usize) {
        let mut table = self.table.lock();
        table.mix(process as u64);
        table.kill(process);
    }

    pub(crate) fn is_dead(&self, process: usize) -> bool {
        self.table.lock().processes[process].is_dead
    }

    pub(crate) fn set_clock_rate(&self, process: usize, ppm: i64) {
        self.table.lock().set_clock_rate(process, ppm);
    }

    pub(crate) fn clock(&self, process: usize) -> Clock {
        self.table.lock().processes[process].clock.clone()
    }

    /// Starts a thread of a process.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        process: usize,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<usize> {
        let (id, baton) = self.add_thread(process, name)?;
        let (this, its_baton) = (self.clone(), baton.clone());
        let body = move || {
            let (me, ran) = this.run_thread(id, its_baton, run);
            this.thread_ended(&me, ran.err());
        };
        let started = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(body);
        let handle = started.inspect_err(|_| self.table.lock().end_thread(id))?;
        let _ = baton.thread.set(handle.thread().clone());
        self.table.lock().threads[id].handle = Some(handle);
        Ok(id)
    }

    /// Starts a thread of a process that may borrow. A panic is for whoever joins it, and does not end the run.
    pub(super) fn spawn_scoped<'scope, T: Send + 'scope>(
        self: &Arc<Self>,
        scope: &'scope thread::Scope<'scope, '_>,
        process: usize,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> std::io::Result<(usize, thread::ScopedJoinHandle<'scope, T>)> {
        let (id, baton) = self.add_thread(process, "scoped")?;
        let (this, its_baton) = (self.clone(), baton.clone());
        let body = move || {
            let (me, ran) = this.run_thread(id, its_baton, run);
            this.thread_ended(&me, None);
            ran.unwrap_or_else(|panic| resume_unwind(panic))
        };
        let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body);
        let handle = started.inspect_err(|_| self.table.lock().end_thread(id))?;
        let _ = baton.thread.set(handle.thread().clone());
        Ok((id, handle))
    }

    fn add_thread(&self, process: usize, name: &str) -> std::io::Result<(usize, Arc<Baton>)> {
        let baton = Arc::new(Baton::default());
        let mut table = self.table.lock();
        if table.is_ending {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        Ok((table.add_thread(name, process, baton.clone()), baton))
    }

    /// What a thread does from its first turn on.
    fn run_thread<T>(
        self: &Arc<Self>,
        id: usize,
        baton: Arc<Baton>,
        run: impl FnOnce() -> T,
    ) -> (Rc<Me>, thread::Result<T>) {
        baton.take();
        fastrand::seed(self.seed_of(id));
        let me = Rc::new(Me { run: self.clone(), id, baton });
        set_me(Some(me.clone()));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            me.die_at_the_end();
            run()
        }));
        set_me(None);
        (me, ran)
    }

    /// Wakes who waits for the end of that thread.
    pub(crate) fn end_key(id: usize) -> usize {
        4 * id + 3
    }

    pub(crate) fn has_thread_ended(&self, id: usize) -> bool {
        self.table.lock().threads[id].is_ended
    }

    fn seed_of(&self, id: usize) -> u64 {
        let of_thread = (id as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        self.seed.rotate_left(17) ^ of_thread
    }

    fn thread_ended(&self, me: &Me, panic: Option<Box<dyn Any + Send>>) {
        let mut table = self.table.lock();
        if let Some(panic) = panic.filter(|panic| !panic.is::<TheEnd>()) {
            let thread = table.threads[me.id].name.clone();
            table.begin_end(Outcome::Panic { thread, message: message(&*panic).to_owned() });
        }
        table.end_thread(me.id);
        table.wake(Run::end_key(me.id));
        self.dispatch(table, None);
    }

    /// Gives the baton to whom the schedule chooses, and returns when it is back; at once if the thread has ended.
    pub(super) fn dispatch<'a>(&'a self, mut table: MutexGuard<'a, Table>, me: Option<&Me>) {
        let next = loop {
            if table.now >= table.due() && !table.is_ending {
                table = self.happen(table);
                continue;
            }
            if let Some(next) = table.choose() {
                break next;
            }
            if table.is_ending {
                // All others wait for each other. The director leaves them behind.
                break 0;
            }
            let due = table.due();
            if due == NEVER {
                let waiting = table.waiting();
                table.begin_end(Outcome::Deadlock(waiting));
            } else {
                table.now = due;
                table.look();
                table.mix(due);
                self.look_at_time(&mut table);
            }
        };
        if me.is_some_and(|me| me.id == next) {
            return;
        }
        table.running = next;
        table.switches += 1;
        let (steps, now) = (table.steps, table.now);
        table.mix(next as u64 ^ (steps << 20));
        table.mix(now);
        let baton = table.threads[next].baton.clone();
        drop(table);
        baton.give();
        if let Some(me) = me {
            me.baton.take();
        }
    }

    /// Does what is due.
    pub(super) fn happen<'a>(&'a self, mut table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        table.expire();
        if table.next_event > table.now {
            return table;
        }
        table.next_event = NEVER;
        let now = table.now;
        drop(table);
        let events = self.events.lock().clone();
        let happened = catch_unwind(AssertUnwindSafe(|| events.map(|events| aside(|| events.happen(now)))));
        let mut table = self.table.lock();
        if let Err(panic) = happened {
            table.begin_end(Outcome::Panic { thread: "the network".into(), message: message(&*panic).to_owned() });
        }
        table
    }

    pub(super) fn look_at_time(&self, table: &mut Table) {
        if table.now > duration(table.limits.time) {
            let waiting = table.waiting();
            table.begin_end(Outcome::OutOfTime(waiting));
        } else if table.steps > table.limits.steps {
            let waiting = table.waiting();
            table.begin_end(Outcome::Livelock(waiting));
        }
    }

    /// Ends all threads, and waits for that.
    fn finish(&self, me: &Me, panic: Option<Box<dyn Any + Send>>) {
        let mut table = self.table.lock();
        table.note_who_is_left();
        table.begin_end(match panic.filter(|panic| !panic.is::<TheEnd>()) {
            None => Outcome::Done,
            Some(panic) => Outcome::Panic { thread: "the director".into(), message: message(&*panic).to_owned() },
        });
        loop {
            let others = table.alive > 1;
            // Not runnable itself: it comes to its turn when no other one is.
            table.begin_wait(me.id, &[], Until::Woken, What::here("the end"));
            if !others || table.choose().is_none() {
                break;
            }
            self.dispatch(table, Some(me));
            table = self.table.lock();
        }
        let handles: Vec<_> = table
            .threads
            .iter_mut()
            .filter(|thread| thread.is_ended)
            .filter_map(|thread| thread.handle.take())
            .collect();
        drop(table);
        *self.events.lock() = None;
        for handle in handles {
            let _ = handle.join();
        }
    }

    fn ended(&self) -> Ended {
        let mut table = self.table.lock();
        let tail = table.tail.drain(..).collect();
        Ended {
            outcome: table.outcome.clone().unwrap_or(Outcome::Done),
            hash: table.hash,
            steps: table.steps,
            switches: table.switches,
            time: Duration::from_nanos(table.now),
            tail,
            leaked: table.alive - 1,
        }
    }
}
