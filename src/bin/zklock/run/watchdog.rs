//! The process that ends the command in time.
//!
//! It stands in a process group of its own, out of reach of signals to the command's group, and reads lines from its
//! parent. It goes by a clock that runs while the machine sleeps, and acts without an order: a stopped parent says
//! nothing any more, and the end of the pipe of a dead one is closed.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    mem,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, ChildStdin, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

#[cfg(target_os = "linux")]
use super::process::Script;
use super::{
    child::{WATCH, begin_helper, remove_marks, remove_secrets, this_program},
    clock::{self, Limits},
    family::{Family, Head},
};
use crate::{failure::FAILED, voice};

/// No sleep is longer: after one of the machine's the time is up at once. A parent with a fence ends by it then, which wakes this
/// process: with one it sleeps for as long as it has nothing to do.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);
const LONGEST_WITH_A_FENCE: Duration = Duration::from_secs(24 * 3600);

/// The order where the lock is lost and the parent has not said so.
const LOST: &str = "lost";

/// The order to the thread that writes them to see for itself.
const LOOK: &str = "";

/// Two looks at the clocks differ by less.
const LEAST_CHANGE: Duration = Duration::from_millis(1);

/// How long it hears nothing before it acts. A watchdog that was stopped first reads the orders that came meanwhile:
/// that the lock is held for longer, or that the command has ended.
const JUST_READ: Duration = Duration::from_millis(5);

/// How often, and how many times, it is looked whether all were killed: a process may start another one meanwhile.
const KILL_PAUSE: Duration = Duration::from_millis(10);
const KILLS: usize = 500;

/// Signals to every process called zklock, from the terminal or others, that are not for the watchdog.
const NOT_FOR_ME: [i32; 10] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU];

/// The parent's side.
pub(super) struct Watchdog {
    child: Child,
    /// Orders to the thread that writes them: the pipe to a stopped watchdog may be full.
    orders: Sender<String>,
    /// The pipe and the orders for that thread, until the command runs.
    pipe: Option<(ChildStdin, Receiver<String>)>,
    /// A message each time that it ends the command; closed once it is gone.
    words: Receiver<()>,
}

impl Watchdog {
    /// Starts one, for the processes with this mark.
    pub(super) fn start(session_timeout: Duration, mark: &str) -> io::Result<Watchdog> {
        let mut command = this_program();
        command.arg(WATCH).arg(session_timeout.as_millis().to_string()).arg(mark);
        // A process under the hold of another zklock, with its mark, may be killed; the watchdog has to outlive that.
        remove_marks(&mut command);
        remove_secrets(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let ((sender, words), (orders, written)) = (unbounded(), unbounded::<String>());
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let pipe = stdin.map(|stdin| (stdin, written));
        let mut lines = BufReader::new(stdout.ok_or(io::ErrorKind::BrokenPipe)?).lines().map_while(Result::ok);
        // The watchdog has to be deaf to signals before the command runs.
        if lines.next().as_deref() != Some("ready") {
            return Err(io::Error::other("the watchdog does not start"));
        }
        thread::Builder::new().name("watchdog".into()).spawn(move || {
            for _ in lines {
                // The receiver may be gone.
                let _ = sender.send(());
            }
        })?;
        Ok(Watchdog { child, orders, pipe, words })
    }

    pub(super) fn words(&self) -> &Receiver<()> {
        &self.words
    }

    /// The family is about to run. From here on no thread waits for a watchdog that is stopped, and a thread tells it now and each
    /// `pause` until when the lock is held: its parent's main thread may be busy with a search for processes, but not for nearly a
    /// session timeout, or it hangs.
    pub(super) fn watch(
        &mut self,
        head: &Head,
        (pause, limits): (Duration, Limits),
        valid_until: impl Fn() -> Option<Duration> + Send + 'static,
    ) {
        match head {
            Head::Nobody => {}
            Head::Group(group) => self.order(format!("group {group}")),
            #[cfg(target_os = "linux")]
            Head::Script(script) => self.order(script.order()),
        }
        let Some((mut pipe, orders)) = self.pipe.take() else { return };
        let tell = move || {
            let (mut told, mut looked, mut wait) = ((Duration::ZERO, 0), clock::now(), Duration::ZERO);
            loop {
                let order = orders.recv_timeout(mem::replace(&mut wait, pause));
                if order.as_deref() == Ok(LOOK) {
                    looked = clock::now();
                }
                let hangs = clock::now().saturating_sub(looked) > limits.prepare * 3;
                let order = match (order, valid_until()) {
                    (Err(RecvTimeoutError::Disconnected), _) => return,
                    (Ok(order), _) if order != LOOK => order,
                    (_, None) => LOST.to_owned(),
                    (_, Some(_)) if hangs => continue,
                    (_, Some(until)) => {
                        let now = (until, limits.passed(until.saturating_sub(clock::now())));
                        // One that has slept with the machine has to hear that a limit is passed.
                        if told.0.abs_diff(until) < LEAST_CHANGE && told.1 == now.1 {
                            continue;
                        }
                        told = now;
                        held_until(until)
                    }
                };
                if write(&mut pipe, &order).is_err() {
                    return;
                }
            }
        };
        // Without the thread the pipe is closed here, and the watchdog ends the command.
        let _ = thread::Builder::new().name("orders".into()).spawn(tell);
    }

    /// The lock is held up to then, by the watchdog's clock.
    pub(super) fn allow_until(&mut self, end: Duration) {
        self.order(held_until(end));
    }

    /// The kernel ends the parent before the lock may be another's.
    pub(super) fn parent_is_fenced(&mut self) {
        self.order("fenced".to_owned());
    }

    /// The lock is lost.
    pub(super) fn end_now(&mut self) {
        self.order("end".to_owned());
    }

    /// The lock's state may have changed.
    pub(super) fn look(&mut self) {
        self.order(LOOK.to_owned());
    }

    /// Orders from before the command runs are in the pipe when this returns: from then on the watchdog acts, whatever
    /// happens to this process.
    fn order(&mut self, order: String) {
        // If the watchdog is gone, the end of its words says so.
        match &mut self.pipe {
            Some((pipe, _)) => _ = write(pipe, &order),
            None => _ = self.orders.send(order),
        }
    }

    /// The command has ended. Whether it was ended by the watchdog.
    pub(super) fn finish(mut self) -> bool {
        self.order("done".to_owned());
        // The watchdog may have been stopped.
        let _ = i32::try_from(self.child.id()).map(|pid| kill(Pid::from_raw(pid), Signal::SIGCONT));
        let has_ended_it = self.words.recv().is_ok();
        // The watchdog has said its last word.
        let _ = self.child.wait();
        has_ended_it
    }
}

/// The watchdog's own program.
pub(crate) fn watch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    begin_helper();
    let mut next = || arguments.next()?.into_string().ok();
    let timeout = next().and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    let (Some(timeout), Some(mark)) = (timeout, next()) else { return ExitCode::from(FAILED) };
    let is_deaf =
        NOT_FOR_ME.iter().all(|signal| signal_hook::flag::register(*signal, Arc::new(AtomicBool::new(false))).is_ok());
    if !is_deaf {
        return ExitCode::from(FAILED);
    }
    tell("ready");
    let (limits, family) = (Limits::of(timeout), Family::new(mark));
    WatchdogProcess { limits, family, until: None, has_warned: false, longest_sleep: LONGEST_SLEEP }.run();
    voice::finish();
    ExitCode::SUCCESS
}

struct WatchdogProcess {
    limits: Limits,
    family: Family,
    /// The end of the hold, by the clock that runs while the machine sleeps.
    until: Option<Duration>,
    has_warned: bool,
    longest_sleep: Duration,
}

/// The parent's orders, read by the thread that acts on them: a watchdog that was stopped has read all of them before
/// it acts.
struct Orders(String);

impl Orders {
    /// The next order; `None`: none came within this time. An error: no more will come.
    fn read(&mut self, time: Duration) -> io::Result<Option<String>> {
        // Signals interrupt the wait, however many come, and do not prolong it.
        let until = clock::now() + time;
        while !self.0.contains('\n') {
            let stdin = io::stdin();
            let timeout = PollTimeout::try_from(until.saturating_sub(clock::now())).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut stdin = stdin.lock();
            let part = stdin.fill_buf()?;
            let count = part.len();
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.0.push_str(&String::from_utf8_lossy(part));
            stdin.consume(count);
        }
        let rest = self.0.split_off(self.0.find('\n').map_or(0, |end| end + 1));
        Ok(Some(mem::replace(&mut self.0, rest).trim_end().to_owned()))
    }
}

impl WatchdogProcess {
    /// For how long the lock is held for certain.
    fn left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.saturating_sub(clock::now()))
    }

    fn run(mut self) {
        let mut orders = Orders(String::new());
        loop {
            let next = match (self.family.is_prepared(), self.has_warned) {
                (_, true) => self.limits.kill,
                (true, false) => self.limits.term,
                (false, false) => self.limits.prepare,
            };
            match orders.read(self.left().saturating_sub(next).clamp(JUST_READ, self.longest_sleep)) {
                Ok(Some(order)) => match order.split_once(' ').unwrap_or((&order, "")) {
                    ("done", _) => return,
                    ("fenced", _) => self.longest_sleep = LONGEST_WITH_A_FENCE,
                    ("end", _) => return self.kill(None),
                    (LOST, _) => return self.kill(Some("the lock is lost")),
                    ("group", group) => self.family.set_head(Head::group(group.parse().unwrap_or_default())),
                    #[cfg(target_os = "linux")]
                    ("script", script) => self.family.set_head(Script::of(script).map_or(Head::Nobody, Head::Script)),
                    ("until", nanos) => {
                        self.until = nanos.parse().map(Duration::from_nanos).ok().or(self.until);
                        // The next outage is another one.
                        self.has_warned &= self.left() <= self.limits.term;
                        if self.left() > self.limits.prepare {
                            self.family.relax();
                        }
                    }
                    _ => {}
                },
                Ok(None) if self.left() <= self.limits.kill => {
                    return self.kill(Some("the lock may be lost"));
                }
                Ok(None) if self.left() <= self.limits.term && !self.has_warned => self.warn(),
                Ok(None) if self.left() <= self.limits.prepare => self.family.prepare(),
                Ok(None) => {}
                Err(_) => return self.kill(Some("zklock is gone")),
            }
        }
    }

    fn warn(&mut self) {
        self.has_warned = true;
        self.end(Signal::SIGTERM, Some("the lock is certain for little longer"), "gets TERM");
    }

    /// `None`: the parent says why.
    fn end(&self, signal: Signal, why: Option<&str>, end: &str) {
        // The exit status of a command that has ended, which its parent has still to read, is its own.
        let has_ended = self.family.has_ended();
        if !has_ended {
            tell("ends");
        }
        self.family.signal(signal);
        if let (false, Some(why), Some(what)) = (has_ended, why, self.family.what()) {
            voice::say(format_args!("{why}: {what} {end}"));
        }
    }

    fn kill(&self, why: Option<&str>) {
        self.end(Signal::SIGKILL, why, "is killed");
        for _ in 0..KILLS {
            if self.family.is_gone() {
                return;
            }
            if self.family.is_out_of_reach() {
                return voice::say(format_args!(
                    "{} may not be killed, as it has got other rights: run zklock with them, too",
                    self.family.what().unwrap_or("what runs under the lock")
                ));
            }
            thread::sleep(KILL_PAUSE);
            self.family.signal(Signal::SIGKILL);
        }
    }
}

fn held_until(end: Duration) -> String {
    format!("until {}", end.as_nanos())
}

/// In one piece, however this process ends.
fn write(pipe: &mut ChildStdin, order: &str) -> io::Result<()> {
    pipe.write_all(format!("{order}\n").as_bytes())
}

/// Sends a word to the parent, which may be gone.
fn tell(word: &str) {
    let _ = writeln!(io::stdout(), "{word}");
}
