//! Locks of other shapes behind the trait of locks: one lease, and the lock of ZooKeeper's own recipes.

use std::{sync::Mutex, time::Duration};

use curator_locks::{
    AcquireOptions, CuratorFramework, Error, Hold, InterProcessLock, InterProcessSemaphoreV2, Lease, Result,
    zookeeper_recipe::WriteLock,
};

use super::{
    seam::{PATIENCE, left, now, sleep},
    subject::{Guard, Lock},
};

/// A semaphore with one lease.
pub(crate) struct OneLease {
    semaphore: InterProcessSemaphoreV2,
    leases: Mutex<Vec<Lease>>,
}

impl OneLease {
    pub(crate) fn new(client: &CuratorFramework, path: &str) -> OneLease {
        let semaphore = InterProcessSemaphoreV2::new(client, path, 1).unwrap();
        OneLease { semaphore, leases: Mutex::new(Vec::new()) }
    }
}

impl InterProcessLock for OneLease {
    fn acquire(&self) -> Result<()> {
        let lease = self.semaphore.acquire()?;
        self.leases.lock().unwrap().push(lease);
        Ok(())
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        let lease = self.semaphore.acquire_timeout(timeout)?;
        let is_acquired = lease.is_some();
        self.leases.lock().unwrap().extend(lease);
        Ok(is_acquired)
    }

    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        let leases = self.semaphore.acquire_with(1, options)?;
        let is_acquired = leases.is_some();
        self.leases.lock().unwrap().extend(leases.into_iter().flatten());
        Ok(is_acquired)
    }

    fn release(&self) -> Result<()> {
        // The first: one that was acquired after it was lost is the one that is held.
        let lease = self.leases.lock().unwrap().remove(0);
        lease.close()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        !self.leases.lock().unwrap().is_empty()
    }
}

impl Lock for OneLease {
    fn guard(&self) -> Result<Box<dyn Guard + '_>> {
        Ok(Box::new(self.semaphore.acquire()?))
    }

    fn guard_for_any_thread(&self) -> Result<Box<dyn Guard + Send + '_>> {
        Ok(Box::new(self.semaphore.acquire()?))
    }
}

impl Guard for Lease {
    fn holds(&self) -> Vec<&Hold> {
        vec![self]
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.close()
    }
}

/// One contender for a lock that tells its owner by a callback; here its thread waits for that.
pub(crate) struct Candidate {
    client: CuratorFramework,
    lock: WriteLock,
}

impl Candidate {
    pub(crate) fn new(client: &CuratorFramework, dir: &str) -> Candidate {
        Candidate { client: client.clone(), lock: WriteLock::new(client, dir).unwrap() }
    }

    fn unlock(&self) -> Result<()> {
        left(&self.client, self.lock.id(), self.lock.unlock())
    }
}

impl InterProcessLock for Candidate {
    fn acquire(&self) -> Result<()> {
        if self.acquire_timeout(PATIENCE)? { Ok(()) } else { panic!("not told within {PATIENCE:?}") }
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        let deadline = now() + timeout.min(PATIENCE);
        let mut is_owner = self.lock.lock()?;
        while !is_owner && now() < deadline {
            // Not on a channel: the threads of a busy machine would be kept from running by one that spins first.
            sleep(Duration::from_millis(5));
            is_owner = self.lock.is_owner();
        }
        if is_owner {
            return Ok(true);
        }
        self.unlock()?;
        Ok(false)
    }

    fn release(&self) -> Result<()> {
        if self.lock.id().is_none() {
            return Err(Error::NotOwner { path: self.lock.dir().into(), detail: "it is not queued".into() });
        }
        self.unlock()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lock.is_owner()
    }
}

impl Lock for Candidate {
    fn guard(&self) -> Result<Box<dyn Guard + '_>> {
        self.acquire()?;
        Ok(Box::new(NoGuard { candidate: self, is_open: true }))
    }
}

/// Stands where others have a guard.
struct NoGuard<'a> {
    candidate: &'a Candidate,
    is_open: bool,
}

impl Drop for NoGuard<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let _ = self.candidate.release();
        }
    }
}

impl Guard for NoGuard<'_> {
    fn holds(&self) -> Vec<&Hold> {
        Vec::new()
    }

    fn release(mut self: Box<Self>) -> Result<()> {
        self.is_open = false;
        self.candidate.release()
    }
}
