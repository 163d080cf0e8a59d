//! This crate.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use curator_locks::{
    AcquireOptions, Caching, CuratorFramework, ExponentialBackoffRetry, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    InterProcessUnfairMutex, Lease, WaitStrategy,
};
use parking_lot::Mutex;

use super::{
    bare_socket::several,
    side::{LEASES, Outcome, Side, now, unknown},
    threaded::{Library, Lock, Threaded},
};
use crate::heap;

pub fn side() -> impl Side {
    Threaded::new(CuratorLocks { strategy: WaitStrategy::default() })
}

struct CuratorLocks {
    /// How the mutexes wait that are made from now on.
    strategy: WaitStrategy,
}

impl Library for CuratorLocks {
    type Client = CuratorFramework;

    fn connect(&self, address: &str) -> Outcome<CuratorFramework> {
        let client = CuratorFramework::builder()
            .connect_string(address)
            .session_timeout(Duration::from_secs(60))
            .connection_timeout(Duration::from_secs(15))
            .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 10))
            .default_data(super::bare_socket::DATA)
            .build()?;
        client.start()?;
        match client.block_until_connected(Some(Duration::from_secs(20)))? {
            true => Ok(client),
            false => Err("no connection".into()),
        }
    }

    fn close(&self, client: CuratorFramework) {
        client.close();
    }

    fn lock(&self, client: &CuratorFramework, kind: &str, path: &str) -> Outcome<Arc<dyn Lock>> {
        Ok(match kind {
            "cached" => plain(InterProcessMutex::new(client, path)?.with_caching(Caching::new())),
            "mutex" => plain(InterProcessMutex::new(client, path)?.with_wait_strategy(self.strategy)),
            "mutex_fenced" => {
                let fenced = AcquireOptions::new().self_fence(client.session_timeout() / 10);
                Arc::new(Plain(InterProcessMutex::new(client, path)?, fenced))
            }
            "semaphore_mutex" => plain(InterProcessSemaphoreMutex::new(client, path)?),
            "unfair" => plain(InterProcessUnfairMutex::new(client, path)?),
            "cached_read" => {
                let lock = InterProcessReadWriteLock::new(client, path)?.with_caching(Caching::new());
                Arc::new(Half { lock, is_write: false })
            }
            "read" => Arc::new(Half { lock: InterProcessReadWriteLock::new(client, path)?, is_write: false }),
            "write" => Arc::new(Half { lock: InterProcessReadWriteLock::new(client, path)?, is_write: true }),
            "semaphore" => {
                let semaphore = InterProcessSemaphoreV2::new(client, path, LEASES)?;
                Arc::new(Semaphore { semaphore, leases: Mutex::default() })
            }
            _ => match several(kind, path) {
                Some(paths) => plain(InterProcessMultiLock::new(client, paths)?),
                None => return Err(unknown(&[kind])),
            },
        })
    }

    fn children(&self, client: &CuratorFramework, path: &str) -> Outcome<usize> {
        let stat = client.check_exists().for_path(path)?;
        Ok(stat.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0)))
    }

    fn answer(&mut self, client: Option<&CuratorFramework>, words: &[&str]) -> Outcome<Vec<u64>> {
        match *words {
            ["cached_drain", path, count] => cached_drain(client.ok_or("not connected")?, path, count.parse()?),
            ["heap"] => Ok(vec![heap::live()]),
            ["strategy", "poll", millis] => self.wait_by(WaitStrategy::Poll(Duration::from_millis(millis.parse()?))),
            ["strategy", "parent"] => self.wait_by(WaitStrategy::WatchParent),
            ["strategy", "predecessor"] => self.wait_by(WaitStrategy::WatchPredecessor),
            _ => Err(unknown(words)),
        }
    }
}

impl CuratorLocks {
    fn wait_by(&mut self, strategy: WaitStrategy) -> Outcome<Vec<u64>> {
        self.strategy = strategy;
        Ok(Vec::new())
    }
}

/// Threads that wait for a cached lock: when it was released, and when the last of them had it.
fn cached_drain(client: &CuratorFramework, path: &str, count: usize) -> Outcome<Vec<u64>> {
    let mutex = InterProcessMutex::new(client, path)?.with_caching(Caching::new());
    let last = Barrier::new(count + 1);
    let mut ends = Vec::new();
    let mut begin = 0;
    mutex.acquire()?;
    thread::scope(|scope| {
        let wait = || {
            let at = mutex.acquire().map_err(Into::into).and_then(|()| now());
            mutex.release()?;
            // The end of a thread costs as much as a hand-over, and is none.
            last.wait();
            at
        };
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(wait)).collect();
        while mutex.local_waiters() < count {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100));
        begin = now()?;
        mutex.release()?;
        last.wait();
        for thread in threads {
            ends.push(thread.join().map_err(|_| "a thread panicked")??);
        }
        Outcome::Ok(())
    })?;
    Ok(vec![begin, ends.into_iter().max().unwrap_or(begin)])
}

fn plain(lock: impl InterProcessLock + 'static) -> Arc<dyn Lock> {
    Arc::new(Plain(lock, AcquireOptions::new()))
}

struct Plain<L>(L, AcquireOptions);

impl<L: InterProcessLock> Lock for Plain<L> {
    fn acquire(&self) -> Outcome<()> {
        self.0.acquire_with(&self.1)?;
        Ok(())
    }

    fn release(&self) -> Outcome<()> {
        Ok(self.0.release()?)
    }

    fn try_acquire(&self) -> Outcome<bool> {
        Ok(self.0.acquire_timeout(Duration::ZERO)?)
    }
}

struct Half {
    lock: InterProcessReadWriteLock,
    is_write: bool,
}

impl Half {
    fn half(&self) -> &dyn InterProcessLock {
        if self.is_write { self.lock.write_lock() } else { self.lock.read_lock() }
    }
}

impl Lock for Half {
    fn acquire(&self) -> Outcome<()> {
        Ok(self.half().acquire()?)
    }

    fn release(&self) -> Outcome<()> {
        Ok(self.half().release()?)
    }
}

struct Semaphore {
    semaphore: InterProcessSemaphoreV2,
    leases: Mutex<Vec<Lease>>,
}

impl Lock for Semaphore {
    fn acquire(&self) -> Outcome<()> {
        let lease = self.semaphore.acquire()?;
        self.leases.lock().push(lease);
        Ok(())
    }

    fn release(&self) -> Outcome<()> {
        let lease = self.leases.lock().pop();
        Ok(self.semaphore.return_lease(lease.ok_or("no lease")?)?)
    }
}
