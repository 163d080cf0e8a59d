//! A process that is paused (`SIGSTOP`) for longer than its session lasts, while it holds the lock or keeps it idle.
//!
//! Pauses at random around hand-overs, with caching too, are in the suite `pauses`.

use std::{sync::Arc, thread, time::Duration};

use curator_locks::{CuratorFramework, Error, Hold, RetryForever};

use crate::{
    kinds::{ALL, Entrant, Kind, Lock, are_valid, token},
    support::{
        builder_at,
        child::{self, ChildProcess, say},
        connect, eventually,
        history::shared_clock,
        namespace,
        scope::{client_in, scope},
        server,
    },
};

/// Longer than a busy machine stops a thread.
const SESSION: Duration = Duration::from_secs(15);

/// What a process does that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Holds,
    KeepsIdle,
}

/// The process that is paused.
pub(crate) fn run(role: &str, arguments: &[String]) {
    let [kind, address, namespace] = arguments else { panic!("{arguments:?}") };
    let kind = Kind::named(kind);
    let retry = RetryForever::new(Duration::from_millis(20));
    let client: CuratorFramework = connect(builder_at(address, namespace).session_timeout(SESSION).retry_policy(retry));
    let lock: Arc<dyn Lock> = Arc::from((kind.cached)(&client));
    let held = lock.hold().unwrap();
    let holds = held.holds();
    let next = {
        let lock = lock.clone();
        move || {
            let held = lock.hold().unwrap();
            say(&format!("granted {} {} {}", shared_clock(), token(&held.holds()), are_valid(&held.holds())));
            child::listen();
            held.release().unwrap();
            say("done");
        }
    };
    if role == "idle" {
        held.release().unwrap();
        say(&format!("ready {}", token(&holds)));
        child::listen();
        return next();
    }
    // Who reads would be let in beside this one.
    let waiter = (!kind.is_shared).then(|| thread::spawn(next.clone()));
    eventually("the others wait", || lock.waiters() == usize::from(waiter.is_some()));
    say(&format!("ready {}", token(&holds)));
    eventually("the holder is told", || holds.iter().any(Hold::is_lost));
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    match waiter {
        Some(waiter) => waiter.join().unwrap(),
        None => next(),
    }
}

fn is_paused(kind: &'static Kind, role: Role) {
    let namespace = namespace();
    let other = client_in(&namespace);
    let lock = (kind.rival)(&other);
    let await_queue = |length| eventually("the queue", || kind.queued(&other) == length);
    let name = if role == Role::Holds { "holds" } else { "idle" };
    let mut paused = ChildProcess::start(name, &[kind.name, &server().connect_string(), &namespace]);
    let said = paused.hear();
    let before = said.strip_prefix("ready ").unwrap().parse().unwrap();
    scope(|scope| {
        let start = || Entrant::start(scope, &*lock);
        let queued = (role == Role::Holds).then(|| {
            let rival = start();
            await_queue(2);
            rival
        });
        paused.pause();
        paused.await_stop();
        let rival = queued.unwrap_or_else(start);
        let theirs = rival.granted();
        assert!(are_valid(&theirs) && token(&theirs) > before, "{}", kind.name);
        if role == Role::KeepsIdle {
            // Once it goes on it wants the lock.
            paused.tell("go");
        }
        paused.resume();
        await_queue(2);
        let released = shared_clock();
        rival.leave().unwrap();
        let said = paused.hear();
        let words: Vec<&str> = said.split(' ').collect();
        let ["granted", at, later, "true"] = words.as_slice() else { panic!("{}: {said}", kind.name) };
        assert!(at.parse::<u64>().unwrap() > released, "{}: two holders", kind.name);
        assert!(later.parse::<curator_locks::FencingToken>().unwrap() > token(&theirs), "{}", kind.name);
    });
    paused.tell("release");
    assert_eq!(paused.hear(), "done");
}

fn every_kind_is_paused(role: Role) {
    thread::scope(|scope| {
        let rows: Vec<_> = ALL.iter().map(|kind| scope.spawn(move || is_paused(kind, role))).collect();
        rows.into_iter().for_each(|row| row.join().unwrap());
    });
}

#[test]
fn a_holder_that_was_paused_is_told_and_its_process_queues_behind_whoever_has_come() {
    every_kind_is_paused(Role::Holds);
}

#[test]
fn a_process_that_was_paused_does_not_hand_out_the_idle_lock_that_it_had() {
    every_kind_is_paused(Role::KeepsIdle);
}
