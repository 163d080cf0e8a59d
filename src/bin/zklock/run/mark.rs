//! How the processes that run under a lock are known: by a line in their environment, which names whoever holds it for them.

use std::{env, fmt, io};

use nix::unistd::getpid;

use super::stat::Stat;

/// The variable with these lines, one for each lock that a process runs under. They are for `zklock` alone.
pub(super) const KEEPER: &str = "ZKLOCK_KEEPER";

/// To the process that keeps a script's lock, which runs under none itself: what the script runs under.
pub(super) const OUTER: &str = "ZKLOCK_OUTER";

/// One line: numbers with dots between them, and paths with tabs, which no path has.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    /// The process that holds the lock, and when it was started.
    pub(super) pid: i32,
    pub(super) start: u64,
    /// The session of the lock.
    pub(super) session: i64,
    /// A script's.
    pub(super) pipe: Option<Pipe>,
    pub(super) paths: Vec<String>,
}

/// The pipe whose end all inherit that a script starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pipe {
    pub(super) inode: u64,
    /// The descriptor of the process that reads it.
    pub(super) reader: i32,
    /// The script's descriptor.
    pub(super) descriptor: u8,
}

impl Mark {
    /// This process's.
    pub(super) fn new(session: i64, pipe: Option<Pipe>, paths: &[String]) -> Mark {
        let pid = getpid().as_raw();
        let start = Stat::of(pid).map_or(0, |stat| stat.start);
        Mark { pid, start, session, pipe, paths: paths.to_vec() }
    }

    fn read(line: &str) -> Option<Mark> {
        let (numbers, paths) = line.split_once(' ')?;
        let mut numbers = numbers.split('.');
        let (pid, start) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let session = numbers.next()?.parse().ok()?;
        let mut pipe = || {
            let inode = numbers.next()?.parse().ok()?;
            Some(Pipe { inode, reader: numbers.next()?.parse().ok()?, descriptor: numbers.next()?.parse().ok()? })
        };
        Some(Mark { pid, start, session, pipe: pipe(), paths: paths.split('\t').map(str::to_owned).collect() })
    }

    /// Those of a process with this variable.
    pub(super) fn all(variable: &str) -> Vec<Mark> {
        env::var(variable).unwrap_or_default().lines().filter_map(Mark::read).collect()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.pid, self.start, self.session)?;
        if let Some(Pipe { inode, reader, descriptor }) = self.pipe {
            write!(f, ".{inode}.{reader}.{descriptor}")?;
        }
        write!(f, " {}", self.paths.join("\t"))
    }
}

/// The lines of a process with this variable, and this one. A lock that a script has given back is named as long as that has the
/// descriptor open, which another one may use.
pub(super) fn with(variable: &str, mark: &Mark) -> String {
    let descriptor = |mark: &Mark| mark.pipe.map(|pipe| pipe.descriptor);
    let is_needed = |earlier: &Mark| {
        let is_open = earlier.pipe.is_some() && descriptor(earlier) != descriptor(mark);
        is_open || Stat::of(earlier.pid).is_some_and(|stat| stat.start == earlier.start)
    };
    let earlier = Mark::all(variable).into_iter().filter(is_needed);
    earlier.chain([mark.clone()]).map(|mark| mark.to_string()).collect::<Vec<_>>().join("\n")
}

/// Whether a process has the line.
pub(super) fn is_below(pid: i32, line: &str) -> io::Result<bool> {
    let environment = std::fs::read(format!("/proc/{pid}/environ"))?;
    Ok(environment.split(|byte| *byte == 0).any(|variable| carries(variable, line)))
}

fn carries(variable: &[u8], line: &str) -> bool {
    let lines = variable.strip_prefix(KEEPER.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
    !line.is_empty() && lines.is_some_and(|lines| lines.split(|byte| *byte == b'\n').any(|one| one == line.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let pipe = Some(Pipe { inode: 4711, reader: 3, descriptor: 9 });
        for pipe in [None, pipe] {
            let mark = Mark::new(-17, pipe, &["/a b".into(), "/c".into()]);
            let read = Mark::read(&mark.to_string()).unwrap();
            assert_eq!((read.pid, read.start, read.session), (mark.pid, mark.start, -17));
            assert_eq!((read.pipe, read.paths), (pipe, vec!["/a b".to_owned(), "/c".to_owned()]));
        }
        for line in ["", "1.2.3", "1.2 /a", "x.2.3 /a", "1..3 /a"] {
            assert!(Mark::read(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_process_is_below_a_lock_whose_line_it_has() {
        for value in ["1.2.3 /a", "0.1.2 /b\n1.2.3 /a", "1.2.3 /a\n0.1.2 /b"] {
            assert!(carries(format!("{KEEPER}={value}").as_bytes(), "1.2.3 /a"), "{value}");
        }
        for value in ["1.2.3 /ab", "11.2.3 /a", "", "1.2.3 /"] {
            assert!(!carries(format!("{KEEPER}={value}").as_bytes(), "1.2.3 /a"), "{value}");
            assert!(!carries(format!("{KEEPER}={value}").as_bytes(), ""), "{value}");
        }
        assert!(!carries(b"KEEPER=1.2.3 /a", "1.2.3 /a") && !carries(KEEPER.as_bytes(), "1.2.3 /a"));
    }
}
