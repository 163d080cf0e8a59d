//! What a person at a terminal sees, and types.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use curator_locks::InterProcessMutex;
use nix::{
    pty::{Winsize, openpty},
    sys::signal::Signal,
};

use crate::{
    Running, is_gone, is_stopped, path,
    support::{self, eventually},
    zklock,
};

/// A terminal, and what was shown on it.
pub(crate) struct Screen {
    keys: File,
    pub(crate) program: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    fn new() -> Screen {
        Screen::of((80, 24))
    }

    /// With so many columns and rows.
    pub(crate) fn of(size: (u16, u16)) -> Screen {
        let screen = Screen::unread(size);
        let (mut terminal, seen) = (screen.keys.try_clone().unwrap(), Arc::clone(&screen.shown));
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = terminal.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        screen
    }

    /// One that shows nothing.
    pub(crate) fn unread((columns, rows): (u16, u16)) -> Screen {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        Screen { keys: File::from(pty.master), program: pty.slave, shown: Arc::default() }
    }

    fn side(&self) -> Stdio {
        self.program.try_clone().unwrap().into()
    }

    /// Runs it as the terminal's only program: its session has this terminal.
    pub(crate) fn run(&self, zklock: &Command) -> Child {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(zklock.get_program()).args(zklock.get_args());
        for (name, value) in zklock.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(self.side()).stdout(self.side()).stderr(self.side()).spawn().unwrap()
    }

    /// The same for a shell that runs a script around it.
    pub(crate) fn run_in(&self, shell: &str, script: &str, zklock: &Command) -> Child {
        let mut command = Command::new(shell);
        command.args(["-c", script]);
        command.envs(zklock.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.run(&command)
    }

    pub(crate) fn type_in(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(crate) fn await_text(&self, text: &str) {
        let mut shown = String::new();
        eventually(text, || {
            shown = self.text();
            shown.contains(text)
        });
    }
}

#[test]
fn who_waits_sees_whom_for_and_the_line_is_gone_in_the_end() {
    let client = support::connect(support::builder(support::server(), ""));
    let (first, second) = (path(), path());
    let last = first.clone().max(second.clone());
    let mutex = InterProcessMutex::new(&client, &last).unwrap().with_lock_data("the nightly job");
    let held = mutex.lock().unwrap();
    let screen = Screen::new();
    let mut command = zklock(["run", "--also", &second, &first, "--", "echo", "done"]);
    let mut run = command.stdout(Stdio::null()).stderr(screen.side()).spawn().unwrap();
    screen.await_text(&format!("{last}: next in line, held by the nightly job for "));
    let mut other = zklock(["run", &last, "--", "true"]).stderr(screen.side()).spawn().unwrap();
    screen.await_text(&format!("{last}: 1 in front, held by the nightly job for "));
    held.release().unwrap();
    assert!(run.wait().unwrap().success() && other.wait().unwrap().success());
    let clear = "\r\x1b[2K";
    eventually("the line is taken away", || screen.text().ends_with(clear));
}

#[test]
fn who_wants_no_line_gets_none() {
    let client = support::connect(support::builder(support::server(), ""));
    let path = path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let held = mutex.lock().unwrap();
    let (quiet, loud) = (Screen::new(), Screen::new());
    let mut first = zklock(["run", "--quiet", &path, "--", "true"]).stderr(quiet.side()).spawn().unwrap();
    support::await_queue(&client, &path, 2);
    let mut second = zklock(["run", &path, "--", "true"]).stderr(loud.side()).spawn().unwrap();
    loud.await_text("1 in front");
    held.release().unwrap();
    assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
    assert_eq!(quiet.text(), "");
}

#[test]
fn the_command_reads_the_terminal_and_is_interrupted_by_it() {
    let screen = Screen::new();
    // It starts nobody who may be stopped between fork and exec, for whom a shell waits that cannot be stopped meanwhile.
    let script = "trap 'echo interrupted; exit 9' INT; echo ready; read line; echo got $line; while :; do :; done";
    let mut run = screen.run(&zklock(["run", &path(), "--", "sh", "-c", script]));
    screen.await_text("ready");
    screen.type_in("a line\n");
    screen.await_text("got a line");
    screen.type_in("\x1a");
    screen.await_text("cannot be suspended");
    screen.type_in("\x03");
    screen.await_text("interrupted");
    assert_eq!(run.wait().unwrap().code(), Some(9));
}

/// Standard input is a pipe, but the command asks the terminal, as for a password.
#[test]
fn a_command_that_asks_the_terminal_gets_it() {
    let screen = Screen::new();
    let script = "echo ready; read line </dev/tty; echo got $line";
    let inner = zklock(["run", &path(), "--", "sh", "-c", script]);
    let mut run = screen.run_in("sh", &format!("true | {}", words(&inner)), &inner);
    screen.await_text("ready");
    screen.type_in("secret\n");
    screen.await_text("got secret");
    assert!(run.wait().unwrap().success());
}

/// This process and its neighbour are one job: what the terminal does to it as long as the command has it, it does to both.
#[test]
fn beside_a_program_that_reads_the_terminal_the_command_does_not_take_it() {
    let screen = Screen::new();
    let inner = zklock(["run", &path(), "--", "sh", "-c", "echo ready; sleep 0.5; echo done"]);
    let reader = "read first; echo $first; read key </dev/tty; echo got $key; cat";
    let mut run = screen.run_in("sh", &format!("{} | sh -c '{reader}'", words(&inner)), &inner);
    screen.await_text("ready");
    screen.type_in("a key\n");
    screen.await_text("got a key");
    screen.await_text("done");
    assert!(run.wait().unwrap().success());
}

/// Where others share the terminal with it, too, and its neighbours go on with it.
#[test]
fn a_job_whose_command_holds_a_lock_cannot_be_suspended() {
    let screen = Screen::new();
    let directory = tempfile::tempdir().unwrap();
    let go_on = directory.path().join("go on");
    let inner =
        zklock(["run", &path(), "--", "sh", "-c", "echo ready; until [ -e \"$0\" ]; do sleep 0.02; done; echo done"]);
    let mut run = screen.run_in("bash", &format!("set -m; {} '{}' | cat", words(&inner), go_on.display()), &inner);
    screen.await_text("ready");
    screen.type_in("\x1a");
    screen.await_text("cannot be suspended");
    fs::write(go_on, "").unwrap();
    screen.await_text("done");
    assert!(run.wait().unwrap().success());
}

/// As by `fg`, which says nothing to a job that runs.
#[test]
fn a_command_that_waits_for_the_terminal_gets_it_once_its_job_has_it() {
    let screen = Screen::new();
    let inner = zklock(["run", &path(), "--", "sh", "-c", "echo pid $$ is it; read line </dev/tty; echo got $line"]);
    let mut run = screen.run_in("bash", &format!("set -m; {} & read line; fg", words(&inner)), &inner);
    screen.await_text(" is it");
    let shown = screen.text();
    let pid = shown.split("pid ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    eventually("it waits for the terminal", || is_stopped(pid));
    screen.type_in("go on\n");
    screen.type_in("a line\n");
    screen.await_text("got a line");
    assert!(run.wait().unwrap().success());
}

/// For a shell.
pub(crate) fn words(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_terminal_that_hangs_up_ends_the_command_and_frees_the_lock() {
    let client = support::connect(support::builder(support::server(), ""));
    let path = path();
    let inner = zklock(["run"]);
    let script = "echo $$; while :; do sleep 0.02; done";
    let mut command = Command::new("script");
    let zklock = inner.get_program().to_str().unwrap();
    command.args(["-qec", &format!("'{zklock}' run {path} -- sh -c '{script}'"), "/dev/null"]);
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::piped());
    let mut terminal = Running::start(command);
    let pid = terminal.line();
    support::await_queue(&client, &path, 1);
    terminal.signal(Signal::SIGKILL);
    eventually("it is gone", || is_gone(&pid));
    support::await_queue(&client, &path, 0);
}
