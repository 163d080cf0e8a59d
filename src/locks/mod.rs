//! The locks. All stand on [`LockInternals`]: create a znode, decide from the names, watch the predecessor.

mod deadlock;
mod driver;
mod guard;
mod internals;
mod lock;
mod mutex;
mod options;
mod owners;
mod read_write;
mod revocation;
mod token;
mod unfair;
mod wait;
mod wait_strategy;
mod zk_write_lock;

pub use driver::{
    Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver, StandardLockInternalsDriver,
    WriteLockDriver,
};
pub use guard::LockGuard;
pub use internals::LockInternals;
pub use lock::{InterProcessLock, Locker};
pub use mutex::InterProcessMutex;
pub use options::AcquireOptions;
pub use read_write::{InterProcessReadWriteLock, ReadLock as InterProcessReadLock, WriteLock as InterProcessWriteLock};
pub use revocation::{Revocable, RevocationListener, Revoker};
pub use token::FencingToken;
pub use unfair::InterProcessUnfairMutex;
pub use wait_strategy::WaitStrategy;
pub use zk_write_lock::{LockListener, WriteLock, ZNodeName};
