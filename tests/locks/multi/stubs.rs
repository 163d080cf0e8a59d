//! Locks that do what a test says.

use super::*;

/// A lock that writes down what is asked of it.
pub struct Stub {
    pub name: &'static str,
    pub log: Log,
    pub acquire: Result<bool>,
    pub release: Result<()>,
    pub takes: Duration,
}

impl Stub {
    pub fn new(name: &'static str, log: &Log) -> Stub {
        Stub { name, log: log.clone(), acquire: Ok(true), release: Ok(()), takes: Duration::ZERO }
    }

    pub fn note(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{what} {}", self.name));
    }
}

impl InterProcessLock for Stub {
    fn acquire(&self) -> Result<()> {
        self.note("acquire");
        self.acquire.clone().map(drop)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        self.note("acquire");
        thread::sleep(self.takes.min(timeout));
        Ok(self.acquire.clone()? && self.takes <= timeout)
    }

    fn release(&self) -> Result<()> {
        self.note("release");
        self.release.clone()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        true
    }

    fn path(&self) -> Option<&str> {
        Some(self.name)
    }
}

pub fn multi(locks: Vec<Stub>) -> InterProcessMultiLock {
    InterProcessMultiLock::from_locks(locks.into_iter().map(|lock| Arc::new(lock) as Arc<dyn InterProcessLock>))
        .unwrap()
}

pub fn refused(path: &str) -> Error {
    Error::Server { code: ErrorCode::NoAuth, operation: "create", path: path.into() }
}

pub fn lost(path: &str) -> Error {
    Error::LockLost { path: path.into(), reason: LostReason::NodeDeleted }
}
