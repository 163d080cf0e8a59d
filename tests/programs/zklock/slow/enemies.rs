//! Whoever is stopped or killed, and whatever the command does: nobody works without the lock, and nothing is left behind.

use std::{
    fs,
    io::{self, BufRead, Write},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    InterProcessMutex, LockQueue,
    testing::{Direction, FaultProxy},
};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use crate::{
    FAILED, LOST, NOT_HAD, Running, assert_gone, is_gone, is_of_a_slow_greeting, path, stderr_of, stdout_of,
    support::{self, eventually, machine::Machine},
    zklock, zklock_at,
};

const SESSION: &str = "2s";
const SESSION_TIME: Duration = Duration::from_secs(2);

/// Says its number, and hears no TERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

fn client() -> curator_locks::CuratorFramework {
    support::connect(support::builder(support::server(), ""))
}

fn number(pid: &str) -> Pid {
    Pid::from_raw(pid.parse().unwrap())
}

pub(crate) fn first_line(from: impl io::Read) -> String {
    let mut lines = io::BufReader::new(from).lines().map(Result::unwrap);
    lines.find(|line| !is_of_a_slow_greeting(line)).unwrap_or_default()
}

/// The watchdog of a `zklock run`.
pub(super) fn watchdog_of(run: &Running) -> Pid {
    watchdog_below(Pid::from_raw(run.child.id().try_into().unwrap()))
}

pub(super) fn watchdog_below(parent: Pid) -> Pid {
    let parent = format!(" {parent} ");
    let mut found = None;
    eventually("there is a watchdog", || {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        found = processes.into_iter().find(|pid| {
            let of = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let is_child = String::from_utf8_lossy(&of("stat"))
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.get(1..).is_some_and(|rest| rest.starts_with(&parent)));
            is_child && String::from_utf8_lossy(&of("cmdline")).contains("__watch")
        });
        found.is_some()
    });
    number(&found.unwrap())
}

/// Runs a stubborn command behind a proxy, does this, lets the servers vanish, and awaits the lock.
fn two_are_never_at_work(what: &str, script: &str, harm: impl FnOnce(&Running, &str)) -> Running {
    let (client, path) = (client(), path());
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    let arguments = ["run", "--session-timeout", SESSION, &path, "--", "bash", "-c", script];
    let (run, pid) = Running::under_way(|| zklock_at(&proxy.connect_string(), arguments));
    harm(&run, &pid);
    proxy.black_hole(Direction::Both);
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    assert_gone(&machine, what, &pid, SESSION_TIME);
    held.release().unwrap();
    run
}

#[test]
fn a_stopped_watchdog_keeps_no_command_alive() {
    let mut run = two_are_never_at_work("watchdog stopped", STUBBORN, |run, _| {
        kill(watchdog_of(run), Signal::SIGSTOP).unwrap();
    });
    assert_eq!(run.status(), LOST);
}

/// When it goes on, what it was told meanwhile comes before what it had known.
#[test]
fn a_watchdog_that_was_stopped_for_long_ends_no_command() {
    let machine = Machine::watch();
    // Longer than the machine keeps it from the servers.
    let (session, path) = (Duration::from_secs(30), path());
    let arguments = ["run", "--session-timeout", "30s", &path, "--", "sh", "-c", "echo ready; read line; exit 5"];
    let (mut run, _) = Running::under_way(|| {
        let mut command = zklock(arguments);
        command.stdin(Stdio::piped());
        command
    });
    let (begin, watchdog) = (Instant::now(), watchdog_of(&run));
    kill(watchdog, Signal::SIGSTOP).unwrap();
    thread::sleep(session);
    kill(watchdog, Signal::SIGCONT).unwrap();
    thread::sleep(Duration::from_millis(500));
    drop(run.child.stdin.take());
    let status = run.status();
    // Where the machine keeps it from the servers, the lock is rightly given up.
    let late = machine.lateness(&(begin..Instant::now()));
    assert!(status == 5 || status == LOST && late > session / 8, "{status}, the machine late by {late:?}");
}

/// Each of them interrupts its wait.
#[test]
fn a_watchdog_that_is_signalled_all_the_time_acts_in_time() {
    let _run = two_are_never_at_work("watchdog signalled", STUBBORN, |run, _| {
        let watchdog = watchdog_of(run);
        // So that nobody else ends the command.
        run.signal(Signal::SIGSTOP);
        thread::spawn(move || {
            // One that has ended has none.
            while fs::read(format!("/proc/{watchdog}/cmdline")).is_ok_and(|line| !line.is_empty()) {
                let _ = kill(watchdog, Signal::SIGTERM);
                thread::sleep(Duration::from_millis(10));
            }
        });
    });
}

#[test]
fn a_stopped_group_is_killed_in_time() {
    let mut run = two_are_never_at_work("group stopped", STUBBORN, |_, pid| {
        killpg(number(pid), Signal::SIGSTOP).unwrap();
    });
    assert_eq!(run.status(), LOST);
}

#[test]
fn a_command_that_stops_itself_is_killed_in_time() {
    let script = "trap '' TERM; echo $$; kill -STOP $$; while :; do sleep 0.01; done";
    assert_eq!(two_are_never_at_work("command stopped", script, |_, _| {}).status(), LOST);
}

/// As an interactive shell does with each of its jobs.
#[test]
fn what_the_command_starts_in_a_group_of_its_own_is_killed_in_time() {
    let script = "set -m; (trap '' TERM; echo $BASHPID; while :; do sleep 0.01; done) & wait; wait";
    assert_eq!(two_are_never_at_work("another group", script, |_, _| {}).status(), LOST);
}

#[test]
fn what_the_command_starts_in_a_group_of_its_own_dies_with_a_killed_zklock() {
    let script = "set -m; (trap '' TERM; echo $BASHPID; while :; do sleep 0.01; done) & wait; wait";
    let mut run = Running::start(zklock(["run", &path(), "--", "bash", "-c", script]));
    let pid = run.line();
    run.signal(Signal::SIGKILL);
    eventually("it is gone", || is_gone(&pid));
}

#[test]
fn a_command_dies_with_a_killed_zklock_within_a_second() {
    let machine = Machine::watch();
    for _ in 0..3 {
        let mut run = Running::start(zklock(["run", &path(), "--", "sh", "-c", STUBBORN]));
        let pid = run.line();
        let begin = Instant::now();
        run.signal(Signal::SIGKILL);
        let gone = eventually("it is gone", || is_gone(&pid));
        machine.assert_at_most("the command of a killed zklock is gone", begin..gone, Duration::from_secs(1));
    }
}

/// Whoever reads standard error may have been stopped, too.
#[test]
fn a_full_pipe_keeps_no_command_alive() {
    let (reader, mut writer) = io::pipe().unwrap();
    let stderr = writer.try_clone().unwrap();
    let filling = thread::spawn(move || while writer.write_all(&[0; 4096]).is_ok() {});
    let (client, path) = (client(), path());
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    let arguments = ["run", "-vv", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN];
    let (mut run, pid) = Running::under_way(|| {
        let mut command = zklock_at(&proxy.connect_string(), arguments);
        command.stderr(stderr.try_clone().unwrap());
        command
    });
    drop(stderr);
    proxy.black_hole(Direction::Both);
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    assert_gone(&machine, "full pipe", &pid, SESSION_TIME);
    held.release().unwrap();
    assert_eq!(run.status(), LOST);
    drop(reader);
    filling.join().unwrap();
}

/// As when the thread that writes does not run for a while.
#[test]
fn what_the_reader_of_standard_error_takes_late_is_said_all_the_same() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    // All that a pipe takes: nothing more can be written before it is read.
    writer.write_all(&[b'.'; 64 * 1024]).unwrap();
    let begin = Instant::now();
    let mut child = zklock(["run", "x", "--", "true"]).stderr(writer).spawn().unwrap();
    // By then a program has long ended that does not wait for its reader.
    thread::sleep(Duration::from_secs(2));
    let mut said = String::new();
    io::Read::read_to_string(&mut reader, &mut said).unwrap();
    // Nobody waits for ever, which a machine that stops this thread would see.
    assert!(said.contains("starts with '/'") || begin.elapsed() > Duration::from_secs(5), "nothing is said");
    assert_eq!(child.wait().unwrap().code(), Some(FAILED));
}

#[test]
fn standard_error_that_cannot_be_written_changes_nothing() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let status = zklock(["run", "-vv", &path(), "--", "sh", "-c", "exit 7"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(7));
    let status = zklock(["ls", &path()]).stdout(full()).output().unwrap();
    assert!(stderr_of(&status).contains("cannot write to standard output"), "{}", stderr_of(&status));
    assert_eq!(status.status.code(), Some(FAILED));
}

#[test]
fn without_its_watchdog_a_command_does_not_go_on() {
    let client = client();
    let path = path();
    let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", STUBBORN]));
    let pid = run.line();
    kill(watchdog_of(&run), Signal::SIGKILL).unwrap();
    eventually("it is gone", || is_gone(&pid));
    assert_eq!(run.status(), FAILED);
    support::await_queue(&client, &path, 0);
}

#[test]
fn a_killed_command_leaves_no_znode_behind() {
    let client = client();
    let path = path();
    for signal in [Signal::SIGKILL, Signal::SIGSEGV] {
        let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", STUBBORN]));
        kill(number(&run.line()), signal).unwrap();
        assert_eq!(run.status(), 128 + signal as i32);
        assert!(support::queue(&client, &path).is_empty());
    }
    // It sends it to all of its group.
    let all = zklock(["run", &path, "--", "sh", "-c", "kill -9 0"]).output().unwrap();
    assert_eq!(all.status.code(), Some(137), "{}", stderr_of(&all));
    assert!(support::queue(&client, &path).is_empty());
}

#[test]
fn what_a_command_leaves_behind_keeps_the_lock_until_it_has_ended() {
    let client = client();
    let path = path();
    let script = "exec 3<&0; (echo $$; read line <&3) & exit 5";
    let mut command = zklock(["run", &path, "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = Running::start(command);
    let pid = run.line();
    eventually("the command has ended", || is_gone(&pid));
    let said = first_line(run.child.stderr.take().unwrap());
    assert!(said.contains("keeps the lock by what it has started: ") && said.contains("(sh)"), "{said}");
    let busy = zklock(["run", "-n", &path, "--", "true"]).output().unwrap();
    assert_eq!(busy.status.code(), Some(NOT_HAD), "two at work");
    drop(run.child.stdin.take());
    assert_eq!(run.status(), 5);
    assert!(support::queue(&client, &path).is_empty());
}

#[test]
fn what_a_command_leaves_behind_gets_signals_and_is_killed_in_time() {
    let script = "(trap '' TERM; sh -c 'echo $PPID'; while :; do sleep 0.01; done) & exit 5";
    assert_eq!(two_are_never_at_work("left behind", script, |_, _| {}).status(), LOST);
    let mut command = zklock(["run", &path(), "--", "sh", "-c", "(exec sleep 1000) & exit 5"]);
    command.stderr(Stdio::piped());
    let mut run = Running::start(command);
    // Before that the signal would end the shell too.
    assert!(first_line(run.child.stderr.take().unwrap()).contains("keeps the lock by what it has started: "));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), 5);
}

#[test]
fn what_begins_a_session_of_its_own_has_left() {
    let script = "setsid sh -c 'echo $$; exec sleep 1000' & exit 5";
    let mut run = Running::start(zklock(["run", &path(), "--", "sh", "-c", script]));
    let pid = run.line();
    assert_eq!(run.status(), 5);
    assert!(!is_gone(&pid));
    kill(number(&pid), Signal::SIGKILL).unwrap();
}

#[test]
fn signals_are_to_the_command_as_without_zklock() {
    let shown = ["grep", "^Sig[BIC]", "/proc/self/status"];
    let direct = std::process::Command::new(shown[0]).args(&shown[1..]).output().unwrap();
    let path = path();
    let below = zklock(["run", path.as_str(), "--"].iter().chain(&shown)).output().unwrap();
    assert_eq!(stdout_of(&below), stdout_of(&direct));
}

#[test]
fn a_command_that_cannot_run_gives_a_shells_status() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "true\n").unwrap();
    let client = client();
    for (command, expected) in [
        ("no-such-command-of-zklock", 127),
        ("", 127),
        (directory.path().to_str().unwrap(), 126),
        (plain.to_str().unwrap(), 126),
    ] {
        let path = path();
        let output = zklock(["run", &path, "--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{command}: {}", stderr_of(&output));
        assert!(support::queue(&client, &path).is_empty());
    }
    // As a shell would look for it, in the command's own environment.
    let mut command = zklock(["run", &path(), "--", "true"]);
    assert_eq!(command.env("PATH", directory.path()).output().unwrap().status.code(), Some(127));
}

#[test]
fn an_outage_holds_up_neither_the_end_of_a_wait_nor_that_of_a_run() {
    let (client, path) = (client(), path());
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let script = "echo ready; read line; exit 5";
    // Longer than the machine keeps it from the servers while the other one queues.
    let arguments = ["run", "--session-timeout", "10s", &path, "--", "sh", "-c", script];
    let mut command = zklock_at(&proxy.connect_string(), arguments);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    assert_eq!(run.line(), "ready");
    let mut waits = Running::start(zklock_at(&proxy.connect_string(), ["run", &path, "--", "true"]));
    support::await_queue(&client, &path, 2);
    proxy.black_hole(Direction::Both);
    waits.signal(Signal::SIGINT);
    assert_eq!(waits.status(), 130);
    drop(run.child.stdin.take());
    let status = run.status();
    assert!([5, LOST].contains(&status), "{status}");
}

/// The servers are not there to say who holds the lock, and nobody is left to hear a signal.
#[test]
fn a_wait_whose_time_is_up_in_an_outage_ends() {
    let client = &client();
    let wait = |outage: fn(&FaultProxy)| {
        let path = path();
        let mutex = InterProcessMutex::new(client, &path).unwrap();
        let _held = mutex.lock().unwrap();
        let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
        let arguments = ["run", "--session-timeout", "30s", "--timeout", "10s", &path, "--", "true"];
        let mut command = zklock_at(&proxy.connect_string(), arguments);
        command.stderr(Stdio::piped());
        let mut run = Running::start(command);
        // On a machine that stands still its time may be up before.
        eventually("it waits", || support::queue(client, &path).len() == 2 || run.child.try_wait().unwrap().is_some());
        outage(&proxy);
        run.await_end();
        let said = io::read_to_string(run.child.stderr.take().unwrap()).unwrap();
        let words = match run.status() {
            NOT_HAD => &["not had within 10s", "still held by"][..],
            // Where the servers went before they had said that it stands in the queue.
            FAILED => &["the connection was lost"],
            status => panic!("{status}: {said}"),
        };
        assert!(words.iter().any(|words| said.contains(words)), "{said}");
    };
    let refuse = |proxy: &FaultProxy| {
        proxy.refuse();
        proxy.cut();
    };
    let silence = |proxy: &FaultProxy| proxy.black_hole(Direction::Both);
    thread::scope(|scope| {
        for outage in [refuse, silence] {
            scope.spawn(move || wait(outage));
        }
    });
}

#[test]
fn every_kind_can_be_asked_for_and_who_asks_is_said() {
    let client = client();
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    for kind in [&[][..], &["--shared"], &["--write"], &["--unfair"], &["--semaphore", "2"]] {
        for why in [None, Some("maintenance")] {
            let path = path();
            let mut command = zklock(["run"]);
            command.args(kind).args([&path, "--", "sh", "-c", script]).stderr(Stdio::piped());
            let mut run = Running::start(command);
            assert_eq!(run.line(), "ready");
            let mut ask = zklock(["revoke", &path]);
            ask.args(why.map(|why| format!("--why={why}")));
            let asked = ask.output().unwrap();
            assert!(asked.status.success(), "{kind:?}: {}", stderr_of(&asked));
            assert_eq!(run.status(), 3, "{kind:?}");
            let said = io::read_to_string(run.child.stderr.take().unwrap()).unwrap();
            assert!(said.contains("asks for the lock") && said.contains(why.unwrap_or_default()), "{kind:?}: {said}");
            assert!(!LockQueue::inspect(&client, &path).unwrap().is_held());
        }
    }
}

#[test]
fn below_another_zklock_a_command_ends_with_it() {
    let (client, outer, inner) = (client(), path(), path());
    let zklock_itself = env!("CARGO_BIN_EXE_zklock");
    let arguments = ["run", &outer, "--", zklock_itself, "run", &inner, "--", "sh", "-c", STUBBORN];
    let mut run = Running::start(zklock(arguments));
    let pid = run.line();
    let node = LockQueue::inspect(&client, &outer).unwrap().entries[0].path.clone();
    client.delete().for_path(&node).unwrap();
    eventually("it is gone", || is_gone(&pid));
    assert_eq!(run.status(), LOST);
}

/// The command has ended and left a process in its group, which hears no TERM, when its `zklock` is killed.
#[test]
fn what_a_command_has_left_behind_dies_with_its_zklock() {
    let script = "(trap '' TERM; exec sleep 1000) & echo $! $$; exit 3";
    let (mut run, said) = Running::under_way(|| zklock(["run", &path(), "--", "sh", "-c", script]));
    let (left, command) = said.split_once(' ').unwrap();
    eventually("the command has ended", || is_gone(command));
    assert!(!is_gone(left));
    run.signal(Signal::SIGKILL);
    eventually("the other one is killed", || is_gone(left));
    run.await_end();
}
