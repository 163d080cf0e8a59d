//! The processes of the command.

use std::fs;

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpid, getsid},
};

#[cfg(target_os = "linux")]
use super::process::{Script, children};
use super::{mark, stat::Stat};

/// Who has to end with the lock, and what it has started.
#[derive(Debug, Default)]
pub(super) enum Head {
    /// None was started yet.
    #[default]
    Nobody,
    /// A command, which leads this process group. Its number is nobody else's as long as its parent has not waited for it.
    Group(Pid),
    /// A script, which is in somebody else's group.
    #[cfg(target_os = "linux")]
    Script(Script),
}

impl Head {
    pub(super) fn group(group: i32) -> Head {
        // 0 and 1 mean one's own group, and everybody.
        if group > 1 { Head::Group(Pid::from_raw(group)) } else { Head::Nobody }
    }
}

/// The command's process group, and the groups that its processes started, as an interactive shell does; or a script and what it
/// has started since it has the lock. A process that began a session of its own (`setsid`) has left on purpose.
#[derive(Debug)]
pub(super) struct Family {
    head: Head,
    /// The line of their environment that shows whose its processes are.
    mark: String,
    session: Option<i32>,
    /// When this process was started, which is before the family: whoever is older does not belong to it.
    since: u64,
    /// Its processes without the head, if they were sought ahead of time.
    found: Option<Vec<ProcessId>>,
}

/// A process: no other one has the same number and was started then.
#[derive(Debug, Clone, Copy)]
struct ProcessId {
    pid: i32,
    start: u64,
}

impl Family {
    pub(super) fn new(mark: String) -> Family {
        let since = Stat::of(getpid().as_raw()).map_or(0, |own| own.start);
        Family { head: Head::default(), mark, session: getsid(None).ok().map(Pid::as_raw), since, found: None }
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    pub(super) fn set_head(&mut self, head: Head) {
        self.head = head;
    }

    /// Its head, in messages; `None`: there is none yet.
    pub(super) fn what(&self) -> Option<&'static str> {
        match &self.head {
            Head::Nobody => None,
            Head::Group(_) => Some("the command"),
            #[cfg(target_os = "linux")]
            Head::Script(_) => Some("the script"),
        }
    }

    fn group(&self) -> Option<Pid> {
        match &self.head {
            Head::Group(group) => Some(*group),
            _ => None,
        }
    }

    /// The lock may end soon: seeks its processes once, so that no search delays their end. One took up to 4.5 s on a machine with
    /// 70 busy processes for 2 processors.
    pub(super) fn prepare(&mut self) {
        if self.found.is_none() {
            self.found = Some(self.search());
        }
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.found.is_some()
    }

    /// The lock does not end soon.
    pub(super) fn relax(&mut self) {
        self.found = None;
    }

    /// Sends it to the head, so that it starts no more, and to the processes that are not in its group.
    pub(super) fn signal(&self, signal: Signal) {
        let is_command = self.group().is_some();
        // Some of what a script has started is known only as long as the script lives.
        let known = match &self.found {
            Some(found) => found.iter().copied().chain(self.below().iter().map(ProcessId::of)).collect(),
            None if is_command => Vec::new(),
            None => self.search(),
        };
        self.signal_group(signal);
        #[cfg(target_os = "linux")]
        if let Head::Script(script) = &self.head {
            script.process.iter().for_each(|process| signals(signal).for_each(|signal| process.signal(signal)));
        }
        known.iter().filter(|found| found.is_itself()).for_each(|found| self.signal_one(found, signal));
        // A script may end in an orderly way upon another signal than KILL, by what it starts then.
        if signal == Signal::SIGKILL || is_command && self.found.is_none() {
            self.search().iter().for_each(|found| self.signal_one(found, signal));
        }
    }

    fn signal_one(&self, found: &ProcessId, signal: Signal) {
        let pid = Pid::from_raw(found.pid);
        let is_in_group = self.group().is_some_and(|group| nix::unistd::getpgid(Some(pid)) == Ok(group));
        if !is_in_group {
            // The process may have ended meanwhile.
            signals(signal).for_each(|signal| _ = kill(pid, signal));
        }
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group() {
            signals(signal).for_each(|signal| _ = killpg(group, signal));
        }
    }

    /// Whether its head may not be killed: it has got other rights, as `sudo` does.
    pub(super) fn is_out_of_reach(&self) -> bool {
        match &self.head {
            Head::Nobody => false,
            Head::Group(group) => killpg(*group, None) == Err(Errno::EPERM),
            #[cfg(target_os = "linux")]
            Head::Script(script) => script.process.as_ref().is_some_and(|process| !process.may_be_signalled()),
        }
    }

    /// Whether nothing of it lives. A process that ends just after it has started another one, or that is becoming
    /// another program, hides from one look.
    pub(super) fn is_gone(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Head::Script(script) = &self.head
            && !script.has_ended()
        {
            return false;
        }
        (0..2).all(|_| self.search().is_empty())
    }

    /// Whether its head is seen to have ended, and nobody else of its group to live. Not every process can be seen (another
    /// `/proc`, `hidepid`), so this decides what is said, and never whether a signal is sent. It reads no environment: that can
    /// hang with its process.
    pub(super) fn has_ended(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Head::Script(script) = &self.head {
            return script.has_ended();
        }
        let Some(group) = self.group().map(Pid::as_raw) else { return false };
        let leader = Stat::of(group).filter(|leader| leader.group == group);
        leader.is_some_and(|leader| !leader.lives)
            && !pids().filter_map(Stat::of).any(|stat| stat.lives && stat.group == group)
    }

    /// The processes that have not ended, without a script itself. None without `/proc`.
    fn search(&self) -> Vec<ProcessId> {
        let all = self.candidates(pids());
        let of_script = self.of_script(&all);
        let has = |(pid, stat): &&(i32, Stat)| {
            let is_marked = || mark::is_below(*pid, &self.mark).unwrap_or_default();
            self.is_in_group(stat) || of_script.contains(pid) || is_marked()
        };
        all.iter().filter(has).map(ProcessId::of).collect()
    }

    /// Those of these that may be its.
    fn candidates(&self, pids: impl Iterator<Item = i32>) -> Vec<(i32, Stat)> {
        let own = getpid().as_raw();
        let all = pids.filter(|pid| *pid != own).filter_map(|pid| Some((pid, Stat::of(pid)?)));
        let is_here = |stat: &Stat| self.is_in_group(stat) || Some(stat.session) == self.session;
        all.filter(|(_, stat)| stat.lives && stat.start >= self.since && is_here(stat)).collect()
    }

    fn is_in_group(&self, stat: &Stat) -> bool {
        self.group().is_some_and(|group| group.as_raw() == stat.group)
    }

    #[cfg(target_os = "linux")]
    fn of_script(&self, all: &[(i32, Stat)]) -> Vec<i32> {
        let Head::Script(script) = &self.head else { return Vec::new() };
        let heirs =
            all.iter().map(|(pid, _)| *pid).filter(|pid| script.is_open_in(*pid) && script.may_be_started(*pid));
        heirs.chain(self.below().into_iter().map(|(pid, _)| pid)).collect()
    }

    #[cfg(not(target_os = "linux"))]
    fn of_script(&self, _: &[(i32, Stat)]) -> Vec<i32> {
        Vec::new()
    }

    /// The processes that a script has started since, and those that these have started, as far as they live: a few looks find them.
    #[cfg(target_os = "linux")]
    fn below(&self) -> Vec<(i32, Stat)> {
        let Head::Script(script) = &self.head else { return Vec::new() };
        let (mut below, mut parents) = (Vec::new(), Vec::from_iter(script.pid()));
        while let Some(parent) = parents.pop() {
            let children = children(parent).into_iter().filter(|pid| script.may_be_started(*pid));
            let found = self.candidates(children);
            parents.extend(found.iter().map(|(pid, _)| *pid));
            below.extend(found);
        }
        below
    }

    #[cfg(not(target_os = "linux"))]
    fn below(&self) -> Vec<(i32, Stat)> {
        Vec::new()
    }

    /// What lives of it without a script itself, in a few words for each.
    pub(super) fn names(&self) -> Vec<String> {
        self.search().into_iter().map(|found| describe(Pid::from_raw(found.pid))).collect()
    }
}

impl ProcessId {
    fn of((pid, stat): &(i32, Stat)) -> ProcessId {
        ProcessId { pid: *pid, start: stat.start }
    }

    fn is_itself(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start)
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
    format!("{pid} ({})", name(pid).escape_debug())
}

pub(super) fn name(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_in_the_family_of_a_hold_that_nobody_runs_under() {
        let mut family = Family::new("0.0.1 /nowhere".to_owned());
        family.set_head(Head::group(0));
        assert!(family.search().is_empty());
        family.signal(Signal::SIGKILL);
    }
}
