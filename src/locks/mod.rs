//! The locks.

mod driver;

pub use driver::{
    Decision, LockInternalsDriver, LockInternalsSorter, PredicateResults, ReadLockDriver, StandardLockInternalsDriver,
    WriteLockDriver,
};
