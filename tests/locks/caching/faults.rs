//! Faults at random while the threads of several clients want one cached lock: two holds that are valid never overlap.
//!
//! `CACHED_FAULTS` is the number of faults:
//!
//! ```text
//! CACHED_FAULTS=1000 cargo test --all-features --test caching faults -- --nocapture
//! ```
//!
//! A process that is paused is a kind of its own in the suite `pauses`.

use std::{
    collections::BTreeMap,
    env,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CuratorFramework, FencingToken, InterProcessMutex, LockGuard, RetryNTimes,
    testing::{Direction, FaultProxy, TestingServer, expire_session},
};
use parking_lot::Mutex;

use crate::{
    local::cached_with,
    support::{PATIENCE, builder_at, connect, eventually, namespace, queue, quick_server},
};

const PATH: &str = "/locks/m";
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

/// One hold, from when its acquire had returned to when its holder last saw that it was valid.
#[derive(Debug, Clone)]
struct Hold {
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
    mutex: InterProcessMutex,
    grants: AtomicUsize,
}

impl Process {
    fn start(server: &TestingServer, namespace: &str) -> Process {
        let proxy = FaultProxy::start(server.connect_string()).unwrap();
        let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(20));
        let builder = builder_at(&proxy.connect_string(), namespace).session_timeout(SESSION).retry_policy(retry);
        let client = connect(builder.connection_timeout(Duration::from_secs(1)));
        let mutex = cached_with(&client, Caching::new().max_grants(16));
        Process { proxy, client, mutex, grants: AtomicUsize::new(0) }
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
    fn watch(&self, held: &LockGuard<'_>, process: &Process) {
        let (from, session) = (Instant::now(), process.client.session_id());
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
        let hold = Hold { from, to, token: held.fencing_token(), path: held.path().to_owned(), session };
        self.holds.lock().push(hold);
    }

    fn contend(&self, process: &Process, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let timeout = fastrand::choice([None, Some(20), Some(200), Some(2000)]).unwrap();
            let timeout = timeout.map_or(PATIENCE, Duration::from_millis);
            // It may fail in many ways, and come again.
            if let Ok(Some(held)) = process.mutex.lock_timeout(timeout) {
                process.grants.fetch_add(1, Ordering::Relaxed);
                self.watch(&held, process);
                // It may have been lost.
                let _ = held.release();
            }
        }
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

fn overlaps(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let pairs = holds.windows(2).filter(|pair| pair[0].to > pair[1].from || pair[0].token >= pair[1].token);
    pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn run(server: &TestingServer, next: impl Fn() -> Option<Fault>) -> Lane {
    let (namespace, mut lane) = (namespace(), Lane::default());
    let observer = connect(builder_at(&server.connect_string(), &namespace).session_timeout(PATIENCE));
    let processes: Vec<Process> = (0..CLIENTS).map(|_| Process::start(server, &namespace)).collect();
    let is_over = AtomicBool::new(false);
    let mut done = BTreeMap::new();
    thread::scope(|scope| {
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
        is_over.store(true, Ordering::Relaxed);
    });
    drop(processes);
    eventually("nothing is left", || queue(&observer, PATH).is_empty());
    lane.done = done;
    lane
}

#[test]
fn no_fault_brings_two_valid_holds_at_a_time() {
    let count = env::var("CACHED_FAULTS").map_or(18, |faults| faults.parse().unwrap());
    let begun = AtomicUsize::new(0);
    let next = || Some(begun.fetch_add(1, Ordering::Relaxed)).filter(|k| *k < count).map(|k| FAULTS[k % FAULTS.len()]);
    let server = quick_server().start().unwrap();
    let begin = Instant::now();
    let lanes: Vec<Lane> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(|| run(&server, next))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let mut done: BTreeMap<Fault, usize> = BTreeMap::new();
    let (mut holds, mut found) = (0, Vec::new());
    for lane in &lanes {
        lane.done.iter().for_each(|(fault, count)| *done.entry(*fault).or_default() += count);
        let of_lane = lane.holds();
        holds += of_lane.len();
        found.extend(overlaps(&of_lane));
    }
    println!("{done:?}: {holds} holds, {} overlaps, in {:?}", found.len(), begin.elapsed());
    assert!(found.is_empty(), "{found:?}");
    assert!(done.values().sum::<usize>() == count && holds > count);
}

#[test]
fn the_checker_finds_overlaps_and_tokens_that_do_not_grow() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let hold = |from, to, token: &str| Hold {
        from: at(from),
        to: at(to),
        token: token.parse().unwrap(),
        path: String::new(),
        session: 0,
    };
    assert!(overlaps(&[hold(0, 2, "5"), hold(2, 4, "6")]).is_empty());
    assert_eq!(overlaps(&[hold(0, 3, "5"), hold(2, 4, "6")]).len(), 1);
    assert_eq!(overlaps(&[hold(0, 2, "6"), hold(2, 4, "6")]).len(), 1);
}
