//! `--watch`: again and again, through outages.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use curator_locks::{InterProcessMutex, testing::FaultProxy};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{Running, path, support, zklock, zklock_at};

#[test]
fn a_watch_shows_every_change_and_goes_on_after_an_outage() {
    let client = support::connect(support::builder(support::server(), ""));
    let path = path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let mut command =
        zklock_at(&proxy.connect_string(), ["ls", "--json", "--watch=100ms", "--connection-timeout=12s", &path]);
    command.stderr(Stdio::piped());
    let mut watch = Running::start(command);
    let mut complaints = BufReader::new(watch.child.stderr.take().unwrap());
    let mut await_held = |expected: bool| loop {
        // Each line is a document.
        let shown: Value = serde_json::from_str(&watch.line()).unwrap();
        if shown[0]["held"] == expected {
            return;
        }
    };
    await_held(false);
    let held = mutex.lock().unwrap();
    await_held(true);
    proxy.refuse();
    proxy.cut();
    let mut said = String::new();
    complaints.read_line(&mut said).unwrap();
    assert!(said.starts_with("zklock: "), "{said:?}");
    held.release().unwrap();
    proxy.pass().unwrap();
    await_held(false);
    let _held = mutex.lock().unwrap();
    await_held(true);
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.child.wait().unwrap().code(), None, "a signal ends it");
}

/// What it would say does not tell it: in an outage it says nothing.
#[test]
fn a_watch_in_an_outage_ends_with_its_reader() {
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let arguments = ["ls", "--watch=100ms", "--connection-timeout=12s", &path()];
    let mut command = zklock_at(&proxy.connect_string(), arguments);
    command.stderr(Stdio::piped());
    let mut watch = Running::start(command);
    watch.line();
    proxy.refuse();
    proxy.cut();
    let mut said = String::new();
    BufReader::new(watch.child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("zklock: "), "{said:?}");
    drop(std::mem::replace(&mut watch.lines, BufReader::new(closed())));
    watch.await_end();
    assert_eq!(watch.status(), 0);
}

#[test]
fn a_watch_in_a_pipe_clears_no_screen_and_ends_with_its_reader() {
    let path = path();
    let mut watch = Running::start(zklock(["tree", "--watch=100ms", &path]));
    for _ in 0..3 {
        let line = watch.line();
        assert!(line.starts_with("no locks below") && !line.contains('\x1b'), "{line:?}");
    }
    let Running { child, lines } = &mut watch;
    drop(std::mem::replace(lines, BufReader::new(closed())));
    assert!(child.wait().unwrap().success());
}

/// What a child said that says nothing.
fn closed() -> std::process::ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}
