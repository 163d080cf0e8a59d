//! The locks. All stand on [`LockInternals`]: create a znode, decide from the names, watch the predecessor.
//!
//! `contender` decides who may enter and speaks with the server, `threads` knows which thread of this process holds what,
//! and `api` has what all locks share in their public face. Each lock or recipe is a file or a room of its own.

mod api;
pub(crate) mod contender;
mod leader;
mod multi;
mod mutex;
mod queue_view;
mod read_write;
mod semaphore;
mod threads;
mod unfair;
pub mod zookeeper_recipe;

pub use api::{
    fencing::{
        checker::{FencingChecker, FencingError, StaleToken},
        file::FileFencingChecker,
        token::FencingToken,
        zookeeper::ZooKeeperFencingChecker,
    },
    guard::LockGuard,
    holds::{deadline::Deadline, death::UncleanDeath, hold::Hold},
    lock::{InterProcessLock, Locker},
    options::{acquire::AcquireOptions, wait_strategy::WaitStrategy},
    revocation::{
        request::RevocationRequest,
        revoker::{Revocable, RevocationListener, Revoker},
    },
};
#[allow(unused_imports, reason = "the model check uses it")]
#[allow(unreachable_pub, reason = "as above")]
pub use contender::driver::ZNodeNameDriver;
pub use contender::{
    driver::{
        Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver,
        StandardLockInternalsDriver, WriteLockDriver,
    },
    internals::LockInternals,
};
pub use leader::{
    CancelLeadership, CloseMode, LeaderLatch, LeaderLatchListener, LeaderSelector, LeaderSelectorListener, LeaderState,
    Leadership, Participant,
};
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::InterProcessMutex;
pub use queue_view::{
    kinds::{EntryMode, EntryState, LockKind, NameStyle, TenureState},
    queue::{LockQueue, QueueEntry},
};
pub use read_write::{InterProcessReadLock, InterProcessReadWriteLock, InterProcessWriteLock};
pub use semaphore::{
    lease::Lease,
    mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard},
    shared_count::SharedCount,
    v2::InterProcessSemaphoreV2,
    versioned_value::VersionedValue,
};
pub use threads::caching::Caching;
pub use unfair::InterProcessUnfairMutex;
