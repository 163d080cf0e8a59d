//! The locks that the sale can be held under.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use clap::ValueEnum;
use curator_locks::{
    Caching, CuratorFramework, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, Lease,
    Result, WaitStrategy,
    zookeeper_recipe::{LockListener, WriteLock},
};

/// Which lock. To add one, add a variant and its line in [`LockKind::title`] and [`LockKind::make`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockKind {
    /// The re-entrant mutex
    Mutex,
    /// The re-entrant mutex, which stays in a process while no other one wants it
    CachedMutex,
    /// The re-entrant mutex, whose waiters watch the directory
    MutexWatchParent,
    /// The re-entrant mutex, whose waiters poll
    MutexPoll,
    /// The mutex that any thread may release
    SemaphoreMutex,
    /// A semaphore with one lease
    Semaphore,
    /// The write half of the read/write lock
    ReadWrite,
    /// Two mutexes at once
    Multi,
    /// The lock on one ephemeral name
    Unfair,
    /// ZooKeeper's own recipe
    WriteLock,
    /// No lock at all
    None,
}

impl LockKind {
    /// What the lock is called in the library.
    pub(crate) fn title(self) -> &'static str {
        match self {
            LockKind::Mutex => "InterProcessMutex",
            LockKind::CachedMutex => "InterProcessMutex (Caching)",
            LockKind::MutexWatchParent => "InterProcessMutex (WatchParent)",
            LockKind::MutexPoll => "InterProcessMutex (Poll)",
            LockKind::SemaphoreMutex => "InterProcessSemaphoreMutex",
            LockKind::Semaphore => "InterProcessSemaphoreV2",
            LockKind::ReadWrite => "InterProcessReadWriteLock",
            LockKind::Multi => "InterProcessMultiLock",
            LockKind::Unfair => "InterProcessUnfairMutex",
            LockKind::WriteLock => "WriteLock",
            LockKind::None => "no lock",
        }
    }

    /// A lock that all threads of one process share.
    pub(crate) fn make(self, client: &CuratorFramework, path: &str) -> Result<Box<dyn InterProcessLock>> {
        let mutex = || InterProcessMutex::new(client, path);
        Ok(match self {
            LockKind::Mutex => Box::new(mutex()?),
            LockKind::CachedMutex => Box::new(mutex()?.with_caching(Caching::new())),
            LockKind::MutexWatchParent => Box::new(mutex()?.with_wait_strategy(WaitStrategy::WatchParent)),
            LockKind::MutexPoll => Box::new(mutex()?.with_wait_strategy(WaitStrategy::Poll(Duration::from_millis(5)))),
            LockKind::SemaphoreMutex => Box::new(InterProcessSemaphoreMutex::new(client, path)?),
            LockKind::Semaphore => Box::new(OneLease {
                semaphore: InterProcessSemaphoreV2::new(client, path, 1)?,
                lease: Mutex::new(None),
            }),
            LockKind::ReadWrite => Box::new(InterProcessReadWriteLock::new(client, path)?.write_lock().clone()),
            LockKind::Multi => {
                Box::new(InterProcessMultiLock::new(client, [format!("{path}/a"), format!("{path}/b")])?)
            }
            LockKind::Unfair => Box::new(InterProcessUnfairMutex::new(client, path)?),
            LockKind::WriteLock => {
                Box::new(Elected { client: client.clone(), dir: path.to_owned(), owners: Mutex::new(HashMap::new()) })
            }
            LockKind::None => Box::new(NoLock),
        })
    }
}

/// A semaphore with one lease, as a lock.
struct OneLease {
    semaphore: InterProcessSemaphoreV2,
    lease: Mutex<Option<Lease>>,
}

impl OneLease {
    fn keep(&self, lease: Option<Lease>) -> bool {
        let is_held = lease.is_some();
        if is_held {
            *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        }
        is_held
    }
}

impl InterProcessLock for OneLease {
    fn acquire(&self) -> Result<()> {
        self.keep(Some(self.semaphore.acquire()?));
        Ok(())
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        Ok(self.keep(self.semaphore.acquire_timeout(timeout)?))
    }

    fn release(&self) -> Result<()> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        lease.map_or(Ok(()), |lease| self.semaphore.return_lease(lease))
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// ZooKeeper's own recipe tells its owner by a callback; here each thread waits for its own.
struct Elected {
    client: CuratorFramework,
    dir: String,
    owners: Mutex<HashMap<ThreadId, WriteLock>>,
}

struct Tell(Sender<()>);

impl LockListener for Tell {
    fn lock_acquired(&self) {
        // Whoever waited may have given up.
        let _ = self.0.send(());
    }

    fn lock_released(&self) {}
}

impl Elected {
    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<ThreadId, WriteLock>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InterProcessLock for Elected {
    fn acquire(&self) -> Result<()> {
        self.acquire_timeout(Duration::from_secs(3600)).map(drop)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        let (tell, told) = channel();
        let lock = WriteLock::with_listener(&self.client, &self.dir, Tell(tell))?;
        if !lock.lock()? && told.recv_timeout(timeout).is_err() {
            lock.close()?;
            return Ok(false);
        }
        self.owners().insert(thread::current().id(), lock);
        Ok(true)
    }

    fn release(&self) -> Result<()> {
        let lock = self.owners().remove(&thread::current().id());
        lock.map_or_else(
            || Err(Error::NotOwner { path: self.dir.clone(), detail: "not by this thread".into() }),
            |lock| lock.close(),
        )
    }

    fn is_acquired_in_this_process(&self) -> bool {
        !self.owners().is_empty()
    }
}

/// Looks like a lock and excludes nobody, so that the control runs the very code of the sale.
struct NoLock;

impl InterProcessLock for NoLock {
    fn acquire(&self) -> Result<()> {
        Ok(())
    }

    fn acquire_timeout(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}
