//! The locks that the sale can be held under.

use std::time::Duration;

use clap::ValueEnum;
use curator_locks::{CuratorFramework, InterProcessLock, InterProcessMutex, Result};

/// Which lock. To add one, add a variant and its line in [`LockKind::title`] and [`LockKind::make`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockKind {
    /// The re-entrant mutex
    Mutex,
    /// No lock at all
    None,
}

impl LockKind {
    /// What the lock is called in the library.
    pub(crate) fn title(self) -> &'static str {
        match self {
            LockKind::Mutex => "InterProcessMutex",
            LockKind::None => "no lock",
        }
    }

    /// A lock that all threads of one process share.
    pub(crate) fn make(self, client: &CuratorFramework, path: &str) -> Result<Box<dyn InterProcessLock>> {
        Ok(match self {
            LockKind::Mutex => Box::new(InterProcessMutex::new(client, path)?),
            LockKind::None => Box::new(NoLock),
        })
    }
}

/// Looks like a lock and excludes nobody, so that the control runs the very code of the sale.
struct NoLock;

impl InterProcessLock for NoLock {
    fn acquire(&self) -> Result<()> {
        Ok(())
    }

    fn acquire_timeout(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}
