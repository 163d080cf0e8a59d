//! The locks. All stand on [`LockInternals`]: create a znode, decide from the names, watch the predecessor.

mod caching;
mod candidate;
pub(crate) mod contender;
mod deadlock;
mod driver;
mod fencing;
mod guard;
mod hold;
mod internals;
mod last_look;
mod leader;
mod lease;
mod limit;
mod lock;
mod methods;
mod multi;
mod mutex;
mod options;
mod owners;
mod participant;
mod queue_view;
mod read_write;
mod revocation;
mod semaphore;
mod semaphore_mutex;
mod token;
mod unfair;
mod wait_strategy;
pub mod zookeeper_recipe;

pub use caching::Caching;
#[allow(unused_imports, reason = "the model check uses it")]
#[allow(unreachable_pub, reason = "as above")]
pub use driver::ZNodeNameDriver;
pub use driver::{
    Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver, StandardLockInternalsDriver,
    WriteLockDriver,
};
pub use fencing::{FencingChecker, StaleToken};
pub use guard::LockGuard;
pub use hold::Hold;
pub use internals::LockInternals;
pub use leader::{
    CancelLeadership, CloseMode, LeaderLatch, LeaderLatchListener, LeaderSelector, LeaderSelectorListener, LeaderState,
    Leadership,
};
pub use lease::Lease;
pub use lock::{InterProcessLock, Locker};
pub use multi::{InterProcessMultiLock, MultiLockGuard};
pub use mutex::InterProcessMutex;
pub use options::AcquireOptions;
pub use participant::Participant;
pub use queue_view::{EntryMode, EntryState, LockKind, LockQueue, NameStyle, QueueEntry};
pub use read_write::{InterProcessReadWriteLock, ReadLock as InterProcessReadLock, WriteLock as InterProcessWriteLock};
pub use revocation::{Revocable, RevocationListener, Revoker};
pub use semaphore::InterProcessSemaphoreV2;
pub use semaphore_mutex::{InterProcessSemaphoreMutex, SemaphoreMutexGuard};
pub use token::FencingToken;
pub use unfair::InterProcessUnfairMutex;
pub use wait_strategy::WaitStrategy;
