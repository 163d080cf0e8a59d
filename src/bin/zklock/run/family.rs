//! The processes of the command.

use std::{fs, iter, sync::Arc, thread};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpid, getsid},
};
use parking_lot::Mutex;

use super::{
    mark,
    stat::{Stat, pids},
};
#[cfg(target_os = "linux")]
use super::{process::Script, stat::children};

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
#[derive(Debug, Clone)]
pub(super) struct Family {
    head: Arc<Head>,
    /// The line of their environment that shows whose its processes are.
    mark: String,
    session: Option<i32>,
    /// When this process was started: what a command or a script starts under the lock is not older. A subshell that has taken the
    /// lock for its script is.
    since: u64,
    /// Its processes without the head, if they are sought ahead of time, as far as they are found.
    found: Option<Arc<Mutex<Vec<ProcessId>>>>,
}

/// A process: no other one has the same number and was started then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessId {
    pid: i32,
    start: u64,
}

impl Family {
    pub(super) fn new(mark: String) -> Family {
        let since = Stat::of(getpid().as_raw()).map_or(0, |own| own.start);
        let session = getsid(None).ok().map(Pid::as_raw);
        Family { head: Arc::default(), mark, session, since, found: None }
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    pub(super) fn set_head(&mut self, head: Head) {
        self.head = Arc::new(head);
        self.found = None;
    }

    /// Its head, in messages; `None`: there is none yet.
    pub(super) fn what(&self) -> Option<&'static str> {
        match &*self.head {
            Head::Nobody => None,
            Head::Group(_) => Some("the command"),
            #[cfg(target_os = "linux")]
            Head::Script(_) => Some("the script"),
        }
    }

    fn group(&self) -> Option<Pid> {
        match &*self.head {
            Head::Group(group) => Some(*group),
            _ => None,
        }
    }

    /// The lock may end soon: seeks its processes once, so that no search delays their end. One took up to 4.5 s on a machine with
    /// 70 busy processes for 2 processors, and one environment that it reads up to 2.6 s.
    pub(super) fn prepare(&mut self) {
        if self.found.is_some() {
            return;
        }
        let (family, found) = (self.clone(), Arc::<Mutex<Vec<_>>>::default());
        self.found = Some(found.clone());
        let seek = move || family.seek(|one| found.lock().push(one));
        // Without the thread nothing is found ahead of time.
        let _ = thread::Builder::new().name("search".into()).spawn(seek);
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
        // A script may end in an orderly way upon another signal than KILL, by what it starts then.
        let is_orderly = self.group().is_none() && signal != Signal::SIGKILL;
        let mut known = match &self.found {
            None if is_orderly => self.search(),
            // The processes below a script are known only as long as it lives.
            found => {
                let found = found.as_ref().map(|found| found.lock().clone()).unwrap_or_default();
                let of_family = found.into_iter().filter(|one| self.has(one));
                of_family.chain(self.below().iter().map(ProcessId::of)).collect()
            }
        };
        known.sort_unstable();
        known.dedup();
        self.signal_group(signal);
        #[cfg(target_os = "linux")]
        if let Head::Script(script) = &*self.head {
            script.process.iter().for_each(|process| signals(signal).for_each(|signal| process.signal(signal)));
        }
        known.iter().for_each(|one| self.signal_one(one, signal));
        if !is_orderly {
            // Each as soon as it is found: whoever else is sought may take long.
            self.seek(|one| {
                if !known.contains(&one) {
                    self.signal_one(&one, signal);
                }
            });
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
        match &*self.head {
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
        if let Head::Script(script) = &*self.head
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
        if let Head::Script(script) = &*self.head {
            return script.has_ended();
        }
        let Some(group) = self.group().map(Pid::as_raw) else { return false };
        let leader = Stat::of(group).filter(|leader| leader.group == group);
        leader.is_some_and(|leader| !leader.lives)
            && !pids().filter_map(Stat::of).any(|stat| stat.lives && stat.group == group)
    }

    /// The processes that have not ended, without a script itself. None without `/proc`.
    fn search(&self) -> Vec<ProcessId> {
        let mut found = Vec::new();
        self.seek(|one| found.push(one));
        found
    }

    /// Hands out each of them once it is found, those last whose environment alone shows it: to read that may take long.
    fn seek(&self, mut each: impl FnMut(ProcessId)) {
        let all = self.candidates(pids());
        // Looked for later, so that it has all of those that are still below.
        let below: Vec<_> = self.below().iter().map(|(pid, _)| *pid).collect();
        let mut others = Vec::new();
        for one in all {
            let (pid, stat) = &one;
            if self.is_in_group(stat) || below.contains(pid) || self.is_heir(*pid) {
                each(ProcessId::of(&one));
            } else {
                others.push(one);
            }
        }
        for one in others {
            if mark::is_below(one.0, &self.mark).unwrap_or_default() {
                each(ProcessId::of(&one));
            }
        }
    }

    /// Those of these that may be its.
    fn candidates(&self, pids: impl Iterator<Item = i32>) -> Vec<(i32, Stat)> {
        let own = getpid().as_raw();
        let all = pids.filter(|pid| *pid != own).filter_map(|pid| Some((pid, Stat::of(pid)?)));
        let is_here = |stat: &Stat| self.is_in_group(stat) || Some(stat.session) == self.session;
        let may_be = |pid: i32, stat: &Stat| match &*self.head {
            #[cfg(target_os = "linux")]
            Head::Script(script) => script.may_be_started(pid),
            _ => stat.start >= self.since,
        };
        all.filter(|(pid, stat)| stat.lives && is_here(stat) && may_be(*pid, stat)).collect()
    }

    /// Whether a process that was found is still the same, and may be its.
    fn has(&self, found: &ProcessId) -> bool {
        self.candidates(iter::once(found.pid)).iter().any(|one| ProcessId::of(one) == *found)
    }

    fn is_in_group(&self, stat: &Stat) -> bool {
        self.group().is_some_and(|group| group.as_raw() == stat.group)
    }

    /// Whether it has inherited what a script has.
    #[cfg(target_os = "linux")]
    fn is_heir(&self, pid: i32) -> bool {
        matches!(&*self.head, Head::Script(script) if script.is_open_in(pid))
    }

    #[cfg(not(target_os = "linux"))]
    fn is_heir(&self, _: i32) -> bool {
        false
    }

    /// The processes that a script has started since, and those that these have started, as far as they live: a few looks find them.
    #[cfg(target_os = "linux")]
    fn below(&self) -> Vec<(i32, Stat)> {
        let Head::Script(script) = &*self.head else { return Vec::new() };
        let (mut below, mut parents) = (Vec::new(), Vec::from_iter(script.pid()));
        while let Some(parent) = parents.pop() {
            let mut found = self.candidates(children(parent).into_iter());
            found.retain(|(_, stat)| stat.start >= self.since);
            parents.extend(found.iter().map(|(pid, _)| *pid));
            below.extend(found);
        }
        below
    }

    #[cfg(not(target_os = "linux"))]
    fn below(&self) -> Vec<(i32, Stat)> {
        Vec::new()
    }

    /// Names its processes that have not ended, without a script itself: a few words for each.
    pub(super) fn names(&self) -> Vec<String> {
        self.search().into_iter().map(|found| describe(Pid::from_raw(found.pid))).collect()
    }
}

impl ProcessId {
    fn of((pid, stat): &(i32, Stat)) -> ProcessId {
        ProcessId { pid: *pid, start: stat.start }
    }
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
