//! The lock of a script.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Command, Output, Stdio},
    thread,
};

use curator_locks::{InterProcessMutex, LockQueue};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    FAILED, NOT_HAD, Running, is_gone, path, slow::enemies::first_line, stderr_of, stdout_of, support,
    support::eventually, zklock_at,
};

/// `sh` with the shared server, as a script that finds `zklock`, and its lock's path in `$1`.
pub(super) fn script(text: &str, path: &str) -> Command {
    script_at(&support::server().connect_string(), text, path)
}

/// The lines that the help shows, and what follows them.
pub(super) fn script_at(servers: &str, text: &str, path: &str) -> Command {
    let zklock = zklock_at(servers, [""; 0]);
    let mut command = Command::new("sh");
    command.envs(zklock.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let function = format!("zklock() {{ {} \"$@\"; }}\n", env!("CARGO_BIN_EXE_zklock"));
    command.args(["-c", &(function + text), "sh", path]).stdin(Stdio::null());
    command
}

pub(super) const LOCK: &str = "held=$(zklock lock --for $$ \"$1\") || exit\neval \"$held\"\n";

fn run(text: &str, path: &str) -> Output {
    script(&format!("{LOCK}{text}"), path).output().unwrap()
}

fn client() -> curator_locks::CuratorFramework {
    support::connect(support::builder(support::server(), ""))
}

fn entries(client: &curator_locks::CuratorFramework, path: &str) -> usize {
    LockQueue::inspect(client, path).unwrap().entries.len()
}

/// Who keeps the lock of a script: the first word that `$ZKLOCK_KEEPER` says.
pub(super) fn keeper(line: &str) -> Pid {
    Pid::from_raw(line.split_once('.').unwrap().0.parse().unwrap())
}

#[test]
fn a_script_takes_a_lock_and_gives_it_back_on_its_way() {
    let (client, path) = (client(), path());
    let text = "echo \"$ZKLOCK_PATH $ZKLOCK_NODE\"; read line; zklock unlock || exit; echo free; read line; exit 7";
    let mut command = script(&format!("{LOCK}{text}"), &path);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let entry = {
        let said = run.line();
        let queue = LockQueue::inspect(&client, &path).unwrap();
        let [entry] = &queue.entries[..] else { panic!("{queue}") };
        assert_eq!(said, format!("{path} {}", entry.path));
        entry.clone()
    };
    let data = String::from_utf8(entry.data.unwrap()).unwrap();
    assert!(data.ends_with(&format!(" pid {} sh", run.child.id())), "the script is named: {data}");
    let mut stdin = run.child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    assert_eq!(run.line(), "free");
    assert_eq!(entries(&client, &path), 0);
    InterProcessMutex::new(&client, &path).unwrap().lock().unwrap().release().unwrap();
    drop(stdin);
    assert_eq!(run.status(), 7);
}

#[test]
fn scripts_never_overlap() {
    let (directory, path) = (tempfile::tempdir().unwrap(), path());
    let room = directory.path().join("room").display().to_string();
    let text = format!("mkdir {room} || exit 9\nsleep 0.02\nrmdir {room}\nzklock unlock || exit\nexit 7");
    thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| run(&text, &path))).collect();
        for run in all {
            let output = run.join().unwrap();
            assert_eq!((output.status.code(), stderr_of(&output).as_str()), (Some(7), ""));
        }
    });
}

#[test]
fn a_script_whose_lock_is_not_to_be_had_ends_with_the_documented_status() {
    let (client, path) = (client(), path());
    let _held = InterProcessMutex::new(&client, &path).unwrap().with_lock_data("the nightly job").lock().unwrap();
    for form in [LOCK, "eval \"$(zklock lock --for $$ \"$1\")\"\n"] {
        let form = form.replace("--for", "--nonblock --for");
        let refused = script(&format!("{form}echo at work"), &path).output().unwrap();
        assert_eq!((refused.status.code(), stdout_of(&refused).as_str()), (Some(NOT_HAD), ""));
        assert!(stderr_of(&refused).contains("held by the nightly job"), "{}", stderr_of(&refused));
    }
    let own = LOCK.replace("--for", "--timeout 200ms -E 75 --for");
    assert_eq!(script(&own, &path).status().unwrap().code(), Some(75));
    assert_eq!(entries(&client, &path), 1, "nothing is left in the queue");
    let missing = LOCK.replace("zklock", "/no/such/zklock");
    assert_eq!(script(&format!("{missing}echo at work"), &path).output().unwrap().status.code(), Some(127));
}

#[test]
fn the_lock_ends_with_the_script_however_that_ends() {
    let client = client();
    for end in ["exit 3", "kill -9 $$", "exec true"] {
        let path = path();
        let output = run(&format!("echo $ZKLOCK_KEEPER; {end}"), &path);
        let keeper = keeper(&stdout_of(&output)).to_string();
        eventually(&format!("{end}: the lock is given back"), || entries(&client, &path) == 0);
        eventually("nothing is left", || is_gone(&keeper));
    }
}

#[test]
fn a_wait_ends_with_the_script_and_leaves_nothing() {
    let (client, path) = (client(), path());
    let _held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        // The whole group, as a terminal and a service manager do, and the script alone.
        for is_group in [true, false] {
            let mut command = script(LOCK, &path);
            command.process_group(0);
            let mut run = Running::start(command);
            eventually("it waits", || entries(&client, &path) == 2);
            let pid = i32::try_from(run.child.id()).unwrap();
            kill(Pid::from_raw(if is_group { -pid } else { pid }), signal).unwrap();
            run.await_end();
            eventually("it has left the queue", || entries(&client, &path) == 1);
        }
    }
}

#[test]
fn what_a_script_has_started_keeps_the_lock_until_it_has_ended() {
    let (client, path) = (client(), path());
    // A fork that runs no other program: its environment is the one from before the lock.
    let waits = "exec 3<&0; (read line <&3) & exit 3";
    let mut command = script(&format!("{LOCK}{waits}"), &path);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = Running::start(command);
    // To wait for the script would close it.
    let stdin = run.child.stdin.take();
    let said = first_line(run.child.stderr.take().unwrap());
    assert!(said.contains("the script has ended, but keeps the lock by what it has started: "), "{said}");
    assert_eq!(run.status(), 3);
    assert_eq!(entries(&client, &path), 1);
    drop(stdin);
    eventually("the lock is given back", || entries(&client, &path) == 0);
    // Told to, it gives the lock back at once.
    let output = self::run("sleep 1000 & zklock unlock; zklock ls --exit-code \"$1\" && kill $! && exit 7", &path);
    assert_eq!(output.status.code(), Some(7), "{}", stdout_of(&output));
}

#[test]
fn a_subshell_that_has_taken_the_lock_keeps_it_when_the_script_has_ended() {
    let (client, path, directory) = (client(), path(), tempfile::tempdir().unwrap());
    let end = directory.path().join("end");
    let work = format!("echo $ZKLOCK_KEEPER; while [ ! -e {} ]; do sleep 0.01; done", end.display());
    let mut command = script(&format!("( sleep 0.05\n{LOCK}{work} ) & read line"), &path);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = Running::start(command);
    let keeper = keeper(&run.line()).to_string();
    drop(run.child.stdin.take());
    let said = first_line(run.child.stderr.take().unwrap());
    assert!(said.contains("the script has ended, but keeps the lock by what it has started: "), "{said}");
    assert_eq!(entries(&client, &path), 1, "the subshell is at work");
    std::fs::write(end, "").unwrap();
    eventually("the lock is given back", || entries(&client, &path) == 0);
    eventually("nothing is left", || is_gone(&keeper));
}

#[test]
fn a_script_may_have_several_locks_one_after_the_other_and_at_once() {
    let (client, one, two) = (client(), path(), path());
    let lock = |path: &str| format!("held=$(zklock lock --for $$ {path}) || exit\neval \"$held\"\n");
    let (first, second) = (lock(&one), lock(&two));
    // As many times as there are descriptors, and more.
    let mut again =
        script(&format!("for i in 1 2 3 4 5 6 7 8 9; do\n{first}zklock unlock || exit 9\ndone; exit 7"), "");
    assert_eq!(again.status().unwrap().code(), Some(7));
    let text = format!(
        "{first}{second}zklock unlock && exit 9\nzklock unlock {one} || exit 8\n\
         zklock ls --exit-code {one} {two} && exit 6\nzklock ls --exit-code {one} || exit 5\n\
         zklock unlock || exit 4\nzklock ls --exit-code {two} || exit 3\nzklock unlock && exit 2\nexit 7"
    );
    let output = script(&text, "").output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr_of(&output));
    let said = stderr_of(&output);
    assert!(said.contains(&format!("this script has the locks {one} and {two}: unlock which one?")), "{said}");
    assert!(said.contains("this script has no lock that `zklock lock` has taken for it"), "{said}");
    let together = format!("held=$(zklock lock --for $$ --also {two} {one}) || exit\neval \"$held\"\n");
    let both = script(&format!("{together}echo \"$ZKLOCK_PATH\"; zklock unlock {two} || exit 9; exit 7"), "")
        .output()
        .unwrap();
    let mut paths = [one.as_str(), &two];
    paths.sort_unstable();
    assert_eq!(stdout_of(&both), format!("{}\n{}\n", paths[0], paths[1]));
    assert_eq!(entries(&client, &one) + entries(&client, &two), 0);
}

#[test]
fn a_script_that_has_the_lock_and_waits_for_it_is_told_so() {
    let output = run(&format!("{}echo at work", LOCK.replace("--for", "--timeout 3s --for")), &path());
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(NOT_HAD), ""));
    assert!(stderr_of(&output).contains("it waits for itself"), "{}", stderr_of(&output));
}

#[test]
fn what_is_wrong_with_the_script_is_said() {
    let (path, gone) = (path(), run("echo $$", &path()));
    let gone = stdout_of(&gone).trim().to_owned();
    for (arguments, said) in [
        (format!("--for {gone}"), format!("--for {gone}: that process has ended")),
        ("--for 1".into(), "1 is not in 2..".into()),
        ("--for 0".into(), "0 is not in 2..".into()),
        (String::new(), "--for <PID>".into()),
    ] {
        let output = script(&format!("zklock lock {arguments} \"$1\""), &path).output().unwrap();
        assert_eq!(output.status.code(), Some(FAILED), "{arguments}");
        assert!(stderr_of(&output).contains(&said), "{}", stderr_of(&output));
    }
    let other = script("setsid -w sh -c \"$ZKLOCK lock --for $$ $1\"", &path)
        .env("ZKLOCK", env!("CARGO_BIN_EXE_zklock"))
        .output();
    let said = stderr_of(&other.unwrap());
    assert!(said.contains("belongs to another session"), "{said}");
    let full = script(&format!("exec 3<&0 4<&0 5<&0 6<&0 7<&0 8<&0 9<&0\n{LOCK}echo at work"), &path).output().unwrap();
    assert_eq!((full.status.code(), stdout_of(&full).as_str()), (Some(FAILED), ""));
    assert!(stderr_of(&full).contains("no free descriptor from 3 to 9"), "{}", stderr_of(&full));
}

#[test]
fn whoever_asks_for_the_lock_or_ends_its_keeper_ends_the_script_first() {
    let client = client();
    // It takes its time, and is alone as long as it lives.
    let text = "trap 'echo term; zklock ls --exit-code \"$1\" >/dev/null; echo $?; exit 0' TERM\n\
                echo $ZKLOCK_KEEPER; while :; do sleep 0.01; done";
    for asks in ["revoke", "kill"] {
        let path = path();
        let mut run = Running::start(script(&format!("{LOCK}{text}"), &path));
        let keeper = keeper(&run.line());
        match asks {
            "revoke" => {
                let output = zklock_at(&support::server().connect_string(), ["revoke", &path]).output().unwrap();
                assert!(output.status.success(), "{}", stderr_of(&output));
            }
            _ => kill(keeper, Signal::SIGTERM).unwrap(),
        }
        assert_eq!((run.line(), run.line()), ("term".into(), "1".into()), "{asks}");
        assert_eq!(run.status(), 0);
        eventually("the lock is given back", || entries(&client, &path) == 0);
    }
}

#[test]
fn an_inner_script_gives_back_its_own_lock_and_no_other() {
    let (client, outer, inner) = (client(), path(), path());
    // It is told that it has none, the second time.
    let function = format!("zklock() {{ {} \"$@\"; }}\n", env!("CARGO_BIN_EXE_zklock"));
    let text = format!(
        "{LOCK}sh -c '{function}{LOCK}zklock unlock || exit 9; zklock unlock && exit 8; exit 7' sh {inner}\n\
         echo $?; zklock ls --exit-code {outer} && exit 6; zklock unlock || exit 5; echo free; read line"
    );
    let mut command = script(&text, &outer);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    assert_eq!(run.line(), "7");
    assert!(run.line().contains(&outer), "it is held");
    while run.line() != "free" {}
    assert_eq!(entries(&client, &outer) + entries(&client, &inner), 0);
}

#[test]
fn what_is_started_after_the_lock_is_not_told_that_it_has_it() {
    let path = path();
    let text = "sh -c 'echo \"<$ZKLOCK_PATH$ZKLOCK_TOKEN$ZKLOCK_NODE$ZKLOCK_SESSION>\"'; echo \"$ZKLOCK_PATH\"";
    // Below another lock, too, whose variables are exported.
    let inner = format!("zklock() {{ {} \"$@\"; }}\n{LOCK}{text}", env!("CARGO_BIN_EXE_zklock"));
    let below =
        zklock_at(&support::server().connect_string(), ["run", &self::path(), "--", "sh", "-c", &inner, "sh", &path]);
    for mut command in [script(&format!("{LOCK}{text}"), &path), below] {
        assert_eq!(stdout_of(&command.output().unwrap()), format!("<>\n{path}\n"));
    }
}

/// What the script takes hides nothing from the `zklock run` that it runs under.
#[test]
fn a_job_of_a_script_keeps_the_lock_that_the_script_runs_under() {
    let (client, outer, inner) = (client(), path(), path());
    let text = format!(
        "zklock() {{ {} \"$@\"; }}\n{LOCK}set -m; sleep 1000 & echo $!; zklock unlock; exit 7",
        env!("CARGO_BIN_EXE_zklock")
    );
    let mut command =
        zklock_at(&support::server().connect_string(), ["run", &outer, "--", "bash", "-c", &text, "bash", &inner]);
    command.stderr(Stdio::piped());
    let mut run = Running::start(command);
    let job = run.line();
    let said = first_line(run.child.stderr.take().unwrap());
    assert!(said.contains("keeps the lock by what it has started: "), "{said}");
    assert_eq!((entries(&client, &outer), entries(&client, &inner)), (1, 0));
    kill(Pid::from_raw(job.parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(run.status(), 7);
}

/// Neither a descriptor that the script has opened since, nor one of a subshell, is taken for the lock's.
#[test]
fn no_descriptor_of_the_script_is_taken_away() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let again = format!("zklock unlock; exec 9>{}\n{LOCK}echo second >&9; exit 7", file.path().display());
    assert_eq!(run(&again, &path()).status.code(), Some(7));
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "second\n");
    let subshell = format!("( exec 9<{}\n{LOCK}read line <&9; echo $line )", file.path().display());
    assert_eq!(stdout_of(&script(&subshell, &path()).output().unwrap()), "second\n");
    // What the script has open is closed by those who work for it.
    let reader = format!("exec 3>&1\n{LOCK}exec 3>&- >&-; read line");
    let mut command = script(&reader, &path());
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.next_line(), None);
    drop(running.child.stdin.take());
    assert_eq!(running.status(), 1);
}

#[test]
fn signals_that_the_script_ignores_keep_no_lock() {
    for signal in ["USR1", "CHLD", "PIPE", "HUP INT QUIT TERM USR2"] {
        let (client, path) = (client(), path());
        let mut ignoring = Command::new("sh");
        let inner = script(&format!("{LOCK}zklock unlock || exit 9; {LOCK}exit 7"), &path);
        ignoring.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        ignoring.args(["-c", &format!("trap '' {signal}; exec sh \"$@\"")]).arg("sh").args(inner.get_args());
        assert_eq!(ignoring.status().unwrap().code(), Some(7), "{signal}");
        eventually("the lock is given back", || entries(&client, &path) == 0);
    }
}

#[test]
fn a_shell_that_looks_at_no_status_ends_where_it_can_be_told() {
    for wrong in ["--for 1", "--for $$ --nonsense", "--for $$ --timeout x", ""] {
        let text = format!("eval \"$(zklock lock {wrong} \"$1\")\"\necho at work");
        let output = script(&text, &path()).output().unwrap();
        assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(FAILED), ""), "{wrong}");
    }
    // Nobody has evaluated what was printed.
    let (client, path) = (client(), path());
    let mut unread = script("zklock lock --for $$ \"$1\" | true; echo; read line", &path);
    unread.stdin(Stdio::piped());
    let mut run = Running::start(unread);
    run.line();
    eventually("the lock is given back", || entries(&client, &path) == 0);
}

/// What it writes by mistake stands beside the word.
#[test]
fn a_script_that_writes_into_the_locks_descriptor_is_unlocked_all_the_same() {
    let (client, path) = (client(), path());
    let text = "(while :; do echo x; done) >&9 2>/dev/null & echo unlo >&9; zklock unlock || exit 9; kill $!; exit 7";
    assert_eq!(run(text, &path).status.code(), Some(7));
    assert_eq!(entries(&client, &path), 0);
}

#[test]
fn a_shell_that_would_wait_for_the_keeper_is_told() {
    let text = "held=$(zklock lock --for $$ \"$1\" 2>&1) || { echo \"$held\"; exit 6; }; echo at work";
    let output = script(text, &path()).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(stdout_of(&output).contains("by 2>&1: the shell would wait"), "{}", stdout_of(&output));
}
