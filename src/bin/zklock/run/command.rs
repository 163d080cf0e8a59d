//! The command, from its start to its end.

use std::{os::unix::process::ExitStatusExt, thread};

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use curator_locks::CuratorFramework;
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
    family::{Family, Head},
    guard::Guard,
    hold::Held,
    job::Job,
    mark::{self, KEEPER, Mark},
    signals::{NOT_SUSPENDED, ends},
    terminal::Terminal,
};
use crate::{
    args::Run,
    failure::{FAILED, LOST, Result, cannot},
    voice,
};

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
pub(super) fn supervise(job: &Job<'_>, held: &Held, args: &Run) -> Result<Ended> {
    let Job { client, connect, locks, signals, .. } = job;
    let mark = Mark::new(client.session_id(), None, &locks.paths);
    let mut variables = variables(client, &locks.paths, held).to_vec();
    variables.extend([("ZK_CONNECT", (*connect).to_owned()), (KEEPER, mark::with(KEEPER, &mark))]);
    let mut guard = Guard::begin(client, held, signals, Family::new(mark.to_string()))?;
    let started = guard.allow().and_then(|until| {
        let started = child::start(until, &args.line(), &variables, signals.ignores_internal());
        started.map_err(cannot("start the command"))
    });
    let mut started = match started {
        Ok(started) => started,
        Err(failure) => {
            guard.finish();
            return Err(failure);
        }
    };
    let command = Pid::from_raw(i32::try_from(started.id()).unwrap_or(i32::MAX));
    guard.watch(Head::group(command.as_raw()));
    let mut ends = await_changes(command, &guard.family)?;
    let terminal = Terminal::new(command);
    let mut watch = RunningCommand {
        guard,
        command,
        terminal,
        wants_terminal: false,
        status: None,
        has_left: false,
        was_covered: false,
        is_interrupted: false,
    };
    watch.terminal.hand_over();
    while !watch.is_over() {
        let guard = &mut watch.guard;
        select! {
            recv(ends) -> change => {
                watch.changed(change.ok());
                if watch.status.is_some() {
                    ends = never();
                }
            },
            recv(guard.looks) -> _ => watch.look(),
            recv(guard.changes) -> _ => watch.look(),
            recv(locks.asked) -> request => if let Ok(request) = request {
                guard.asked_back(&request);
            },
            recv(signals.receiver()) -> signal => {
                watch.pass_on(signal.ok().and_then(|signal| Signal::try_from(signal).ok()));
            },
            recv(guard.words) -> word => if guard.heard(word.is_ok()) {
                // Soon: its own fence goes off when no time is left.
                watch.look();
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
struct RunningCommand {
    guard: Guard,
    command: Pid,
    terminal: Terminal,
    /// Whether the command is stopped until it gets the terminal.
    wants_terminal: bool,
    /// The exit status, once the command has ended.
    status: Option<u8>,
    /// Whether what it has started goes on without it.
    has_left: bool,
    /// Whether a look has seen the command's end under the lock, before word of that end came.
    was_covered: bool,
    is_interrupted: bool,
}

impl RunningCommand {
    /// Whether the command has ended, and all that it started.
    fn is_over(&mut self) -> bool {
        self.status.is_some() && self.guard.is_gone()
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
            self.guard.was_ended |= !self.was_covered && !self.guard.is_covered();
            // The terminal's input goes to this program from here on, which passes it on.
            self.terminal.take_back();
            self.wants_terminal = false;
            self.has_left = !self.guard.is_gone();
            self.guard.name_rest();
        }
    }

    /// A command that was stopped at the terminal keeps the lock, and its user would face a terminal that no process
    /// reads: so it is continued. A user who stops it with SIGSTOP knows how to continue it.
    fn stopped(&mut self, signal: Signal) {
        self.wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        self.lend();
        if signal == Signal::SIGTSTP && self.terminal.is_handed_over() {
            voice::say(NOT_SUSPENDED);
            self.guard.family.signal_group(Signal::SIGCONT);
        }
    }

    /// Gives the terminal to a command that waits for it, once it is this program's: a shell's `fg` says nothing to one that
    /// runs.
    fn lend(&mut self) {
        if self.wants_terminal && self.terminal.give() {
            self.wants_terminal = false;
            self.guard.family.signal_group(Signal::SIGCONT);
        }
    }

    fn look(&mut self) {
        self.lend();
        self.was_covered |= has_ended(self.command) && self.guard.is_covered();
        self.guard.look();
    }

    fn pass_on(&mut self, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        if signal == Signal::SIGCONT {
            self.terminal.hand_over();
        }
        // Word of its end may come after the signal.
        if self.status.is_some() || has_ended(self.command) {
            self.is_interrupted |= ends(signal as i32);
            self.guard.signal(signal);
        } else {
            self.guard.family.signal_group(signal);
        }
    }

    /// The exit status if it is not the command's.
    fn finish(self) -> Option<u8> {
        drop(self.terminal);
        // A command that ends by itself in time has not been ended. All this before the lock is given back.
        let was_uncovered = self.has_left && !self.guard.is_covered();
        let has_failed = self.guard.has_failed;
        let was_ended = self.guard.finish() || was_uncovered;
        was_ended.then_some(LOST).or(has_failed.then_some(FAILED))
    }
}

/// What is told of the locks to those who work under them.
pub(super) fn variables(client: &CuratorFramework, paths: &[String], held: &Held) -> [(&'static str, String); 4] {
    let holds = held.holds();
    let lines =
        |line: fn(&curator_locks::Hold) -> String| holds.iter().map(|hold| line(hold)).collect::<Vec<_>>().join("\n");
    [
        ("ZKLOCK_PATH", paths.join("\n")),
        ("ZKLOCK_NODE", lines(|hold| hold.path().to_owned())),
        ("ZKLOCK_TOKEN", lines(|hold| hold.fencing_token().to_string())),
        ("ZKLOCK_SESSION", format!("{:#x}", client.session_id())),
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
