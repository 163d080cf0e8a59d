//! The locks. All stand on [`LockInternals`]: create a znode, decide from the names, watch the predecessor.
//!
//! The rooms stand on each other, the lowest first, and a room uses only rooms below it (`ci/layers`): `options` are
//! the options of an acquire, `recipe` decides from names and replies, `holds` is a holder's knowledge, `acquire`
//! speaks with the servers and knows who holds what, `face` has the methods that all locks share, `threads` shares a
//! lock among threads of one process. Above them each lock is a file or a room of its own.

mod acquire;
mod face;
mod holds;
mod leader;
mod multi;
mod mutex;
mod options;
pub(crate) mod queue_view;
mod read_write;
pub(crate) mod recipe;
mod semaphore;
mod shared;
mod threads;
mod unfair;
pub mod zookeeper_recipe;

pub use acquire::internals::LockInternals;
pub use face::{
    guard::LockGuard,
    lock::{InterProcessLock, Locker},
    revocation::{Revocable, RevocationListener, RevocationRequest, Revoker},
};
pub use holds::{
    deadline::Deadline,
    death::UncleanDeath,
    fence::SelfFence,
    fencing::{
        checker::{FencingChecker, FencingError, StaleToken},
        file::FileFencingChecker,
        token::FencingToken,
        zookeeper::ZooKeeperFencingChecker,
    },
    hold::Hold,
};
pub use leader::{
    CancelLeadership, CloseMode, LeaderLatch, LeaderLatchListener, LeaderSelector, LeaderSelectorListener, LeaderState,
    Leadership, Participant,
};
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::InterProcessMutex;
pub use options::{acquire::AcquireOptions, wait_strategy::WaitStrategy};
pub use queue_view::{
    kinds::{EntryMode, EntryState, LockKind, NameStyle, TenureState},
    queue::{LockQueue, QueueEntry},
};
pub use read_write::{InterProcessReadLock, InterProcessReadWriteLock, InterProcessWriteLock};
#[allow(unused_imports, reason = "the model check uses it")]
#[allow(unreachable_pub, reason = "as above")]
pub use recipe::driver::ZNodeNameDriver;
pub use recipe::driver::{
    Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver, StandardLockInternalsDriver,
    WriteLockDriver,
};
pub use semaphore::{
    lease::Lease,
    mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard},
    v2::InterProcessSemaphoreV2,
};
pub use shared::{
    SharedCount, SharedCountListener, SharedCountReader, SharedValue, SharedValueListener, SharedValueReader,
    VersionedValue,
};
pub use threads::caching::Caching;
pub use unfair::InterProcessUnfairMutex;

/// Users may keep these over a `catch_unwind`, as the standard library's locks: a panic of their code leaves them
/// as good as before, and a guard that it drops releases its lock.
macro_rules! unwind_safe {
    ($($name:ty),*) => {
        $(
            impl std::panic::UnwindSafe for $name {}
            impl std::panic::RefUnwindSafe for $name {}
        )*
    };
}

unwind_safe! {
    crate::framework::client::core::CuratorFramework, InterProcessMutex, InterProcessReadLock, InterProcessWriteLock,
    InterProcessReadWriteLock, InterProcessUnfairMutex, InterProcessMultiLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LeaderLatch, SharedCount, SharedValue, LockGuard, MultiLockGuard, SemaphoreMutexGuard, Lease, Hold
}
