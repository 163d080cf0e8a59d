//! The locks under test, and what the cases need of each.

use std::time::Duration;

use curator_locks::{
    AcquireOptions, Caching, CuratorFramework, Dialect, Hold, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessUnfairMutex, InterProcessUpgradableLock, InterProcessWriteLock, LockGuard, MultiLockGuard, Result,
    SemaphoreMutexGuard,
};

use super::adapters::{Candidate, OneLease};

/// Where every lock under test stands.
pub(crate) const LOCK: &str = "/deep/down/lock";

/// A lock with its own kind of guard.
pub(crate) trait Lock: InterProcessLock {
    /// Acquires it as a guard, waiting as long as it takes.
    fn guard(&self) -> Result<Box<dyn Guard + '_>>;

    /// The same as a guard for any thread, where there is one.
    fn guard_for_any_thread(&self) -> Result<Box<dyn Guard + Send + '_>> {
        panic!("the guard belongs to a thread")
    }
}

/// A lock held as a value; dropping it releases it.
pub(crate) trait Guard {
    /// What the holder knows about each znode.
    fn holds(&self) -> Vec<&Hold>;

    fn release(self: Box<Self>) -> Result<()>;
}

/// What a lock's queue looks like, to see who waits in it.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    /// The znodes of holder and waiters in one directory.
    Directory,
    /// The same in two directories; who waits, waits for the first of them.
    Two,
    /// Holders and the first waiter in one directory, all waiters in another one.
    Leases,
    /// The holder's znode alone in a directory of its own; the waiters watch it.
    Sole,
}

#[derive(Clone, Copy)]
pub(crate) enum Sessions {
    Own,
    /// At servers that speak ZooKeeper and are of another kind.
    At(Dialect),
    /// Those of the package `zookeeper`.
    #[cfg(feature = "zookeeper")]
    Package,
}

/// One lock under test.
pub(crate) struct Subject {
    /// The module of its tests.
    pub(crate) name: &'static str,
    pub(crate) make: fn(&CuratorFramework) -> Box<dyn Lock>,
    /// What cannot be held beside it, and excludes its own kind.
    pub(crate) rival: fn(&CuratorFramework) -> Box<dyn Lock>,
    pub(crate) queue: Queue,
    pub(crate) sessions: Sessions,
    pub(crate) is_reentrant: bool,
    /// It does not exclude its own kind.
    pub(crate) is_shared: bool,
    /// One object is one contender, whatever the number of threads.
    pub(crate) is_one_contender: bool,
    /// A second release knows of the first, which the server has not confirmed.
    pub(crate) remembers_releases: bool,
}

impl Subject {
    pub(crate) const fn at(self, dialect: Dialect) -> Subject {
        Subject { sessions: Sessions::At(dialect), ..self }
    }

    #[cfg(feature = "zookeeper")]
    pub(crate) const fn over_the_package(self) -> Subject {
        Subject { sessions: Sessions::Package, ..self }
    }

    /// The paths of the directories that its znodes stand in.
    pub(crate) fn directories(&self) -> Vec<String> {
        match self.queue {
            Queue::Directory => vec![LOCK.into()],
            Queue::Sole => vec![format!("{LOCK}/lock/holder")],
            Queue::Two => paths().into(),
            Queue::Leases => vec![format!("{LOCK}/leases"), format!("{LOCK}/locks")],
        }
    }

    /// The k-th of several contenders, and whether it shares: of a lock that does not exclude its own kind every other
    /// one is a rival.
    pub(crate) fn contender(&self, client: &CuratorFramework, k: usize) -> (Box<dyn Lock>, bool) {
        if self.is_shared && k % 2 == 1 { ((self.rival)(client), false) } else { ((self.make)(client), self.is_shared) }
    }
}

fn paths() -> [String; 2] {
    [format!("{LOCK}/a"), format!("{LOCK}/b")]
}

pub(crate) const MUTEX: Subject = Subject {
    name: "mutex",
    make: mutex,
    rival: mutex,
    queue: Queue::Directory,
    sessions: Sessions::Own,
    is_reentrant: true,
    is_shared: false,
    is_one_contender: false,
    remembers_releases: true,
};

/// Idle for no time, so that what a case leaves is the same as without caching.
pub(crate) const CACHED_MUTEX: Subject =
    Subject { name: "cached_mutex", make: cached_mutex, rival: cached_mutex, remembers_releases: false, ..MUTEX };

pub(crate) const SEMAPHORE_MUTEX: Subject = Subject {
    name: "semaphore_mutex",
    make: semaphore_mutex,
    rival: semaphore_mutex,
    queue: Queue::Leases,
    is_reentrant: false,
    ..MUTEX
};

pub(crate) const MULTI: Subject = Subject { name: "multi", make: multi, rival: multi, queue: Queue::Two, ..MUTEX };

pub(crate) const READ: Subject = Subject { name: "read", make: read, rival: write, is_shared: true, ..MUTEX };

pub(crate) const WRITE: Subject = Subject { name: "write", make: write, rival: write, ..MUTEX };

pub(crate) const UPGRADABLE: Subject =
    Subject { name: "upgradable", make: upgradable, rival: upgradable, ..MUTEX };

pub(crate) const CACHED_READ: Subject = Subject {
    name: "cached_read",
    make: cached_read,
    rival: cached_write,
    is_shared: true,
    remembers_releases: false,
    ..MUTEX
};

pub(crate) const CACHED_WRITE: Subject =
    Subject { name: "cached_write", make: cached_write, rival: cached_write, remembers_releases: false, ..MUTEX };

pub(crate) const UNFAIR: Subject = Subject { name: "unfair", make: unfair, rival: unfair, queue: Queue::Sole, ..MUTEX };

pub(crate) const ZK_WRITE_LOCK: Subject = Subject {
    name: "zk_write_lock",
    make: zk_write_lock,
    rival: zk_write_lock,
    is_reentrant: false,
    is_one_contender: true,
    remembers_releases: false,
    ..MUTEX
};

pub(crate) const LEASE: Subject =
    Subject { name: "lease", make: lease, rival: lease, remembers_releases: false, ..SEMAPHORE_MUTEX };

fn mutex(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessMutex::new(client, LOCK).unwrap())
}

fn cached_mutex(client: &CuratorFramework) -> Box<dyn Lock> {
    let caching = Caching::new().keep_idle(Duration::ZERO);
    Box::new(InterProcessMutex::new(client, LOCK).unwrap().with_caching(caching))
}

fn semaphore_mutex(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessSemaphoreMutex::new(client, LOCK).unwrap())
}

fn multi(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessMultiLock::new(client, paths()).unwrap())
}

fn read(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessReadWriteLock::new(client, LOCK).unwrap().read_lock().clone())
}

fn write(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessReadWriteLock::new(client, LOCK).unwrap().write_lock().clone())
}

fn upgradable(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessReadWriteLock::new(client, LOCK).unwrap().upgradable_lock().clone())
}

fn cached_read(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(cached_read_write(client).read_lock().clone())
}

fn cached_write(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(cached_read_write(client).write_lock().clone())
}

fn cached_read_write(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, LOCK).unwrap().with_caching(Caching::new().keep_idle(Duration::ZERO))
}

fn unfair(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(InterProcessUnfairMutex::new(client, LOCK).unwrap())
}

fn zk_write_lock(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(Candidate::new(client, LOCK))
}

fn lease(client: &CuratorFramework) -> Box<dyn Lock> {
    Box::new(OneLease::new(client, LOCK))
}

macro_rules! guards {
    ($($lock:ident),*) => {
        $(
            impl Lock for $lock {
                fn guard(&self) -> Result<Box<dyn Guard + '_>> {
                    Ok(Box::new(self.lock()?))
                }
            }
        )*
    };
}

guards!(
    InterProcessMutex,
    InterProcessMultiLock,
    InterProcessReadLock,
    InterProcessWriteLock,
    InterProcessUpgradableLock,
    InterProcessUnfairMutex
);

impl Lock for InterProcessSemaphoreMutex {
    fn guard(&self) -> Result<Box<dyn Guard + '_>> {
        Ok(Box::new(self.lock()?))
    }

    fn guard_for_any_thread(&self) -> Result<Box<dyn Guard + Send + '_>> {
        Ok(Box::new(self.lock_with(&AcquireOptions::new())?.unwrap()))
    }
}

impl Guard for LockGuard {
    fn holds(&self) -> Vec<&Hold> {
        vec![self]
    }

    fn release(self: Box<Self>) -> Result<()> {
        LockGuard::release(*self)
    }
}

impl Guard for SemaphoreMutexGuard {
    fn holds(&self) -> Vec<&Hold> {
        vec![self]
    }

    fn release(self: Box<Self>) -> Result<()> {
        SemaphoreMutexGuard::release(*self)
    }
}

impl Guard for MultiLockGuard {
    fn holds(&self) -> Vec<&Hold> {
        MultiLockGuard::holds(self).iter().collect()
    }

    fn release(self: Box<Self>) -> Result<()> {
        MultiLockGuard::release(*self)
    }
}
