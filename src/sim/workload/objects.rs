//! The clients of one process, and the lock objects that its threads share.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    notes::Notes,
    plan::{Kind, Plan, ProcessPlan, Retries, Strategy},
};
use crate::{
    Acl, AclProvider, AcquireOptions, Builder, Caching, CuratorFramework, Error, Hold, HoldState, InterProcessLock,
    InterProcessMutex, InterProcessReadLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, InterProcessWriteLock, LockGuard, Result, RetryPolicy,
    RetrySleeper, RevocationRequest, SemaphoreMutexGuard, WaitStrategy, sim::process::Process,
};

/// The lock objects of one client.
pub(crate) struct Objects {
    pub(crate) client: CuratorFramework,
    /// Counts the clients of the process.
    pub(crate) number: u64,
    pub(crate) locks: Vec<Object>,
    /// Locks of the same paths, none of them cached.
    pub(crate) plain: Vec<Object>,
}

/// One lock object; leaders are made anew for each candidacy.
pub(crate) enum Object {
    Mutex(InterProcessMutex),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    ReadWrite(InterProcessReadWriteLock),
    Semaphore(InterProcessSemaphoreV2),
    Unfair(InterProcessUnfairMutex),
    Leader,
}

impl Objects {
    pub(crate) fn new(
        plan: &Plan,
        own: &ProcessPlan,
        process: &Process,
        notes: &Notes,
        number: u64,
    ) -> Result<Objects> {
        let client = process.client(|builder| configured(plan, own, builder));
        let make = |own: &ProcessPlan| {
            let made = plan.places.iter().map(|place| Object::new(place.kind, &client, &place.path, own));
            made.inspect(|made| {
                if let (Ok(object), true) = (made, own.gives_back) {
                    object.give_back_if_asked(notes);
                }
            })
            .collect::<Result<_>>()
        };
        let plain = ProcessPlan { is_cached: false, ..own.clone() };
        Ok(Objects { locks: make(own)?, plain: make(&plain)?, client, number })
    }
}

fn configured(plan: &Plan, own: &ProcessPlan, builder: Builder) -> Builder {
    let panics = Panics::new(own.panics);
    let builder = builder
        .session_timeout(own.timeout)
        .connection_timeout(own.connection_timeout)
        .simulated_session_expiration_percent(own.gives_up_at)
        .quorum_heartbeats(own.needs_quorum)
        .lock_recheck_interval(own.looks_again.then_some(Duration::from_secs(20)))
        .acl_provider(PanickingAcls(panics.clone()))
        .retry_policy(Policy { retries: own.retries, panics });
    if let Some(bytes) = plan.max_frame { builder.max_frame_size(bytes) } else { builder }
}

/// Has the caller's code panic once in so many calls.
#[derive(Clone)]
pub(crate) struct Panics {
    once_in: Option<u64>,
    calls: Arc<AtomicU64>,
}

impl Panics {
    pub(crate) fn new(once_in: Option<u64>) -> Panics {
        Panics { once_in, calls: Arc::default() }
    }

    /// Panics if it is time to, without a message on the standard error.
    pub(crate) fn called(&self) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.once_in.is_some_and(|once_in| calls.is_multiple_of(once_in)) {
            std::panic::resume_unwind(Box::new(Planned));
        }
    }
}

/// The payload of a panic of the caller's code.
struct Planned;

/// Runs what may panic because the caller's code does. `None`: it did.
pub(crate) fn tolerating<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(panic) if panic.is::<Planned>() => None,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Drops something while the caller's code panics.
pub(crate) fn drop_in_a_panic<T>(dropped: T) {
    let _: Option<()> = tolerating(move || {
        let _dropped = dropped;
        std::panic::resume_unwind(Box::new(Planned))
    });
}

struct PanickingAcls(Panics);

impl AclProvider for PanickingAcls {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, _path: &str) -> Option<Vec<Acl>> {
        self.0.called();
        None
    }
}

struct Policy {
    retries: Retries,
    panics: Panics,
}

impl Retries {
    fn pause(self, count: u32) -> Option<Duration> {
        match self {
            Retries::Once if count < 1 => Some(Duration::from_millis(100)),
            Retries::Thrice if count < 3 => Some(Duration::from_millis(200)),
            Retries::Backoff if count < 4 => Some(Duration::from_millis(100 << count)),
            Retries::Forever => Some(Duration::from_millis(500)),
            _ => None,
        }
    }

    /// How long it goes on, where each attempt takes as long as this; `None`: for ever.
    pub(crate) fn longest(self, attempt: Duration) -> Option<Duration> {
        if self == Retries::Forever {
            return None;
        }
        let pauses: Vec<Duration> = (0..).map_while(|count| self.pause(count)).collect();
        Some(pauses.iter().map(|pause| *pause + attempt).sum::<Duration>() + attempt)
    }
}

impl RetryPolicy for Policy {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration, sleeper: &dyn RetrySleeper) -> bool {
        self.panics.called();
        self.retries.pause(retry_count).is_some_and(|pause| sleeper.sleep_for(pause))
    }
}

impl Object {
    fn new(kind: Kind, client: &CuratorFramework, path: &str, own: &ProcessPlan) -> Result<Object> {
        let strategy = match own.strategy {
            Strategy::Predecessor => WaitStrategy::WatchPredecessor,
            Strategy::Parent => WaitStrategy::WatchParent,
            Strategy::Poll => WaitStrategy::Poll(Duration::from_millis(150)),
        };
        let caching = own.is_cached.then(|| Caching::new().keep_idle(own.timeout / 4).max_grants(8));
        macro_rules! hearing {
            ($lock:expr) => {
                if let Some(delay) = own.hears_of_deaths { $lock.with_unclean_deaths(delay) } else { $lock }
            };
        }
        Ok(match kind {
            Kind::Mutex => {
                let mutex = hearing!(InterProcessMutex::new(client, path)?.with_wait_strategy(strategy));
                Object::Mutex(if let Some(caching) = caching { mutex.with_caching(caching) } else { mutex })
            }
            Kind::ReadWrite => {
                let lock = hearing!(InterProcessReadWriteLock::new(client, path)?.with_wait_strategy(strategy));
                Object::ReadWrite(if let Some(caching) = caching { lock.with_caching(caching) } else { lock })
            }
            Kind::SemaphoreMutex => Object::SemaphoreMutex(hearing!(InterProcessSemaphoreMutex::new(client, path)?)),
            Kind::Semaphore(leases) => Object::Semaphore(hearing!(InterProcessSemaphoreV2::new(client, path, leases)?)),
            Kind::Unfair => Object::Unfair(hearing!(InterProcessUnfairMutex::new(client, path)?)),
            Kind::Latch | Kind::Selector | Kind::WriteLock => Object::Leader,
        })
    }

    fn give_back_if_asked(&self, notes: &Notes) {
        let notes = notes.clone();
        let give_back = move |request: &RevocationRequest| {
            let Some(hold) = request.hold() else { return };
            notes.gives_back(&hold);
            request.release();
            if hold.is_lost() {
                notes.came_first(&hold);
            } else if hold.state() != HoldState::Released {
                notes.broken("a hold that was given back and is not lost", format!("{hold:?}"));
            }
        };
        match self {
            Object::Mutex(lock) => lock.on_revocation(give_back),
            Object::SemaphoreMutex(lock) => lock.on_revocation(give_back),
            Object::ReadWrite(lock) => lock.on_revocation(give_back),
            Object::Semaphore(lock) => lock.on_revocation(give_back),
            Object::Unfair(lock) => lock.on_revocation(give_back),
            Object::Leader => {}
        }
    }

    /// The lock that a thread acquires; a reader's, where there are two.
    pub(crate) fn lock(&self, is_reader: bool) -> Option<&dyn Usable> {
        Some(match self {
            Object::Mutex(lock) => lock,
            Object::SemaphoreMutex(lock) => lock,
            Object::ReadWrite(lock) if is_reader => lock.read_lock(),
            Object::ReadWrite(lock) => lock.write_lock(),
            Object::Unfair(lock) => lock,
            Object::Semaphore(_) | Object::Leader => return None,
        })
    }

    /// A clone, as a member of a multi lock. A read/write lock is a member by its writer.
    pub(crate) fn member(&self) -> Option<Arc<dyn InterProcessLock>> {
        Some(match self {
            Object::Mutex(lock) => Arc::new(lock.clone()),
            Object::SemaphoreMutex(lock) => Arc::new(lock.clone()),
            Object::ReadWrite(lock) => Arc::new(lock.write_lock().clone()),
            Object::Unfair(lock) => Arc::new(lock.clone()),
            Object::Semaphore(_) | Object::Leader => return None,
        })
    }
}

/// A guard of any kind.
pub(crate) trait Guarding {
    fn hold(&self) -> &Hold;
    fn release(self: Box<Self>) -> Result<()>;
}

/// A lock with guards.
pub(crate) trait Usable: InterProcessLock {
    fn guarded(&self, options: &AcquireOptions) -> Result<Option<Box<dyn Guarding>>>;
    /// Whether a thread may acquire it again.
    fn is_reentrant(&self) -> bool;
}

impl Guarding for LockGuard {
    fn hold(&self) -> &Hold {
        self
    }

    fn release(self: Box<Self>) -> Result<()> {
        (*self).release()
    }
}

impl Guarding for SemaphoreMutexGuard {
    fn hold(&self) -> &Hold {
        self
    }

    fn release(self: Box<Self>) -> Result<()> {
        (*self).release()
    }
}

macro_rules! usable {
    ($($lock:ident: $is_reentrant:literal),* $(,)?) => {
        $(impl Usable for $lock {
            fn guarded(&self, options: &AcquireOptions) -> Result<Option<Box<dyn Guarding>>> {
                Ok(self.lock_with(options)?.map(|guard| Box::new(guard) as Box<dyn Guarding>))
            }

            fn is_reentrant(&self) -> bool {
                $is_reentrant
            }
        })*
    };
}

usable! {
    InterProcessMutex: true,
    InterProcessReadLock: true,
    InterProcessWriteLock: true,
    InterProcessUnfairMutex: true,
    InterProcessSemaphoreMutex: false,
}

/// How an error is counted, and whether it is one that a fault explains.
pub(crate) fn kind_of(error: &Error) -> (String, bool) {
    use crate::ErrorCode::{ConnectionLoss, NoAuth, NoNode, OperationTimeout, SessionMoved, ThrottledOp};
    let (name, is_known) = match error {
        Error::Server { code, .. } => {
            let known = [NoNode, NoAuth, ConnectionLoss, OperationTimeout, ThrottledOp, SessionMoved];
            return (format!("server: {code:?}"), known.contains(code));
        }
        Error::ConnectionLoss { .. } => ("connection loss", true),
        Error::SessionExpired { .. } => ("session expired", true),
        Error::ClientClosed => ("client closed", true),
        Error::LockLost { .. } => ("lock lost", true),
        Error::Busy { .. } => ("busy", true),
        Error::Uncertain { .. } => ("uncertain", true),
        Error::Cancelled { .. } => ("cancelled", true),
        Error::TransactionFailed { .. } => ("transaction failed", true),
        Error::Several { .. } => ("several", true),
        Error::FrameTooLarge { .. } => ("frame too large", true),
        Error::InvalidArgument { name, .. } => ("invalid argument", *name == "min_validity"),
        _ => ("other", false),
    };
    (name.to_owned(), is_known)
}
