//! The locks. All stand on [`LockInternals`]: create a znode, decide from the names, watch the predecessor.

mod driver;
mod guard;
mod hold;
mod internals;
mod lock;
mod mutex;
mod options;
mod owners;
mod token;
mod wait;

pub use driver::{
    Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver, StandardLockInternalsDriver,
    WriteLockDriver,
};
pub use guard::LockGuard;
pub use hold::Hold;
pub use internals::LockInternals;
pub use lock::{InterProcessLock, Locker};
pub use mutex::InterProcessMutex;
pub use options::AcquireOptions;
pub use token::FencingToken;
