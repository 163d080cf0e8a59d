//! The command is gone before anybody else can hold its lock.

use std::{thread, time::Duration};

use curator_locks::{
    InterProcessMutex, LockQueue,
    testing::{Direction, FaultProxy},
};
use nix::sys::signal::Signal;

use crate::{LOST, Running, is_gone, path, support, support::eventually, zklock, zklock_at};

const SESSION: &str = "2s";
const LANES: usize = 5;
const ROUNDS: usize = 4;

/// Says its number, and hears no TERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

#[test]
fn in_a_black_hole_the_command_is_gone_before_the_next_one_holds_the_lock() {
    let client = support::connect(support::builder(support::server(), ""));
    thread::scope(|scope| {
        let lane = || {
            let path = path();
            for round in 0..ROUNDS {
                let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
                let arguments = ["run", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN];
                let mut run = Running::start(zklock_at(&proxy.connect_string(), arguments));
                let pid = run.line();
                proxy.black_hole(Direction::Both);
                let mutex = InterProcessMutex::new(&client, &path).unwrap();
                let held = mutex.lock().unwrap();
                assert!(is_gone(&pid), "round {round}: two at work");
                held.release().unwrap();
                assert_eq!(run.status(), LOST, "round {round}");
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
    });
}

#[test]
fn a_stopped_zklock_does_not_keep_its_command_alive() {
    let client = support::connect(support::builder(support::server(), ""));
    let path = path();
    let mut run = Running::start(zklock(["run", "--session-timeout", SESSION, &path, "--", "sh", "-c", STUBBORN]));
    let pid = run.line();
    run.signal(Signal::SIGSTOP);
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let _held = mutex.lock().unwrap();
    assert!(is_gone(&pid), "two at work");
    run.signal(Signal::SIGCONT);
    assert_eq!(run.status(), LOST);
}

#[test]
fn a_command_gets_term_before_it_is_killed() {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let script = "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let arguments = ["run", "--session-timeout", "6s", &path(), "--", "sh", "-c", script];
    let mut run = Running::start(zklock_at(&proxy.connect_string(), arguments));
    assert_eq!(run.line(), "ready");
    proxy.black_hole(Direction::Both);
    assert_eq!(run.line(), "term");
    assert_eq!(run.status(), LOST);
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
    assert!(crate::stdout_of(&broken).contains(&format!("deleted {node}")), "{}", crate::stderr_of(&broken));
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
