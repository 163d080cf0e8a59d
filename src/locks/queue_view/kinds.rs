//! The kind of a lock, and the mode and the name style of a contender, as far as names tell.

use std::fmt;

/// A kind of lock, as far as names tell it.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, LockKind, LockQueue};
///
/// assert_eq!(LockQueue::inspect(&client, "/locks/order-42")?.kind, LockKind::Unused);
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// assert_eq!(LockQueue::inspect(&client, "/locks/order-42")?.kind, LockKind::Mutex);
/// held.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// No contender, so nothing tells the kind.
    Unused,
    /// One holder at a time, first come, first served.
    Mutex,
    /// Readers together, or one writer.
    ReadWrite,
    /// A number of leases at a time.
    Semaphore,
    /// One holder, and no queue: waiters cannot be seen.
    Unfair,
    /// ZooKeeper's own recipe, [`WriteLock`](crate::zookeeper_recipe::WriteLock).
    WriteLock,
    /// Curator's `LeaderLatch`.
    LeaderLatch,
    /// Names of several kinds that do not go together.
    Mixed,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockKind::Unused => "unused",
            LockKind::Mutex => "mutex",
            LockKind::ReadWrite => "read/write",
            LockKind::Semaphore => "semaphore",
            LockKind::Unfair => "unfair",
            LockKind::WriteLock => "write-lock",
            LockKind::LeaderLatch => "leader-latch",
            LockKind::Mixed => "mixed",
        })
    }
}

/// Whether a contender holds the lock or waits for it.
///
/// ```
/// use curator_locks::{EntryState, TenureState};
///
/// assert_eq!(EntryState::Holds.to_string(), "holds");
/// assert_eq!(EntryState::Cached(TenureState::HeldOrIdle).to_string(), "cached");
/// let (first, second) = (EntryState::Waits(0), EntryState::Waits(1));
/// assert!(first != second && second.to_string() == "waits");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// The contender holds, or is about to learn that it does.
    Holds,
    /// The contender has the lock by a znode that its process [keeps between holds](crate::Caching), so it may be idle.
    /// No other contender can be granted the lock.
    Cached(TenureState),
    /// The contender waits, with this many waiters in front of it.
    Waits(usize),
}

impl fmt::Display for EntryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EntryState::Holds => "holds",
            EntryState::Cached(_) => "cached",
            EntryState::Waits(_) => "waits",
        })
    }
}

/// Whether a thread is inside, if a process [keeps](crate::Caching) a lock between holds.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry.clone())?;
/// # client.start()?;
/// # let other = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// # other.start()?;
/// use curator_locks::{Caching, CuratorFramework, EntryState, InterProcessMutex, LockQueue, Result, TenureState};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_caching(Caching::new());
/// let state = |client: &CuratorFramework| -> Result<EntryState> {
///     Ok(LockQueue::inspect(client, "/locks/order-42")?.entries[0].state)
/// };
/// let held = mutex.lock()?;
/// assert_eq!(state(&client)?, EntryState::Cached(TenureState::Held(1)));
/// held.release()?;
/// assert_eq!(state(&client)?, EntryState::Cached(TenureState::Idle));
/// assert_eq!(state(&other)?, EntryState::Cached(TenureState::HeldOrIdle)); // of another process, or another client
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TenureState {
    /// Held, or kept idle: only the client that owns the znode knows which.
    HeldOrIdle,
    /// Kept idle: no thread is inside.
    Idle,
    /// Held by this many threads, or about to be.
    Held(usize),
}

impl fmt::Display for TenureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TenureState::HeldOrIdle => f.pad("held or kept idle"),
            TenureState::Idle => f.pad("kept idle"),
            TenureState::Held(threads) => f.pad(&format!("held by {threads}")),
        }
    }
}

/// The mode in which a contender holds or wants a lock.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{EntryMode, InterProcessReadWriteLock, LockQueue};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
/// let held = lock.read_lock().lock()?;
/// assert_eq!(LockQueue::inspect(&client, "/locks/catalogue")?.entries[0].mode, EntryMode::Read);
/// held.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryMode {
    /// The lock, alone.
    Exclusive,
    /// For reading, beside other readers.
    Read,
    /// For writing, alone.
    Write,
    /// A lease of a semaphore.
    Lease,
}

impl fmt::Display for EntryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EntryMode::Exclusive => "exclusive",
            EntryMode::Read => "read",
            EntryMode::Write => "write",
            EntryMode::Lease => "lease",
        })
    }
}

/// The library or recipe whose names a znode bears.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessUnfairMutex, LockQueue, NameStyle};
///
/// let mutex = InterProcessUnfairMutex::new(&client, "/jobs/nightly")?;
/// let held = mutex.lock()?;
/// assert_eq!(LockQueue::inspect(&client, "/jobs/nightly")?.entries[0].names, NameStyle::Unfair);
/// held.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameStyle {
    /// Curator, and this crate.
    Curator,
    /// kazoo.
    Kazoo,
    /// ZooKeeper's own recipe, and [`WriteLock`](crate::zookeeper_recipe::WriteLock).
    ZooKeeper,
    /// [`InterProcessUnfairMutex`](crate::InterProcessUnfairMutex).
    Unfair,
    /// None that is known here.
    Other,
}

impl fmt::Display for NameStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NameStyle::Curator => "curator",
            NameStyle::Kazoo => "kazoo",
            NameStyle::ZooKeeper => "zookeeper",
            NameStyle::Unfair => "unfair",
            NameStyle::Other => "other",
        })
    }
}
