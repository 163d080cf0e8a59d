//! Two processes that hand one lock over, and the pauses.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use curator_locks::testing::TestingServer;

use crate::{
    SESSION,
    kinds::Kind,
    support::{
        PATIENCE,
        child::ChildProcess,
        history::shared_clock,
        machine::{Machine, since},
    },
    tally::{Belief, Failure, Pause, Return, Tally},
};

/// How long after the order to release a pause begins at the latest. Moves so that more than a third of the acquires
/// return before the pause: then the others are under way.
const FIRST_SPAN: Duration = Duration::from_millis(2);
const SPANS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(50)];

struct Party<'a> {
    child: ChildProcess,
    answers: &'a Machine,
    /// When it was told to hold the lock.
    told: Instant,
    returns: Vec<Return>,
    beliefs: Vec<Belief>,
    failures: Vec<Failure>,
    pauses: Vec<Pause>,
    holds_over: usize,
}

impl Party<'_> {
    fn start<'a>(kind: &Kind, side: &str, server: &TestingServer, answers: &'a Machine, lane: usize) -> Party<'a> {
        let path = format!("/{}/{lane}", kind.name);
        let child = ChildProcess::start("prober", &[kind.name, side, &server.connect_string(), &path]);
        assert_eq!(child.hear(), "ready");
        let (returns, beliefs, failures, pauses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Party { child, answers, told: Instant::now(), returns, beliefs, failures, pauses, holds_over: 0 }
    }

    fn hold(&mut self) {
        self.told = Instant::now();
        self.child.tell("hold");
    }

    fn hear(&mut self) {
        let said = self.child.hear_within(PATIENCE);
        let mut words = said.splitn(5, ' ');
        let what = words.next();
        let mut number = || words.next().unwrap().parse().unwrap();
        match what {
            Some("returned") => {
                let (at, took, thread) = (number(), number(), number());
                let pause = self.pauses.iter().rfind(|pause| pause.to <= at).cloned();
                self.returns.push(Return { at, took, thread, state: words.next().unwrap().to_owned(), pause });
            }
            Some("believed") => self.beliefs.push(Belief { from: number(), to: number() }),
            Some("over") => {
                self.holds_over += 1;
                let error = said.trim_start_matches("over").trim();
                if !error.is_empty() {
                    let server_late = self.answers.longest_wait(&since(self.told));
                    self.failures.push(Failure { error: error.to_owned(), server_late });
                }
            }
            _ => panic!("{said}"),
        }
    }

    /// Stops the process, and runs `meanwhile`.
    fn pause(&mut self, length: Duration, meanwhile: impl FnOnce()) {
        let from = shared_clock();
        self.child.pause();
        meanwhile();
        self.child.await_stop();
        let in_own_code = self.threads_in_own_code();
        thread::sleep(length);
        self.pauses.push(Pause { from, to: shared_clock(), in_own_code });
        self.child.resume();
    }

    /// The threads of the process, which is stopped, that are in no system call.
    fn threads_in_own_code(&self) -> Vec<u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.pid())).unwrap().filter_map(Result::ok);
        let is_in_own_code = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("syscall")).is_ok_and(|call| call.starts_with("-1 "))
        };
        tasks.filter(is_in_own_code).map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    fn await_hold(&mut self) {
        let (returns, over) = (self.returns.len(), self.holds_over);
        while self.returns.len() == returns && self.holds_over == over {
            self.hear();
        }
    }

    fn await_the_end_of_holds(&mut self, holds: usize) {
        while self.holds_over < holds {
            self.hear();
        }
    }
}

pub fn run(
    kind: &'static Kind,
    server: &TestingServer,
    answers: &Machine,
    lane: usize,
    is_another: &dyn Fn() -> bool,
) -> Tally {
    let mut victim = Party::start(kind, "victim", server, answers, lane);
    let mut rival = Party::start(kind, "rival", server, answers, lane);
    let (mut span, mut rounds) = (FIRST_SPAN, 0);
    while is_another() {
        rounds += 1;
        round(&mut victim, &mut rival, &mut span);
        victim.await_the_end_of_holds(rounds);
        rival.await_the_end_of_holds(2 * rounds);
    }
    let mut tally = Tally::new(kind.name);
    tally.pauses = rounds;
    tally.count_returns(&victim.returns, &rival.beliefs);
    tally.count_returns(&rival.returns, &victim.beliefs);
    tally.count_overlaps(&victim.beliefs, &rival.beliefs);
    tally.failures.extend(victim.failures.into_iter().chain(rival.failures));
    tally
}

/// The rival holds the lock and the victim waits for it; the rival releases it and wants it back. Around that one of the
/// two is paused, the victim more often.
fn round(victim: &mut Party<'_>, rival: &mut Party<'_>, span: &mut Duration) {
    rival.hold();
    rival.await_hold();
    victim.hold();
    thread::sleep(between(10, 30, Duration::from_millis(1)));
    rival.child.tell("release");
    thread::sleep(span.mul_f64(fastrand::f64()));
    let percent = SESSION / 100;
    let length = if fastrand::bool() { between(120, 160, percent) } else { between(30, 100, percent) };
    let is_victim = fastrand::u8(..4) != 0;
    // It asks for the lock when the pause has begun: where nobody queues, the victim would never get it otherwise.
    if is_victim {
        victim.pause(length, || rival.hold());
    } else {
        rival.pause(length, || ());
        rival.hold();
    }
    thread::sleep(between(50, 150, Duration::from_millis(1)));
    rival.child.tell("release");
    victim.child.tell("release");
    victim.await_hold();
    if is_victim {
        let paused_at = victim.pauses.last().map(|pause| pause.from);
        let was_early = victim.returns.last().is_some_and(|last| Some(last.at) < paused_at);
        *span = span.mul_f64(if was_early { 0.8 } else { 1.15 }).clamp(SPANS[0], SPANS[1]);
    }
}

fn between(from: u32, to: u32, unit: Duration) -> Duration {
    unit.mul_f64(f64::from(from) + f64::from(to - from) * fastrand::f64())
}
