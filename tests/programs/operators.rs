//! What operators get to see: who queues, and who holds a lock for too long.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, Error, FencingChecker, InterProcessMutex, InterProcessReadWriteLock, LockQueue,
    QueueEntry,
};

use crate::support::{
    builder, connect, eventually,
    logs::{catch_logs, logged},
    namespace, server,
};

#[test]
fn contenders_are_listed_with_session_token_data_and_time_in_the_order_of_the_queue() {
    let namespace = namespace();
    let (one, two) = (connect(builder(server(), &namespace)), connect(builder(server(), &namespace)));
    let entries = || LockQueue::inspect(&one, "/l").unwrap().entries;
    assert_eq!(entries(), []);
    let holder = InterProcessMutex::new(&one, "/l").unwrap().with_lock_data("holder");
    let waiter = InterProcessReadWriteLock::new(&two, "/l").unwrap().with_lock_data("waiter");
    let held = holder.lock().unwrap();
    one.create().for_path("/l/readme").unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.read_lock().acquire_with(&AcquireOptions::new().cancel_token(&token)));
        eventually("both stand in the queue", || entries().len() == 2);
        let queue = entries();
        assert_eq!(queue[0].path, held.path());
        assert_eq!(queue[0].fencing_token, held.fencing_token());
        assert_eq!((queue[0].session, queue[1].session), (one.session_id(), two.session_id()));
        let data = |entry: &QueueEntry| entry.data.clone().unwrap();
        assert_eq!((data(&queue[0]), data(&queue[1])), (b"holder".to_vec(), b"waiter".to_vec()));
        assert!(queue[0].since_millis > 0 && queue[0].since_millis <= queue[1].since_millis);
        token.cancel();
        // A reader behind a mutex's node may have got in; what counts here is the list.
        let _ = waits.join().unwrap();
    });
}

#[test]
fn a_lock_that_is_held_for_long_is_warned_about_less_and_less_often() {
    catch_logs(log::LevelFilter::Trace);
    let client = connect(builder(server(), &namespace()).max_hold_time(Duration::from_millis(200)));
    let mutex = InterProcessMutex::new(&client, "/long").unwrap();
    let begin = Instant::now();
    let held = mutex.lock().unwrap();
    let node = held.path().rsplit('/').next().unwrap().to_owned();
    let warnings =
        || logged().lines().filter(|line| line.contains(&node) && line.contains("maximum hold time")).count();
    eventually("three warnings: at 0.2, 0.4 and 0.8 s", || warnings() >= 3);
    assert!(begin.elapsed() >= Duration::from_millis(800), "too early");
    assert!(held.is_valid(), "it is not taken away");
    held.release().unwrap();
    // At the end of the hold, which may have lasted longer than that.
    let due = (begin.elapsed().as_millis() / 200).ilog2() as usize + 1;
    let brief = InterProcessMutex::new(&client, "/brief").unwrap();
    brief.acquire().unwrap();
    brief.release().unwrap();
    assert!((3..=due).contains(&warnings()), "{} warnings, {due} were due", warnings());
}

#[test]
fn a_maximum_hold_time_of_zero_is_refused() {
    match builder(server(), "x").max_hold_time(Duration::ZERO).build() {
        Err(Error::InvalidArgument { name: "max_hold_time", .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn storage_refuses_the_token_of_a_holder_whose_lock_has_passed_on() {
    let client = connect(builder(server(), &namespace()));
    let mutex = InterProcessMutex::new(&client, "/fenced").unwrap();
    let storage = FencingChecker::new();
    let early = mutex.lock().unwrap().fencing_token();
    storage.check(early).unwrap();
    // The directory goes and is made anew, which restarts the sequence numbers, but not the tokens.
    eventually("the directory is gone", || {
        mutex.internals().clean().is_ok() && client.check_exists().for_path("/fenced").unwrap().is_none()
    });
    let late = mutex.lock().unwrap().fencing_token();
    storage.check(late).unwrap();
    assert_eq!(storage.check(early).unwrap_err().newest, late);
}
