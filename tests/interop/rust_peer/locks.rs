//! Every kind of lock behind one interface.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender};
use curator_locks::{
    AcquireOptions, Caching, CuratorFramework, FencingToken, Hold, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Lease,
    LockGuard, Result, SemaphoreMutexGuard,
    zookeeper_recipe::{LockListener, WriteLock},
};

use super::Counts;
use crate::support::{PATIENCE, child, history::shared_clock};

/// What is known of one znode that is held.
pub(super) struct Known {
    pub(super) path: String,
    pub(super) token: FencingToken,
}

/// What an acquire got.
pub(super) trait Held {
    fn mode(&self) -> &'static str {
        "write"
    }
    fn holds(&self) -> Vec<&Hold>;
    fn release(self: Box<Self>) -> Result<()>;

    fn known(&self) -> Vec<Known> {
        let known = |hold: &&Hold| Known { path: hold.path().to_owned(), token: hold.fencing_token() };
        self.holds().iter().map(known).collect()
    }
    /// ZooKeeper's own lock has no such bound.
    fn valid_until(&self) -> Option<Instant> {
        self.holds().iter().map(|hold| hold.valid_until()).min()
    }
    /// Whether to say when it is lost, for what has no other way to tell.
    fn announce_loss(&self, _on: bool) {}
    /// A writer that goes on as a reader.
    fn downgrade(&self) -> Result<Option<Box<dyn Held>>> {
        Ok(None)
    }
}

struct Guard(LockGuard);

impl Held for Guard {
    fn holds(&self) -> Vec<&Hold> {
        vec![&self.0]
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.0.release()
    }
}

struct Reading(LockGuard);

impl Held for Reading {
    fn mode(&self) -> &'static str {
        "read"
    }
    fn holds(&self) -> Vec<&Hold> {
        vec![&self.0]
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.0.release()
    }
}

struct Writing(&'static InterProcessReadWriteLock, LockGuard);

impl Held for Writing {
    fn holds(&self) -> Vec<&Hold> {
        vec![&self.1]
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.1.release()
    }
    fn downgrade(&self) -> Result<Option<Box<dyn Held>>> {
        Ok(Some(Box::new(Reading(self.0.read_lock().lock()?))))
    }
}

/// The guard of an upgradable lock, and that of its upgrade.
struct Upgraded(LockGuard, LockGuard);

impl Held for Upgraded {
    fn holds(&self) -> Vec<&Hold> {
        vec![&self.1]
    }
    fn release(self: Box<Self>) -> Result<()> {
        let upgrade = self.1.release();
        let upgradable = self.0.release();
        upgrade.and(upgradable)
    }
}

struct Alone(SemaphoreMutexGuard);

impl Held for Alone {
    fn mode(&self) -> &'static str {
        "lease"
    }
    fn holds(&self) -> Vec<&Hold> {
        vec![&self.0]
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.0.release()
    }
}

struct Leases(Vec<Lease>);

impl Held for Leases {
    fn mode(&self) -> &'static str {
        "lease"
    }
    fn holds(&self) -> Vec<&Hold> {
        self.0.iter().map(|lease| &**lease).collect()
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.0.into_iter().try_for_each(Lease::close)
    }
}

/// The multi lock, and a second hold of each of its mutexes, for what a guard knows.
struct Several(InterProcessMultiLock, Vec<LockGuard>);

impl Held for Several {
    fn holds(&self) -> Vec<&Hold> {
        self.1.iter().map(|guard| &**guard).collect()
    }
    fn release(self: Box<Self>) -> Result<()> {
        let again = self.1.into_iter().map(LockGuard::release).fold(Ok(()), Result::and);
        // All of it, whatever the guards say.
        let whole = self.0.release();
        again.and(whole)
    }
}

struct Elected(&'static WriteLock, &'static Told);

impl Held for Elected {
    fn holds(&self) -> Vec<&Hold> {
        Vec::new()
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.0.unlock()
    }
    fn known(&self) -> Vec<Known> {
        let token = self.0.fencing_token().unwrap_or(FencingToken::from_value(0));
        vec![Known { path: self.0.id().unwrap_or_default(), token }]
    }
    fn announce_loss(&self, on: bool) {
        self.1.announces.store(on, Ordering::SeqCst);
    }
}

/// What a listener hears.
struct Told {
    acquired: Receiver<()>,
    announces: Arc<AtomicBool>,
}

struct Listener {
    acquired: Sender<()>,
    announces: Arc<AtomicBool>,
}

impl LockListener for Listener {
    fn lock_acquired(&self) {
        // Nobody listens any more when the process ends.
        let _ = self.acquired.send(());
    }
    fn lock_released(&self) {
        if self.announces.load(Ordering::SeqCst) {
            child::say(&format!("state {} Lost", shared_clock()));
        }
    }
}

#[derive(Clone, Copy)]
enum Lock {
    Mutex(&'static Arc<InterProcessMutex>),
    ReadWrite(&'static InterProcessReadWriteLock),
    SemaphoreMutex(&'static InterProcessSemaphoreMutex),
    Semaphore(&'static InterProcessSemaphoreV2),
    Election(&'static WriteLock, &'static Told),
}

/// The locks of the process: made once, and never freed, so that guards may borrow from them. Clones have the same ones.
#[derive(Clone)]
pub(super) struct Locks {
    client: CuratorFramework,
    made: Arc<Mutex<HashMap<String, Lock>>>,
    counts: Counts,
}

/// What kinds begin with whose locks are cached: `cached-mutex`.
pub(super) const CACHED: &str = "cached-";

/// Idle locks go before a test has done much else, and processes take turns after two holds.
fn caching() -> Caching {
    Caching::new().keep_idle(Duration::from_secs(1)).max_grants(1)
}

fn forever<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

impl Locks {
    pub(super) fn new(client: CuratorFramework) -> Locks {
        Locks { client, made: Arc::default(), counts: Counts::default() }
    }

    /// `None`: the time was up.
    pub(super) fn attempt(
        &mut self,
        kind: &str,
        path: &str,
        timeout: Option<Duration>,
    ) -> Result<Option<Box<dyn Held>>> {
        let options = timeout.map_or(AcquireOptions::new(), |timeout| AcquireOptions::new().timeout(timeout));
        let (cached, plain) = split(kind);
        match plain {
            "multi" => return self.several(cached, path, timeout),
            "rw" => {
                let kind = if fastrand::u8(..3) == 0 { "write" } else { "read" };
                return self.attempt(&format!("{cached}{kind}"), path, timeout);
            }
            "rw-upgrade" => {
                let kind = if fastrand::bool() { "upgrade" } else { "rw" };
                return self.attempt(&format!("{cached}{kind}"), path, timeout);
            }
            _ => {}
        }
        let held: Option<Box<dyn Held>> = match self.lock(kind, path)? {
            Lock::Mutex(mutex) => mutex.lock_with(&options)?.map(|guard| Box::new(Guard(guard)) as _),
            Lock::ReadWrite(lock) if plain == "read" => {
                lock.read_lock().lock_with(&options)?.map(|guard| Box::new(Reading(guard)) as _)
            }
            Lock::ReadWrite(lock) if plain == "upgrade" => {
                let upgradable = lock.upgradable_lock();
                let Some(held) = upgradable.lock_with(&options)? else { return Ok(None) };
                upgradable.upgrade_with(&options)?.map(|writing| Box::new(Upgraded(held, writing)) as _)
            }
            Lock::ReadWrite(lock) => {
                lock.write_lock().lock_with(&options)?.map(|guard| Box::new(Writing(lock, guard)) as _)
            }
            Lock::SemaphoreMutex(mutex) => mutex.lock_with(&options)?.map(|guard| Box::new(Alone(guard)) as _),
            Lock::Semaphore(semaphore) => {
                semaphore.acquire_with(1, &options)?.map(|leases| Box::new(Leases(leases)) as _)
            }
            Lock::Election(lock, told) => Some(elect(lock, told)?),
        };
        Ok(held)
    }

    /// Two leases at once.
    pub(super) fn attempt_two(&mut self, kind: &str, path: &str) -> Result<Option<Box<dyn Held>>> {
        let Lock::Semaphore(semaphore) = self.lock(kind, path)? else { panic!("{kind} has no leases") };
        Ok(Some(Box::new(Leases(semaphore.acquire_many(2)?))))
    }

    /// The one of this kind.
    pub(super) fn mutex(&mut self, kind: &str, path: &str) -> Result<&'static Arc<InterProcessMutex>> {
        match self.lock(kind, path)? {
            Lock::Mutex(mutex) => Ok(mutex),
            _ => panic!("{path} is no mutex"),
        }
    }

    /// A count of this process, started.
    pub(super) fn count(&mut self, path: &str) -> Result<curator_locks::SharedCount> {
        self.counts.started(&self.client, path)
    }

    fn several(&mut self, cached: &str, paths: &str, timeout: Option<Duration>) -> Result<Option<Box<dyn Held>>> {
        let kind = format!("{cached}mutex");
        let mutexes = paths.split(',').map(|path| self.mutex(&kind, path)).collect::<Result<Vec<_>>>()?;
        let parts = mutexes.iter().map(|mutex| Arc::clone(mutex) as Arc<dyn InterProcessLock>);
        let whole = InterProcessMultiLock::from_locks(parts)?;
        match timeout {
            None => whole.acquire()?,
            Some(timeout) if !whole.acquire_timeout(timeout)? => return Ok(None),
            Some(_) => {}
        }
        let guards = mutexes.into_iter().map(|mutex| mutex.lock()).collect::<Result<Vec<_>>>()?;
        Ok(Some(Box::new(Several(whole, guards))))
    }

    fn lock(&mut self, kind: &str, path: &str) -> Result<Lock> {
        let (cached, kind) = split(kind);
        let kind = match kind {
            "read" | "write" | "upgrade" => "read-write",
            "revocable" => "mutex",
            kind => kind,
        };
        let name = format!("{cached}{kind} {path}");
        let made = self.made.clone();
        let mut made = made.lock().unwrap();
        if let Some(lock) = made.get(&name) {
            return Ok(*lock);
        }
        let lock = self.make(!cached.is_empty(), kind, path)?;
        made.insert(name, lock);
        Ok(lock)
    }

    fn make(&mut self, is_cached: bool, kind: &str, path: &str) -> Result<Lock> {
        let client = &self.client;
        Ok(match kind {
            "mutex" => {
                let mutex = InterProcessMutex::new(client, path)?;
                Lock::Mutex(forever(Arc::new(if is_cached { mutex.with_caching(caching()) } else { mutex })))
            }
            "read-write" => {
                let lock = InterProcessReadWriteLock::new(client, path)?;
                Lock::ReadWrite(forever(if is_cached { lock.with_caching(caching()) } else { lock }))
            }
            "semaphore-mutex" => Lock::SemaphoreMutex(forever(InterProcessSemaphoreMutex::new(client, path)?)),
            "zk-write-lock" => {
                let (sender, acquired) = crossbeam_channel::unbounded();
                let announces = Arc::new(AtomicBool::new(false));
                let listener = Listener { acquired: sender, announces: announces.clone() };
                let lock = WriteLock::with_listener(client, path, listener)?;
                Lock::Election(forever(lock), forever(Told { acquired, announces }))
            }
            // semaphore:LIMIT, or semaphore@PATH-OF-A-COUNT
            _ => {
                let limit = kind.strip_prefix("semaphore").unwrap();
                Lock::Semaphore(forever(match limit.strip_prefix(':') {
                    Some(limit) => InterProcessSemaphoreV2::new(client, path, limit.parse().unwrap())?,
                    None => {
                        let count = self.counts.started(client, &limit[1..])?;
                        InterProcessSemaphoreV2::with_shared_count(client, path, &count)?
                    }
                }))
            }
        })
    }
}

/// The prefix of cached kinds, if it has that, and the rest.
fn split(kind: &str) -> (&str, &str) {
    kind.split_at(if kind.starts_with(CACHED) { CACHED.len() } else { 0 })
}

/// Waits until the listener was told.
fn elect(lock: &'static WriteLock, told: &'static Told) -> Result<Box<dyn Held>> {
    let deadline = Instant::now() + 3 * PATIENCE;
    lock.lock()?;
    told.acquired.recv_timeout(3 * PATIENCE).expect("the listener is told");
    // What is told may be old, or in doubt by now; that a doubt is over is told to nobody.
    while !lock.is_owner() {
        assert!(Instant::now() < deadline, "it was told, and does not lead");
        let _ = told.acquired.recv_timeout(Duration::from_millis(100));
    }
    Ok(Box::new(Elected(lock, told)))
}
