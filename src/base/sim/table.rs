//! The table of a run: threads, processes, who waits for what, and the time.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    thread::JoinHandle,
};

use super::{
    Until, What,
    clock::{Clock, NEVER, instant, nanos},
    run::{Baton, Limits, Outcome, Waiting},
    schedule::Choices,
};

/// One of the threads.
pub(super) struct ThreadState {
    pub(super) name: String,
    pub(super) process: usize,
    pub(super) baton: Arc<Baton>,
    pub(super) handle: Option<JoinHandle<()>>,
    pub(super) is_ended: bool,
    /// Its place among those that may run; `None` while it waits, and while its process stands still.
    turn: Option<usize>,
    /// While it waits: until when.
    wait: Option<Wait>,
    pub(super) has_timed_out: bool,
    /// It was unparked before it parked.
    pub(super) is_unparked: bool,
    priority: u64,
    /// How often it has waited since the run has ended.
    pub(super) late_waits: u32,
}

#[derive(Clone, Copy)]
struct Wait {
    until: Until,
    /// When that is, in true time.
    due: u64,
    what: What,
    /// Who has the lock that it waits for.
    holder: Option<usize>,
}

/// A process of the run: number 0 is that of the director, whose clock shows true time.
pub(super) struct ProcessState {
    name: String,
    pub(super) clock: Clock,
    /// By which its waits end: it stands still while the machine sleeps.
    awake: Clock,
    /// Stands still until then.
    stands_until: Option<u64>,
    pub(super) is_dead: bool,
}

impl ProcessState {
    /// The end of a wait that begins now, by the clock that stands still while the machine sleeps.
    fn awake_until(&self, until: Until, now: u64) -> Until {
        let Until::Shows(at) = until else { return until };
        let rest = nanos(at).saturating_sub(self.clock.shows(now));
        Until::Shows(instant(self.awake.shows(now).saturating_add(rest)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Thread(usize),
    Process(usize),
}

pub(super) struct Table {
    /// True time, in nanoseconds since the begin.
    pub(super) now: u64,
    pub(super) threads: Vec<ThreadState>,
    pub(super) processes: Vec<ProcessState>,
    /// The threads that may run, in no order.
    runnable: Vec<usize>,
    /// Who waits for which key.
    waits: Vec<(usize, usize)>,
    timers: BTreeSet<(u64, Timer)>,
    /// When something outside of the threads is due next.
    pub(super) next_event: u64,
    pub(super) choices: Choices,
    pub(super) running: usize,
    /// A thread of a higher priority has become runnable.
    is_outranked: bool,
    pub(super) hash: u64,
    pub(super) steps: u64,
    pub(super) switches: u64,
    pub(super) limits: Limits,
    pub(super) outcome: Option<Outcome>,
    pub(super) is_ending: bool,
    /// Threads that have not ended.
    pub(super) alive: usize,
    pub(super) tail: VecDeque<String>,
    is_loud: bool,
    /// When to print who waits for what, in nanoseconds.
    look_at: u64,
}

fn seconds(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}

/// How many of the last notes a report has.
const TAIL: usize = 400;

impl Table {
    pub(super) fn new(choices: Choices, limits: Limits) -> Table {
        Table {
            now: 0,
            threads: Vec::new(),
            processes: Vec::new(),
            runnable: Vec::new(),
            waits: Vec::new(),
            timers: BTreeSet::new(),
            next_event: NEVER,
            choices,
            running: 0,
            is_outranked: false,
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            switches: 0,
            limits,
            outcome: None,
            is_ending: false,
            alive: 0,
            tail: VecDeque::new(),
            is_loud: std::env::var_os("SIM_TRACE").is_some(),
            look_at: std::env::var("SIM_LOOK").ok().and_then(|seconds| seconds.parse().ok()).map_or(NEVER, seconds),
        }
    }

    /// Puts a number into the history's hash.
    pub(super) fn mix(&mut self, number: u64) {
        if !self.is_ending {
            let mixed = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    /// Prints a line, if all of them are.
    pub(super) fn whisper(&self, line: impl FnOnce() -> String) {
        if self.is_loud && !self.is_ending {
            eprintln!("{:>15.9}   {}", self.now as f64 / 1e9, line());
        }
    }

    /// Puts a line into the history.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.is_ending {
            return;
        }
        let line = format!("{:>15.9} {}", self.now as f64 / 1e9, line());
        if self.is_loud {
            eprintln!("{line}");
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    pub(super) fn add_process(&mut self, name: &str, local: u64) -> usize {
        let clock = Clock::new(self.now, local);
        self.processes.push(ProcessState {
            name: name.into(),
            awake: clock.clone(),
            clock,
            stands_until: None,
            is_dead: false,
        });
        self.processes.len() - 1
    }

    pub(super) fn add_thread(&mut self, name: &str, process: usize, baton: Arc<Baton>) -> usize {
        let id = self.threads.len();
        let priority = self.choices.priority();
        self.threads.push(ThreadState {
            name: name.into(),
            process,
            baton,
            handle: None,
            is_ended: false,
            turn: None,
            wait: None,
            has_timed_out: false,
            is_unparked: false,
            priority,
            late_waits: 0,
        });
        self.alive += 1;
        self.make_runnable(id);
        id
    }

    fn stands_still(&self, process: usize) -> bool {
        self.processes[process].stands_until.is_some() && !self.is_ending
    }

    /// The thread may run, if its process does.
    fn make_runnable(&mut self, id: usize) {
        let thread = &self.threads[id];
        if thread.turn.is_some() || thread.is_ended || self.stands_still(thread.process) {
            return;
        }
        self.is_outranked |= thread.priority > self.threads[self.running].priority;
        self.threads[id].turn = Some(self.runnable.len());
        self.runnable.push(id);
    }

    fn make_unrunnable(&mut self, id: usize) {
        let Some(turn) = self.threads[id].turn.take() else { return };
        self.runnable.swap_remove(turn);
        if let Some(moved) = self.runnable.get(turn) {
            self.threads[*moved].turn = Some(turn);
        }
    }

    pub(super) fn may_run(&self, id: usize) -> bool {
        self.threads[id].turn.is_some()
    }

    /// The thread waits from now on.
    pub(super) fn begin_wait(&mut self, id: usize, keys: &[usize], until: Until, what: What) {
        self.make_unrunnable(id);
        self.waits.extend(keys.iter().map(|key| (*key, id)));
        let process = self.threads[id].process;
        let until = self.processes[process].awake_until(until, self.now);
        let due = self.due_of(process, until);
        self.threads[id].has_timed_out = false;
        self.threads[id].wait = Some(Wait { until, due, what, holder: None });
        if due != NEVER {
            self.timers.insert((due, Timer::Thread(id)));
        }
    }

    /// The thread waits for what this one has.
    pub(super) fn waits_for(&mut self, id: usize, holder: Option<usize>) {
        if let Some(wait) = &mut self.threads[id].wait {
            wait.holder = holder;
        }
    }

    /// Whether a thread waits for a lock that is its own, or those of others that wait for it in turn. A lock that is given
    /// back wakes all that wait for it, so whom a thread waits for has it still.
    pub(super) fn waits_for_itself(&self, id: usize) -> bool {
        let next = |id: &usize| self.threads[*id].wait.and_then(|wait| wait.holder);
        std::iter::successors(next(&id), next).take(self.threads.len()).any(|holder| holder == id)
    }

    fn due_of(&self, process: usize, until: Until) -> u64 {
        match until {
            Until::Woken => NEVER,
            Until::Shows(at) => self.processes[process].awake.when(nanos(at)),
            Until::TrueTime(at) => at,
        }
    }

    fn end_wait(&mut self, id: usize) {
        if let Some(wait) = self.threads[id].wait.take() {
            self.timers.remove(&(wait.due, Timer::Thread(id)));
            self.waits.retain(|(_, waiting)| *waiting != id);
            self.make_runnable(id);
        }
    }

    /// Wakes all that wait for this.
    pub(super) fn wake(&mut self, key: usize) {
        while let Some((_, id)) = self.waits.iter().find(|(waited_for, _)| *waited_for == key) {
            self.end_wait(*id);
        }
    }

    /// The next time at which something is due.
    pub(super) fn due(&self) -> u64 {
        self.timers.first().map_or(NEVER, |(at, _)| *at).min(self.next_event)
    }

    /// Ends the waits and the pauses whose time is up.
    pub(super) fn expire(&mut self) {
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now) {
            self.timers.pop_first();
            match timer {
                Timer::Thread(id) => {
                    self.threads[id].has_timed_out = true;
                    self.end_wait(id);
                }
                Timer::Process(process) => self.go_on(process),
            }
        }
    }

    /// Chooses who goes on.
    pub(super) fn choose(&mut self) -> Option<usize> {
        self.is_outranked = false;
        if self.runnable.is_empty() {
            None
        } else if self.is_ending {
            // In turn: a thread that cannot end before another one has must not keep that from its turn.
            let last = self.running;
            let after = |id: &usize| (*id <= last, *id);
            self.runnable.iter().copied().min_by_key(after)
        } else if self.choices.is_pct {
            self.runnable.iter().copied().max_by_key(|id| self.threads[*id].priority)
        } else {
            let any = self.choices.any(self.runnable.len());
            Some(self.runnable[any])
        }
    }

    /// Whether another thread may go on, after a step of this one that need not wait.
    pub(super) fn switches(&mut self, id: usize) -> bool {
        if self.choices.switches() {
            self.fall_behind(id);
            return true;
        }
        self.choices.is_pct && self.is_outranked
    }

    /// With priorities, all others come before this thread from now on.
    pub(super) fn fall_behind(&mut self, id: usize) {
        if self.choices.is_pct {
            self.threads[id].priority = self.choices.last();
        }
    }

    /// The process stands still until then; its machine may sleep as well.
    pub(super) fn stand_still(&mut self, process: usize, until: u64, sleeps: bool) {
        let now = self.now;
        let state = &mut self.processes[process];
        if state.is_dead {
            return;
        }
        if let Some(before) = state.stands_until {
            self.timers.remove(&(before, Timer::Process(process)));
        }
        let until = self.processes[process].stands_until.map_or(until, |before| before.max(until));
        self.processes[process].stands_until = Some(until);
        if sleeps {
            self.change_waits(process, |clock| clock.stand(now));
        }
        for id in 0..self.threads.len() {
            if self.threads[id].process == process {
                self.make_unrunnable(id);
            }
        }
        if until != NEVER {
            self.timers.insert((until, Timer::Process(process)));
        }
    }

    /// The process stands still no longer, unless it is dead.
    pub(super) fn go_on_now(&mut self, process: usize) {
        if let Some(until) = self.processes[process].stands_until.filter(|_| !self.processes[process].is_dead) {
            self.timers.remove(&(until, Timer::Process(process)));
            self.go_on(process);
        }
    }

    fn go_on(&mut self, process: usize) {
        let now = self.now;
        self.processes[process].stands_until = None;
        self.change_waits(process, |clock| clock.go_on(now));
        self.resume(process);
    }

    fn resume(&mut self, process: usize) {
        for id in 0..self.threads.len() {
            if self.threads[id].process == process && self.threads[id].wait.is_none() {
                self.make_runnable(id);
            }
        }
    }

    /// No thread of the process ever runs again.
    pub(super) fn kill(&mut self, process: usize) {
        self.stand_still(process, NEVER, false);
        self.processes[process].is_dead = true;
        for id in 0..self.threads.len() {
            if self.threads[id].process == process
                && let Some(wait) = self.threads[id].wait
            {
                self.timers.remove(&(wait.due, Timer::Thread(id)));
            }
        }
    }

    pub(super) fn set_clock_rate(&mut self, process: usize, ppm: i64) {
        let now = self.now;
        self.processes[process].clock.set_rate(now, ppm);
        self.change_waits(process, |clock| clock.set_rate(now, ppm));
    }

    /// Changes the clock by which the waits of a process end, and with it when they are due.
    fn change_waits(&mut self, process: usize, change: impl FnOnce(&mut Clock)) {
        change(&mut self.processes[process].awake);
        for id in 0..self.threads.len() {
            let Some(wait) = self.threads[id].wait.filter(|_| self.threads[id].process == process) else { continue };
            let due = self.due_of(process, wait.until);
            self.timers.remove(&(wait.due, Timer::Thread(id)));
            self.threads[id].wait = Some(Wait { due, ..wait });
            if due != NEVER {
                self.timers.insert((due, Timer::Thread(id)));
            }
        }
    }

    /// Changes whose thread it is; returns whose it was.
    pub(super) fn adopt(&mut self, id: usize, process: usize) -> usize {
        std::mem::replace(&mut self.threads[id].process, process)
    }

    pub(super) fn end_thread(&mut self, id: usize) {
        self.make_unrunnable(id);
        self.threads[id].is_ended = true;
        // One that is not joined keeps its stack; a run may have thousands.
        self.threads[id].handle = None;
        self.alive -= 1;
    }

    /// From now on all threads unwind. Who waits wakes up for that, also in a process that stands still.
    pub(super) fn begin_end(&mut self, outcome: Outcome) {
        if self.is_ending {
            return;
        }
        self.outcome = Some(outcome);
        self.is_ending = true;
        self.next_event = NEVER;
        for id in 0..self.threads.len() {
            self.end_wait(id);
            self.make_runnable(id);
        }
        self.timers.clear();
    }

    /// Prints who waits for what, once, for who looks closely (`SIM_LOOK`).
    pub(super) fn look(&mut self) {
        if self.now >= self.look_at {
            self.look_at = NEVER;
            self.waiting().iter().for_each(|waiting| eprintln!("{:>15.9} {waiting}", self.now as f64 / 1e9));
        }
    }

    /// Notes who is still there when the director has returned.
    pub(super) fn note_who_is_left(&mut self) {
        for waiting in self.waiting().iter().skip(1) {
            self.note(|| format!("still there: {waiting}"));
        }
    }

    /// The threads that wait, and for what.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let waits = |thread: &ThreadState| match (&thread.wait, thread.is_ended) {
            (_, true) => None,
            (Some(Wait { what, holder: Some(holder), .. }), _) => {
                Some(format!("{} of {} at {}", what.label, self.threads[*holder].name, what.at))
            }
            (Some(Wait { what, .. }), _) => Some(format!("{} at {}", what.label, what.at)),
            (None, _) if thread.turn.is_none() => Some("its process to go on".into()),
            (None, _) => Some("its turn".into()),
        };
        let of = |thread: &ThreadState| {
            let process = self.processes[thread.process].name.clone();
            waits(thread).map(|what| Waiting { process, thread: thread.name.clone(), what })
        };
        self.threads.iter().filter_map(of).collect()
    }
}
