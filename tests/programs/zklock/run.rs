//! A command under a lock.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    ops::Range,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    InterProcessUnfairMutex, LockQueue,
    testing::{Fault, FaultProxy, RequestMatch, op},
};
use nix::sys::signal::Signal;

use crate::{
    FAILED, LOST, NOT_HAD, Running, calibration, is_gone, is_stopped, path, stderr_of, stdout_of, support,
    support::{
        eventually,
        machine::{Machine, since},
    },
    wrong::{WRONG, Wrong},
    zklock, zklock_at,
};

fn client() -> curator_locks::CuratorFramework {
    support::connect(support::builder(support::server(), ""))
}

#[test]
fn the_status_of_the_command_is_passed_through() {
    for (script, expected) in [("exit 7", 7), ("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137)] {
        let status = zklock(["run", &path(), "--", "sh", "-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{script}");
    }
    let unnamed = zklock(["run", &path(), "--", "bash", "-c", "kill -s RTMIN+1 $$"]).status().unwrap();
    assert_eq!(unnamed.code(), Some(128 + 35), "a signal that has no name");
    let run = zklock(["run", &path(), "--", "sh", "-c", "exit 5"]);
    let mut deaf = Command::new("env");
    deaf.arg("--ignore-signal=CHLD").arg(run.get_program()).args(run.get_args());
    deaf.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_eq!(deaf.status().unwrap().code(), Some(5), "whoever has started it ignores CHLD");
    let missing = zklock(["run", &path(), "--", "/no/such/command"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr_of(&missing).contains("cannot run /no/such/command"), "{}", stderr_of(&missing));
    assert_eq!(zklock(["run", &path(), "--", "/etc/passwd"]).output().unwrap().status.code(), Some(126));
}

/// Daemons ignore all signals, and whatever was spawned by glibc ignores 32 and 33.
#[test]
#[cfg(target_os = "linux")]
fn a_command_ignores_the_signals_that_it_would_ignore_under_flock() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let command = ["grep", "SigIgn", "/proc/self/status"];
    let mask = |line: &str| {
        let mask = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // Rust's programs ignore PIPE, and whether they were started so is not to be seen.
        mask & !(1 << (Signal::SIGPIPE as u64 - 1))
    };
    let ignored = |begin: &[&str], forks: bool, run: &Command| {
        let words = begin.iter().map(AsRef::as_ref).chain([run.get_program()]).chain(run.get_args());
        let words: Vec<&OsStr> = words.collect();
        let mut start = Command::new(words[0]);
        start.args(&words[1..]).envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if forks {
            start.gid(nix::unistd::getegid().as_raw());
        }
        let output = start.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
        mask(&stdout_of(&output))
    };
    // Cargo, too, starts a program so that it ignores 32.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = mask(status.lines().find(|line| line.starts_with("SigIgn")).unwrap());
    let mut flock = Command::new("flock");
    flock.arg(file.path()).args(command);
    let run = zklock([&["run", &path(), "--"], &command[..]].concat());
    let all: &[&str] = &["env", "--ignore-signal"];
    for (begin, forks) in [(&[][..], true), (&[], false), (all, true), (all, false)] {
        let (expected, found) = (ignored(begin, forks, &flock), ignored(begin, forks, &run));
        assert_eq!(found, expected, "{found:#x} instead of {expected:#x}, {begin:?}, forked: {forks}");
        assert!(!forks || (expected == own) == begin.is_empty(), "{expected:#x}, this program {own:#x}");
        assert!(forks || expected != 0, "nothing is ignored");
    }
}

#[test]
fn a_command_that_ignores_all_signals_ends_with_its_lock() {
    let (client, path) = (client(), path());
    let run = zklock(["run", &path, "--", "sh", "-c", "echo ready; while :; do :; done"]);
    let mut deaf = Command::new("env");
    deaf.arg("--ignore-signal").arg(run.get_program()).args(run.get_args());
    deaf.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut run = Running::start(deaf);
    assert_eq!(run.line(), "ready");
    let queue = LockQueue::inspect(&client, &path).unwrap();
    client.delete().for_path(&queue.entries[0].path).unwrap();
    assert_eq!(run.status(), LOST);
}

#[test]
fn arguments_and_standard_streams_are_the_commands_own() {
    let arguments = ["a b", "$HOME", "", "--json", "--", "*", "\u{fc}"];
    let path = path();
    let command = ["run", path.as_str(), "--", "printf", "<%s>"];
    let output = zklock(command.iter().chain(&arguments)).output().unwrap();
    assert_eq!(stdout_of(&output), "<a b><$HOME><><--json><--><*><\u{fc}>");
    assert_eq!(stderr_of(&output), "", "silence in a pipe");
    let mut cat = zklock(["run", &path, "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"one\0two\n").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"one\0two\n");
}

#[test]
fn the_command_knows_path_node_token_and_session() {
    let (first, second) = (path(), path());
    let script = "echo \"$ZKLOCK_PATH\"; echo \"$ZKLOCK_NODE\"; echo \"$ZKLOCK_TOKEN\"; echo $ZKLOCK_SESSION";
    let one = zklock(["run", &first, "--", "sh", "-c", script]).output().unwrap();
    let lines: Vec<String> = stdout_of(&one).lines().map(str::to_owned).collect();
    assert_eq!(lines[0], first);
    assert!(lines[1].starts_with(&format!("{first}/_c_")), "{lines:?}");
    let token: i64 = lines[2].parse().unwrap();
    assert!(lines[3].starts_with("0x"), "{lines:?}");
    let again = zklock(["run", &first, "--", "sh", "-c", "echo $ZKLOCK_TOKEN"]).output().unwrap();
    assert!(stdout_of(&again).trim().parse::<i64>().unwrap() > token, "tokens grow");
    let both = zklock(["run", "--also", &second, &first, "--", "sh", "-c", script]).output().unwrap();
    let both = stdout_of(&both);
    let mut sorted = [first.as_str(), second.as_str()];
    sorted.sort_unstable();
    assert_eq!(both.lines().take(2).collect::<Vec<_>>(), sorted, "{both}");
    assert_eq!(both.lines().count(), 7, "{both}");
    // Their znodes lie deeper, or look as if they did.
    for (kind, path) in [(&["--semaphore", "2"][..], path()), (&["--unfair"], path()), (&[], path() + "/leases")] {
        let arguments = [&["run"], kind, &[&path, "-c", "echo $ZKLOCK_PATH"]].concat();
        assert_eq!(stdout_of(&zklock(arguments).output().unwrap()), format!("{path}\n"));
    }
}

#[test]
fn the_command_gets_the_servers_and_no_password() {
    let script = "echo \"${ZK_CONNECT}\"; echo \"${ZKLOCK_AUTH-none} ${ZKLOCK_SASL_PASSWORD-none}\"";
    let mut command = zklock(["run", &path(), "-c", script]);
    let servers =
        command.get_envs().find(|(name, _)| *name == "ZK_CONNECT").and_then(|(_, value)| value).unwrap().to_owned();
    let output =
        command.env("ZKLOCK_AUTH", "digest:ann:secret").env("ZKLOCK_SASL_PASSWORD", "secret").output().unwrap();
    assert_eq!(stdout_of(&output), format!("{}\nnone none\n", servers.to_str().unwrap()), "{}", stderr_of(&output));
    let from_flag = zklock(["--connect", servers.to_str().unwrap(), "run", &path(), "-c", "echo $ZK_CONNECT"])
        .env_remove("ZK_CONNECT")
        .output()
        .unwrap();
    assert_eq!(stdout_of(&from_flag).trim(), servers.to_str().unwrap());
}

#[test]
fn servers_of_a_file_that_is_named_come_before_those_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("servers.toml");
    let shown = |text: &str, words: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let path = path();
        let words = [&["--config", file.to_str().unwrap()], words, &["ls", &path]].concat();
        stderr_of(&zklock(words).output().unwrap())
    };
    let (nobody, servers) = ("127.0.0.1:1", support::server().connect_string());
    let of_file = format!("connect = \"{nobody}\"\nconnection-timeout = \"500ms\"\n");
    assert!(shown(&of_file, &[]).contains(nobody));
    assert_eq!(shown(&of_file, &["--connect", &servers, "--connection-timeout", "15s"]), "");
    assert_eq!(shown("creator-acl = false\n", &[]), "");
}

#[test]
fn the_znode_shows_no_value_that_a_line_for_the_shell_begins_with() {
    let (path, client) = (path(), client());
    let (mut run, _) =
        Running::under_way(|| zklock(["run", &path, "-c", "SECRET='a b' sh -c 'echo $$; exec sleep 1000'"]));
    let queue = LockQueue::inspect(&client, &path).unwrap();
    let data = String::from_utf8_lossy(queue.entries[0].data.as_ref().unwrap()).into_owned();
    assert!(data.ends_with(" sh") && !data.contains("SECRET") && !data.contains("b'"), "{data}");
    run.signal(Signal::SIGTERM);
    run.await_end();
}

#[test]
fn a_command_that_waits_for_itself_says_so() {
    let (path, program) = (path(), env!("CARGO_BIN_EXE_zklock"));
    let nested = |outer: &[&str], inner: &[&str]| {
        let mut words =
            [&["run"], outer, &[path.as_str(), "--", program, "run"], inner, &[&path, "--", "true"]].concat();
        words.retain(|word| !word.is_empty());
        let output = zklock(words).output().unwrap();
        (output.status.code(), stderr_of(&output).contains("waits for itself"))
    };
    assert_eq!(nested(&[], &["--timeout", "3s"]), (Some(NOT_HAD), true));
    assert_eq!(nested(&["--shared"], &["--write", "--timeout", "3s"]), (Some(NOT_HAD), true));
    assert_eq!(nested(&["--shared"], &["--shared"]), (Some(0), false));
    assert_eq!(nested(&["--semaphore", "2"], &["--semaphore", "2"]), (Some(0), false));
}

#[test]
fn two_at_once_never_overlap_whatever_the_kind() {
    let directory = tempfile::tempdir().unwrap();
    for kind in [&[][..], &["--unfair"], &["--semaphore", "1"], &["--write"]] {
        let path = path();
        let busy = directory.path().join(path.trim_matches('/').replace('/', "-"));
        let script = "mkdir \"$1\" || exit 9; sleep 0.02; rmdir \"$1\"";
        thread::scope(|scope| {
            let one = || {
                let mut command = zklock(["run"]);
                command.args(kind).arg(&path).args(["--", "sh", "-c", script, "sh"]).arg(&busy);
                command.output().unwrap()
            };
            let all: Vec<_> = (0..6).map(|_| scope.spawn(one)).collect();
            for run in all {
                let output = run.join().unwrap();
                assert_eq!(output.status.code(), Some(0), "{kind:?}: {}", stderr_of(&output));
            }
        });
    }
}

/// By the line that the help shows.
#[test]
fn a_script_that_locks_itself_is_alone_from_its_first_line_to_its_last() {
    let (directory, path) = (tempfile::tempdir().unwrap(), path());
    let help = stdout_of(&zklock(["run", "--help"]).output().unwrap());
    let line = help.lines().find(|line| line.contains("|| exec zklock run")).unwrap();
    let line = line
        .trim()
        .replace("/jobs/report", &path)
        .replace("zklock run", &format!("{} run", env!("CARGO_BIN_EXE_zklock")));
    let script = directory.path().join("script");
    // Under the lock it may run itself again.
    let work = "[ \"$1\" = inner ] && exit 0\nmkdir \"$1\" || exit 9\n\"$0\" inner || exit 8\nsleep 0.02\nrmdir \"$1\"\nexit 7\n";
    fs::write(&script, format!("#!/bin/sh\n{line}\n{work}")).unwrap();
    let servers = zklock([""; 0]);
    let run = || {
        let mut command = Command::new("sh");
        command.arg(&script).arg(directory.path().join("in the room"));
        command.envs(servers.get_envs().filter_map(|(name, value)| Some((name, value?)))).output().unwrap()
    };
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(run)).collect();
        for run in all {
            let output = run.join().unwrap();
            assert_eq!(output.status.code(), Some(7), "{}", stderr_of(&output));
        }
    });
}

#[test]
fn a_lock_that_is_taken_gives_the_documented_status_in_time() {
    let client = client();
    let path = path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap().with_lock_data("the nightly job");
    let _held = mutex.lock().unwrap();
    let (machine, before) = (Machine::watch(), calibration());
    let begin = Instant::now();
    // Who holds it is told if the servers say so at once, which they cannot on a machine that stands still.
    let told = |output: &Output, told: &str, untold: &str, took: Range<Instant>| {
        let said = stderr_of(output);
        let is_late = machine.lateness(&took) >= Duration::from_millis(300);
        assert!(said.contains(told) || is_late && said.contains(untold), "{said}");
    };
    let busy = zklock(["run", "--nonblock", &path, "--", "true"]).output().unwrap();
    let took = since(begin);
    assert_eq!(busy.status.code(), Some(NOT_HAD), "{}", stderr_of(&busy));
    let usual = before.max(calibration());
    machine.assert_at_most("not to wait for a lock that is taken", took.clone(), usual * 3 + Duration::from_secs(1));
    told(&busy, &format!("{path}: held by the nightly job for "), &format!("{path}: held"), took);
    let begin = Instant::now();
    // Long enough for a connection on such a machine, and for a lost one to come back.
    let late = zklock(["run", "--timeout", "20s", "-E", "75", &path, "--", "true"]).output().unwrap();
    assert_eq!(late.status.code(), Some(75), "{}", stderr_of(&late));
    told(&late, &format!("{path}: still held by the nightly job"), "not had within 20s", since(begin));
    assert_eq!(LockQueue::inspect(&client, &path).unwrap().entries.len(), 1, "nothing is left in the queue");
}

#[test]
fn the_time_for_the_lock_is_also_that_for_a_connection() {
    let arguments = ["run", "--connection-timeout", "30s", "--timeout", "1500ms", "/x", "--", "true"];
    let failed = zklock_at("127.0.0.1:1", arguments).output().unwrap();
    assert_eq!(failed.status.code(), Some(FAILED));
    assert!(stderr_of(&failed).contains("no connection to 127.0.0.1:1 within 1.5s: "), "{}", stderr_of(&failed));
}

#[test]
fn readers_share_and_leases_are_counted() {
    let client = client();
    let (book, pool) = (path(), path());
    let rw = InterProcessReadWriteLock::new(&client, &book).unwrap();
    let read = rw.read_lock();
    let _reading = read.lock().unwrap();
    let status = |arguments: &[&str]| zklock(arguments).output().unwrap().status.code();
    assert_eq!(status(&["run", "-n", "--shared", &book, "--", "true"]), Some(0));
    assert_eq!(status(&["run", "-n", "--write", &book, "--", "true"]), Some(NOT_HAD));
    let semaphore = InterProcessSemaphoreV2::new(&client, &pool, 2).unwrap();
    let _first = semaphore.acquire().unwrap();
    assert_eq!(status(&["run", "-n", "--semaphore", "2", &pool, "--", "true"]), Some(0));
    let _second = semaphore.acquire().unwrap();
    assert_eq!(status(&["run", "-n", "--semaphore", "2", &pool, "--", "true"]), Some(NOT_HAD));
}

#[test]
fn signals_go_on_to_the_command_and_end_a_wait() {
    let client = client();
    let path = path();
    let script = "trap 'exit 42' TERM; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.02; done";
    let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    run.signal(Signal::SIGUSR1);
    assert_eq!(run.line(), "usr1");
    let mut waits = Running::start(zklock(["run", &path, "--", "true"]));
    support::await_queue(&client, &path, 2);
    waits.signal(Signal::SIGINT);
    assert_eq!(waits.status(), 130);
    support::await_queue(&client, &path, 1);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), 42);
    support::await_queue(&client, &path, 0);
}

#[test]
fn a_request_for_the_lock_makes_the_command_term() {
    let path = path();
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    let asked = zklock(["revoke", &path]).output().unwrap();
    assert!(stdout_of(&asked).starts_with(&format!("asked {path}/_c_")), "{}", stdout_of(&asked));
    assert_eq!(run.status(), 3);
    let nobody = zklock(["revoke", &path]).output().unwrap();
    assert_eq!((nobody.status.code(), stderr_of(&nobody).contains("nobody holds it")), (Some(FAILED), true));
}

#[test]
fn a_lock_is_kept_for_at_least_so_long() {
    let client = client();
    let path = path();
    let mut run = Running::start(zklock(["run", "--at-least", "1h", &path, "--", "sh", "-c", "echo $$"]));
    let pid = run.line();
    eventually("the command has ended", || is_gone(&pid));
    assert_eq!(LockQueue::inspect(&client, &path).unwrap().holders().count(), 1);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), 0);
    support::await_queue(&client, &path, 0);
}

#[test]
fn a_lock_that_is_lost_is_not_kept_any_longer() {
    let client = client();
    let path = path();
    let mut run = Running::start(zklock(["run", "--at-least", "1h", &path, "--", "sh", "-c", "echo $$"]));
    let pid = run.line();
    // It is waited for once its status is known.
    eventually("the command has ended", || !Path::new("/proc").join(&pid).exists());
    let node = LockQueue::inspect(&client, &path).unwrap().entries[0].path.clone();
    client.delete().for_path(&node).unwrap();
    run.await_end();
    assert_eq!(run.status(), 0, "the command's");
}

#[test]
fn a_command_that_is_stopped_is_ended_by_signals_and_requests() {
    let begin = |path: &str| {
        let mut run = Running::start(zklock(["run", path, "--", "sh", "-c", "echo $$; kill -STOP $$"]));
        let pid = run.line();
        eventually("it is stopped", || is_stopped(&pid));
        run
    };
    let ended = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].map(|signal| {
        let mut run = begin(&path());
        run.signal(signal);
        run.await_end();
        run.status() - signal as i32
    });
    assert_eq!(ended, [128; 3]);
    let path = path();
    let mut run = begin(&path);
    assert!(zklock(["revoke", &path]).status().unwrap().success());
    run.await_end();
    assert_eq!(run.status(), 128 + Signal::SIGTERM as i32);
}

/// While `zklock` is stopped, the command ends and then a signal comes: it hears of both at one time, in either order.
#[test]
fn a_signal_after_the_commands_end_ends_the_time_for_which_the_lock_is_kept() {
    for _ in 0..8 {
        let mut command = zklock(["run", "--at-least", "1h", &path(), "--", "sh", "-c", "echo $$; read line"]);
        command.stdin(Stdio::piped());
        let mut run = Running::start(command);
        let pid = run.line();
        run.signal(Signal::SIGSTOP);
        drop(run.child.stdin.take());
        eventually("the command has ended", || is_gone(&pid));
        run.signal(Signal::SIGTERM);
        run.signal(Signal::SIGCONT);
        run.await_end();
    }
}

/// What it says as it fails.
#[track_caller]
fn refused(arguments: impl IntoIterator<Item = String>) -> String {
    let output = zklock(arguments).output().unwrap();
    let said = stderr_of(&output);
    assert_eq!(output.status.code(), Some(FAILED), "{said}");
    said
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("ran");
    let touch = mark.to_str().unwrap();
    let good = support::server().connect_string();
    let servers = |wrong: &Wrong| wrong.servers.map_or_else(|| good.clone(), str::to_owned);
    for wrong in &WRONG {
        // Where there is a server, time for it to answer; where there is none, to find that out.
        let patience = if wrong.servers.is_none() { "60s" } else { "6s" };
        let start = ["run", "--connection-timeout", patience, "--connect"];
        let said = refused(start.iter().map(|part| (*part).to_owned()).chain([
            servers(wrong),
            wrong.path.into(),
            "--".into(),
            "touch".into(),
            touch.into(),
        ]));
        assert!(wrong.words.iter().all(|word| said.contains(word)), "{:?} {}: {said}", wrong.servers, wrong.path);
    }
    let rows = [
        (vec!["run", "--connect", &good, "--auth", "x", "/x", "--", "touch", touch], "SCHEME:CREDENTIALS"),
        (vec!["run", "--connect", &good, "--timeout", "soon", "/x", "--", "touch", touch], "--timeout"),
        (vec!["run", "--connect", &good, "/x"], "COMMAND"),
        (vec!["run", "--config", "/no/such/file", "/x", "--", "touch", touch], "cannot read /no/such/file"),
    ];
    for (arguments, expected) in rows {
        let said = refused(arguments.iter().map(|part| (*part).to_owned()));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(!mark.exists());
    let nowhere = zklock(["run", "/x", "--", "true"]).env_remove("ZK_CONNECT").output().unwrap();
    assert!(stderr_of(&nowhere).contains("which servers?"), "{}", stderr_of(&nowhere));
}

#[test]
fn a_file_says_what_the_command_line_need_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("zklock.toml");
    fs::write(&file, format!("connect = {:?}\nsession-timeout = \"7s\"\n", support::server().connect_string()))
        .unwrap();
    let mut command = zklock(["ls", &path()]);
    let output = command.env_remove("ZK_CONNECT").env("XDG_CONFIG_HOME", directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    fs::write(&file, "conect = \"typo\"\n").unwrap();
    let output = command.output().unwrap();
    assert!(stderr_of(&output).contains("conect"), "{}", stderr_of(&output));
}

#[test]
fn help_man_page_and_completions_come_without_a_server() {
    let output = |arguments: &[&str]| {
        let output = zklock(arguments).env_remove("ZK_CONNECT").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr_of(&output));
        stdout_of(&output)
    };
    assert!(output(&["--help"]).contains("zklock run --semaphore 3 /downloads"));
    let help = output(&["run", "--help"]);
    for part in ["123", "124", "125", "126", "127", "ZKLOCK_TOKEN", "Examples:"] {
        assert!(help.contains(part), "{part}");
    }
    for command in
        ["", "run", "lock", "unlock", "ls", "wait", "tree", "top", "revoke", "break", "doctor", "completions", "man"]
    {
        let help = output(&[&["--help"][..], &[command][..usize::from(!command.is_empty())]].concat());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    assert!(output(&["man"]).contains(".TH zklock"));
    assert!(output(&["completions", "bash"]).contains("_zklock"));
}

#[test]
fn the_commands_group_dies_with_a_killed_zklock() {
    let path = path();
    let script = "sh -c 'echo $$; exec sleep 1000' & echo $$; wait";
    let mut run = Running::start(zklock(["run", &path, "--", "sh", "-c", script]));
    let pids = [run.line(), run.line()];
    assert!(pids.iter().all(|pid| !is_gone(pid)));
    run.signal(Signal::SIGKILL);
    eventually("command and what it started are gone", || pids.iter().all(|pid| is_gone(pid)));
}

/// Each for itself is the whole truth of its own kind: two jobs would run beside each other.
#[test]
fn a_lock_of_another_kind_at_the_same_path_is_refused() {
    let client = client();
    let run = |path: &str, kind: &[&str], more: &[&str]| {
        zklock([&["run", "-n", path], kind, more, &["--", "true"]].concat()).output().unwrap()
    };
    let (mutex, unfair, semaphore) = (&[][..], &["--unfair"][..], &["--semaphore", "2"][..]);
    let check = |path: &str, others: [&[&str]; 2]| {
        for wanted in others {
            let output = run(path, wanted, &[]);
            let said = stderr_of(&output);
            assert_eq!(output.status.code(), Some(FAILED), "{wanted:?}: {said}");
            let named = said.contains(&format!("{path} is the path of a lock of kind ")) && said.contains("--mixed");
            assert!(named && said.contains("held by somebody"), "{said}");
            assert_eq!(run(path, wanted, &["--mixed"]).status.code(), Some(0), "{wanted:?}");
        }
    };
    let path = path();
    let held = InterProcessMutex::new(&client, &path).unwrap().with_lock_data("somebody").lock().unwrap();
    check(&path, [unfair, semaphore]);
    held.release().unwrap();
    let held = InterProcessUnfairMutex::new(&client, &path).unwrap().with_lock_data("somebody").lock().unwrap();
    check(&path, [mutex, semaphore]);
    held.release().unwrap();
    let held = InterProcessSemaphoreMutex::new(&client, &path).unwrap().with_lock_data("somebody").lock().unwrap();
    check(&path, [mutex, unfair]);
    held.release().unwrap();
    assert_eq!(run(&path, unfair, &[]).status.code(), Some(0), "nobody uses the others any more");
}

/// Another job could be inside: no answer is no leave.
#[test]
fn a_command_does_not_run_where_the_servers_do_not_tell_of_other_kinds() {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let of_leases = |path: &str| path.ends_with("/leases");
    let requests = RequestMatch::ops([op::GET_CHILDREN, op::GET_CHILDREN_2]).path(of_leases).times(u64::MAX);
    let (refused, path) = (proxy.inject(requests, Fault::Refuse(-5)), path());
    let run =
        |more: &[&str]| zklock_at(&proxy.connect_string(), [&["run", &path], more, &["--", "echo", "ran"]].concat());
    let output = run(&[]).output().unwrap();
    let said = stderr_of(&output);
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(FAILED), ""), "{said}");
    assert!(said.contains("have not said") && said.contains("--mixed"), "{said}");
    assert_eq!(refused.hits(), 2, "a look before the wait, and one behind it");
    assert_eq!(LockQueue::inspect(&client(), &path).unwrap().entries.len(), 0, "it was given back");
    let output = run(&["--mixed"]).output().unwrap();
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(0), "ran\n"), "{}", stderr_of(&output));
}

/// A person at a shell has flags, not the methods of a library.
#[test]
fn errors_name_the_flags_of_the_command() {
    let servers = format!("{}/nowhere", support::server().connect_string());
    let refused = |more: &[&str], path: &str| {
        let line = [more, &["run", "-t", "10s", path, "--", "true"]].concat();
        let output = zklock_at(&servers, line).output().unwrap();
        (output.status.code(), stderr_of(&output))
    };
    let (status, said) = refused(&[], "/x");
    assert_eq!(status, Some(FAILED), "{said}");
    assert!(said.contains("\"/nowhere\"") && said.contains("--create-chroot") && !said.contains("()"), "{said}");
    let (status, said) = refused(&["--auth", "nobody:knows"], "/x");
    assert!(status == Some(FAILED) && said.contains("see --auth") && !said.contains("()"), "{said}");
    let report = zklock_at(&servers, ["doctor"]).output().unwrap();
    assert!(stdout_of(&report).contains("--create-chroot"), "{}", stdout_of(&report));
}

#[test]
fn a_command_needs_no_dashes_in_front_and_may_be_a_line_for_the_shell() {
    let said = |line: &[&str]| {
        let output = zklock(line).output().unwrap();
        (output.status.code().unwrap(), stdout_of(&output))
    };
    let path = path();
    assert_eq!(said(&["run", &path, "echo", "-n", "hi", "-c"]), (0, "hi -c".to_owned()));
    assert_eq!(said(&["run", &path, "--", "echo", "-n", "hi", "--", "-c"]), (0, "hi -- -c".to_owned()));
    // A second path without --also.
    let unclear = zklock(["run", &path, "/other", "--", "true"]).output().unwrap();
    assert_eq!(unclear.status.code(), Some(FAILED));
    assert!(stderr_of(&unclear).contains("--also"), "{}", stderr_of(&unclear));
    assert_eq!(said(&["run", &path, "-t", "10s", "echo", "-t"]), (0, "-t\n".to_owned()));
    assert_eq!(said(&["run", &path, "-c", "echo $ZKLOCK_PATH; exit 3"]), (3, format!("{path}\n")));
    let wrong = zklock(["run", &path, "-x", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(FAILED));
    assert!(stderr_of(&wrong).contains("'-- -x'"), "{}", stderr_of(&wrong));
    assert_eq!(said(&["run", &path]).0, FAILED);
}

#[test]
fn a_command_that_outlasts_its_time_is_ended() {
    let path = path();
    let (begin, output) =
        (Instant::now(), zklock(["run", "--at-most", "8s", &path, "sleep", "1000"]).output().unwrap());
    assert_eq!(output.status.code(), Some(LOST), "{}", stderr_of(&output));
    assert!(begin.elapsed() < Duration::from_secs(500));
    let output = zklock(["run", "--at-most", "100ms", &path, "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(FAILED));
    assert!(stderr_of(&output).contains("--at-most"), "{}", stderr_of(&output));
    assert_eq!(zklock(["run", "-n", "--at-most", "1h", &path, "true"]).status().unwrap().code(), Some(0));
}

#[test]
fn scripts_ask_whether_a_lock_is_held_and_wait_until_it_is_free() {
    let (client, path) = (client(), path());
    let status = |line: &[&str]| zklock(line).output().unwrap().status.code().unwrap();
    assert_eq!(status(&["ls", "--exit-code", &path]), 0);
    assert_eq!((status(&["wait", &path]), status(&["wait", "--timeout", "0", &path])), (0, 0));
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    assert_eq!(status(&["ls", "--exit-code", &path]), 1);
    assert_eq!(status(&["ls", &path]), 0);
    assert_eq!((status(&["wait", "-t", "300ms", &path]), status(&["wait", "-t", "0", &path])), (NOT_HAD, NOT_HAD));
    let mistyped = format!("{}/nowhere", support::server().connect_string());
    for line in [["ls", "--exit-code", "/x"], ["wait", "-t", "/x"]] {
        let line = line.map(|word| if word == "-t" { "--timeout=10s" } else { word });
        assert_eq!(zklock_at(&mistyped, line).output().unwrap().status.code(), Some(FAILED), "{line:?}");
    }
    let mut waits = zklock(["wait", &path]).spawn().unwrap();
    thread::sleep(Duration::from_millis(600));
    assert!(waits.try_wait().unwrap().is_none(), "it is held");
    held.release().unwrap();
    assert_eq!(waits.wait().unwrap().code(), Some(0));
}

/// Pasted as it was printed: the whole path, the name behind the lock's path, or the name alone.
#[test]
fn break_takes_what_ls_prints() {
    let (client, path) = (client(), path());
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let shown = || {
        let table = stdout_of(&zklock(["ls", "-l", &path]).output().unwrap());
        table.lines().nth(2).unwrap().split_whitespace().last().unwrap().to_owned()
    };
    let broken = |words: &[&str]| {
        let output = zklock([&["break", "--yes"], words].concat()).output().unwrap();
        (output.status.code(), format!("{}{}", stdout_of(&output), stderr_of(&output)))
    };
    for way in 0..4 {
        let held = mutex.lock().unwrap();
        let (node, name) = (held.path().to_owned(), shown());
        assert_eq!(node, format!("{path}/{name}"));
        let words = [vec![&node], vec![&path, &name], vec![&name], vec![&path, &node]];
        let words: Vec<&str> = words[way].iter().map(|word| word.as_str()).collect();
        let (status, said) = broken(&words);
        assert!(status == Some(0) && said.ends_with(&format!("deleted {node}\n")), "{words:?}: {said}");
        assert!(held.release().is_err(), "it was taken away");
    }
    let held = InterProcessUnfairMutex::new(&client, &path).unwrap().lock().unwrap();
    let (status, said) = broken(&[&path, &shown()]);
    assert!(status == Some(0) && said.ends_with(&format!("deleted {}\n", held.path())), "{said}");
    for words in [vec!["nobody"], vec![&*path, "nobody"], vec![&*path], vec!["/"]] {
        let (status, said) = broken(&words);
        assert!(status == Some(FAILED) && said.contains("no contender's znode"), "{words:?}: {said}");
    }
}
