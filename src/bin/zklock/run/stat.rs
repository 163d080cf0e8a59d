//! What the system says of a process.

use std::fs;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) lives: bool,
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
        let group = fields.nth(1)?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads: i64 = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Stat { lives: !matches!(state, "X" | "x") && (state != "Z" || threads > 1), group, session, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let of = |lives| Some(Stat { lives, group: 23, session: 42, start: 99 });
        let rest = "34816 23 4194560 1 2 3 4 5 6 7 8 20 0";
        assert_eq!(Stat::read(&format!("17 (a) Z 1 (b) S 4 23 42 {rest} 1 0 99 7")), of(true));
        assert_eq!(Stat::read(&format!("17 (sh) Z 4 23 42 {rest} 1 0 99 7")), of(false));
        assert_eq!(Stat::read(&format!("17 (threads) Z 4 23 42 {rest} 2 0 99 7")), of(true));
        assert_eq!(Stat::read("17 (sh) S 4 23 42 0").or(Stat::read("")), None);
    }
}
