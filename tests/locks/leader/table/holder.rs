//! One of the processes: it holds a lock for one job after the other.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, at, bounded, select};
use curator_locks::{
    AcquireOptions, CuratorFramework, Deadline, DeadlineEvent, Hold, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessUnfairMutex,
};
use parking_lot::Mutex;

use super::{
    SESSION,
    candidate::{Candidate, told},
};

/// How long before the end of what is certain the worker is told to stop, and how long it takes for that.
const MARGIN: Duration = Duration::from_millis(400);
const STOPPING: Duration = Duration::from_millis(100);

pub struct Holder {
    holds: Arc<Mutex<Vec<Hold>>>,
    resigns: Sender<()>,
}

fn lock(kind: &str, client: &CuratorFramework, path: &str) -> Option<Box<dyn InterProcessLock>> {
    Some(match kind {
        "mutex" => Box::new(InterProcessMutex::new(client, path).unwrap()),
        "write" => Box::new(InterProcessReadWriteLock::new(client, path).unwrap().write_lock().clone()),
        "semaphore_mutex" => Box::new(InterProcessSemaphoreMutex::new(client, path).unwrap()),
        "unfair" => Box::new(InterProcessUnfairMutex::new(client, path).unwrap()),
        "multi" => Box::new(InterProcessMultiLock::new(client, [format!("{path}/a"), format!("{path}/b")]).unwrap()),
        _ => return None,
    })
}

impl Holder {
    /// `None`: no lock is of this kind.
    pub fn join(kind: &str, client: &CuratorFramework, path: &str) -> Option<Holder> {
        let lock = lock(kind, client, path)?;
        let (resigns, resigned) = bounded(1);
        let holds = Arc::<Mutex<Vec<Hold>>>::default();
        let seen = holds.clone();
        thread::spawn(move || {
            loop {
                hold_once(&*lock, &seen, &resigned);
            }
        });
        Some(Holder { holds, resigns })
    }
}

fn hold_once(lock: &dyn InterProcessLock, seen: &Mutex<Vec<Hold>>, resigned: &Receiver<()>) {
    let holds = match lock.acquire_holds(&AcquireOptions::new().min_validity(MARGIN)) {
        Ok(holds) => holds.unwrap(),
        Err(error) => {
            // Not certain for so long within a session timeout, on a busy machine.
            assert!(error.is_retryable(), "{error}");
            return;
        }
    };
    let deadlines: Vec<_> = holds.iter().map(|hold| hold.deadline(MARGIN)).collect();
    *seen.lock() = holds.clone();
    let _ = resigned.try_recv();
    told("leads");
    let end = Instant::now() + SESSION.mul_f64(0.5 + 2.0 * fastrand::f64());
    let is_done = at(end);
    loop {
        select! {
            recv(deadlines[0]) -> event => if event != Ok(DeadlineEvent::Recovered) { break },
            recv(deadlines.last().unwrap()) -> event => if event != Ok(DeadlineEvent::Recovered) { break },
            recv(resigned) -> _ => break,
            recv(is_done) -> _ => break,
        }
    }
    let was_warned = deadlines.iter().any(Deadline::is_near);
    thread::sleep(STOPPING);
    told("ends");
    if was_warned {
        // Whoever does not listen goes on with its job.
        thread::sleep(end.saturating_duration_since(Instant::now()));
    }
    told("done");
    seen.lock().clear();
    // Whatever the server says: the background goes on.
    let _ = lock.release_holds(&holds);
}

impl Candidate for Holder {
    fn leads(&self) -> Option<i64> {
        let holds = self.holds.lock();
        let is_valid = !holds.is_empty() && holds.iter().all(Hold::is_valid);
        is_valid.then(|| holds[0].fencing_token().value())
    }

    fn resign(&self) {
        let _ = self.resigns.try_send(());
    }
}
