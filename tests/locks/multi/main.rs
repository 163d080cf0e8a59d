//! `InterProcessMultiLock`, over locks that do as told and over a real server.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod batch;
#[path = "../kept.rs"]
mod kept;
mod stubs;
#[path = "../../support/mod.rs"]
mod support;

use std::{
    env,
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, CuratorFramework, Error, ErrorCode, Hold, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessUnfairMutex, LostReason,
    Result,
};
use kept::Kept;
use stubs::*;
use support::{
    PATIENCE, await_children, builder, builder_at, children, client_in, connect, eventually,
    machine::{Machine, since},
    server,
};

type Log = Arc<Mutex<Vec<String>>>;

#[test]
fn locks_are_acquired_in_the_order_given_and_released_in_reverse() {
    let log = Log::default();
    let lock = multi(vec![Stub::new("b", &log), Stub::new("a", &log)]);
    lock.acquire().unwrap();
    lock.release().unwrap();
    assert_eq!(*log.lock().unwrap(), ["acquire b", "acquire a", "release a", "release b"]);
}

#[test]
fn an_error_stops_and_releases_what_was_taken_in_reverse() {
    let log = Log::default();
    let failing = Stub { acquire: Err(refused("/c")), ..Stub::new("c", &log) };
    let lock = multi(vec![Stub::new("a", &log), Stub::new("b", &log), failing, Stub::new("d", &log)]);
    for is_timed in [false, true] {
        let result = if is_timed { lock.acquire_timeout(PATIENCE) } else { lock.acquire().map(|()| true) };
        assert!(matches!(result, Err(Error::Server { code: ErrorCode::NoAuth, path, .. }) if path == "/c"));
        let calls = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(calls, ["acquire a", "acquire b", "acquire c", "release b", "release a"]);
    }
}

#[test]
fn the_error_of_the_lock_survives_a_failing_clean_up() {
    let log = Log::default();
    let taken = Stub { release: Err(lost("/a")), ..Stub::new("a", &log) };
    let failing = Stub { acquire: Err(refused("/b")), ..Stub::new("b", &log) };
    assert!(matches!(multi(vec![taken, failing]).acquire(), Err(Error::Server { path, .. }) if path == "/b"));
}

#[test]
fn a_lock_that_is_not_got_in_time_stops_and_releases_what_was_taken() {
    let log = Log::default();
    let busy = Stub { acquire: Ok(false), ..Stub::new("b", &log) };
    let lock = multi(vec![Stub::new("a", &log), busy, Stub::new("c", &log)]);
    assert!(!lock.acquire_timeout(PATIENCE).unwrap());
    assert_eq!(*log.lock().unwrap(), ["acquire a", "acquire b", "release a"]);
}

#[test]
fn one_deadline_bounds_all_locks() {
    let machine = Machine::watch();
    let mut takes = Duration::from_millis(80);
    loop {
        let log = Log::default();
        let slow = |name| Stub { takes, ..Stub::new(name, &log) };
        let (kept, begin) = (Kept::from_now(), Instant::now());
        assert!(!multi(vec![slow("a"), slow("b"), slow("c")]).acquire_timeout(takes * 5 / 2).unwrap());
        let took = since(begin);
        machine.assert_at_most("three locks", took.clone(), takes * 3 + kept.so_far());
        let calls = log.lock().unwrap().clone();
        if calls == ["acquire a", "acquire b", "acquire c", "release b", "release a"] {
            break;
        }
        // The first two took so long on this machine that no time was left.
        assert!(took.end - took.start > takes * 5 / 2, "c had the rest of the time only: {calls:?}");
        takes *= 2;
    }
}

/// A lock that overran its time is no reason to try the next one without any.
#[test]
fn when_the_time_is_up_the_next_lock_is_not_merely_tried() {
    struct Late(Log);
    impl InterProcessLock for Late {
        fn acquire(&self) -> Result<()> {
            unreachable!()
        }
        fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
            self.0.lock().unwrap().push("acquire late".into());
            thread::sleep(timeout + Duration::from_millis(1));
            Ok(true)
        }
        fn release(&self) -> Result<()> {
            self.0.lock().unwrap().push("release late".into());
            Ok(())
        }
        fn is_acquired_in_this_process(&self) -> bool {
            false
        }
    }
    let log = Log::default();
    let locks: [Arc<dyn InterProcessLock>; 2] = [Arc::new(Late(log.clone())), Arc::new(Stub::new("a", &log))];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    assert!(!lock.acquire_timeout(Duration::from_secs(1)).unwrap());
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), ["acquire late", "release late"]);
    // Where there was none from the beginning, all are tried.
    assert!(lock.acquire_timeout(Duration::ZERO).unwrap());
    assert_eq!(*log.lock().unwrap(), ["acquire late", "acquire a"]);
}

/// They tell nothing, so there is nothing to ask the servers about.
#[test]
fn foreign_locks_that_had_to_be_waited_for_are_taken_as_they_are() {
    let log = Log::default();
    let slow = |name| Stub { takes: Duration::from_millis(80), ..Stub::new(name, &log) };
    assert!(multi(vec![slow("a"), slow("b")]).acquire_timeout(PATIENCE).unwrap());
    assert_eq!(*log.lock().unwrap(), ["acquire a", "acquire b"]);
}

#[test]
fn a_lock_that_knows_no_cancel_tokens_refuses_one() {
    let log = Log::default();
    let lock = multi(vec![Stub::new("a", &log)]);
    let token = CancelToken::new();
    match lock.acquire_with(&AcquireOptions::new().cancel_token(&token)) {
        Err(Error::InvalidArgument { name: "cancel_token", .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(log.lock().unwrap().is_empty());
    assert!(lock.acquire_with(&AcquireOptions::new()).unwrap());
}

#[test]
fn a_guard_releases_all_the_last_first() {
    let log = Log::default();
    let lock = multi(vec![Stub::new("a", &log), Stub::new("b", &log)]);
    lock.lock().unwrap().release().unwrap();
    drop(lock.try_lock().unwrap().unwrap());
    let cycle = ["acquire a", "acquire b", "release b", "release a"];
    assert_eq!(*log.lock().unwrap(), [cycle, cycle].concat());
}

#[test]
fn a_cancelled_wait_leaves_nothing() {
    let client = client_in("multi-cancel");
    let other = connect(builder(server(), "multi-cancel"));
    let lock = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    let held = InterProcessMutex::new(&other, "/b").unwrap();
    held.acquire().unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        eventually("it waits for b", || children(&client, "/b").len() == 2);
        token.cancel();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    eventually("nothing is left", || children(&client, "/a").is_empty() && children(&client, "/b").len() == 1);
    held.release().unwrap();
}

#[test]
fn the_holder_of_several_locks_is_told_when_one_is_lost() {
    let client = client_in("multi-lost");
    let lock = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    let held = lock.lock().unwrap();
    let tokens: Vec<_> = held.holds().iter().map(Hold::fencing_token).collect();
    assert!(held.is_valid() && tokens.len() == 2 && tokens[0] < tokens[1]);
    assert!(held.valid_until() > Some(Instant::now()));
    assert_eq!(lock.holds().len(), 2);
    client.delete().for_path(held.holds()[1].path()).unwrap();
    eventually("it is told", || held.is_lost());
    assert!(!held.is_valid() && held.valid_until() < Some(Instant::now()));
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    assert!(children(&client, "/a").is_empty(), "the other one is released");
    assert!(lock.holds().is_empty());
}

#[test]
fn a_panic_releases_what_was_taken() {
    struct Panics;
    impl InterProcessLock for Panics {
        fn acquire(&self) -> Result<()> {
            panic!("on purpose")
        }
        fn acquire_timeout(&self, _: Duration) -> Result<bool> {
            panic!("on purpose")
        }
        fn release(&self) -> Result<()> {
            Ok(())
        }
        fn is_acquired_in_this_process(&self) -> bool {
            false
        }
    }
    let log = Log::default();
    let locks: [Arc<dyn InterProcessLock>; 2] = [Arc::new(Stub::new("a", &log)), Arc::new(Panics)];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    assert!(thread::scope(|scope| scope.spawn(|| lock.acquire()).join()).is_err());
    assert_eq!(*log.lock().unwrap(), ["acquire a", "release a"]);
}

#[test]
fn all_are_released_even_if_one_fails() {
    let log = Log::default();
    let failing = Stub { release: Err(lost("/b")), ..Stub::new("b", &log) };
    let lock = multi(vec![Stub::new("a", &log), failing, Stub::new("c", &log)]);
    assert!(matches!(lock.release(), Err(Error::LockLost { path, .. }) if path == "/b"));
    assert_eq!(*log.lock().unwrap(), ["release c", "release b", "release a"]);
}

#[test]
fn all_are_released_even_if_one_panics() {
    struct Panics(Log);
    impl InterProcessLock for Panics {
        fn acquire(&self) -> Result<()> {
            Ok(())
        }
        fn acquire_timeout(&self, _: Duration) -> Result<bool> {
            Ok(true)
        }
        fn release(&self) -> Result<()> {
            self.0.lock().unwrap().push("release b".into());
            std::panic::resume_unwind(Box::new("on purpose"))
        }
        fn is_acquired_in_this_process(&self) -> bool {
            true
        }
    }
    let log = Log::default();
    let locks: [Arc<dyn InterProcessLock>; 3] =
        [Arc::new(Stub::new("a", &log)), Arc::new(Panics(log.clone())), Arc::new(Stub::new("c", &log))];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    let released = || std::mem::take(&mut *log.lock().unwrap());
    for drops in [false, true] {
        let ends = || if drops { drop(lock.lock().unwrap()) } else { lock.release().unwrap() };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ends));
        assert_eq!(ended.is_err(), !drops, "a panic goes on, but not out of a drop");
        let calls: Vec<String> = released().into_iter().filter(|call| call.starts_with("release")).collect();
        assert_eq!(calls, ["release c", "release b", "release a"]);
    }
}

#[test]
fn no_error_of_a_release_is_lost() {
    let log = Log::default();
    let failing = |name, path| Stub { release: Err(lost(path)), ..Stub::new(name, &log) };
    let lock = multi(vec![failing("a", "/a"), Stub::new("b", &log), failing("c", "/c")]);
    match lock.release() {
        Err(error @ Error::Several { .. }) => {
            let text = error.to_string();
            assert!(text.contains("2 locks") && text.contains("/a"), "{text}");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("/c"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_of_none_is_told_so() {
    let client = client_in("owner");
    let lock = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    assert!(matches!(lock.release(), Err(Error::NotOwner { path, .. }) if path == "/b"));
    lock.acquire().unwrap();
    let other = thread::scope(|scope| scope.spawn(|| lock.release()).join().unwrap());
    assert!(matches!(other, Err(Error::NotOwner { .. })));
    assert!(lock.is_acquired_in_this_process());
    lock.release().unwrap();
    assert!(!lock.is_acquired_in_this_process());
}

#[test]
fn paths_are_acquired_in_sorted_order_and_a_path_given_twice_is_refused() {
    let (client, other) = (client_in("sorted"), client_in("sorted"));
    let blocker = InterProcessMutex::new(&other, "/b").unwrap();
    blocker.acquire().unwrap();
    let lock = InterProcessMultiLock::new(&client, ["/c", "/b", "/a"]).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            lock.acquire().unwrap();
            lock.release().unwrap();
        });
        // What was created with the others is withdrawn.
        eventually("it has a, waits for b, and not for c", || {
            ["/a", "/b", "/c"].map(|path| children(&other, path).len()) == [1, 2, 0]
        });
        blocker.release().unwrap();
        waiter.join().unwrap();
    });
    match InterProcessMultiLock::new(&client, ["/b", "/a", "/b"]) {
        Err(Error::InvalidArgument { value, .. }) => assert_eq!(value, "/b"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(InterProcessMultiLock::new(&client, ["/a", "b"]), Err(Error::InvalidPath { .. })));
    assert!(matches!(InterProcessMultiLock::new::<&str>(&client, []), Err(Error::InvalidArgument { .. })));
}

#[test]
fn an_acquire_that_times_out_holds_none_and_leaves_none() {
    let (client, other) = (client_in("timeout"), client_in("timeout"));
    let blocker = InterProcessSemaphoreMutex::new(&other, "/b").unwrap();
    blocker.acquire().unwrap();
    let locks: [Arc<dyn InterProcessLock>; 3] = [
        Arc::new(InterProcessMutex::new(&client, "/a").unwrap()),
        Arc::new(InterProcessSemaphoreMutex::new(&client, "/b").unwrap()),
        Arc::new(InterProcessMutex::new(&client, "/c").unwrap()),
    ];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(200)] {
        assert!(!lock.acquire_timeout(timeout).unwrap());
        assert!(!lock.is_acquired_in_this_process());
        for (path, left) in [("/a", 0), ("/b/leases", 1), ("/b/locks", 0), ("/c", 0)] {
            await_children(&client, path, left);
        }
    }
    blocker.release().unwrap();
    assert!(lock.acquire_timeout(PATIENCE).unwrap());
    lock.release().unwrap();
}

#[test]
fn locks_of_all_kinds_are_held_together_or_not_at_all() {
    let (client, other) = (client_in("kinds"), client_in("kinds"));
    let books = InterProcessReadWriteLock::new(&client, "/books").unwrap();
    let prices = InterProcessReadWriteLock::new(&client, "/prices").unwrap();
    let locks: [Arc<dyn InterProcessLock>; 5] = [
        Arc::new(InterProcessMutex::new(&client, "/a").unwrap()),
        Arc::new(books.write_lock().clone()),
        Arc::new(prices.read_lock().clone()),
        Arc::new(InterProcessUnfairMutex::new(&client, "/u").unwrap()),
        Arc::new(InterProcessSemaphoreMutex::new(&client, "/s").unwrap()),
    ];
    let all = InterProcessMultiLock::from_locks(locks).unwrap();
    let left = || {
        ["/a", "/books", "/prices", "/u/lock/holder", "/s/leases", "/s/locks"].map(|path| children(&other, path).len())
    };
    let held = all.lock().unwrap();
    assert_eq!((held.holds().len(), left()), (5, [1, 1, 1, 1, 1, 0]));
    assert!(books.write_lock().is_owned_by_current_thread(), "a clone is the same lock");
    books.write_lock().acquire().unwrap();
    books.write_lock().release().unwrap();
    let theirs = InterProcessReadWriteLock::new(&other, "/prices").unwrap();
    let reading = theirs.read_lock().try_lock().unwrap().expect("beside a reader");
    reading.release().unwrap();
    held.release().unwrap();
    assert_eq!(left(), [0; 6]);
    let blocker = InterProcessUnfairMutex::new(&other, "/u").unwrap();
    blocker.acquire().unwrap();
    assert!(!all.acquire_timeout(Duration::from_millis(200)).unwrap());
    // In the background.
    eventually("what was taken is given back", || left() == [0, 0, 0, 1, 0, 0]);
    blocker.release().unwrap();
}

const PROCESSES: usize = 4;
const THREADS: usize = 4;
const ROUNDS: usize = 640 / (PROCESSES * THREADS);
const PATHS: usize = 12;
const SET: usize = 5;

/// Set in the processes that this test starts: server, directory and number.
const WORKER: &str = "MULTI_LOCK_WORKER";

#[test]
fn overlapping_sets_in_any_order_never_deadlock_over_processes() {
    if let Ok(order) = env::var(WORKER) {
        return work(&order);
    }
    let directory = tempfile::tempdir().unwrap();
    let spawn = |number: usize| {
        let order = format!("{}|{}|{number}", server().connect_string(), directory.path().display());
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "overlapping_sets_in_any_order_never_deadlock_over_processes", "--nocapture"])
            .env(WORKER, order)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut workers = Workers((0..PROCESSES).map(spawn).collect());
    let deadline = Instant::now() + 10 * PATIENCE;
    for worker in &mut workers.0 {
        let status = loop {
            if let Some(status) = worker.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "a deadlock, or a very slow machine");
            thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }
    let client = client_in("overlap");
    for k in 0..PATHS {
        assert_eq!(children(&client, &format!("/lock-{k}")), [""; 0]);
    }
    let rounds = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(rounds, PROCESSES * THREADS * ROUNDS, "one file for each round, and none of a lock that is held");
}

/// Ended when the test fails.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            // It may have ended.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn work(order: &str) {
    let [connect_string, directory, number] = order.split('|').collect::<Vec<_>>()[..] else { panic!("{order}") };
    let number: usize = number.parse().unwrap();
    let client = connect(builder_at(connect_string, "overlap"));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            let worker = number * THREADS + thread;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(worker as u64);
                for round in 0..ROUNDS {
                    let mut numbers: Vec<usize> = (0..PATHS).collect();
                    random.shuffle(&mut numbers);
                    numbers.truncate(SET);
                    let paths = numbers.iter().map(|k| format!("/lock-{k}"));
                    if thread == 0 {
                        // One process may know nothing of transactions, as Curator does not.
                        let mut paths: Vec<String> = paths.collect();
                        paths.sort_unstable();
                        let locks = paths.iter().map(|path| InterProcessMutex::new(client, path).unwrap());
                        let held: Vec<_> = locks.map(|mutex| mutex.lock().unwrap()).collect();
                        hold(Path::new(directory), &numbers);
                        held.into_iter().rev().for_each(|held| held.release().unwrap());
                    } else {
                        let lock = InterProcessMultiLock::new(client, paths).unwrap();
                        lock.acquire().unwrap();
                        hold(Path::new(directory), &numbers);
                        lock.release().unwrap();
                    }
                    File::create_new(Path::new(directory).join(format!("done-{worker}-{round}"))).unwrap();
                }
            });
        }
    });
}

/// Takes a file for each lock, which nobody else may have.
fn hold(directory: &Path, numbers: &[usize]) {
    let files: Vec<_> = numbers.iter().map(|k| directory.join(format!("held-{k}"))).collect();
    for file in &files {
        File::create_new(file).unwrap_or_else(|error| panic!("two holders of {}: {error}", file.display()));
    }
    thread::yield_now();
    for file in &files {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn the_end_of_the_time_names_the_lock_that_was_not_got() {
    let log = Log::default();
    let busy = Stub { acquire: Ok(false), ..Stub::new("b", &log) };
    let foreign = multi(vec![Stub::new("a", &log), busy]);
    let (client, other) = (client_in("multi-named"), client_in("multi-named"));
    let held = InterProcessMutex::new(&other, "/b").unwrap();
    held.acquire().unwrap();
    let ours = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    for (lock, name) in [(foreign, "b"), (ours, "/b")] {
        let refused = lock.acquire_with(&AcquireOptions::new().timeout(Duration::ZERO).timeout_is_error());
        assert!(matches!(&refused, Err(Error::StillTaken { path, .. }) if path == name), "{refused:?}");
        assert_eq!(lock.timed_out_at().as_deref(), Some(name));
    }
}

#[test]
fn a_mere_try_that_loses_a_lock_says_so_as_it_was_asked_to() {
    /// Somebody deletes the first lock's znode while this one is acquired.
    struct Deleting(CuratorFramework, InterProcessMutex);
    impl InterProcessLock for Deleting {
        fn acquire(&self) -> Result<()> {
            let hold = self.1.hold().unwrap();
            self.0.delete().for_path(hold.path())?;
            eventually("the loss is known", || hold.is_lost());
            Ok(())
        }

        fn acquire_timeout(&self, _: Duration) -> Result<bool> {
            self.acquire().map(|()| true)
        }

        fn release(&self) -> Result<()> {
            Ok(())
        }

        fn is_acquired_in_this_process(&self) -> bool {
            true
        }
    }
    let client = client_in("multi-lost-try");
    let first = InterProcessMutex::new(&client, "/a").unwrap();
    let members: [Arc<dyn InterProcessLock>; 2] = [Arc::new(first.clone()), Arc::new(Deleting(client, first))];
    let lock = InterProcessMultiLock::from_locks(members).unwrap();
    let mere_try = AcquireOptions::new().timeout(Duration::ZERO);
    assert!(!lock.acquire_with(&mere_try).unwrap());
    let refused = lock.acquire_with(&mere_try.timeout_is_error());
    assert!(matches!(refused, Err(Error::StillTaken { .. })), "{refused:?}");
}

#[test]
fn foreign_locks_that_report_nothing_are_asked_for_no_validity() {
    let log = Log::default();
    assert!(
        multi(vec![Stub::new("a", &log)]).acquire_with(&AcquireOptions::new().min_validity(Duration::MAX)).unwrap()
    );
}

#[test]
fn a_multi_lock_is_fenced_as_a_whole_or_not_at_all() {
    /// Passes all on, and reports no holds.
    struct Silent(InterProcessMutex);

    impl InterProcessLock for Silent {
        fn acquire(&self) -> Result<()> {
            self.0.acquire()
        }

        fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
            self.0.acquire_timeout(timeout)
        }

        fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
            self.0.acquire_with(options)
        }

        fn release(&self) -> Result<()> {
            self.0.release()
        }

        fn is_acquired_in_this_process(&self) -> bool {
            self.0.is_acquired_in_this_process()
        }

        fn path(&self) -> Option<&str> {
            Some("/silent")
        }
    }

    fn check<T>(refused: Result<T>, named: &str) {
        match refused.err() {
            Some(Error::InvalidArgument { name: "self_fence", rule, .. }) => assert!(rule.contains(named), "{rule}"),
            other => panic!("{other:?}"),
        }
    }

    const MARGIN: Duration = Duration::from_millis(100);
    let client = client_in("multi-fence");
    let mutex = |path: &str| InterProcessMutex::new(&client, path).unwrap();
    let (reports, silent) = (mutex("/reports"), mutex("/silent"));
    let pair = |lock: Arc<dyn InterProcessLock>| {
        InterProcessMultiLock::from_locks([Arc::new(reports.clone()) as Arc<dyn InterProcessLock>, lock]).unwrap()
    };
    let fenced = AcquireOptions::new().self_fence(MARGIN);
    let with_silent = pair(Arc::new(Silent(silent.clone())));
    check(with_silent.acquire_with(&fenced), "/silent");
    check(pair(Arc::new(with_silent.clone())).lock_with(&fenced), "/silent");
    check(pair(Arc::new(Stub::new("a", &Log::default()))).acquire_with(&fenced), "this lock");
    assert!(!reports.is_acquired_in_this_process() && !silent.is_acquired_in_this_process());
    check(with_silent.lock().unwrap().self_fence(MARGIN), "/silent");
    // Fenced by the multi lock alone, as it is had: its members' own acquires are not refused the option.
    pair(Arc::new(silent)).lock_with(&fenced).unwrap().unwrap().release().unwrap();
}
