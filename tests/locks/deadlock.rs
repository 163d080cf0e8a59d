//! A thread that would wait for itself is told so, and only then.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{sync::mpsc, thread, time::Duration};

use curator_locks::{
    AcquireOptions, CancelToken, CuratorFramework, Decision, Error, InterProcessLock, InterProcessMutex,
    InterProcessReadWriteLock, LockInternalsDriver, ReadLockDriver, Result, StandardLockInternalsDriver,
};
use support::{
    PATIENCE, await_children, children, eventually, expire,
    logs::{catch_logs, has_logged, logged},
    scope::{client_in, scope},
    watchers,
};

const PATH: &str = "/lock";

#[test]
fn two_mutexes_on_one_path_in_one_thread_are_refused_at_once() {
    let client = client_in("mutexes");
    let (one, two) = (mutex(&client), mutex(&client));
    one.acquire().unwrap();
    let held = format!("the mutex of /lock ({})", one.lock_path().unwrap());
    assert_refused(two.acquire(), "the mutex of /lock", &held);
    assert_refused(two.lock().map(drop), "the mutex of /lock", &held);
    assert_eq!(children(&client, PATH).len(), 1, "nothing was queued");
    one.acquire().unwrap();
    one.release().unwrap();
    assert_refused(two.acquire(), "the mutex of /lock", &held);
    one.release().unwrap();
    two.acquire().unwrap();
    two.release().unwrap();
}

#[test]
fn a_timed_call_is_refused_at_once_and_a_mere_try_is_false() {
    let client = client_in("timed");
    let (one, two) = (mutex(&client), mutex(&client));
    let held = one.lock().unwrap();
    let of_one = format!("the mutex of /lock ({})", held.path());
    assert_refused(two.acquire_timeout(PATIENCE).map(drop), "the mutex of /lock", &of_one);
    assert_eq!(children(&client, PATH).len(), 1, "nothing was queued");
    assert!(two.try_lock().unwrap().is_none());
    held.release().unwrap();
    assert_eq!(children(&client, PATH), Vec::<String>::new());
}

#[test]
fn a_lock_of_a_thread_that_has_ended_is_said_when_it_ends_and_to_who_waits() {
    catch_logs(log::LevelFilter::Warn);
    let client = client_in("ended");
    let (one, two, reader) = (mutex(&client), mutex(&client), read_write(&client));
    let ends = |name: &str, lock: &(dyn Fn() + Sync)| {
        thread::scope(|scope| _ = thread::Builder::new().name(name.into()).spawn_scoped(scope, lock).unwrap().join());
    };
    ends("it-releases", &|| {
        one.acquire().unwrap();
        one.release().unwrap();
    });
    ends("it-forgets", &|| one.acquire().unwrap());
    eventually("its end is told", || has_logged(&["the thread it-forgets ends", "(1)"]));
    assert!(!has_logged(&["it-releases"]), "{}", logged());
    assert!(one.try_lock().unwrap().is_none());
    let held = "a thread that has ended holds the mutex of /lock (";
    assert!(!has_logged(&[held]), "a mere try waits for nobody: {}", logged());
    let soon = Duration::from_millis(50);
    assert!(!one.acquire_timeout(soon).unwrap() && !two.acquire_timeout(soon).unwrap());
    assert!(!reader.read_lock().acquire_timeout(soon).unwrap());
    let said = |wanted: &str| logged().lines().filter(|line| line.contains(wanted) && line.contains(held)).count();
    assert_eq!(
        (said("waits for the mutex of /lock"), said("waits for the read lock of /lock")),
        (2, 1),
        "{}",
        logged()
    );
}

#[test]
fn a_guard_that_was_dropped_stands_in_nobodys_way() {
    let client = client_in("guard");
    let (one, two) = (mutex(&client), mutex(&client));
    for _ in 0..20 {
        drop(one.lock().unwrap());
        two.lock().unwrap().release().unwrap();
        let inner = one.lock().unwrap();
        let again = one.lock().unwrap();
        drop(inner);
        assert!(matches!(two.acquire(), Err(Error::WouldDeadlock { .. })), "it is held once more");
        drop(again);
    }
}

#[test]
fn another_namespace_handle_of_the_same_client_is_seen_through() {
    let root = client_in("namespaces");
    let below = root.using_namespace("namespaces/below").unwrap();
    let (one, two) = (InterProcessMutex::new(&root, "/below/lock").unwrap(), mutex(&below));
    one.acquire().unwrap();
    let held = format!("the mutex of /lock ({})", one.lock_path().unwrap().replacen("/below", "", 1));
    assert_refused(two.acquire(), "the mutex of /lock", &held);
    one.release().unwrap();
}

#[test]
fn another_thread_waits_and_gets_it() {
    let client = client_in("threads");
    let (one, two) = (mutex(&client), mutex(&client));
    one.acquire().unwrap();
    scope(|scope| {
        let other = scope.spawn(|| two.acquire().and_then(|()| two.release()));
        await_children(&client, PATH, 2);
        one.release().unwrap();
        other.join().unwrap().unwrap();
    });
}

#[test]
fn a_hold_that_was_lost_is_no_obstacle() {
    let client = client_in("lost");
    let (one, two) = (mutex(&client), mutex(&client));
    let held = one.lock().unwrap();
    expire(&client);
    eventually("the holder knows", || held.is_lost());
    two.acquire().unwrap();
    two.release().unwrap();
    drop(held);
    two.acquire().unwrap();
    two.release().unwrap();
}

#[test]
fn a_read_write_lock_through_two_objects_is_refused_both_ways() {
    let client = client_in("read-write");
    let (one, two) = (read_write(&client), read_write(&client));
    let cases: [(&dyn InterProcessLock, &dyn InterProcessLock, &str, &str); 4] = [
        (one.read_lock(), one.write_lock(), "the read lock", "the write lock"),
        (one.read_lock(), two.write_lock(), "the read lock", "the write lock"),
        (one.write_lock(), two.read_lock(), "the write lock", "the read lock"),
        (one.write_lock(), two.write_lock(), "the write lock", "the write lock"),
    ];
    for (held, wanted, held_name, wanted_name) in cases {
        held.acquire().unwrap();
        let node = format!("/lock/{}", children(&client, PATH)[0]);
        assert_refused(wanted.acquire(), &format!("{wanted_name} of /lock"), &format!("{held_name} of /lock ({node})"));
        assert!(!wanted.acquire_timeout(Duration::ZERO).unwrap());
        held.release().unwrap();
        wanted.acquire().unwrap();
        wanted.release().unwrap();
    }
    assert_eq!(children(&client, PATH), Vec::<String>::new());
}

#[test]
fn a_mutex_and_a_read_write_lock_on_one_path_are_seen_together() {
    let client = client_in("kinds");
    let (mutex, lock) = (mutex(&client), read_write(&client));
    mutex.acquire().unwrap();
    assert!(matches!(lock.read_lock().acquire(), Err(Error::WouldDeadlock { .. })));
    mutex.release().unwrap();
    lock.read_lock().acquire().unwrap();
    assert!(matches!(mutex.acquire(), Err(Error::WouldDeadlock { .. })));
    lock.read_lock().release().unwrap();
}

/// The writer in between waits for the first reader and the second reader waits for the writer, but the writer may give up.
#[test]
fn a_second_read_lock_behind_a_queued_writer_waits_until_that_gives_up() {
    let (mine, theirs) = (client_in("readers"), client_in("readers"));
    let (one, two, other) = (read_write(&mine), read_write(&mine), read_write(&theirs));
    one.read_lock().acquire().unwrap();
    two.read_lock().acquire().unwrap();
    two.read_lock().release().unwrap();
    let token = CancelToken::new();
    scope(|scope| {
        let options = AcquireOptions::new().cancel_token(&token);
        let writer = scope.spawn(move || other.write_lock().acquire_with(&options));
        let node = one.read_lock().lock_path().unwrap();
        eventually("the writer waits", || watchers(&mine, &node).contains(&theirs.session_id()));
        scope.spawn(|| {
            // The second reader stands behind the writer.
            await_children(&theirs, PATH, 3);
            token.cancel();
        });
        two.read_lock().acquire().unwrap();
        assert!(matches!(writer.join().unwrap(), Err(Error::Cancelled { .. })));
        two.read_lock().release().unwrap();
        one.read_lock().release().unwrap();
    });
    assert_eq!(children(&mine, PATH), Vec::<String>::new());
}

/// Whom such a driver waits for, only the driver knows: here for whoever stands between the two that it grants together.
#[test]
fn what_a_driver_from_outside_waits_for_may_be_somebody_else() {
    let (mine, theirs) = (client_in("custom"), client_in("custom"));
    let shared = |client| InterProcessMutex::with_driver(client, PATH, ReadLockDriver).unwrap();
    let (one, two, other) = (shared(&mine), shared(&mine), mutex(&theirs));
    one.acquire().unwrap();
    two.acquire().unwrap();
    two.release().unwrap();
    let token = CancelToken::new();
    scope(|scope| {
        let options = AcquireOptions::new().cancel_token(&token);
        let writer = scope.spawn(move || other.acquire_with(&options));
        let node = one.lock_path().unwrap();
        eventually("another one waits", || watchers(&mine, &node).contains(&theirs.session_id()));
        scope.spawn(|| {
            await_children(&theirs, PATH, 3);
            token.cancel();
        });
        two.acquire().unwrap();
        assert!(matches!(writer.join().unwrap(), Err(Error::Cancelled { .. })));
        two.release().unwrap();
        one.release().unwrap();
    });
}

/// Two classes that share a directory and do not stand in each other's way.
#[test]
fn a_driver_whose_classes_do_not_exclude_each_other_waits_for_its_own_class() {
    struct Class(&'static str);
    impl LockInternalsDriver for Class {
        fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision {
            let class: Vec<String> = children.iter().filter(|name| name.contains(self.0)).cloned().collect();
            StandardLockInternalsDriver::with_lock_name(self.0).decide(&class, own, max_leases)
        }
        fn lock_name(&self) -> &str {
            self.0
        }
    }
    let (mine, theirs) = (client_in("classes"), client_in("classes"));
    let class = |client, name| InterProcessMutex::with_driver(client, PATH, Class(name)).unwrap();
    let (red, blue, their_blue) = (class(&mine, "red-"), class(&mine, "blue-"), class(&theirs, "blue-"));
    scope(|scope| {
        let (go, told) = mpsc::channel::<()>();
        let (say, granted) = mpsc::channel();
        let their_client = &theirs;
        let other = scope.spawn(move || {
            their_blue.acquire().unwrap();
            say.send(()).unwrap();
            let _ = told.recv();
            await_children(their_client, PATH, 3);
            their_blue.release()
        });
        granted.recv_timeout(PATIENCE).unwrap();
        red.acquire().unwrap();
        drop(go);
        blue.acquire().unwrap();
        other.join().unwrap().unwrap();
        blue.release().unwrap();
        red.release().unwrap();
    });
}

fn assert_refused(result: Result<()>, wanted: &str, holds: &str) {
    match result {
        Err(error @ Error::WouldDeadlock { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&format!("waiting for {wanted} would never end")), "{text}");
            assert!(text.contains(&format!("holds {holds}")), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, PATH).unwrap()
}

fn read_write(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}
