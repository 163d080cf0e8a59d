//! Child processes: the test binary once more, in a role, driven over its standard input and output.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::PATIENCE;

const ROLE: &str = "CURATOR_LOCKS_TEST_ROLE";
const ARGUMENTS: &str = "CURATOR_LOCKS_TEST_ARGUMENTS";

/// Stands in front of what a child says, because the test harness writes to standard output too.
const MARK: &str = "child says: ";

/// Killed when dropped.
pub struct ChildProcess {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl ChildProcess {
    /// Runs the binary's test `child_process` in a process of its own.
    pub fn start(role: &str, arguments: &[&str]) -> ChildProcess {
        ChildProcess::start_in(&[], role, arguments)
    }

    /// With these variables in its environment.
    pub fn start_in(environment: &[(&str, String)], role: &str, arguments: &[&str]) -> ChildProcess {
        let mut command = Command::new(env::current_exe().unwrap());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        ChildProcess::start_by(command, role, arguments)
    }

    /// By this program, or by one that runs it.
    pub fn start_by(mut command: Command, role: &str, arguments: &[&str]) -> ChildProcess {
        command.args(["--exact", "child_process", "--nocapture"]);
        command.env(ROLE, role).env(ARGUMENTS, arguments.join("\n"));
        ChildProcess::run(command, MARK).unwrap()
    }

    /// Any program, of whose lines those are heard that have this mark; what stands behind it.
    pub fn run(mut command: Command, mark: &'static str) -> io::Result<ChildProcess> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once(mark) {
                    // Nobody listens any more if the test has failed.
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Ok(ChildProcess { child, stdin, lines })
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The same to one that may have ended.
    pub fn tell_if_it_lives(&mut self, line: &str) {
        let _ = writeln!(self.stdin, "{line}");
    }

    #[track_caller]
    pub fn hear(&self) -> String {
        self.hear_within(PATIENCE)
    }

    #[track_caller]
    pub fn hear_within(&self, patience: Duration) -> String {
        self.lines.recv_timeout(patience).expect("the child says nothing")
    }

    pub fn heard(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The next thing that it says within this time. `Err`: nothing, and whether it may still say something.
    pub fn heard_within(&self, time: Duration) -> Result<String, bool> {
        self.lines.recv_timeout(time).map_err(|error| error == mpsc::RecvTimeoutError::Timeout)
    }

    /// What it says until it ends.
    pub fn rest(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok())
    }

    pub fn pause(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
    }

    /// Waits until every thread of the process has stopped: one that runs on another processor stops a little later.
    pub fn await_stop(&self) {
        super::eventually("every thread is stopped", || {
            // A thread that has ended meanwhile has none.
            self.threads("stat").iter().all(|stat| stat.is_empty() || stat.contains(") T "))
        });
    }

    /// Waits until the process has done what it can do without being sent something more: all its threads sleep, and none
    /// has run from one look to the next. `false`: none such within this time.
    pub fn sleeps_within(&self, time: Duration) -> bool {
        let (deadline, mut before) = (Instant::now() + time, Vec::new());
        while Instant::now() < deadline {
            // The state, and how often it was taken from a processor.
            let now = self.threads("status");
            if now == before && now.iter().all(|status| status.contains("\nState:\tS ")) {
                return true;
            }
            before = now;
            thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// This file of `/proc` of each thread.
    fn threads(&self, file: &str) -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().filter_map(Result::ok);
        threads.map(|thread| fs::read_to_string(thread.path().join(file)).unwrap_or_default()).collect()
    }

    pub fn resume(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    /// How it has ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// What it said before can still be heard.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lets all go once all are ready. Gives the lines of numbers that each says until it is done.
pub fn race(mut children: Vec<ChildProcess>) -> Vec<Vec<u64>> {
    for child in &children {
        assert_eq!(child.hear(), "ready");
    }
    for child in &mut children {
        child.tell("go");
    }
    let mut said = Vec::new();
    for child in &children {
        loop {
            // They say nothing until they have run to the end.
            let line = child.hear_within(PATIENCE * 10);
            if line == "done" {
                break;
            }
            said.push(line.split(' ').map(|number| number.parse().unwrap()).collect());
        }
    }
    said
}

/// The role and arguments of this process, if it is a child.
pub fn role() -> Option<(String, Vec<String>)> {
    let arguments = env::var(ARGUMENTS).unwrap_or_default();
    Some((env::var(ROLE).ok()?, arguments.lines().map(str::to_owned).collect()))
}

/// Says something to the parent.
pub fn say(what: &str) {
    println!("{MARK}{what}");
}

/// The next line from the parent; without one, the process ends.
pub fn listen() -> String {
    let mut line = String::new();
    if !matches!(std::io::stdin().read_line(&mut line), Ok(1..)) {
        std::process::exit(0);
    }
    line.trim().to_owned()
}
