//! A job of two seconds under a session timeout of three, which stops within half a second of being told.
//!
//! Two clients take turns. While the one works its network fails, in one of several ways and at any moment; the other one
//! waits for the lock. All times are of one clock.
//!
//! `JOBS` is the number of jobs with a fault, and of jobs without:
//!
//! ```text
//! JOBS=500 cargo test --all-features --test holds job -- --nocapture
//! ```

use std::{
    env,
    ops::Range,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CuratorFramework, DeadlineEvent, Error, InterProcessMutex,
    testing::{Direction, FaultProxy, TestingServer},
};

use crate::{
    MS, T,
    kept::Kept,
    support::{
        self, PATIENCE, builder, builder_at, connect,
        machine::{Machine, since},
    },
};

const JOB: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(500);
/// A job that is told to stop takes this long for it, beside what the machine keeps it from running.
const STOPPING: Duration = Duration::from_millis(300);
const LANES: usize = 24;

#[derive(Debug, Clone, Copy)]
enum Trouble {
    BlackHole(Direction),
    /// And nobody listens any more.
    Cut,
    Reset,
    /// Each heartbeat is late, so that nothing is proved any more.
    Delay,
}

const TROUBLES: [Trouble; 6] = [
    Trouble::BlackHole(Direction::Both),
    Trouble::BlackHole(Direction::ToServer),
    Trouble::BlackHole(Direction::ToClient),
    Trouble::Cut,
    Trouble::Reset,
    Trouble::Delay,
];

impl Trouble {
    fn happen(self, proxy: &FaultProxy) {
        match self {
            Trouble::BlackHole(direction) => proxy.black_hole(direction),
            Trouble::Delay => proxy.delay(T / 5),
            Trouble::Cut | Trouble::Reset => {
                proxy.refuse();
                let _ended = if matches!(self, Trouble::Cut) { proxy.cut() } else { proxy.reset() };
            }
        }
    }
}

/// What one job has done.
struct Job {
    /// When it did its last piece of work.
    stopped: Instant,
    is_done: bool,
    warnings: usize,
    /// For how long it was certain at least.
    least: Duration,
    /// For how long it was kept from running since it looked for a warning last.
    kept: Duration,
    span: Range<Instant>,
}

fn lock_of(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, "/locks/job").unwrap()
}

/// Works until it is done or told to stop, which takes its time.
fn work(mutex: &InterProcessMutex, is_working: impl FnOnce()) -> Job {
    let options = AcquireOptions::new().min_validity(1200 * MS).timeout(PATIENCE);
    let patience = Instant::now() + PATIENCE;
    let held = loop {
        match mutex.lock_with(&options) {
            // The heartbeats of a busy machine have proved nothing for a whole session timeout.
            Err(Error::Uncertain { .. }) if Instant::now() < patience => {}
            held => break held.unwrap().unwrap(),
        }
    };
    let deadline = held.deadline(MARGIN);
    let (begin, mut warnings, mut least, mut kept) = (Instant::now(), 0, Duration::MAX, Kept::from_now());
    is_working();
    while warnings == 0 && begin.elapsed() < JOB {
        least = least.min(held.valid_until().saturating_duration_since(Instant::now()));
        kept = Kept::from_now();
        match deadline.recv_timeout(5 * MS) {
            Ok(DeadlineEvent::Near) => warnings += 1,
            Ok(_) | Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => panic!("over without a warning"),
        }
    }
    if warnings == 0 && deadline.is_near() {
        warnings += 1;
    }
    if warnings > 0 {
        thread::sleep(STOPPING);
    }
    let stopped = Instant::now();
    let job = Job { stopped, is_done: warnings == 0, warnings, least, kept: kept.so_far(), span: begin..stopped };
    // It may be lost by now.
    let _ = held.release();
    job
}

fn lanes<T: Send>(count: usize, lane: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    let left = AtomicUsize::new(count);
    let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok();
    thread::scope(|scope| {
        let work = || {
            let mut all = Vec::new();
            while let Some(number) = next() {
                all.extend(lane(number));
            }
            all
        };
        let running: Vec<_> = (0..LANES.min(count)).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    })
}

fn jobs() -> usize {
    env::var("JOBS").map_or(24, |jobs| jobs.parse().unwrap())
}

fn server() -> TestingServer {
    support::quick_server().start().unwrap()
}

/// One job with a fault: when it stopped, and when the next one was granted the lock.
fn troubled(server: &TestingServer, number: usize) -> (Trouble, Job, Instant) {
    let trouble = TROUBLES[number % TROUBLES.len()];
    let namespace = support::namespace();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace).session_timeout(T));
    let next = connect(builder(server, &namespace));
    // Any phase of the heartbeat.
    thread::sleep(Duration::from_millis(fastrand::u64(0..800)));
    thread::scope(|scope| {
        let (proxy, (begins, begun)) = (&proxy, mpsc::channel());
        let job = scope.spawn(move || {
            work(&lock_of(&client), || {
                begins.send(()).unwrap();
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(fastrand::u64(0..1000)));
                    trouble.happen(proxy);
                });
            })
        });
        begun.recv_timeout(PATIENCE).unwrap();
        let mutex = lock_of(&next);
        let held = mutex.lock().unwrap();
        let granted = Instant::now();
        held.release().unwrap();
        (trouble, job.join().unwrap(), granted)
    })
}

#[test]
fn a_job_whose_network_fails_is_stopped_before_another_starts() {
    let (server, machine) = (server(), Machine::watch());
    let jobs = lanes(jobs(), |number| vec![troubled(&server, number)]);
    let mut least = Duration::MAX;
    for (trouble, job, granted) in &jobs {
        // The warning comes the margin before the next one may; the job has to stop in the time that the machine ran it.
        let warned = (*granted - MARGIN).min(job.stopped);
        machine.assert_at_most(&format!("{trouble:?}: the job has stopped"), warned..job.stopped, MARGIN + job.kept);
        if !job.is_done {
            least = least.min(granted.saturating_duration_since(job.stopped));
        }
    }
    let stopped = jobs.iter().filter(|(_, job, _)| !job.is_done).count();
    println!("{} jobs with a fault: {stopped} were stopped, the next one came {least:?} later at least", jobs.len());
    assert!(stopped * 3 >= jobs.len(), "the faults come too late to show anything: {stopped} of {}", jobs.len());
}

/// The rule that the test stands on: without the warning the next one does come while the job is at work.
#[test]
fn a_job_that_does_not_listen_is_overtaken() {
    let server = server();
    let namespace = support::namespace();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace).session_timeout(T));
    let next = connect(builder(&server, &namespace));
    let mutex = lock_of(&client);
    let held = mutex.lock().unwrap();
    proxy.black_hole(Direction::Both);
    lock_of(&next).acquire().unwrap();
    assert!(!held.is_valid());
}

#[test]
fn a_job_whose_network_works_is_never_warned() {
    let (server, machine) = (server(), Machine::watch());
    let client = connect(builder(&server, &support::namespace()));
    let (jobs, answers) = thread::scope(|scope| {
        let (ends, end) = mpsc::channel::<()>();
        let asking = scope.spawn(move || {
            let mut answers = Vec::new();
            while end.recv_timeout(10 * MS) == Err(mpsc::RecvTimeoutError::Timeout) {
                let begin = Instant::now();
                client.check_exists().for_path("/").unwrap();
                answers.push(since(begin));
            }
            answers
        });
        let jobs = lanes(jobs(), |_| {
            let client = connect(builder(&server, &support::namespace()).session_timeout(T));
            thread::sleep(Duration::from_millis(fastrand::u64(0..800)));
            vec![work(&lock_of(&client), || {})]
        });
        drop(ends);
        (jobs, asking.join().unwrap())
    });
    // A heartbeat that takes a sixth of the session timeout leaves too little of what it proves, which is until when the jobs within
    // one timeout after it are certain. It goes with the server, too, which may stand still while this process runs, and what the one
    // and the other are late by adds up.
    let slowest = |span: &Range<Instant>| {
        let meanwhile = answers.iter().filter(|took| took.start < span.end && span.start < took.end);
        meanwhile.map(|took| took.end - took.start).max().unwrap_or_default()
    };
    let late = |job: &Job| {
        let span = job.span.start - T..job.span.end;
        machine.lateness(&span) + slowest(&span) * 2
    };
    let judged: Vec<&Job> = jobs.iter().filter(|job| late(job) < T / 6).collect();
    let warned = judged.iter().filter(|job| job.warnings > 0).count();
    let least = jobs.iter().map(|job| job.least).min();
    println!(
        "{} jobs without a fault, {} of them on time: {warned} were warned, all certain for {least:?} at least",
        jobs.len(),
        judged.len()
    );
    assert_eq!(warned, 0);
}
