//! The program `zklock`, as it is built, against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(dead_code, unreachable_pub, reason = "what several test binaries share")]

#[path = "../../interop/arena.rs"]
mod arena;
mod cached;
mod dialects;
#[path = "../../interop/history.rs"]
mod history;
#[cfg(target_os = "linux")]
mod lock;
#[path = "../../interop/login.rs"]
mod login;
#[path = "../../interop/peer.rs"]
mod peer;
mod run;
#[cfg(feature = "kerberos")]
mod sasl;
mod scene;
#[path = "../../support/mod.rs"]
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod top;
mod views;
mod watches;
#[path = "../wrong_setups/setups.rs"]
mod wrong;

/// What `ci/test --quick` leaves out.
mod slow {
    pub mod enemies;
    mod losses;
    #[cfg(target_os = "linux")]
    mod scripts;
}

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{eventually, machine::Machine};

/// The documented exit statuses.
const LOST: i32 = 123;
const NOT_HAD: i32 = 124;
const FAILED: i32 = 125;

/// `zklock` with these arguments, on the shared server.
fn zklock<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    zklock_at(&support::server().connect_string(), arguments)
}

fn zklock_at<S: AsRef<OsStr>>(servers: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    command
        .args(arguments)
        .env("ZK_CONNECT", support::dialects::wanted(servers))
        .env("HOME", "/nowhere")
        .env_remove("XDG_CONFIG_HOME");
    for variable in ["ZKLOCK_CONFIG", "ZKLOCK_AUTH", "ZKLOCK_SASL_USER", "ZKLOCK_SASL_PASSWORD"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A path that no other test uses.
fn path() -> String {
    format!("/{}/lock", support::namespace())
}

fn stdout_of(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Without what it rightly says on a machine on which a server takes its time to greet.
fn stderr_of(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.split_inclusive('\n').filter(|line| !is_of_a_slow_greeting(line)).collect()
}

fn is_of_a_slow_greeting(line: &str) -> bool {
    line.contains(": no connection so far: ")
}

/// A `zklock run` under way, whose command says something. Killed when dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// One whose command has begun, and its first line. Where the machine stops it for as long as its session lasts,
    /// the lock is lost before that, and the command rightly never runs: then it begins anew.
    fn under_way(command: impl Fn() -> Command) -> (Running, String) {
        let mut under_way = None;
        eventually("the command runs", || {
            let mut run = Running::start(command());
            match run.next_line() {
                Some(line) => under_way = Some((run, line)),
                None => assert_eq!(run.status(), LOST),
            }
            under_way.is_some()
        });
        under_way.unwrap()
    }

    /// The next line that the command says. `None`: it has ended.
    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() > 0).then(|| line.trim().to_owned())
    }

    fn line(&mut self) -> String {
        self.next_line().expect("it has ended")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn status(&mut self) -> i32 {
        let status = self.child.wait().unwrap();
        // A machine that keeps it from running up to the end of its lock has it ended by its fence.
        if status.signal() == Some(Signal::SIGKILL as i32) { LOST } else { status.code().unwrap() }
    }

    /// That it ends by itself.
    #[track_caller]
    fn await_end(&mut self) {
        eventually("it has ended", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether nothing of this process runs any more: it has ended, be it that its parent has not asked after it yet, or it has
/// been sent KILL, and waits for a processor only to end on it.
fn is_gone(pid: &str) -> bool {
    let of = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (stat, status) = (of("stat"), of("status"));
    let has_ended = stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']));
    // A bit for each signal that is on its way to the process as a whole.
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    stat.is_empty() || has_ended || pending.is_none_or(|mask| mask & 1 << (Signal::SIGKILL as i32 - 1) != 0)
}

/// Whether it does nothing until it is told to go on.
fn is_stopped(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// The command's processes are killed when a twentieth of the session timeout is left.
const KILL_AT: u32 = 20;

/// How long several looks at every process take on this machine at this moment: so many has who ends what a command has started.
fn duration_of_looks() -> Duration {
    let begin = Instant::now();
    for process in std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        // It may end meanwhile.
        let _ = std::fs::read(process.join("stat")).and_then(|_| std::fs::read(process.join("environ")));
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.for_each(|file| drop(std::fs::read_link(file.path())));
    }
    (4 * begin.elapsed()).min(Duration::from_secs(2))
}

/// That this process was gone when the lock was granted to the next one, just now: all the time since it had to be killed
/// but that twentieth was the machine's, which ran nobody, or on which the looks that began a quarter of the session timeout
/// earlier took longer than that.
#[track_caller]
fn assert_gone(machine: &Machine, what: &str, pid: &str, session: Duration) {
    let granted = Instant::now();
    if is_gone(pid) {
        return;
    }
    let due = session / KILL_AT;
    let gone = eventually(&format!("{what}: it is gone"), || is_gone(pid));
    let looks = duration_of_looks().saturating_sub(session / 4);
    machine.assert_over_at_most(&format!("{what}: two at work, killed"), 0.0, vec![(granted - due..gone, looks)], due);
}

/// How long a whole run takes on this machine at this moment.
fn calibration() -> Duration {
    let begin = Instant::now();
    assert!(zklock(["run", &path(), "--", "true"]).status().unwrap().success());
    begin.elapsed()
}
