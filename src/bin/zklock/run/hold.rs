//! The lock of the command line, whatever its kind.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    AcquireOptions, CuratorFramework, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessUnfairMutex, Lease, MultiLockGuard, Result,
};

use crate::args::{Kind, Run};

/// What is to be held.
pub(super) struct Locks {
    wanted: Wanted,
    /// Told each time that somebody asks for the lock. Kinds that nobody can ask for keep it open, too.
    asked: Receiver<()>,
    _ask: Sender<()>,
}

enum Wanted {
    All(InterProcessMultiLock),
    Lease(InterProcessSemaphoreV2),
}

/// What is held.
pub(super) enum Held<'a> {
    All(MultiLockGuard<'a>),
    Lease(Lease),
}

impl Locks {
    pub(super) fn new(client: &CuratorFramework, args: &Run) -> Result<Locks> {
        let (ask, asked) = unbounded();
        let wanted = match args.kind.semaphore {
            Some(leases) => {
                let leases = usize::try_from(leases).unwrap_or(usize::MAX);
                Wanted::Lease(InterProcessSemaphoreV2::new(client, &args.path, leases)?)
            }
            None => {
                let mut paths: Vec<&str> = args.also.iter().map(String::as_str).chain([args.path.as_str()]).collect();
                // Whoever wants several of them takes them in one order, so that nobody waits in a circle.
                paths.sort_unstable();
                paths.dedup();
                let locks = paths.into_iter().map(|path| lock_of(client, path, &args.kind, &ask));
                Wanted::All(InterProcessMultiLock::from_locks(locks.collect::<Result<Vec<_>>>()?)?)
            }
        };
        Ok(Locks { wanted, asked, _ask: ask })
    }

    pub(super) fn acquire(&self, options: &AcquireOptions) -> Result<Option<Held<'_>>> {
        match &self.wanted {
            Wanted::All(locks) => Ok(locks.lock_with(options)?.map(Held::All)),
            Wanted::Lease(semaphore) => {
                Ok(semaphore.acquire_with(1, options)?.and_then(|mut leases| leases.pop()).map(Held::Lease))
            }
        }
    }

    pub(super) fn asked(&self) -> &Receiver<()> {
        &self.asked
    }

    /// Where the time was up.
    pub(super) fn stopped_at(&self) -> Option<String> {
        match &self.wanted {
            Wanted::All(locks) => locks.timed_out_at(),
            Wanted::Lease(_) => None,
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
            Held::All(guard) => guard.holds().iter().collect(),
            Held::Lease(lease) => vec![lease],
        }
    }

    pub(super) fn release(self) -> Result<()> {
        match self {
            Held::All(guard) => guard.release(),
            Held::Lease(lease) => lease.close(),
        }
    }
}
