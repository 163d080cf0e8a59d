//! The kinds of locks, and what each can be asked while it is held.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        mpsc::{self, Receiver, SyncSender},
    },
    time::Instant,
};

use curator_locks::{
    Caching, CuratorFramework, Error, FencingToken, Hold, HoldState, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    InterProcessUnfairMutex, InterProcessWriteLock, Result,
    zookeeper_recipe::{LockListener, WriteLock},
};

use crate::{prober::Prober, support::PATIENCE};

pub struct Kind {
    pub name: &'static str,
    /// Whoever is paused more often, and whoever it gets the lock from.
    pub victim: fn(&CuratorFramework, &str) -> Box<dyn Lock>,
    pub rival: fn(&CuratorFramework, &str) -> Box<dyn Lock>,
}

impl Kind {
    pub fn named(name: &str) -> &'static Kind {
        ALL.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind {name}"))
    }
}

const fn alike(name: &'static str, lock: fn(&CuratorFramework, &str) -> Box<dyn Lock>) -> Kind {
    Kind { name, victim: lock, rival: lock }
}

pub static ALL: [Kind; 12] = [
    alike("mutex", |client, path| Box::new(InterProcessMutex::new(client, path).unwrap())),
    alike("cached_mutex", |client, path| {
        Box::new(InterProcessMutex::new(client, path).unwrap().with_caching(Caching::new()))
    }),
    Kind { name: "read", victim: read, rival: write },
    alike("write", write),
    Kind { name: "cached_read", victim: cached_read, rival: write },
    Kind { name: "cached_write", victim: cached_write, rival: cached_read },
    alike("semaphore_mutex", |client, path| Box::new(InterProcessSemaphoreMutex::new(client, path).unwrap())),
    alike("lease", |client, path| Box::new(InterProcessSemaphoreV2::new(client, path, 1).unwrap())),
    alike("unfair", |client, path| Box::new(InterProcessUnfairMutex::new(client, path).unwrap())),
    alike("multi", |client, path| {
        Box::new(InterProcessMultiLock::new(client, [format!("{path}/a"), format!("{path}/b")]).unwrap())
    }),
    alike("cached_multi", |client, path| {
        let both = InterProcessMultiLock::new(client, [format!("{path}/a"), format!("{path}/b")]).unwrap();
        Box::new(both.with_caching(Caching::new()).unwrap())
    }),
    alike("zk_write_lock", |client, path| Box::new(Candidate { client: client.clone(), path: path.to_owned() })),
];

fn read(client: &CuratorFramework, path: &str) -> Box<dyn Lock> {
    Box::new(InterProcessReadWriteLock::new(client, path).unwrap().read_lock().clone())
}

fn write(client: &CuratorFramework, path: &str) -> Box<dyn Lock> {
    Box::new(InterProcessReadWriteLock::new(client, path).unwrap().write_lock().clone())
}

fn cached_read(client: &CuratorFramework, path: &str) -> Box<dyn Lock> {
    Box::new(cached_read_write(client, path).read_lock().clone())
}

fn cached_write(client: &CuratorFramework, path: &str) -> Box<dyn Lock> {
    Box::new(cached_read_write(client, path).write_lock().clone())
}

fn cached_read_write(client: &CuratorFramework, path: &str) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, path).unwrap().with_caching(Caching::new())
}

/// What a holder sees when it looks.
#[allow(dead_code, reason = "each program uses a part of it")]
pub struct Look {
    pub state: String,
    pub is_valid: bool,
    /// Of which grant.
    pub token: i64,
    /// The earliest of all holds.
    pub valid_until: Option<Instant>,
}

impl Look {
    pub fn of<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> Look {
        let look = |hold: &Hold| (hold.state(), hold.fencing_token().value(), hold.valid_until());
        let seen: Vec<_> = holds.into_iter().map(look).collect();
        Look {
            state: format!("{:?}", seen.iter().map(|(state, ..)| state).collect::<Vec<_>>()),
            is_valid: seen.iter().all(|(state, ..)| *state == HoldState::Held),
            token: seen[0].1,
            valid_until: seen.iter().map(|(.., until)| *until).min(),
        }
    }
}

pub trait Lock {
    /// Acquires the lock, says what it saw at the return, holds it until told otherwise, and releases it.
    fn hold(&self, prober: &mut Prober) -> Result<()>;
}

macro_rules! locks {
    ($($lock:ident: $acquire:ident, |$held:ident| $holds:expr, $release:ident;)*) => {
        $(
            impl Lock for $lock {
                fn hold(&self, prober: &mut Prober) -> Result<()> {
                    let $held = self.$acquire()?;
                    let look = || Look::of($holds);
                    Prober::returned(look);
                    prober.watch(look);
                    $held.$release()
                }
            }
        )*
    };
}

locks! {
    InterProcessMutex: lock, |held| [&*held], release;
    InterProcessReadLock: lock, |held| [&*held], release;
    InterProcessWriteLock: lock, |held| [&*held], release;
    InterProcessSemaphoreMutex: lock, |held| [&*held], release;
    InterProcessSemaphoreV2: acquire, |held| [&*held], close;
    InterProcessUnfairMutex: lock, |held| [&*held], release;
    InterProcessMultiLock: lock, |held| held.holds(), release;
}

/// A contender for ZooKeeper's own lock, anew for each hold.
struct Candidate {
    client: CuratorFramework,
    path: String,
}

impl Lock for Candidate {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let (tell, told) = mpsc::sync_channel(1);
        let listener = Listener { lock: OnceLock::new(), tell };
        let listener = Arc::new(listener);
        let lock = Arc::new(WriteLock::with_listener(&self.client, &self.path, Told(listener.clone()))?);
        listener.lock.set(Arc::downgrade(&lock)).unwrap();
        lock.lock()?;
        if await_ownership(&lock, &told) {
            prober.watch(|| look_at(&lock));
            return lock.close();
        }
        lock.close()?;
        Err(Error::StillTaken { path: self.path.clone(), ahead: None })
    }
}

/// Returns when the listener has been told while the lock was its own. To return as soon as the lock is would let the
/// holder release it while the listener is being told. Whoever was told wrongly goes on waiting. `false`: no such news came in time.
fn await_ownership(lock: &WriteLock, told: &Receiver<()>) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while told.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {
        if lock.is_owner() {
            return true;
        }
    }
    false
}

fn look_at(lock: &WriteLock) -> Look {
    // The token comes first: an owner that has none any more is none.
    let token = lock.fencing_token();
    let is_valid = token.is_some() && lock.is_owner();
    let state = if is_valid { "[Held]" } else { "[no owner]" };
    Look { state: state.into(), is_valid, token: token.map_or(0, FencingToken::value), valid_until: None }
}

struct Listener {
    lock: OnceLock<Weak<WriteLock>>,
    tell: SyncSender<()>,
}

struct Told(Arc<Listener>);

impl LockListener for Told {
    fn lock_acquired(&self) {
        if let Some(lock) = self.0.lock.get().and_then(Weak::upgrade) {
            Prober::returned(|| look_at(&lock));
        }
        let _ = self.0.tell.try_send(());
    }

    fn lock_released(&self) {}
}
