//! A process that this one has not started: its number may be another's once it has ended, its descriptor cannot.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::kill,
    unistd::Pid,
};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{
    child::{KEEP, WATCH},
    stat::Stat,
};

/// A script, and how what it has started is known: its shell has opened this pipe, and a fork of that shell has no mark in
/// its environment, which was there before the lock.
#[derive(Debug)]
pub(super) struct Script {
    /// `None`: it had ended before this process heard of it.
    pub(super) process: Option<Process>,
    /// The pipe, as `/proc` names it.
    pub(super) pipe: String,
    /// Who reads it, and does not belong to the script.
    pub(super) keeper: i32,
}

impl Script {
    /// As the watchdog gets to know it.
    pub(super) fn order(&self) -> String {
        let Script { process, pipe, keeper } = self;
        let (pid, start) = process.as_ref().map_or((0, 0), |process| (process.pid.as_raw(), process.start));
        format!("script {pid} {start} {keeper} {pipe}")
    }

    pub(super) fn of(order: &str) -> Option<Script> {
        let mut words = order.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let process = Process::find(number()?.try_into().ok()?, number()?);
        let keeper = number()?.try_into().ok()?;
        Some(Script { process, keeper, pipe: words.next()?.to_owned() })
    }

    /// Whether a process below it or with its pipe works for it. It is not one of those itself.
    pub(super) fn may_be_started(&self, pid: i32) -> bool {
        pid != self.keeper && Some(pid) != self.pid() && !is_helper(pid)
    }

    /// Its number, as long as that is its own.
    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().filter(|process| !process.has_ended()).map(|process| process.pid.as_raw())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.as_ref().is_none_or(Process::has_ended)
    }

    pub(super) fn is_open_in(&self, pid: i32) -> bool {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files.any(|entry| {
            entry.and_then(|entry| fs::read_link(entry.path())).is_ok_and(|file| file == Path::new(&self.pipe))
        })
    }
}

/// Whether it works for a `zklock run` that a script has started: it ends the command of that, and outlives it therefore.
fn is_helper(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    words.first() == Some(&&b"zklock"[..]) && [KEEP, WATCH].iter().any(|role| words.get(1) == Some(&role.as_bytes()))
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// See [`Stat::start`].
    pub(super) start: u64,
    /// The session of the terminal that it belongs to.
    pub(super) session: i32,
    descriptor: OwnedFd,
}

impl Process {
    pub(super) fn open(pid: i32) -> io::Result<Process> {
        let wanted = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = pidfd_open(wanted, PidfdFlags::empty())?;
        let Stat { start, session, .. } = Stat::of(pid).ok_or(io::ErrorKind::NotFound)?;
        let process = Process { pid: Pid::from_raw(pid), start, session, descriptor };
        // Otherwise its number may have been another's already when that was read.
        if process.has_ended() { Err(io::ErrorKind::NotFound.into()) } else { Ok(process) }
    }

    /// The one with this number that was started then, if it lives.
    pub(super) fn find(pid: i32, start: u64) -> Option<Process> {
        Process::open(pid).ok().filter(|process| process.start == start)
    }

    pub(super) fn try_clone(&self) -> io::Result<Process> {
        let descriptor = self.descriptor.try_clone()?;
        Ok(Process { descriptor, ..*self })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.await_end(PollTimeout::ZERO)
    }

    /// Whether it has ended; for so long at most.
    pub(super) fn await_end(&self, time: PollTimeout) -> bool {
        poll(&mut [self.end()], time).is_ok_and(|count| count > 0)
    }

    /// Its descriptor can be read once it has ended.
    pub(super) fn end(&self) -> PollFd<'_> {
        PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)
    }

    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) {
        if let Some(signal) = Signal::from_named_raw(signal as i32) {
            // The process may have ended meanwhile.
            let _ = pidfd_send_signal(&self.descriptor, signal);
        }
    }

    pub(super) fn may_be_signalled(&self) -> bool {
        self.has_ended() || kill(self.pid, None) != Err(Errno::EPERM)
    }
}
