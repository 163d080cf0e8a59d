//! Ends a program of tests that would wait for ever: at the latest after a time that none takes, and soon after one of its
//! servers has ended by itself, for instance because the disk is full.

use std::{
    collections::HashMap,
    env, fs,
    io::{self, Write},
    panic,
    path::{Path, PathBuf},
    process::exit,
    sync::{Mutex, Once},
    thread,
    time::{Duration, Instant},
};

use super::PATIENCE;

/// No program of tests takes so long, in seconds, unless `LONGEST_RUN` says otherwise: for the long runs that other variables ask for.
const LONGEST_RUN: u64 = 900;

const LOOK: Duration = Duration::from_secs(2);

/// The panics so far: often one is the reason why a test does not end, as a scope waits for the threads that a failed test
/// leaves.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Threads of a scope are waited for even when the test has failed.
pub fn watch_over() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if let Ok(mut panics) = PANICS.lock() {
                panics.push(format!("{panic}"));
            }
            before(panic);
        }));
        thread::spawn(|| {
            let begin = Instant::now();
            let longest = env::var("LONGEST_RUN").map_or(LONGEST_RUN, |seconds| seconds.parse().unwrap());
            let longest = Duration::from_secs(longest);
            let mut servers = Servers::default();
            while begin.elapsed() < longest {
                thread::sleep(LOOK);
                if let Some(log) = servers.ended_by_itself() {
                    let lines: Vec<&str> = log.lines().collect();
                    let last = lines[lines.len().saturating_sub(40)..].join("\n");
                    end(&format!("a test server has ended by itself, with this at the end of its log:\n{last}"));
                }
            }
            end(&format!("the tests did not end within {longest:?}"));
        });
    });
}

/// What is printed by `eprintln` the harness keeps for the end of the test, which does not come.
fn end(why: &str) -> ! {
    let panics = PANICS.lock().map_or_else(|panics| panics.into_inner().clone(), |panics| panics.clone());
    let _ = writeln!(io::stderr(), "{why}\nPanicked so far:\n{}", panics.join("\n"));
    exit(101);
}

/// The supervisors of this program's servers, by their pids.
#[derive(Default)]
struct Servers {
    /// Where each has its server's log.
    directories: HashMap<u32, PathBuf>,
    /// Since when each has ended without anybody asking for that: whoever ends a server asks at once.
    ended: HashMap<u32, Instant>,
}

impl Servers {
    fn ended_by_itself(&mut self) -> Option<String> {
        let children = children();
        self.ended.retain(|pid, _| children.iter().any(|(child, state)| child == pid && *state == 'Z'));
        for (pid, state) in children {
            if state != 'Z' {
                let directory = fs::read_link(Path::new("/proc").join(pid.to_string()).join("cwd")).unwrap_or_default();
                self.directories.insert(pid, directory);
            } else if self.ended.entry(pid).or_insert_with(Instant::now).elapsed() > PATIENCE
                && let Some(directory) = self.directories.get(&pid)
                && let Ok(log) = fs::read(directory.join("server.log"))
            {
                return Some(String::from_utf8_lossy(&log).into_owned());
            }
        }
        None
    }
}

/// The shells that this process has started, each with its state.
fn children() -> Vec<(u32, char)> {
    let own = std::process::id().to_string();
    let is_number = |name: &str| name.parse::<u32>().ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| is_number(&entry.file_name().to_string_lossy()));
    let child = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        (name == "sh" && fields.next()? == own).then_some((pid, state))
    };
    pids.filter_map(child).collect()
}
