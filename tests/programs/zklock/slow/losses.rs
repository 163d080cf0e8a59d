//! The command is gone before anybody else can hold its lock.

use std::{
    env,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    InterProcessMutex, LockQueue,
    testing::{Direction, FaultProxy},
};
use nix::sys::signal::Signal;

use crate::{
    LOST, Running, assert_gone, is_gone, path, stderr_of, stdout_of, support,
    support::{
        eventually,
        machine::{Machine, since},
    },
    zklock, zklock_at,
};

const SESSION: &str = "2s";
const SESSION_TIME: Duration = Duration::from_secs(2);
const LANES: usize = 5;

/// Says its number, and hears no TERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

/// A number that a longer run of the tests sets.
fn setting(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// `ZKLOCK_BLACK_HOLES=50` for as many, five at a time.
#[test]
fn in_a_black_hole_the_command_is_gone_before_the_next_one_holds_the_lock() {
    let client = support::connect(support::builder(support::server(), ""));
    let (rounds, next, machine) = (setting("ZKLOCK_BLACK_HOLES", 20), AtomicUsize::new(0), Machine::watch());
    thread::scope(|scope| {
        let lane = || {
            let path = path();
            loop {
                let round = next.fetch_add(1, Ordering::Relaxed);
                if round >= rounds {
                    return;
                }
                let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
                let arguments = ["run", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN];
                let (mut run, pid) = Running::under_way(|| zklock_at(&proxy.connect_string(), arguments));
                proxy.black_hole(Direction::Both);
                let mutex = InterProcessMutex::new(&client, &path).unwrap();
                let held = mutex.lock().unwrap();
                assert_gone(&machine, &format!("round {round}"), &pid, SESSION_TIME);
                held.release().unwrap();
                assert_eq!(run.status(), LOST, "round {round}");
                println!("round {round}: gone in time");
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
    });
}

/// Processes that do nothing but keep the machine busy. Killed when dropped.
struct Load(Vec<std::process::Child>);

impl Load {
    fn start(count: usize) -> Load {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Load((0..count).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two heartbeats of the shorter session. `ZKLOCK_HEALTHY_SECONDS=600 ZKLOCK_LOAD=8` for so long, beside so many busy processes.
#[test]
fn a_healthy_session_is_never_warned_of() {
    let seconds = setting("ZKLOCK_HEALTHY_SECONDS", 15).to_string();
    let _load = Load::start(setting("ZKLOCK_LOAD", 0));
    let script = "trap 'exit 99' TERM; sleep \"$0\" & wait";
    let runs: Vec<_> = ["20s", "40s"]
        .map(|session| {
            let path = path();
            let mut command = zklock(["run", "--session-timeout", session, &path, "--", "sh", "-c", script, &seconds]);
            (session, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        })
        .into_iter()
        .collect();
    for (session, run) in runs {
        let output = run.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr_of(&output).as_str()), (Some(0), ""), "session timeout {session}");
    }
}

#[test]
fn a_stopped_zklock_does_not_keep_its_command_alive() {
    let client = support::connect(support::builder(support::server(), ""));
    let (path, machine) = (path(), Machine::watch());
    let arguments = ["run", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN];
    let (mut run, pid) = Running::under_way(|| zklock(arguments));
    run.signal(Signal::SIGSTOP);
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let _held = mutex.lock().unwrap();
    assert_gone(&machine, "zklock stopped", &pid, SESSION_TIME);
    run.signal(Signal::SIGCONT);
    // Where nothing ends the program in time it hears of the loss as it goes on.
    let status = run.child.wait().unwrap();
    assert!(
        if cfg!(target_os = "linux") { status.signal() == Some(9) } else { status.code() == Some(LOST) },
        "{status}"
    );
}

/// Their death is the kernel's doing: no process of `zklock` runs.
#[test]
#[cfg(target_os = "linux")]
fn a_stopped_zklock_with_a_stopped_watchdog_does_not_keep_its_command_alive() {
    let client = support::connect(support::builder(support::server(), ""));
    let (path, machine) = (path(), Machine::watch());
    let arguments = ["run", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN];
    let (run, pid) = Running::under_way(|| zklock(arguments));
    let watchdog = super::enemies::watchdog_of(&run);
    nix::sys::signal::kill(watchdog, Signal::SIGSTOP).unwrap();
    run.signal(Signal::SIGSTOP);
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let _held = mutex.lock().unwrap();
    assert_gone(&machine, "both stopped", &pid, SESSION_TIME);
    nix::sys::signal::kill(watchdog, Signal::SIGCONT).unwrap();
}

/// The watchdog ends a command that has ended already, as the lock is certain no longer while its parent is stopped.
#[test]
#[cfg(target_os = "linux")]
fn a_command_that_has_ended_by_itself_is_not_reported_as_ended() {
    let directory = tempfile::tempdir().unwrap();
    let ends = directory.path().join("ends");
    let script = format!("echo $$; while [ ! -e {} ]; do sleep 0.01; done; exit 7", ends.display());
    let mut status = None;
    // Where the machine is late its fence comes before this test.
    eventually("it goes on between its last twentieth and its fence", || {
        let path = path();
        let arguments = ["run", "--session-timeout", "10s", &path, "--", "sh", "-c", &script];
        let (mut run, pid) = Running::under_way(|| zklock(arguments));
        let watchdog = super::enemies::watchdog_of(&run).to_string();
        run.signal(Signal::SIGSTOP);
        std::fs::write(&ends, "").unwrap();
        eventually("it has ended", || is_gone(&pid));
        eventually("the watchdog has acted", || is_gone(&watchdog));
        run.signal(Signal::SIGCONT);
        std::fs::remove_file(&ends).unwrap();
        let ended = run.child.wait().unwrap();
        status = ended.code();
        ended.signal().is_none()
    });
    assert_eq!(status, Some(7));
}

#[test]
fn a_command_gets_term_before_it_is_killed() {
    // KILL follows a tenth of it after TERM.
    let (session, between) = ("40s", Duration::from_secs(4));
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    // To wait is interrupted by TERM at once.
    let script = "trap 'echo term; exit 0' TERM; sleep 1000 & echo ready; wait";
    let arguments = ["run", "--session-timeout", session, &path(), "--", "sh", "-c", script];
    let mut run = Running::start(zklock_at(&proxy.connect_string(), arguments));
    assert_eq!(run.line(), "ready");
    proxy.black_hole(Direction::Both);
    match run.next_line() {
        Some(said) => assert_eq!(said, "term"),
        // Right only where the machine has run nobody for about as long.
        None => machine.assert_at_most("killed without a word", since(Instant::now() - between), between / 2),
    }
    assert_eq!(run.status(), LOST);
}

/// A command that lives through one outage is asked to end in the next one, too.
#[test]
fn a_command_gets_term_in_each_outage() {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    // KILL follows 4 s after TERM.
    let script = "trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done";
    let arguments = ["run", "--session-timeout", "40s", &path(), "--", "sh", "-c", script];
    let mut run = Running::start(zklock_at(&proxy.connect_string(), arguments));
    assert_eq!(run.line(), "ready");
    for outage in 0..2 {
        proxy.refuse();
        proxy.cut();
        assert_eq!(run.line(), "term", "outage {outage}");
        proxy.clear_log();
        proxy.pass().unwrap();
        // The answer to the first heartbeat over a new connection makes the lock certain, and another one comes behind it.
        eventually("certain again", || {
            let mut beats = proxy.log();
            beats.retain(|request| request.path.as_deref() == Some("/"));
            beats.iter().filter_map(|beat| beat.replied).any(|at| beats.iter().any(|beat| beat.received > at))
        });
    }
    run.signal(Signal::SIGKILL);
}

#[test]
fn a_broken_lock_ends_its_command() {
    let client = support::connect(support::builder(support::server(), ""));
    let path = path();
    let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", STUBBORN]));
    let pid = run.line();
    let node = LockQueue::inspect(&client, &path).unwrap().entries[0].path.clone();
    let refused = zklock(["break", &node]).output().unwrap();
    assert!(!refused.status.success() && !is_gone(&pid), "it asks first");
    let broken = zklock(["break", "--yes", &node]).output().unwrap();
    assert!(stdout_of(&broken).contains(&format!("deleted {node}")), "{}", crate::stderr_of(&broken));
    eventually("the command is gone", || is_gone(&pid));
    assert_eq!(run.status(), LOST);
    let again = zklock(["break", "--yes", &node]).output().unwrap();
    assert!(!again.status.success());
}

#[test]
fn a_short_outage_ends_nothing() {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let script = "echo ready; read line; exit 5";
    let arguments = ["run", "--session-timeout", "20s", &path(), "--", "sh", "-c", script];
    let mut command = zklock_at(&proxy.connect_string(), arguments);
    command.stdin(std::process::Stdio::piped());
    let mut run = Running::start(command);
    assert_eq!(run.line(), "ready");
    proxy.refuse();
    proxy.cut();
    thread::sleep(Duration::from_millis(500));
    let before = proxy.connections();
    proxy.pass().unwrap();
    eventually("connected again", || proxy.connections() > before && proxy.open_connections() > 0);
    drop(run.child.stdin.take());
    assert_eq!(run.status(), 5);
}

/// Each heartbeat takes almost 0.3 of the session timeout: too long for a lock to be certain for a fifth of it.
#[test]
fn servers_that_answer_too_late_delay_the_command_and_do_not_fail_it() {
    let (session, round_trip) = ("12s", Duration::from_millis(3500));
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    proxy.delay(round_trip / 2);
    let arguments = ["run", "--session-timeout", session, &path(), "--", "sh", "-c", "exit 5"];
    let mut command = zklock_at(&proxy.connect_string(), arguments);
    let mut run = Running::start({
        command.stderr(Stdio::piped());
        command
    });
    let mut said = BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    let uncertain = "no heartbeat has made the session certain for 2.4s ahead within 12s";
    while !(line.contains(uncertain) && line.contains("waiting again")) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it gave up");
    }
    proxy.pass().unwrap();
    assert_eq!(run.status(), 5);
}

/// A run whose lock is broken each time that the command says something, unless it says it first of all and a signal is sent
/// then: what its command says, its status, and what it says itself.
fn broken(script: &str, signal: Option<Signal>) -> (Vec<String>, i32, String) {
    let (client, path) = (support::connect(support::builder(support::server(), "")), path());
    let mut command = zklock(["run", "--retry-lost", "2", &path, "--", "sh", "-c", script]);
    let mut run = Running::start({
        command.stderr(Stdio::piped());
        command
    });
    let (mut said, mut signal) = (Vec::new(), signal);
    while let Some(line) = run.next_line() {
        said.push(line);
        if let Some(signal) = signal.take() {
            run.signal(signal);
            continue;
        }
        let queue = LockQueue::inspect(&client, &path).unwrap();
        if let Some(holder) = queue.holders().next() {
            client.delete().for_path(&holder.path).unwrap();
        }
    }
    let status = run.status();
    let mut errors = String::new();
    run.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(LockQueue::inspect(&client, &path).unwrap().entries.len(), 0, "nothing is left");
    (said, status, errors)
}

#[test]
fn a_command_whose_lock_was_lost_runs_again_under_the_next_one_so_many_times() {
    let (tokens, status, said) = broken("echo $ZKLOCK_TOKEN; exec sleep 1000", None);
    let tokens: Vec<i64> = tokens.iter().map(|token| token.parse().unwrap()).collect();
    assert_eq!((tokens.len(), status), (3, LOST), "{tokens:?}: {said}");
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
    let of = |times: &str| said.matches(&format!("the command runs again once the lock is had again, {times}")).count();
    assert_eq!((of("and 1 more at most"), of("for the last time")), (1, 1), "{said}");
}

/// A second run is for a lost lock only, and not for who wants an end.
#[test]
fn a_command_that_fails_by_itself_or_is_told_to_end_runs_once() {
    let output = zklock(["run", "--retry-lost", "2", &path(), "-c", "echo once; exit 123"]).output().unwrap();
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(LOST), "once\n"), "{}", stderr_of(&output));
    let deaf = "trap 'echo told' TERM USR1; echo ready; while :; do sleep 0.01; done";
    for (signal, runs) in [(Signal::SIGTERM, 1), (Signal::SIGUSR1, 3)] {
        let (said, status, errors) = broken(deaf, Some(signal));
        let count = said.iter().filter(|line| *line == "ready").count();
        assert_eq!((count, status), (runs, LOST), "{signal}: {said:?}: {errors}");
    }
}

/// One that does not wait for others waits for what its own lost hold has left behind.
#[test]
fn a_command_that_was_lost_in_an_outage_runs_again_with_nonblock_too() {
    let (proxy, path) = (FaultProxy::start(support::server().connect_string()).unwrap(), path());
    let script = "echo ready; read line; exec sleep 1000";
    let arguments =
        ["run", "--session-timeout", "20s", "--nonblock", "--retry-lost", "1", &path, "--", "sh", "-c", script];
    let mut command = zklock_at(&proxy.connect_string(), arguments);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    assert_eq!(run.line(), "ready");
    proxy.refuse();
    proxy.cut();
    let watchdog = super::enemies::watchdog_of(&run).to_string();
    eventually("the command is killed", || is_gone(&watchdog));
    proxy.pass().unwrap();
    assert_eq!(run.line(), "ready");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), 128 + Signal::SIGTERM as i32);
}
