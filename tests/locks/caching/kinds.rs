//! The kinds of cached locks, for tables of cases.

use std::{sync::Arc, thread, time::Duration};

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    CuratorFramework, FencingToken, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, LockGuard, MultiLockGuard, Result,
};

use crate::{
    local::caching,
    support::{PATIENCE, children},
};

pub(crate) const PATH: &str = "/locks/m";
const MEMBERS: [&str; 2] = ["/locks/m/a", "/locks/m/b"];

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Threads of one process hold it side by side.
    pub(crate) is_shared: bool,
    /// With caching.
    pub(crate) cached: fn(&CuratorFramework) -> Box<dyn Lock>,
    /// What cannot be held beside it, without.
    pub(crate) rival: fn(&CuratorFramework) -> Box<dyn Lock>,
    /// Where it queues first, and all its directories.
    pub(crate) directory: &'static str,
    pub(crate) directories: &'static [&'static str],
}

const SIMPLE: Kind = Kind {
    name: "mutex",
    is_shared: false,
    cached: |client| Box::new(mutex(client, PATH).with_caching(caching())),
    rival: |client| Box::new(mutex(client, PATH)),
    directory: PATH,
    directories: &[PATH],
};

pub(crate) static ALL: [Kind; 4] = [
    SIMPLE,
    Kind {
        name: "read",
        is_shared: true,
        cached: |client| Box::new(Reading(read_write(client).with_caching(caching()))),
        rival: |client| Box::new(Writing(read_write(client))),
        ..SIMPLE
    },
    Kind {
        name: "write",
        cached: |client| Box::new(Writing(read_write(client).with_caching(caching()))),
        rival: |client| Box::new(Reading(read_write(client))),
        ..SIMPLE
    },
    Kind {
        name: "multi",
        cached: |client| Box::new(Multi::of(MEMBERS.map(|path| mutex(client, path).with_caching(caching())))),
        rival: |client| Box::new(Multi::of(MEMBERS.map(|path| mutex(client, path)))),
        directory: MEMBERS[0],
        directories: &[MEMBERS[0], MEMBERS[1], PATH],
        ..SIMPLE
    },
];

impl Kind {
    pub(crate) fn named(name: &str) -> &'static Kind {
        ALL.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind {name}"))
    }

    /// How many stand in the queue that it comes to first.
    pub(crate) fn queued(&self, client: &CuratorFramework) -> usize {
        children(client, self.directory).len()
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self, client: &CuratorFramework) -> bool {
        let mut queues = self.directories.iter().filter(|path| **path != PATH || self.directory == PATH);
        queues.all(|path| children(client, path).is_empty())
    }
}

fn mutex(client: &CuratorFramework, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, path).unwrap()
}

fn read_write(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}

pub(crate) trait Lock: Send + Sync {
    fn hold(&self) -> Result<Box<dyn Held + '_>>;

    fn hold_within(&self, timeout: Duration) -> Result<Option<Box<dyn Held + '_>>>;

    /// How many threads of this process wait behind the first one.
    fn waiters(&self) -> usize;
}

pub(crate) trait Held {
    fn holds(&self) -> Vec<Hold>;

    fn release(self: Box<Self>) -> Result<()>;
}

impl Held for LockGuard {
    fn holds(&self) -> Vec<Hold> {
        vec![(**self).clone()]
    }

    fn release(self: Box<Self>) -> Result<()> {
        LockGuard::release(*self)
    }
}

impl Held for MultiLockGuard {
    fn holds(&self) -> Vec<Hold> {
        MultiLockGuard::holds(self).to_vec()
    }

    fn release(self: Box<Self>) -> Result<()> {
        MultiLockGuard::release(*self)
    }
}

struct Reading(InterProcessReadWriteLock);

struct Writing(InterProcessReadWriteLock);

struct Multi {
    lock: InterProcessMultiLock,
    first: InterProcessMutex,
}

impl Multi {
    fn of(members: [InterProcessMutex; 2]) -> Multi {
        let first = members[0].clone();
        let locks = members.map(|lock| Arc::new(lock) as Arc<dyn InterProcessLock>);
        Multi { lock: InterProcessMultiLock::from_locks(locks).unwrap(), first }
    }
}

macro_rules! locks {
    ($($lock:ty: |$this:ident| $acquired:expr, $waiters:expr;)*) => {
        $(
            impl Lock for $lock {
                fn hold(&self) -> Result<Box<dyn Held + '_>> {
                    let $this = self;
                    Ok(Box::new($acquired.lock()?))
                }

                fn hold_within(&self, timeout: Duration) -> Result<Option<Box<dyn Held + '_>>> {
                    let $this = self;
                    Ok($acquired.lock_timeout(timeout)?.map(|held| Box::new(held) as Box<dyn Held>))
                }

                fn waiters(&self) -> usize {
                    let $this = self;
                    $waiters.local_waiters()
                }
            }
        )*
    };
}

locks! {
    InterProcessMutex: |this| this, this;
    Reading: |this| this.0.read_lock(), this.0;
    Writing: |this| this.0.write_lock(), this.0;
    Multi: |this| this.lock, this.first;
}

pub(crate) fn are_valid(holds: &[Hold]) -> bool {
    holds.iter().all(Hold::is_valid)
}

pub(crate) fn token(holds: &[Hold]) -> FencingToken {
    holds[0].fencing_token()
}

/// A thread that acquires the lock, and holds it until it is told to release it.
pub(crate) struct Entrant<'scope> {
    thread: thread::ScopedJoinHandle<'scope, Result<()>>,
    granted: Receiver<Vec<Hold>>,
    leave: Sender<()>,
}

impl<'scope> Entrant<'scope> {
    pub(crate) fn start<'env>(scope: &'scope thread::Scope<'scope, 'env>, lock: &'env dyn Lock) -> Entrant<'scope> {
        let ((says, granted), (leave, told)) = (unbounded(), unbounded());
        let thread = scope.spawn(move || {
            let held = lock.hold()?;
            says.send(held.holds()).unwrap();
            // Without a word the test has failed.
            let _ = told.recv();
            held.release()
        });
        Entrant { thread, granted, leave }
    }

    #[track_caller]
    pub(crate) fn granted(&self) -> Vec<Hold> {
        self.granted.recv_timeout(PATIENCE).expect("it is granted the lock")
    }

    pub(crate) fn is_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    pub(crate) fn leave(self) -> Result<()> {
        self.leave.send(()).unwrap();
        self.thread.join().unwrap()
    }
}
