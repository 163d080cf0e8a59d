//! The half that readers share.

use std::sync::Arc;

use super::{WriteLock, methods::half_methods};
use crate::{
    AcquireOptions, CuratorFramework, InterProcessMutex, LockGuard, LockInternals, ReadLockDriver, Result, Revocable,
    RevocationListener,
    framework::{HeldNode, HoldKind},
    locks::owners::Owners,
};

/// The lock that readers share; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
/// `InterProcessReadWriteLock.ReadLock`.
///
/// It waits for every writer in front of it, and watches the last of them, so it is woken once.
#[derive(Clone)]
pub struct ReadLock {
    mutex: InterProcessMutex,
}

impl ReadLock {
    pub(super) fn new(client: &CuratorFramework, path: &str, write: &WriteLock) -> Result<ReadLock> {
        let mutex = InterProcessMutex::of_kind(client, path, ReadLockDriver, HoldKind::Read)?;
        Ok(ReadLock { mutex: mutex.beside(write.mutex()) })
    }
}

half_methods! { ReadLock,
    /// Acquires the lock, waiting as long as it takes. A thread that holds it already only counts; one that holds the
    /// write lock gets it at once.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire). [`Error::LockLost`](crate::Error::LockLost) also
    /// for a thread whose write lock was lost. [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread that
    /// holds a mutex or a write lock on this path through another object of this client: it would wait for itself. A
    /// thread that holds a read lock through another one waits, with a warning, where a writer queues in between: that one
    /// may give up.
}
