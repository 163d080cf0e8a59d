//! A script that `zklock lock` gave a lock, and all that it has started, is gone before anybody else can have that lock.

use std::{
    iter,
    time::{Duration, Instant},
};

use curator_locks::{
    InterProcessMutex,
    testing::{Direction, FaultProxy},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::enemies::watchdog_below;
use crate::{
    Running, assert_gone, duration_of_looks, is_gone,
    lock::{LOCK, keeper, script, script_at},
    path, support,
    support::{eventually, machine::Machine},
};

const SESSION_TIME: Duration = Duration::from_secs(4);

/// It hears no TERM, nor does what it has started: a fork, a program that has lost its parent, one that has closed what it has
/// inherited, and one without its environment.
const STUBBORN: &str = "trap '' TERM\n\
    (sh -c 'echo $PPID'; while :; do sleep 0.01; done) &\n\
    (sh -c 'echo $$; while :; do sleep 0.01; done' &)\n\
    sh -c 'exec 9>&-; echo $$; while :; do sleep 0.01; done' &\n\
    env -i sh -c 'trap \"\" TERM; echo $$; while :; do /bin/sleep 0.01; done' &\n\
    echo $$; echo $ZKLOCK_KEEPER; while :; do sleep 0.01; done";

/// The keeper, and the numbers of those who must not be at work without the lock.
fn begin(run: &mut Running) -> (Pid, Vec<String>) {
    let lines: Vec<String> = (0..6).map(|_| run.line()).collect();
    let (places, pids): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains('.'));
    (keeper(&places[0]), pids)
}

/// The servers vanish for a script, after this.
fn two_are_never_at_work(what: &str, harm: impl FnOnce(Pid, &[String])) {
    let (client, path) = (support::connect(support::builder(support::server(), "")), path());
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    let lock = LOCK.replace("--for", "--session-timeout 4s --for");
    let mut run = Running::start(script_at(&proxy.connect_string(), &format!("{lock}{STUBBORN}"), &path));
    let (keeper, pids) = begin(&mut run);
    harm(keeper, &pids);
    proxy.black_hole(Direction::Both);
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    for pid in &pids {
        assert_gone(&machine, what, pid, SESSION_TIME);
    }
    held.release().unwrap();
    let _ = kill(keeper, Signal::SIGCONT);
    eventually("its keeper is gone", || is_gone(&keeper.to_string()));
}

#[test]
fn in_a_black_hole_all_are_gone_before_the_next_one_holds_the_lock() {
    two_are_never_at_work("black hole", |_, _| {});
}

#[test]
fn a_stopped_keeper_keeps_nobody_at_work() {
    two_are_never_at_work("keeper stopped", |keeper, _| kill(keeper, Signal::SIGSTOP).unwrap());
}

#[test]
fn a_stopped_watchdog_keeps_nobody_at_work() {
    two_are_never_at_work("watchdog stopped", |keeper, _| kill(watchdog_below(keeper), Signal::SIGSTOP).unwrap());
}

#[test]
fn what_a_killed_script_leaves_behind_is_gone_too() {
    two_are_never_at_work("script killed", |_, pids| {
        kill(Pid::from_raw(pids.last().unwrap().parse().unwrap()), Signal::SIGKILL).unwrap();
    });
}

/// A child that nothing shows but its parent, and that is started when the lock is about to end.
#[test]
fn what_a_script_starts_at_the_last_moment_is_gone_too() {
    let (client, path) = (support::connect(support::builder(support::server(), "")), path());
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    let text = "trap '' TERM; echo $ZKLOCK_KEEPER\n\
        while :; do env -i /bin/sh -c 'exec 9>&-; while :; do /bin/sleep 0.01; done' >/dev/null & echo $!; sleep 0.05; kill -9 $!; done";
    let lock = LOCK.replace("--for", "--session-timeout 4s --for");
    let mut run = Running::start(script_at(&proxy.connect_string(), &format!("{lock}{text}"), &path));
    let keeper = keeper(&run.line());
    proxy.black_hole(Direction::Both);
    let mut children: Vec<String> = iter::from_fn(|| run.next_line()).collect();
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    assert_gone(&machine, "the last child", &children.pop().unwrap(), SESSION_TIME);
    held.release().unwrap();
    eventually("its keeper is gone", || is_gone(&keeper.to_string()));
}

/// It is older than the lock's keeper and its watchdog.
#[test]
fn a_subshell_that_has_taken_the_lock_is_gone_too() {
    let (client, path) = (support::connect(support::builder(support::server(), "")), path());
    let (machine, proxy) = (Machine::watch(), FaultProxy::start(support::server().connect_string()).unwrap());
    let lock = LOCK.replace("--for", "--session-timeout 4s --for");
    let work = "sh -c 'echo $PPID'; echo $ZKLOCK_KEEPER; while :; do sleep 0.01; done";
    let text = format!("trap '' TERM\n( {lock}{work} ) & while :; do sleep 0.01; done");
    let mut run = Running::start(script_at(&proxy.connect_string(), &text, &path));
    let (subshell, keeper) = (run.line(), keeper(&run.line()));
    proxy.black_hole(Direction::Both);
    let held = InterProcessMutex::new(&client, &path).unwrap().lock().unwrap();
    assert_gone(&machine, "the subshell", &subshell, SESSION_TIME);
    held.release().unwrap();
    eventually("its keeper is gone", || is_gone(&keeper.to_string()));
}

#[test]
fn a_child_of_a_script_gets_one_term() {
    let path = path();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let lock = LOCK.replace("--for", "--session-timeout 4s --for");
    let child = "sh -c 'trap \"echo term\" TERM; echo up; while :; do sleep 0.01; done' &";
    let text = format!("trap : TERM\n{lock}{child} while :; do sleep 0.01; done");
    let mut run = Running::start(script_at(&proxy.connect_string(), &text, &path));
    assert_eq!(run.line(), "up");
    proxy.black_hole(Direction::Both);
    let said: Vec<String> = iter::from_fn(|| run.next_line()).collect();
    assert_eq!(said, ["term"]);
}

#[test]
fn without_its_keeper_or_its_watchdog_a_script_does_not_go_on() {
    let client = support::connect(support::builder(support::server(), ""));
    for of in [|keeper| keeper, watchdog_below] {
        let (machine, path) = (Machine::watch(), path());
        let mut run = Running::start(script(&format!("{LOCK}{STUBBORN}"), &path));
        let (keeper, pids) = begin(&mut run);
        let looks = duration_of_looks();
        let begin = Instant::now();
        kill(of(keeper), Signal::SIGKILL).unwrap();
        for pid in &pids {
            let gone = eventually("it is gone", || is_gone(pid));
            machine.assert_over_at_most("it is gone", 0.0, vec![(begin..gone, looks)], Duration::from_secs(1));
        }
        // By the end of the keeper's session, or by its release.
        InterProcessMutex::new(&client, &path).unwrap().lock().unwrap().release().unwrap();
    }
}

/// The script ends before the watchdog hears of it, and a fork of it has no mark but the descriptor.
#[test]
fn what_outlives_a_script_of_a_moment_does_not_outlive_its_keeper() {
    for _ in 0..10 {
        let text = "(while :; do sleep 0.01; done) & echo $!; echo $ZKLOCK_KEEPER";
        let mut run = Running::start(script(&format!("{LOCK}{text}"), &path()));
        let (job, keeper) = (run.line(), keeper(&run.line()));
        assert_eq!(run.status(), 0);
        kill(keeper, Signal::SIGKILL).unwrap();
        eventually("it is gone", || is_gone(&job));
    }
}

/// A watchdog of a `zklock run` below the script ends what that runs, and is not ended with the script.
#[test]
fn what_a_zklock_run_of_a_script_runs_is_gone_with_the_scripts_lock() {
    let inner = "env -i /bin/sh -c 'exec 9>&-; echo $$; trap \"\" TERM; while :; do /bin/sleep 0.01; done' & wait";
    let text = format!("echo $ZKLOCK_KEEPER; zklock run \"$1\"/inner -- sh -c '{}'", inner.replace('\'', "'\\''"));
    let mut run = Running::start(script(&format!("{LOCK}{text}"), &path()));
    let (keeper, pid) = (keeper(&run.line()), run.line());
    kill(keeper, Signal::SIGKILL).unwrap();
    eventually("it is gone", || is_gone(&pid));
}
