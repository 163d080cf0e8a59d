//! The process that ends the command in time.
//!
//! It stands in the command's process group, so that the group's number stays its own, and reads lines from its parent.
//! It goes by a clock that runs while the machine sleeps, and needs nobody's word to act: if the parent is stopped, it says
//! nothing any more, and if it dies, its end of the pipe is closed.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use nix::{
    sys::signal::{Signal, killpg},
    time::{ClockId, clock_gettime},
    unistd::{Pid, getpgrp},
};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

use super::child::this_program;
use crate::failure::FAILED;

/// The first argument that means: be the watchdog.
pub(crate) const WATCH: &str = "__watch";

/// How many hundredths of the session timeout are left when the command gets TERM, and when KILL. With a healthy session
/// 28 are left in the worst moment, between two heartbeats; see `Liveness`.
const TERM_AT: u32 = 15;
const KILL_AT: u32 = 5;

/// No sleep is longer: after one of the machine's the time is up at once.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What the group is sent, but is not for the watchdog.
const NOT_FOR_ME: [i32; 10] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU];

/// What it tells before it acts.
pub(super) enum Word {
    /// It ends the command.
    Ends,
    /// It is no more.
    Gone,
}

/// The parent's side.
pub(super) struct Watchdog {
    child: Child,
    orders: Option<ChildStdin>,
    words: Receiver<Word>,
    last: Option<Instant>,
}

impl Watchdog {
    /// Starts one, as the leader of a process group of its own.
    pub(super) fn start(session_timeout: Duration) -> io::Result<Watchdog> {
        let mut command = this_program();
        command.arg(WATCH).arg(session_timeout.as_millis().to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let (sender, words) = unbounded();
        let (orders, stdout) = (child.stdin.take(), child.stdout.take());
        let mut lines = BufReader::new(stdout.ok_or(io::ErrorKind::BrokenPipe)?).lines().map_while(Result::ok);
        // It has to be deaf to the group's signals before the command can be sent any.
        if lines.next().as_deref() != Some("ready") {
            return Err(io::Error::other("the watchdog does not start"));
        }
        thread::Builder::new().name("watchdog".into()).spawn(move || {
            for _ in lines {
                // Nobody may listen any more.
                let _ = sender.send(Word::Ends);
            }
            let _ = sender.send(Word::Gone);
        })?;
        Ok(Watchdog { child, orders, words, last: None })
    }

    /// The number of the command's process group.
    pub(super) fn group(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    pub(super) fn words(&self) -> &Receiver<Word> {
        &self.words
    }

    /// The lock is held up to then.
    pub(super) fn allow_until(&mut self, until: Instant) {
        if self.last.replace(until) != Some(until) {
            let left = until.saturating_duration_since(Instant::now());
            self.order(&format!("until {}", (clock() + left).as_nanos()));
        }
    }

    /// The lock is lost.
    pub(super) fn end_now(&mut self) {
        self.order("end");
    }

    fn order(&mut self, line: &str) {
        // If it is gone, its last word says so.
        let _ = self.orders.as_mut().map(|orders| writeln!(orders, "{line}"));
    }

    /// The command has ended. Whether it was ended by the watchdog.
    pub(super) fn finish(mut self) -> bool {
        self.order("done");
        drop(self.orders.take());
        let has_ended_it = self.words.iter().any(|word| matches!(word, Word::Ends));
        // It has said its last word.
        let _ = self.child.wait();
        has_ended_it
    }
}

/// The watchdog's own program.
pub(crate) fn watch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let timeout = arguments.next().and_then(|millis| millis.to_str()?.parse().ok()).map(Duration::from_millis);
    let Some(timeout) = timeout else { return ExitCode::from(FAILED) };
    let is_deaf =
        NOT_FOR_ME.iter().all(|signal| signal_hook::flag::register(*signal, Arc::new(AtomicBool::new(false))).is_ok());
    let (sender, orders) = unbounded();
    let reader = thread::Builder::new().spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            // The main thread listens as long as the process lives.
            let _ = sender.send(line);
        }
    });
    if !is_deaf || reader.is_err() {
        return ExitCode::from(FAILED);
    }
    say("ready");
    Watch { term_at: timeout * TERM_AT / 100, kill_at: timeout * KILL_AT / 100, until: None, has_warned: false }
        .run(&orders)
}

struct Watch {
    term_at: Duration,
    kill_at: Duration,
    /// By the clock that runs while the machine sleeps.
    until: Option<Duration>,
    has_warned: bool,
}

impl Watch {
    fn run(mut self, orders: &Receiver<String>) -> ExitCode {
        loop {
            let left = self.until.map_or(Duration::MAX, |until| until.saturating_sub(clock()));
            if left <= self.kill_at {
                self.kill("the lock may be lost: the command is killed");
            }
            if left <= self.term_at && !self.has_warned {
                self.has_warned = true;
                say("ends");
                complain("no word from the servers, the lock may be lost soon: the command gets TERM");
                let _ = killpg(getpgrp(), Signal::SIGTERM);
            }
            let next = left.saturating_sub(if self.has_warned { self.kill_at } else { self.term_at });
            match orders.recv_timeout(next.min(LONGEST_SLEEP)) {
                Ok(order) if order == "done" => return ExitCode::SUCCESS,
                Ok(order) if order == "end" => self.kill("the lock is lost: the command is killed"),
                Ok(order) => {
                    let until = order.strip_prefix("until ").and_then(|nanos| nanos.parse().ok());
                    self.until = until.map(Duration::from_nanos).or(self.until);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.kill("zklock is gone: the command is killed"),
            }
        }
    }

    /// Everything in the group, this process included.
    fn kill(&self, why: &str) {
        say("ends");
        complain(why);
        let _ = killpg(getpgrp(), Signal::SIGKILL);
        // Not reached but where the group could not be killed.
        let _ = nix::sys::signal::kill(Pid::this(), Signal::SIGKILL);
    }
}

fn say(word: &str) {
    // The parent may be gone.
    let _ = writeln!(io::stdout(), "{word}");
}

fn complain(what: &str) {
    let _ = writeln!(io::stderr(), "zklock: {what}");
}

/// Time since the machine started, its sleep included where that is to be had.
fn clock() -> Duration {
    #[cfg(target_os = "linux")]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::CLOCK_MONOTONIC;
    clock_gettime(id).map(Duration::from).unwrap_or_default()
}
