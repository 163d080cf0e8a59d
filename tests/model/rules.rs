//! What one scenario is made of. It never changes, so it is no part of a state.

use curator_locks::{
    CreateMode, Decision, LockInternalsDriver, ReadLockDriver, StandardLockInternalsDriver, WaitStrategy,
    WriteLockDriver,
    unversioned::contender::{Condition, Mark, Spec, UpgradableLockDriver, ZNodeNameDriver},
};
use std::{sync::Arc, time::Duration};

use super::{check::sequence_of, server::DIRECTORIES};

/// Who may hold a lock beside whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Alone,
    Shared,
    /// Beside what is shared, but one at a time.
    Upgradable,
    /// So many at a time.
    Lease(usize),
}

/// One lock object of a thread.
#[derive(Debug, Clone)]
pub struct Lock {
    pub spec: Spec,
    pub class: Class,
    /// Its znodes have names as those of ZooKeeper's own recipe.
    pub has_session_in_name: bool,
    /// The lock whose place this one takes.
    pub downgrades: Option<usize>,
    /// The lock that this one makes a writer of.
    pub upgrades: Option<usize>,
    /// Whether it has fencing tokens: Curator's has none.
    pub has_token: bool,
    /// The lock that has to be held while waiting for this one.
    pub bar: Option<usize>,
    /// It creates without a list, and lists in a second step: the clean-up is searching its directory.
    pub lists_later: bool,
}

/// A step of what a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Acquire(usize),
    /// As that; where it comes to nothing, the thread goes on there.
    Try(usize, usize),
    Release(usize),
    End,
}

/// A fault, or what an administrator or a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The connection ends.
    Cut,
    /// That, and the next server has not seen what happens from here on.
    CutToLagging,
    /// The client's server sees nothing of what happens from here on.
    Lag,
    /// The process stands still for a session timeout, after which the servers may expire the session.
    Pause,
    /// The client gives its session up, while the servers still know it.
    Abandon,
    /// A server refuses a request for now.
    Refuse,
    /// An administrator deletes a znode.
    Delete,
    /// Somebody changes a znode's data.
    Touch,
    /// The server removes the empty directory.
    Sweep,
    /// The caller's time is up.
    TimeUp,
    /// The caller does not want the lock any more.
    Cancel,
    /// The contender is dropped where it stands, as by a panic.
    Drop,
    /// The call does not wait any longer for a connection.
    GiveUp,
}

pub const ALL_FAULTS: [Fault; 13] = [
    Fault::Cut,
    Fault::CutToLagging,
    Fault::Lag,
    Fault::Pause,
    Fault::Abandon,
    Fault::Refuse,
    Fault::Delete,
    Fault::Touch,
    Fault::Sweep,
    Fault::TimeUp,
    Fault::Cancel,
    Fault::Drop,
    Fault::GiveUp,
];

#[derive(Debug, Clone)]
pub struct Rules {
    pub locks: Vec<Lock>,
    /// What each thread does, and in which client.
    pub threads: Vec<(usize, Vec<Op>)>,
    pub kinds: Vec<Fault>,
    pub faults: u8,
    /// The client or the znode's place that all faults hit, if it is only one.
    pub target: Option<u8>,
    /// The condition that is taken out.
    pub omitted: Option<Condition>,
    /// Threads and clients are all alike, so they may as well begin in their order.
    pub is_symmetric: bool,
    /// What a server sends takes its time. Else it is there at once, which only a thread that is slow itself could tell
    /// from that.
    pub has_delays: bool,
    /// The directories are there from the start.
    pub has_directories: bool,
    /// How often the retry policy says yes.
    pub retries: u8,
}

impl Rules {
    pub fn clients(&self) -> usize {
        self.threads.iter().map(|(client, _)| client + 1).max().unwrap_or(0)
    }

    pub fn with_faults(mut self, faults: u8) -> Rules {
        self.faults = faults;
        self
    }
}

impl Lock {
    fn new(driver: impl LockInternalsDriver, class: Class) -> Lock {
        let name = driver.lock_name().to_owned();
        let spec = Spec {
            directory: DIRECTORIES[0].to_owned(),
            driver: Arc::new(driver),
            name,
            is_sole: false,
            count: 1,
            mode: CreateMode::EphemeralSequential,
            data: Vec::new(),
            waits: Some(WaitStrategy::WatchPredecessor),
            looks_first: false,
            mark: Mark::NONE,
            is_passed: false,
            must_be_empty: None,
            companion: None,
            holds_queue_head: false,
            min_validity: Duration::ZERO,
            counts: false,
            max_ahead: None,
        };
        let (downgrades, upgrades, bar) = (None, None, None);
        let (has_session_in_name, has_token, lists_later) = (false, true, false);
        Lock { spec, class, has_session_in_name, downgrades, upgrades, has_token, bar, lists_later }
    }

    pub fn mutex() -> Lock {
        Lock::new(StandardLockInternalsDriver::new(), Class::Alone)
    }

    pub fn write() -> Lock {
        Lock::new(WriteLockDriver, Class::Alone)
    }

    pub fn read() -> Lock {
        Lock::new(ReadLockDriver, Class::Shared)
    }

    pub fn downgrade(writer: usize) -> Lock {
        let mut lock = Lock::read();
        lock.spec.mode = CreateMode::Ephemeral;
        lock.downgrades = Some(writer);
        lock
    }

    /// A reader that goes past upgradable locks, as all of this crate do.
    pub fn passing() -> Lock {
        let mut lock = Lock::read();
        lock.spec.mark = Mark::PASSES;
        lock
    }

    /// Curator's reader. Its writer is as ours.
    pub fn curators_read() -> Lock {
        Lock { has_token: false, ..Lock::new(CuratorsReadDriver, Class::Shared) }
    }

    pub fn upgradable() -> Lock {
        let mut lock = Lock::new(UpgradableLockDriver, Class::Upgradable);
        (lock.spec.mark, lock.spec.is_passed) = (Mark::UPGRADABLE, true);
        lock
    }

    pub fn upgrade(upgradable: usize) -> Lock {
        let mut lock = Lock { upgrades: Some(upgradable), ..Lock::write() };
        (lock.spec.mark, lock.spec.is_passed) = (Mark::UPGRADE, true);
        lock
    }

    /// ZooKeeper's own recipe.
    pub fn classical() -> Lock {
        Lock { has_session_in_name: true, ..Lock::new(ZNodeNameDriver, Class::Alone) }
    }

    pub fn unfair() -> Lock {
        let mut lock = Lock::mutex();
        (lock.spec.name, lock.spec.is_sole) = ("lock".to_owned(), true);
        lock.spec.mode = CreateMode::Ephemeral;
        lock
    }

    /// Leases that wait, as soon as `bar` is held.
    pub fn lease(limit: usize, bar: Option<usize>) -> Lock {
        let driver = StandardLockInternalsDriver::with_lock_name("lease-");
        let mut lock = Lock { bar, ..Lock::new(driver, Class::Lease(limit)) };
        lock.spec.waits = Some(WaitStrategy::WatchParent);
        lock.spec.holds_queue_head = bar.is_some();
        lock
    }

    /// Leases for whoever comes while nobody queues.
    pub fn lease_at_once(limit: usize) -> Lock {
        let mut lock = Lock::lease(limit, None);
        lock.spec.waits = None;
        lock.spec.must_be_empty = Some(DIRECTORIES[1].to_owned());
        lock
    }

    /// The place at the head of a semaphore's queue.
    pub fn place() -> Lock {
        let mut lock = Lock::mutex();
        lock.spec.directory = DIRECTORIES[1].to_owned();
        lock
    }

    /// One that watches the directory instead of a predecessor.
    pub fn watching_all(mut self) -> Lock {
        self.spec.waits = Some(WaitStrategy::WatchParent);
        self
    }

    /// One that looks at times, and watches only its own znode.
    pub fn polling(mut self) -> Lock {
        self.spec.waits = Some(WaitStrategy::Poll(Duration::from_secs(1)));
        self
    }

    /// One that does not wait, and looks before it writes.
    pub fn trying(mut self) -> Lock {
        self.spec.waits = None;
        self.spec.looks_first = true;
        self
    }

    /// So many znodes, all or none.
    pub fn many(mut self, count: usize) -> Lock {
        self.spec.count = count;
        self
    }

    pub fn listing_later(self) -> Lock {
        Lock { lists_later: true, ..self }
    }

    pub fn limit(&self) -> usize {
        match self.class {
            Class::Lease(limit) => limit,
            Class::Alone | Class::Shared | Class::Upgradable => 1,
        }
    }
}

/// The predicate of Curator's read lock: in front of the first writer, which it watches otherwise.
#[derive(Debug)]
struct CuratorsReadDriver;

impl LockInternalsDriver for CuratorsReadDriver {
    fn decide(&self, children: &[String], own: &str, _max_leases: usize) -> Decision {
        let mut sorted: Vec<&String> = children.iter().collect();
        sorted.sort_by_key(|name| sequence_of(name));
        let place = sorted.iter().position(|name| *name == own);
        let writer = sorted.iter().position(|name| name.contains("__WRIT__"));
        match (place, writer) {
            (None, _) => Decision::Missing,
            (Some(place), Some(writer)) if writer < place => {
                Decision::Wait { watch: sorted[writer].clone(), first: writer == 0 }
            }
            _ => Decision::Granted,
        }
    }

    fn lock_name(&self) -> &str {
        "__READ__"
    }
}
