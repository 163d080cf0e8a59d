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
    /// When the keeper was started: what is older does not work under the lock.
    pub(super) since: u64,
}

impl Script {
    /// As the watchdog gets to know it.
    pub(super) fn order(&self) -> String {
        let Script { process, pipe, keeper, since } = self;
        let (pid, start) = process.as_ref().map_or((0, 0), |process| (process.pid.as_raw(), process.start));
        format!("script {pid} {start} {keeper} {since} {pipe}")
    }

    pub(super) fn of(order: &str) -> Option<Script> {
        let mut words = order.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let process = Process::find(number()?.try_into().ok()?, number()?);
        let (keeper, since) = (number()?.try_into().ok()?, number()?);
        Some(Script { process, keeper, since, pipe: words.next()?.to_owned() })
    }

    /// Which of these processes it has started under the lock, as far as that shows: those below it, and those that have inherited the
    /// pipe. It is not one of them, as long as its number is its own, nor is its keeper.
    pub(super) fn started(&self, all: &[(i32, Stat)]) -> Vec<i32> {
        let script = self.process.as_ref().filter(|process| !process.has_ended()).map(|process| process.pid.as_raw());
        // Those who work for a `zklock run` that the script has started end its command, and outlive it for that.
        let is_helper = |pid: i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.first() == Some(&&b"zklock"[..])
                && [KEEP, WATCH].iter().any(|role| words.get(1) == Some(&role.as_bytes()))
        };
        let others = || all.iter().filter(|(pid, _)| *pid != self.keeper && Some(*pid) != script && !is_helper(*pid));
        let mut started: Vec<i32> = script.into_iter().collect();
        // A child may have a smaller number than its parent.
        loop {
            let is_below = |(pid, stat): &&(i32, Stat)| {
                stat.start >= self.since && started.contains(&stat.parent) && !started.contains(pid)
            };
            let more: Vec<i32> = others().filter(is_below).map(|(pid, _)| *pid).collect();
            if more.is_empty() {
                break;
            }
            started.extend(more);
        }
        started.extend(others().map(|(pid, _)| *pid).filter(|pid| self.is_open_in(*pid)));
        started.retain(|pid| Some(*pid) != script);
        started
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.as_ref().is_none_or(Process::has_ended)
    }

    fn is_open_in(&self, pid: i32) -> bool {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files.any(|entry| {
            entry.and_then(|entry| fs::read_link(entry.path())).is_ok_and(|file| file == Path::new(&self.pipe))
        })
    }
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
