//! The program `zklock`, as it is built, against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(dead_code, unreachable_pub, reason = "what several test binaries share")]

#[path = "../../interop/arena.rs"]
mod arena;
mod cached;
mod enemies;
#[path = "../../interop/history.rs"]
mod history;
mod losses;
#[path = "../../interop/peer.rs"]
mod peer;
mod run;
mod scene;
#[path = "../../support/mod.rs"]
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod views;
mod watches;
#[path = "../wrong_setups/setups.rs"]
mod wrong;

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

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
    command.args(arguments).env("ZK_CONNECT", servers).env("HOME", "/nowhere").env_remove("XDG_CONFIG_HOME");
    for variable in ["ZKLOCK_CONFIG", "ZKLOCK_AUTH"] {
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

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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

    /// The next line that the command says.
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has ended");
        line.trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn status(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether nothing of this process runs any more; what its parent has not asked after does not count.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// How long a whole run takes on this machine at this moment.
fn calibration() -> Duration {
    let begin = std::time::Instant::now();
    assert!(zklock(["run", &path(), "--", "true"]).status().unwrap().success());
    begin.elapsed()
}
