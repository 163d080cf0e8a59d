//! The half that a writer has alone.

use std::sync::Arc;

use super::methods::half_methods;
use crate::{
    AcquireOptions, CuratorFramework, InterProcessMutex, LockGuard, LockInternals, Result, Revocable,
    RevocationListener, WriteLockDriver,
    framework::{HeldNode, HoldKind},
    locks::owners::Owners,
};

/// The lock that a writer has alone; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
/// `InterProcessReadWriteLock.WriteLock`.
///
/// It waits for everybody in front of it, and watches the last of them.
#[derive(Clone)]
pub struct WriteLock {
    mutex: InterProcessMutex,
}

impl WriteLock {
    pub(super) fn new(client: &CuratorFramework, path: &str) -> Result<WriteLock> {
        Ok(WriteLock { mutex: InterProcessMutex::of_kind(client, path, WriteLockDriver, HoldKind::Write)? })
    }

    pub(super) fn mutex(&self) -> &InterProcessMutex {
        &self.mutex
    }
}

half_methods! { WriteLock,
    /// Acquires the lock, waiting as long as it takes. A thread that holds it already only counts.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread that holds the read lock, or a lock on this path
    /// through another object of this client: it would wait for itself.
}
