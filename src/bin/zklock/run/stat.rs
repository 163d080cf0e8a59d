//! What the system says of a process.

use std::{fs, io, path::Path};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) lives: bool,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// When it was started, in ticks of the machine: no other process has the same number and the same start.
    pub(super) start: u64,
}

impl Stat {
    pub(super) fn of(pid: i32) -> Option<Stat> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Stat::read(&String::from_utf8_lossy(&stat))
    }

    /// Number, name in brackets, state, parent, group, session, ...: the name may contain anything. A process whose first
    /// thread has ended is shown as one that has, but has other threads.
    fn read(stat: &str) -> Option<Stat> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads: i64 = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Stat {
            lives: !matches!(state, "X" | "x") && (state != "Z" || threads > 1),
            parent,
            group,
            session,
            start,
        })
    }
}

/// All processes that can be seen.
pub(super) fn pids() -> impl Iterator<Item = i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The children of a process at this moment. One may be missing if another one ends just then.
#[cfg(target_os = "linux")]
pub(super) fn children(pid: i32) -> Vec<i32> {
    if !Path::new("/proc/thread-self/children").exists() {
        return pids().filter(|child| Stat::of(*child).is_some_and(|stat| stat.parent == pid)).collect();
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(io::Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let of = |lives| Some(Stat { lives, parent: 4, group: 23, session: 42, start: 99 });
        let rest = "34816 23 4194560 1 2 3 4 5 6 7 8 20 0";
        assert_eq!(Stat::read(&format!("17 (a) Z 1 (b) S 4 23 42 {rest} 1 0 99 7")), of(true));
        assert_eq!(Stat::read(&format!("17 (sh) Z 4 23 42 {rest} 1 0 99 7")), of(false));
        assert_eq!(Stat::read(&format!("17 (threads) Z 4 23 42 {rest} 2 0 99 7")), of(true));
        assert_eq!(Stat::read("17 (sh) S 4 23 42 0").or(Stat::read("")), None);
    }
}
