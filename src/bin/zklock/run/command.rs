//! The command, from its start to its end.

use std::{
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, never, select, tick, unbounded};
use curator_locks::{CuratorFramework, SelfFence};
use nix::{
    errno::Errno,
    sys::{
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    child,
    clock::{self, Limits},
    family::{self, Family},
    hold::{Held, Locks},
    signals::{NOT_SUSPENDED, Signals, ends},
    terminal::Terminal,
    watchdog::Watchdog,
};
use crate::{
    args::Run,
    failure::{FAILED, Failure, LOST, Result, cannot},
    voice,
};

/// How often it looks whether the heartbeats have moved the end of the lock on, and whether the processes that the
/// command has left behind have ended.
const LOOKS: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How a command has ended.
pub(super) struct Ended {
    /// The exit status.
    pub(super) status: u8,
    /// Whether a signal that would end a program came after it: there was no command any more to pass it on to.
    pub(super) is_interrupted: bool,
    /// Whether it was ended because the lock was lost or about to be lost.
    pub(super) was_lost: bool,
}

/// Runs the command while the lock is held.
pub(super) fn supervise(
    client: &CuratorFramework,
    connect: &str,
    held: &Held,
    locks: &Locks,
    args: &Run,
    signals: &Signals,
) -> Result<Ended> {
    let timeout = client.session_timeout();
    let limits = Limits::of(timeout);
    let lost = || Failure { status: LOST, text: "the lock was lost before the command could run".to_owned() };
    signals.ignore_stops()?;
    // If the machine has slept while the lock was awaited, only a later heartbeat tells for how long it is held.
    while valid_until(held).ok_or_else(lost)? <= clock::now() + limits.term {
        if let Some(signal) = signals.receiver().recv_timeout(timeout / LOOKS).ok().filter(|signal| ends(*signal)) {
            return Err(Failure::ended_by(signal));
        }
    }
    let (sender, changes) = unbounded();
    for hold in held.holds() {
        let sender = sender.clone();
        // The command may have ended.
        hold.on_state_change(move |state| {
            let _ = sender.send(state);
        });
    }
    let variables = variables(client, connect, &locks.paths, held);
    let of = |name| variables.iter().find(|(variable, _)| *variable == name).map_or("", |(_, value)| value.as_str());
    let (session, node) = (of(family::SESSION), of(family::NODE));
    let mut watchdog = Watchdog::start(timeout, session, node).map_err(cannot("start the watchdog"))?;
    let fences = held.self_fence();
    if !fences.is_empty() {
        watchdog.parent_is_fenced();
    }
    let started = valid_until(held).ok_or_else(lost).and_then(|until| {
        watchdog.allow_until(until);
        let until = until.saturating_sub(limits.kill);
        child::start(until, &args.line(), &variables, signals.ignores_internal()).map_err(cannot("start the command"))
    });
    let mut started = match started {
        Ok(started) => started,
        Err(failure) => {
            watchdog.finish();
            return Err(failure);
        }
    };
    let command = Pid::from_raw(i32::try_from(started.id()).unwrap_or(i32::MAX));
    watchdog.watch(command.as_raw());
    let mut family = Family::new(session, node);
    family.set_group(command.as_raw());
    let mut ends = await_changes(command, &family)?;
    let terminal = Terminal::new(command);
    let mut watch = RunningCommand {
        held,
        watchdog,
        command,
        family,
        fences,
        limits,
        terminal,
        wants_terminal: false,
        status: None,
        has_left: false,
        was_covered: false,
        was_ended: false,
        has_failed: false,
        is_interrupted: false,
    };
    watch.terminal.hand_over();
    let looks = tick((timeout / LOOKS).min(LONGEST_PAUSE));
    let mut words = watch.watchdog.words().clone();
    while !watch.is_over() {
        select! {
            recv(ends) -> change => {
                watch.changed(change.ok());
                if watch.status.is_some() {
                    ends = never();
                }
            },
            recv(looks) -> _ => watch.look(),
            recv(changes) -> _ => watch.look(),
            recv(locks.asked) -> request => if let Ok(request) = request {
                voice::say(format_args!("{request}: the command gets TERM"));
                watch.family.signal(Signal::SIGTERM);
            },
            recv(signals.receiver()) -> signal => {
                watch.pass_on(signal.ok().and_then(|signal| Signal::try_from(signal).ok()));
            },
            recv(words) -> word => match word {
                Ok(()) => {
                    watch.was_ended = true;
                    // Soon: its own fence goes off when no time is left.
                    watch.look();
                }
                Err(_) => {
                    words = never();
                    watch.is_alone();
                }
            },
        }
    }
    let (is_interrupted, known) = (watch.is_interrupted, watch.status);
    let otherwise = watch.finish();
    // From here on no signal goes to its group. Signals without a name are told only here.
    let status = started.wait().ok().and_then(|status| status.code().or_else(|| Some(128 + status.signal()?)));
    let status = status.and_then(|status| u8::try_from(status).ok()).or(known).unwrap_or(FAILED);
    Ok(Ended { status: otherwise.unwrap_or(status), is_interrupted, was_lost: otherwise == Some(LOST) })
}

/// The state while the command runs.
struct RunningCommand<'a> {
    held: &'a Held,
    watchdog: Watchdog,
    command: Pid,
    family: Family,
    fences: Vec<SelfFence>,
    limits: Limits,
    terminal: Terminal,
    /// Whether the command is stopped until it gets the terminal.
    wants_terminal: bool,
    /// The exit status, once the command has ended.
    status: Option<u8>,
    /// Whether what it has started goes on without it.
    has_left: bool,
    /// Whether a look has seen the command's end under the lock, before word of that end came.
    was_covered: bool,
    was_ended: bool,
    has_failed: bool,
    is_interrupted: bool,
}

impl RunningCommand<'_> {
    /// Whether the command has ended, and all that it started.
    fn is_over(&self) -> bool {
        self.status.is_some() && self.family.is_gone()
    }

    fn changed(&mut self, change: Option<WaitStatus>) {
        let status = match change {
            Some(WaitStatus::Stopped(_, signal)) => return self.stopped(signal),
            Some(WaitStatus::Exited(_, status)) => u8::try_from(status).unwrap_or(FAILED),
            Some(WaitStatus::Signaled(_, signal, _)) => u8::try_from(128 + signal as i32).unwrap_or(FAILED),
            Some(_) => return,
            // The thread that waits for it has ended.
            None => self.status.unwrap_or(FAILED),
        };
        if self.status.replace(status).is_none() {
            // What it did last was not covered. Losing the lock from here on is no fault of a command that has ended.
            self.was_ended |= !self.was_covered && !is_covered(self.held);
            // The terminal's input goes to this program from here on, which passes it on.
            self.terminal.take_back();
            self.wants_terminal = false;
            self.has_left = !self.family.is_gone();
            let left: Vec<String> = self.family.alive().into_iter().map(family::describe).collect();
            if !left.is_empty() && !self.was_ended {
                voice::say(format_args!(
                    "the command has ended, but keeps the lock by what it has started: {}",
                    left.join(", ")
                ));
            }
        }
    }

    /// A command that was stopped at the terminal keeps the lock, and its user would face a terminal that no process
    /// reads: so it is continued. A user who stops it with SIGSTOP knows how to continue it.
    fn stopped(&mut self, signal: Signal) {
        self.wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        self.lend();
        if signal == Signal::SIGTSTP && self.terminal.is_handed_over() {
            voice::say(NOT_SUSPENDED);
            self.family.signal_group(Signal::SIGCONT);
        }
    }

    /// Gives the terminal to a command that waits for it, once it is this program's: a shell's `fg` says nothing to one that
    /// runs.
    fn lend(&mut self) {
        if self.wants_terminal && self.terminal.give() {
            self.wants_terminal = false;
            self.family.signal_group(Signal::SIGCONT);
        }
    }

    /// Whether the lock is held, and for how long.
    fn look(&mut self) {
        self.lend();
        self.was_covered |= has_ended(self.command) && is_covered(self.held);
        let until = valid_until(self.held);
        match until {
            Some(until) => self.watchdog.allow_until(until),
            None => self.watchdog.end_now(),
        }
        let left = until.map(|until| until.saturating_sub(clock::now()));
        // The watchdog has done it, unless the watchdog was stopped.
        if left.is_none_or(|left| left < self.limits.kill) {
            self.was_ended |= !self.family.has_ended();
            self.family.signal(Signal::SIGKILL);
            // Nothing is left that this process would have to die for.
            self.fences.clear();
        }
    }

    fn pass_on(&mut self, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        if signal == Signal::SIGCONT {
            self.terminal.hand_over();
        }
        // Word of its end may come after the signal.
        if self.status.is_some() || has_ended(self.command) {
            self.is_interrupted |= ends(signal as i32);
            self.family.signal(signal);
        } else {
            self.family.signal_group(signal);
        }
    }

    /// The watchdog is gone. Nothing else would end the command in time if this process stops.
    fn is_alone(&mut self) {
        if !self.was_ended && !self.family.has_ended() {
            self.has_failed = true;
            voice::say("the watchdog is gone: the command is killed");
        }
        self.family.signal(Signal::SIGKILL);
    }

    /// The exit status if it is not the command's.
    fn finish(self) -> Option<u8> {
        drop((self.fences, self.terminal));
        // A command that ends by itself in time has not been ended. All this before the lock is given back.
        let was_uncovered = self.has_left && !is_covered(self.held);
        let was_ended = self.watchdog.finish() || self.was_ended || was_uncovered;
        was_ended.then_some(LOST).or(self.has_failed.then_some(FAILED))
    }
}

/// The end of the lock by the watchdog's clock: it is held as long as each of its parts is. `None`: it is lost.
fn valid_until(held: &Held) -> Option<Duration> {
    // Read first: after a pause or a sleep in between the end comes early, and never late.
    let (now, instant) = (clock::now(), Instant::now());
    let holds = held.holds();
    let is_lost = holds.iter().any(|hold| hold.is_lost());
    let left = holds.iter().map(|hold| hold.valid_until().saturating_duration_since(instant)).min();
    left.filter(|_| !is_lost).map(|left| now + left)
}

/// Whether what is done now is done under the lock.
fn is_covered(held: &Held) -> bool {
    valid_until(held).is_some_and(|until| until > clock::now())
}

fn variables(client: &CuratorFramework, connect: &str, paths: &[String], held: &Held) -> [(&'static str, String); 5] {
    let holds = held.holds();
    let lines =
        |line: fn(&curator_locks::Hold) -> String| holds.iter().map(|hold| line(hold)).collect::<Vec<_>>().join("\n");
    [
        ("ZK_CONNECT", connect.to_owned()),
        ("ZKLOCK_PATH", paths.join("\n")),
        (family::NODE, lines(|hold| hold.path().to_owned())),
        ("ZKLOCK_TOKEN", lines(|hold| hold.fencing_token().to_string())),
        (family::SESSION, format!("{:#x}", client.session_id())),
    ]
}

/// Reports the command's end, and each time it is stopped.
fn await_changes(command: Pid, family: &Family) -> Result<Receiver<WaitStatus>> {
    let (sender, changes): (Sender<WaitStatus>, _) = unbounded();
    let wait = move || {
        loop {
            match next_change(command) {
                Err(Errno::EINTR) => {}
                Err(_) => return,
                Ok(status) => {
                    let is_end = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                    if sender.send(status).is_err() || is_end {
                        return;
                    }
                }
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("command".into()).spawn(wait) {
        family.signal(Signal::SIGKILL);
        let _ = waitpid(command, None);
        return Err(cannot("start a thread")(error));
    }
    Ok(changes)
}

/// The command's number stays its own: it is not waited for.
#[cfg(target_os = "linux")]
fn next_change(command: Pid) -> nix::Result<WaitStatus> {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    let status = waitid(Id::Pid(command), WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT)?;
    if matches!(status, WaitStatus::Stopped(..)) {
        // Otherwise the stop would be told again. The command may have been killed meanwhile.
        let _ = waitid(Id::Pid(command), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
    }
    Ok(status)
}

/// Whether it is a zombie.
#[cfg(target_os = "linux")]
fn has_ended(command: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(command), flags).is_ok_and(|status| status != WaitStatus::StillAlive)
}

/// A look would take the command's end away from the thread that waits for it.
#[cfg(not(target_os = "linux"))]
fn has_ended(_command: Pid) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn next_change(command: Pid) -> nix::Result<WaitStatus> {
    waitpid(command, Some(nix::sys::wait::WaitPidFlag::WUNTRACED))
}
