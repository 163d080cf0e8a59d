//! The lock of the command line, whatever its kind.

use std::{sync::Arc, time::Duration};

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    AcquireOptions, CuratorFramework, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessUnfairMutex, Lease, MultiLockGuard, Result,
    RevocationRequest, SelfFence,
};

use crate::args::{self, Kind};

/// The locks to hold.
pub(super) struct Locks {
    wanted: AllOrLease,
    /// The requests to give the lock back: who asks, and why.
    pub(super) asked: Receiver<String>,
    /// In the order in which they are taken.
    pub(super) paths: Vec<String>,
}

enum AllOrLease {
    All(InterProcessMultiLock),
    Lease(InterProcessSemaphoreV2),
}

/// The locks that are held.
pub(super) enum Held {
    All(MultiLockGuard),
    Lease(Lease),
}

impl Locks {
    pub(super) fn new(client: &CuratorFramework, args: &args::Wanted) -> Result<Locks> {
        let (ask, asked) = unbounded();
        let mut paths: Vec<String> = args.also.iter().chain([&args.path]).cloned().collect();
        // All processes take several locks in one order, so that none waits in a circle.
        paths.sort_unstable();
        paths.dedup();
        let wanted = match args.kind.semaphore {
            Some(leases) => {
                let leases = usize::try_from(leases).unwrap_or(usize::MAX);
                let semaphore = InterProcessSemaphoreV2::new(client, &args.path, leases)?;
                semaphore.on_revocation(tell(&ask));
                AllOrLease::Lease(semaphore)
            }
            None => {
                let locks = paths.iter().map(|path| lock_of(client, path, &args.kind, &ask));
                AllOrLease::All(InterProcessMultiLock::from_locks(locks.collect::<Result<Vec<_>>>()?)?)
            }
        };
        Ok(Locks { wanted, asked, paths })
    }

    pub(super) fn acquire(&self, options: &AcquireOptions) -> Result<Option<Held>> {
        match &self.wanted {
            AllOrLease::All(locks) => Ok(locks.lock_with(options)?.map(Held::All)),
            AllOrLease::Lease(semaphore) => {
                Ok(semaphore.acquire_with(1, options)?.and_then(|mut leases| leases.pop()).map(Held::Lease))
            }
        }
    }

    /// The path of the lock at which the time was up.
    pub(super) fn stopped_at(&self) -> Option<String> {
        match &self.wanted {
            AllOrLease::All(locks) => locks.timed_out_at(),
            AllOrLease::Lease(_) => None,
        }
    }
}

fn lock_of(
    client: &CuratorFramework,
    path: &str,
    kind: &Kind,
    ask: &Sender<String>,
) -> Result<Arc<dyn InterProcessLock>> {
    if kind.shared || kind.write {
        let both = InterProcessReadWriteLock::new(client, path)?;
        both.on_revocation(tell(ask));
        return Ok(if kind.shared { Arc::new(both.read_lock().clone()) } else { Arc::new(both.write_lock().clone()) });
    }
    if kind.unfair {
        let unfair = InterProcessUnfairMutex::new(client, path)?;
        unfair.on_revocation(tell(ask));
        return Ok(Arc::new(unfair));
    }
    let mutex = InterProcessMutex::new(client, path)?;
    mutex.on_revocation(tell(ask));
    Ok(Arc::new(mutex))
}

/// Passes on who asks for the lock. Before the command runs no thread listens: the request waits until then.
fn tell(ask: &Sender<String>) -> impl Fn(&RevocationRequest) + Send + Sync + 'static {
    let ask = ask.clone();
    move |request| {
        // Nobody listens any more at the end.
        let _ = ask.send(request.to_string());
    }
}

impl Held {
    pub(super) fn holds(&self) -> Vec<&Hold> {
        match self {
            Held::All(guard) => guard.holds().iter().collect(),
            Held::Lease(lease) => vec![lease],
        }
    }

    /// Asks the kernel to end this process once the lock may be another's, and the command with it: the last resort, where both
    /// this process and its watchdog are stopped. Only Linux can.
    pub(super) fn self_fence(&self) -> Vec<SelfFence> {
        let fences: Result<_> = self.holds().iter().map(|hold| hold.self_fence(Duration::ZERO)).collect();
        fences.inspect_err(|error| log::debug!("without a fence: {error}")).unwrap_or_default()
    }

    pub(super) fn release(self) -> Result<()> {
        match self {
            Held::All(guard) => guard.release(),
            Held::Lease(lease) => lease.close(),
        }
    }
}
