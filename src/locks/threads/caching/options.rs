//! How long a process keeps a lock that it has.

use std::time::Duration;

/// A process lists the directory of its lock no more often than this, however short a tenure is.
const SHORTEST_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a process keeps a lock that it has been granted, to hand it from thread to thread without a request. Off unless
/// a lock is given one, by [`InterProcessMutex::with_caching`](crate::InterProcessMutex::with_caching),
/// [`InterProcessReadWriteLock::with_caching`](crate::InterProcessReadWriteLock::with_caching) or
/// [`InterProcessMultiLock::with_caching`](crate::InterProcessMultiLock::with_caching).
///
/// Without caching each acquire is a znode of its own. With it one znode stays for a *tenure*: the threads that use the lock
/// object queue in this process, first come, first served, and a release wakes the next of them. A lock that no other process
/// wants costs less than a microsecond, and no request but a look at the queue once in a while: in each
/// [`max_tenure`](Caching::max_tenure) of use, and now and then while it is idle. As soon as another process queues for the
/// lock, in any language, the tenure ends: at once if the lock is idle, otherwise after [`max_grants`](Caching::max_grants) or
/// [`max_tenure`](Caching::max_tenure), whichever comes first. Threads still waiting then queue again before the znode goes.
///
/// Readers share a tenure. It ends for later readers as soon as a writer of any process queues, and the limits do not
/// apply; readers of other processes do not end it.
///
/// Operators see such a lock as [`Cached`](crate::EntryState::Cached) in [`LockQueue`](crate::LockQueue) and `zklock ls`: held,
/// or kept idle. Only the client itself knows which, and how many threads wait, by
/// [`LockQueue::inspect`](crate::LockQueue::inspect). A [request to give it back](crate::Revoker) ends an idle tenure at once.
///
/// Nothing else changes: each grant is certain at its return, as without caching, and it has a [hold](crate::Hold) and a
/// [fencing token](crate::FencingToken) of its own. A token then has two parts, and storage has to compare both.
///
/// Before you turn it on, mind these cases:
///
/// - If a process may die while the lock is idle: the others wait for the session timeout although no thread was
///   inside. [`keep_idle`](Caching::keep_idle) bounds how long that can happen.
/// - If others only try: [`try_lock`](crate::InterProcessMutex::try_lock) elsewhere finds the lock taken during a
///   tenure, also while it is idle, and does not end it.
/// - If a lock is used once, or by one thread of each process in turn: there a tenure costs two requests more than a
///   hold without caching.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::Caching;
///
/// let caching = Caching::new().keep_idle(Duration::from_secs(2)).max_grants(100).max_tenure(Duration::from_millis(20));
/// # let _ = caching;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "options do nothing by themselves"]
pub struct Caching {
    pub(super) keep_idle: Duration,
    pub(super) max_grants: u64,
    pub(super) max_tenure: Duration,
}

impl Caching {
    /// Keeps an idle lock for 10 s, and passes it on after 64 grants or 50 ms once another process waits.
    pub fn new() -> Caching {
        Caching { keep_idle: Duration::from_secs(10), max_grants: 64, max_tenure: Duration::from_millis(50) }
    }

    /// How long the znode stays although no thread of this process uses the lock and nobody asks for it. Defaults to 10 s.
    /// Zero: the lock is only handed over to threads that wait for it already.
    pub fn keep_idle(mut self, time: Duration) -> Caching {
        self.keep_idle = time;
        self
    }

    /// How many more threads of this process get the lock once another process waits for it. Defaults to 64.
    pub fn max_grants(mut self, grants: u64) -> Caching {
        self.max_grants = grants;
        self
    }

    /// For how long threads of this process still get the lock once another process waits for it; the last one's hold may
    /// outlast it. Defaults to 50 ms.
    pub fn max_tenure(mut self, time: Duration) -> Caching {
        self.max_tenure = time;
        self
    }

    /// How long a tenure in use relies on its watch alone.
    pub(super) fn look_interval(&self) -> Duration {
        self.max_tenure.max(SHORTEST_LOOK_INTERVAL)
    }
}

impl Default for Caching {
    fn default() -> Caching {
        Caching::new()
    }
}
