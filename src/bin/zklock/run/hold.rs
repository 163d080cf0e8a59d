//! The lock of the command line, whatever its kind.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    AcquireOptions, CuratorFramework, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessUnfairMutex, Lease, MultiLockGuard, Result,
};

use crate::args::{Kind, Run};

/// What is to be held.
pub(super) enum Locks {
    All { locks: InterProcessMultiLock, asked: Receiver<()> },
    Semaphore(InterProcessSemaphoreV2, Receiver<()>),
}

/// What is held.
pub(super) enum Held<'a> {
    All(MultiLockGuard<'a>, &'a Receiver<()>),
    Lease(Lease, &'a Receiver<()>),
}

impl Locks {
    pub(super) fn new(client: &CuratorFramework, args: &Run) -> Result<Locks> {
        let (sender, asked) = unbounded();
        if let Some(leases) = args.kind.semaphore {
            let leases = usize::try_from(leases).unwrap_or(usize::MAX);
            return Ok(Locks::Semaphore(InterProcessSemaphoreV2::new(client, &args.path, leases)?, asked));
        }
        let mut paths: Vec<&str> = args.also.iter().map(String::as_str).chain([args.path.as_str()]).collect();
        // Whoever wants several of them takes them in one order, so that nobody waits in a circle.
        paths.sort_unstable();
        paths.dedup();
        let locks: Result<Vec<_>> = paths.into_iter().map(|path| lock_of(client, path, &args.kind, &sender)).collect();
        Ok(Locks::All { locks: InterProcessMultiLock::from_locks(locks?)?, asked })
    }

    pub(super) fn acquire(&self, options: &AcquireOptions) -> Result<Option<Held<'_>>> {
        match self {
            Locks::All { locks, asked } => Ok(locks.lock_with(options)?.map(|guard| Held::All(guard, asked))),
            Locks::Semaphore(semaphore, asked) => {
                let lease = semaphore.acquire_with(1, options)?.and_then(|mut leases| leases.pop());
                Ok(lease.map(|lease| Held::Lease(lease, asked)))
            }
        }
    }

    /// Where the time was up.
    pub(super) fn stopped_at(&self) -> Option<String> {
        match self {
            Locks::All { locks, .. } => locks.timed_out_at(),
            Locks::Semaphore(..) => None,
        }
    }
}

fn lock_of(
    client: &CuratorFramework,
    path: &str,
    kind: &Kind,
    asked: &Sender<()>,
) -> Result<Arc<dyn InterProcessLock>> {
    let asked = asked.clone();
    // Nobody listens before the command runs: then it is asked as soon as it does.
    let ask = move || {
        let _ = asked.send(());
    };
    if kind.shared || kind.write {
        let both = InterProcessReadWriteLock::new(client, path)?;
        return Ok(if kind.shared { Arc::new(both.read_lock().clone()) } else { Arc::new(both.write_lock().clone()) });
    }
    if kind.unfair {
        return Ok(Arc::new(InterProcessUnfairMutex::new(client, path)?));
    }
    let mutex = InterProcessMutex::new(client, path)?;
    mutex.make_revocable(move |_: &InterProcessMutex| ask());
    Ok(Arc::new(mutex))
}

impl Held<'_> {
    pub(super) fn holds(&self) -> Vec<&Hold> {
        match self {
            Held::All(guard, _) => guard.holds().iter().collect(),
            Held::Lease(lease, _) => vec![lease],
        }
    }

    /// Told each time that somebody asks for the lock.
    pub(super) fn asked(&self) -> &Receiver<()> {
        match self {
            Held::All(_, asked) | Held::Lease(_, asked) => asked,
        }
    }

    pub(super) fn release(self) -> Result<()> {
        match self {
            Held::All(guard, _) => guard.release(),
            Held::Lease(lease, _) => lease.close(),
        }
    }
}
