//! Faults at random while the threads of several clients want one cached lock: two holds that are valid never overlap,
//! unless both are readers'.
//!
//! `CACHED_FAULTS` is the number of faults of each kind of lock:
//!
//! ```text
//! CACHED_FAULTS=1000 cargo test --all-features --test caching faults -- --nocapture
//! ```
//!
//! Processes that are paused are in the suite `pauses`.

use std::{
    collections::BTreeMap,
    env,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CuratorFramework, FencingToken, InterProcessMutex, InterProcessReadWriteLock, LockGuard, Result,
    RetryNTimes,
    testing::{Direction, FaultProxy, TestingServer, expire_session},
};
use parking_lot::Mutex;

use crate::{
    kinds::PATH,
    over::Over,
    support::{PATIENCE, builder_at, connect, eventually, namespace, queue, quick_server},
};

const SESSION: Duration = Duration::from_secs(2);
const CLIENTS: usize = 3;
const THREADS: usize = 3;

/// Locks that are tried side by side.
const LANES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Cut,
    ShortBlackHole,
    /// For longer than a session lasts.
    BlackHole,
    Expiry,
    /// An administrator deletes the first znode of the queue.
    Delete,
    /// An administrator deletes the directory with all that is in it.
    DeleteDirectory,
}

const FAULTS: [Fault; 6] =
    [Fault::Cut, Fault::ShortBlackHole, Fault::BlackHole, Fault::Expiry, Fault::Delete, Fault::DeleteDirectory];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Mutex,
    ReadWrite,
}

enum Lock {
    Mutex(InterProcessMutex),
    ReadWrite(InterProcessReadWriteLock),
}

impl Kind {
    fn cached(self, client: &CuratorFramework) -> Lock {
        let caching = Caching::new().max_grants(16);
        match self {
            Kind::Mutex => Lock::Mutex(InterProcessMutex::new(client, PATH).unwrap().with_caching(caching)),
            Kind::ReadWrite => {
                Lock::ReadWrite(InterProcessReadWriteLock::new(client, PATH).unwrap().with_caching(caching))
            }
        }
    }
}

/// One hold, from when its acquire had returned to when its holder last saw that it was valid.
#[derive(Debug, Clone)]
struct Hold {
    is_shared: bool,
    from: Instant,
    to: Instant,
    token: FencingToken,
    path: String,
    session: i64,
}

/// One client behind a proxy of its own, as if it was a process.
struct Process {
    proxy: FaultProxy,
    client: CuratorFramework,
    lock: Lock,
    grants: AtomicUsize,
}

impl Process {
    fn start(kind: Kind, server: &TestingServer, namespace: &str) -> Process {
        let proxy = FaultProxy::start(server.connect_string()).unwrap();
        let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(20));
        let builder = builder_at(&proxy.connect_string(), namespace).session_timeout(SESSION).retry_policy(retry);
        let client = connect(builder.connection_timeout(Duration::from_secs(1)));
        let lock = kind.cached(&client);
        Process { proxy, client, lock, grants: AtomicUsize::new(0) }
    }
}

/// What happened to one lock.
#[derive(Default)]
struct Lane {
    holds: Mutex<Vec<Hold>>,
    /// What an administrator deleted, and when that began.
    deleted: Mutex<Vec<(Instant, String)>>,
    /// Sessions that were closed from outside, as no server does by itself, and when that began.
    closed: Mutex<Vec<(Instant, i64)>>,
    done: BTreeMap<Fault, usize>,
}

impl Lane {
    fn watch(&self, held: &LockGuard, is_shared: bool, process: &Process) {
        let (from, session) = (Instant::now(), process.client.session_id());
        process.grants.fetch_add(1, Ordering::Relaxed);
        let mut to = None;
        for _ in 0..fastrand::u8(1..4) {
            let at = Instant::now();
            // From the return up to here.
            if held.is_valid() {
                to = Some(at);
            }
            thread::sleep(Duration::from_micros(fastrand::u64(..500)));
        }
        let Some(to) = to else { return };
        let hold = Hold { is_shared, from, to, token: held.fencing_token(), path: held.path().to_owned(), session };
        self.holds.lock().push(hold);
    }

    fn contend(&self, process: &Process, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match &process.lock {
                Lock::Mutex(mutex) => self.hold(mutex.lock_timeout(some_time()), false, process),
                Lock::ReadWrite(lock) if fastrand::u8(..3) != 0 => {
                    self.hold(lock.read_lock().lock_timeout(some_time()), true, process);
                }
                Lock::ReadWrite(lock) if fastrand::bool() => {
                    self.hold(lock.write_lock().lock_timeout(some_time()), false, process);
                }
                Lock::ReadWrite(lock) => self.downgrade(lock, process),
            }
        }
    }

    /// It may fail in many ways, and come again.
    fn hold(&self, acquired: Result<Option<LockGuard>>, is_shared: bool, process: &Process) {
        if let Ok(Some(held)) = acquired {
            self.watch(&held, is_shared, process);
            // It may have been lost.
            let _ = held.release();
        }
    }

    /// To write, and to go on as a reader.
    fn downgrade(&self, lock: &InterProcessReadWriteLock, process: &Process) {
        let Ok(Some(writing)) = lock.write_lock().lock_timeout(some_time()) else { return };
        self.watch(&writing, false, process);
        let reading = lock.read_lock().lock_timeout(some_time());
        let _ = writing.release();
        self.hold(reading, true, process);
    }

    fn fail(&self, fault: Fault, processes: &[Process], server: &TestingServer, observer: &CuratorFramework) {
        let process = &processes[fastrand::usize(..processes.len())];
        match fault {
            Fault::Cut => {
                process.proxy.cut();
            }
            Fault::ShortBlackHole | Fault::BlackHole => {
                process.proxy.black_hole(fastrand::choice([Direction::Both, Direction::ToClient]).unwrap());
                thread::sleep(if fault == Fault::BlackHole { SESSION * 3 / 2 } else { SESSION / 4 });
                process.proxy.pass().unwrap();
            }
            Fault::Expiry => {
                let (id, password) = (process.client.session_id(), process.client.session_password());
                self.closed.lock().push((Instant::now(), id));
                // Refused where the session has been replaced just now.
                let _ = expire_session(&server.connect_string(), id, &password);
            }
            Fault::Delete => queue(observer, PATH).into_iter().take(1).for_each(|path| self.delete(observer, path)),
            Fault::DeleteDirectory => {
                queue(observer, PATH).into_iter().for_each(|path| self.delete(observer, path));
                // Others may have come meanwhile.
                let _ = observer.delete().for_path(PATH);
            }
        }
    }

    fn delete(&self, observer: &CuratorFramework, path: String) {
        self.deleted.lock().push((Instant::now(), path.clone()));
        // It may be gone.
        let _ = observer.delete().for_path(&path);
    }

    /// All holds in the order of time, without what followed the deletion of their znode, or the end of their session, by
    /// somebody else's hand: nobody can know of that before it is told.
    fn holds(&self) -> Vec<Hold> {
        let (deleted, closed) = (self.deleted.lock(), self.closed.lock());
        let mut holds = self.holds.lock().clone();
        for hold in &mut holds {
            let deleted = deleted.iter().filter(|(_, path)| *path == hold.path).map(|(at, _)| *at);
            let closed = closed.iter().filter(|(_, session)| *session == hold.session).map(|(at, _)| *at);
            let end = deleted.chain(closed).min();
            hold.to = end.map_or(hold.to, |end| end.min(hold.to));
        }
        holds.retain(|hold| hold.from < hold.to);
        holds.sort_by_key(|hold| hold.from);
        holds
    }
}

fn some_time() -> Duration {
    fastrand::choice([None, Some(0), Some(20), Some(200), Some(2000)]).unwrap().map_or(PATIENCE, Duration::from_millis)
}

/// Those that were valid beside one that excludes them, or whose tokens do not grow. Readers beside each other are in
/// no order.
fn overlaps(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    // Of the writers and the readers before: who ended last, and who has the greatest token.
    let mut before: [[Option<&Hold>; 2]; 2] = [[None; 2]; 2];
    for hold in holds {
        let excluded = if hold.is_shared { &before[..1] } else { &before[..] };
        for [last, newest] in excluded {
            found.extend(last.filter(|last| last.to > hold.from).map(|last| (last.clone(), hold.clone())));
            // Who goes on as a reader keeps its token.
            let grows = |other: &Hold| other.token < hold.token || hold.is_shared && other.token == hold.token;
            found.extend(newest.filter(|other| !grows(other)).map(|other| (other.clone(), hold.clone())));
        }
        let [last, newest] = &mut before[usize::from(hold.is_shared)];
        *last = last.filter(|last| last.to > hold.to).or(Some(hold));
        *newest = newest.filter(|other| other.token > hold.token).or(Some(hold));
    }
    found
}

fn run(kind: Kind, server: &TestingServer, next: impl Fn() -> Option<Fault>) -> Lane {
    let (namespace, mut lane) = (namespace(), Lane::default());
    let observer = connect(builder_at(&server.connect_string(), &namespace).session_timeout(PATIENCE));
    let processes: Vec<Process> = (0..CLIENTS).map(|_| Process::start(kind, server, &namespace)).collect();
    let is_over = AtomicBool::new(false);
    let mut done = BTreeMap::new();
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for process in &processes {
            for _ in 0..THREADS {
                let (lane, is_over) = (&lane, &is_over);
                scope.spawn(move || lane.contend(process, is_over));
            }
        }
        // A fault, and everybody has been granted the lock again.
        let everybody_holds = || {
            let before: Vec<usize> = processes.iter().map(|process| process.grants.load(Ordering::Relaxed)).collect();
            eventually("each client is granted the lock again", || {
                processes.iter().zip(&before).all(|(process, before)| process.grants.load(Ordering::Relaxed) > *before)
            });
        };
        everybody_holds();
        while let Some(fault) = next() {
            thread::sleep(Duration::from_millis(fastrand::u64(..50)));
            lane.fail(fault, &processes, server, &observer);
            *done.entry(fault).or_insert(0) += 1;
            everybody_holds();
        }
    });
    drop(processes);
    eventually("nothing is left", || queue(&observer, PATH).is_empty());
    lane.done = done;
    lane
}

fn suffer(kind: Kind) {
    let count = env::var("CACHED_FAULTS").map_or(18, |faults| faults.parse().unwrap());
    let begun = AtomicUsize::new(0);
    let next = || Some(begun.fetch_add(1, Ordering::Relaxed)).filter(|k| *k < count).map(|k| FAULTS[k % FAULTS.len()]);
    let server = quick_server().start().unwrap();
    let begin = Instant::now();
    let lanes: Vec<Lane> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(|| run(kind, &server, next))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let mut done: BTreeMap<Fault, usize> = BTreeMap::new();
    let (mut readers, mut writers, mut found) = (0, 0, Vec::new());
    for lane in &lanes {
        lane.done.iter().for_each(|(fault, count)| *done.entry(*fault).or_default() += count);
        let of_lane = lane.holds();
        let shared = of_lane.iter().filter(|hold| hold.is_shared).count();
        (readers, writers) = (readers + shared, writers + of_lane.len() - shared);
        found.extend(overlaps(&of_lane));
    }
    let (overlaps, took) = (found.len(), begin.elapsed());
    println!("{kind:?}: {done:?}: {writers} holds alone, {readers} shared, {overlaps} overlaps, in {took:?}");
    assert!(found.is_empty(), "{found:?}");
    assert!(done.values().sum::<usize>() == count && writers + readers > count);
}

#[test]
fn the_checker_finds_overlaps_and_tokens_that_do_not_grow() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let hold = |is_shared, from, to, token: &str| Hold {
        is_shared,
        from: at(from),
        to: at(to),
        token: token.parse().unwrap(),
        path: String::new(),
        session: 0,
    };
    let found = |one: (bool, u64, u64, &str), other: (bool, u64, u64, &str)| {
        let [one, other] = [one, other].map(|(is_shared, from, to, token)| hold(is_shared, from, to, token));
        overlaps(&[one, other]).len()
    };
    for (one, other) in [(false, false), (false, true), (true, false)] {
        assert_eq!(found((one, 0, 2, "5"), (other, 2, 4, "6")), 0);
        assert_eq!(found((one, 0, 3, "5"), (other, 2, 4, "6")), 1);
        assert_eq!(found((one, 0, 2, "6"), (other, 2, 4, "5")), 1);
        // Only a writer goes on, as a reader.
        assert_eq!(found((one, 0, 2, "6"), (other, 2, 4, "6")), usize::from(!other));
    }
    assert_eq!(found((true, 0, 3, "6"), (true, 2, 4, "5")), 0);
    // A reader in between hides nothing.
    let around = [hold(false, 0, 9, "5"), hold(false, 9, 10, "6"), hold(true, 11, 12, "7"), hold(true, 13, 14, "7.2")];
    assert!(overlaps(&around).is_empty());
    let behind = [hold(true, 0, 9, "5"), hold(true, 1, 2, "5.2"), hold(false, 3, 4, "6")];
    assert_eq!(overlaps(&behind).len(), 1);
}

mod slow {
    use super::*;

    #[test]
    fn no_fault_brings_two_valid_holds_at_a_time() {
        suffer(Kind::Mutex);
    }

    #[test]
    fn no_fault_brings_a_valid_writer_beside_anybody() {
        suffer(Kind::ReadWrite);
    }
}
