//! One JVM as a child process that cannot outlive this process.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// How long SIGKILL may take.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the JVM, says its pid, and waits for it. Destructors do not run on SIGKILL or `exit`, but pipes close: the
/// watcher reads from one whose other end this process alone holds, and at its end kills the JVM. Only then is the
/// directory removed too; otherwise the watcher is terminated (and its status is not 0), and the directory is kept.
/// Signals of the terminal are ignored, also because the kernel sends SIGHUP when this process dies while the JVM is
/// stopped.
/// `$1`: the directory. `$2`: the log. The rest: the command.
const SUPERVISOR: &str = r#"
directory=$1 log=$2
shift 2
trap '' HUP INT QUIT
exec 3<&0 </dev/null 2>>"$log"
"$@" 3<&- >>"$log" &
jvm=$!
echo "$jvm"
exec >/dev/null
(
    read -r _ <&3
    trap '' TERM
    kill -KILL "$jvm" || :
) &
watcher=$!
exec 3<&-
wait "$jvm"
kill -TERM "$watcher"
if wait "$watcher"; then rm -rf "$directory"; fi
"#;

/// A running JVM under its supervisor. Dropping it kills the JVM and waits for its end.
#[derive(Debug)]
pub(super) struct ServerProcess {
    /// Its standard input is never written to, and open as long as this value lives: `Child::wait` would close it.
    supervisor: Child,
    jvm: Pid,
}

impl ServerProcess {
    /// Runs `command`, its output appended to `log`, its working directory `directory`.
    pub(super) fn spawn(command: &[OsString], directory: &Path, log: &Path) -> io::Result<ServerProcess> {
        let errors = File::options().append(true).create(true).open(log)?;
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"].map(OsStr::new))
            .args([directory.as_os_str(), log.as_os_str()])
            .args(command)
            .current_dir(directory)
            // Ctrl-C is for the tests. The server goes when they have gone.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let jvm = read_pid(&mut supervisor)?;
        Ok(ServerProcess { supervisor, jvm })
    }

    /// The JVM's process id.
    pub(super) fn pid(&self) -> u32 {
        self.jvm.as_raw().unsigned_abs()
    }

    pub(super) fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.supervisor.try_wait()?.is_none())
    }

    /// Sends a signal to the JVM. `false`: it has ended.
    pub(super) fn signal(&mut self, signal: Signal) -> io::Result<bool> {
        // Never to a pid whose process is known to be gone: it may be another's by now.
        if !self.is_running()? {
            return Ok(false);
        }
        match kill(self.jvm, signal) {
            Ok(()) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Asks the JVM to end, and kills it if it has not within `grace`.
    pub(super) fn terminate(&mut self, grace: Duration) -> io::Result<()> {
        self.signal(Signal::SIGTERM)?;
        // A stopped process ends only once it goes on.
        self.signal(Signal::SIGCONT)?;
        if self.wait(grace)? { Ok(()) } else { self.kill() }
    }

    /// Kills the JVM and waits until it is gone. Stopped processes die too.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)?;
        if self.wait(KILL_TIMEOUT)? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Whether the process, the supervisor included, has ended within `timeout`.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        while self.is_running()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(POLL);
        }
        Ok(true)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            log::warn!("the test server with pid {} could not be killed: {error}", self.pid());
        }
    }
}

/// The pid that the supervisor prints. If there is none, the supervisor is ended.
fn read_pid(supervisor: &mut Child) -> io::Result<Pid> {
    let mut line = String::new();
    let read = match supervisor.stdout.take() {
        Some(stdout) => BufReader::new(stdout).read_line(&mut line),
        None => Ok(0),
    };
    match (read, line.trim().parse()) {
        (Ok(_), Ok(pid)) => Ok(Pid::from_raw(pid)),
        (read, _) => {
            supervisor.kill()?;
            supervisor.wait()?;
            Err(read.err().unwrap_or_else(|| io::Error::other(format!("no pid from the supervisor: {line:?}"))))
        }
    }
}
