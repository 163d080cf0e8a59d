//! The processes of the command.

use std::{fs, io};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpid, getsid},
};

/// The variables that tell the processes of one hold from all others.
pub(super) const SESSION: &str = "ZKLOCK_SESSION";
pub(super) const NODE: &str = "ZKLOCK_NODE";

/// The command's process group, and the groups that its processes started, as an interactive shell does. A process that
/// began a session of its own (`setsid`) has left on purpose.
#[derive(Debug)]
pub(super) struct Family {
    /// The command, which leads its group. Its number is nobody else's as long as its parent has not waited for it.
    group: Option<Pid>,
    /// How the environment of its processes shows whose they are.
    marks: [Vec<u8>; 2],
    session: Option<i32>,
}

impl Family {
    pub(super) fn new(session: &str, node: &str) -> Family {
        let marks = [format!("{SESSION}={session}").into_bytes(), format!("{NODE}={node}").into_bytes()];
        Family { group: None, marks, session: getsid(None).ok().map(Pid::as_raw) }
    }

    pub(super) fn set_group(&mut self, group: i32) {
        // 0 and 1 mean one's own group, and everybody.
        self.group = (group > 1).then(|| Pid::from_raw(group));
    }

    /// Sends it to the command's group, and then to the processes that have left it.
    pub(super) fn signal(&self, signal: Signal) {
        self.signal_group(signal);
        for pid in self.alive() {
            let is_in_group = self.group.is_some_and(|group| nix::unistd::getpgid(Some(pid)) == Ok(group));
            if !is_in_group {
                // The process may have ended meanwhile.
                signals(signal).for_each(|signal| _ = kill(pid, signal));
            }
        }
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            signals(signal).for_each(|signal| _ = killpg(group, signal));
        }
    }

    /// Whether the command may not be killed: it has got other rights, as `sudo` does.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.group.is_some_and(|group| killpg(group, None) == Err(Errno::EPERM))
    }

    /// Whether nothing of it lives. A process that ends just after it has started another one, or that is becoming
    /// another program, hides from one look.
    pub(super) fn is_gone(&self) -> bool {
        (0..2).all(|_| self.alive().is_empty())
    }

    /// Whether the command is seen to have ended, and nobody else of its group to live. Not every process can be seen (another
    /// `/proc`, `hidepid`), so this decides what is said, and never whether a signal is sent. It reads no environment: that can
    /// hang with its process.
    pub(super) fn has_ended(&self) -> bool {
        let Some(group) = self.group.map(Pid::as_raw) else { return false };
        let leader = Stat::of(group).filter(|leader| leader.group == group);
        leader.is_some_and(|leader| !leader.lives)
            && !pids().filter_map(Stat::of).any(|stat| stat.lives && stat.group == group)
    }

    /// The processes that have not ended. None without `/proc`.
    pub(super) fn alive(&self) -> Vec<Pid> {
        pids().filter(|pid| *pid != getpid().as_raw() && self.has(*pid)).map(Pid::from_raw).collect()
    }

    fn has(&self, pid: i32) -> bool {
        let Some(stat) = Stat::of(pid) else { return false };
        let is_in_group = self.group.is_some_and(|group| group.as_raw() == stat.group);
        stat.lives && (is_in_group || Some(stat.session) == self.session && self.is_marked(pid).unwrap_or_default())
    }

    fn is_marked(&self, pid: i32) -> io::Result<bool> {
        let environment = fs::read(format!("/proc/{pid}/environ"))?;
        Ok(self.marks.iter().all(|mark| environment.split(|byte| *byte == 0).any(|variable| variable == mark)))
    }
}

fn pids() -> impl Iterator<Item = i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A stopped process gets SIGCONT, too, or it would not notice that it has to end.
fn signals(signal: Signal) -> impl Iterator<Item = Signal> {
    let ends = matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM);
    [signal].into_iter().chain(ends.then_some(Signal::SIGCONT))
}

/// A process in a few words: its number and its name.
pub(super) fn describe(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&name).trim_end().escape_debug())
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    lives: bool,
    group: i32,
    session: i32,
}

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Stat::read(&String::from_utf8_lossy(&stat))
    }

    /// Number, name in brackets, state, parent, group, session, ...: the name may contain anything. A process whose first
    /// thread has ended is shown as one that has, but has other threads.
    fn read(stat: &str) -> Option<Stat> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let group = fields.nth(1)?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads: i64 = fields.nth(13)?.parse().ok()?;
        Some(Stat { lives: !matches!(state, "X" | "x") && (state != "Z" || threads > 1), group, session })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let of = |lives| Some(Stat { lives, group: 23, session: 42 });
        let rest = "34816 23 4194560 1 2 3 4 5 6 7 8 20 0";
        assert_eq!(Stat::read(&format!("17 (a) Z 1 (b) S 4 23 42 {rest} 1 0")), of(true));
        assert_eq!(Stat::read(&format!("17 (sh) Z 4 23 42 {rest} 1 0")), of(false));
        assert_eq!(Stat::read(&format!("17 (threads) Z 4 23 42 {rest} 2 0")), of(true));
        assert_eq!(Stat::read("17 (sh) S 4 23 42 0").or(Stat::read("")), None);
    }

    #[test]
    fn nobody_is_in_the_family_of_a_hold_that_nobody_runs_under() {
        let mut family = Family::new("0x1", "/nowhere");
        family.set_group(0);
        assert!(family.alive().is_empty());
        family.signal(Signal::SIGKILL);
    }
}
