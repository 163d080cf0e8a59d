//! The locks that each thread holds through one client, to tell when a thread would wait for itself.

use std::{
    fmt,
    sync::{Arc, Weak},
    thread::ThreadId,
};

use super::node::{HeldNode, ZnodeCache};
use crate::base::{
    collections::{HashMap, HashSet},
    paths::ServerPath,
    sync::Mutex,
    threads::{life, thread_id},
    unlocked::drop_unlocked,
};

/// A kind of lock, by the holders that it keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldKind {
    /// It keeps all others out: one thread holds it alone.
    Mutex,
    /// It keeps writers out: any number of threads hold it together.
    Read,
    /// It keeps all out but readers: one thread holds it.
    Upgradable,
    /// It keeps all others out: one thread holds it alone.
    Write,
    /// A driver from outside decides which holders it keeps out.
    Custom,
    /// It keeps all others out, but not those that queue in the same directory for other locks.
    Unfair,
    /// It keeps all others out; but any thread may release it, so a thread that waits for itself may be helped.
    AnyThread,
}

impl HoldKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            HoldKind::Mutex => "mutex",
            HoldKind::Read => "read lock",
            HoldKind::Upgradable => "upgradable lock",
            HoldKind::Write => "write lock",
            HoldKind::Custom => "lock",
            HoldKind::Unfair => "unfair mutex",
            HoldKind::AnyThread => "semaphore mutex",
        }
    }
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}", self.name())
    }
}

/// The locks that the threads of this process hold through one client, by directory.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    directories: Arc<Mutex<HashMap<ServerPath, Weak<DirectoryHolds>>>>,
    /// Directories with names of other kinds of locks, where somebody has looked for those.
    looked_at: Mutex<HashSet<ServerPath>>,
}

/// The holds of one directory. They are looked up once for each lock object, and not at each acquire.
#[derive(Debug)]
pub(crate) struct DirectoryHolds {
    directory: ServerPath,
    holds: Mutex<Vec<ThreadHold>>,
    /// The caches that keep znodes there between holds.
    caches: Mutex<Vec<Weak<dyn ZnodeCache>>>,
    directories: Weak<Mutex<HashMap<ServerPath, Weak<DirectoryHolds>>>>,
}

#[derive(Debug)]
struct ThreadHold {
    /// The holder.
    thread: ThreadId,
    /// Its life, if nobody else can release the lock.
    life: Option<Weak<()>>,
    kind: HoldKind,
    node: Arc<HeldNode>,
}

/// A hold that a thread may wait for: which lock it holds, and whether the holder has ended.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) kind: HoldKind,
    pub(crate) node: Arc<HeldNode>,
    pub(crate) has_ended: bool,
}

impl Holds {
    /// The holds in this directory, the same for all that ask while one of them keeps the answer.
    pub(crate) fn of(&self, directory: &ServerPath) -> Arc<DirectoryHolds> {
        let mut directories = self.directories.lock();
        if let Some(known) = directories.get(directory).and_then(Weak::upgrade) {
            return known;
        }
        let (holds, caches) = (Mutex::default(), Mutex::default());
        let (directory_of, directories_of) = (directory.clone(), Arc::downgrade(&self.directories));
        let new = Arc::new(DirectoryHolds { directory: directory_of, holds, caches, directories: directories_of });
        directories.insert(directory.clone(), Arc::downgrade(&new));
        new
    }

    /// Whether nobody has looked for locks of other kinds in this directory before.
    pub(crate) fn is_first_look(&self, directory: &ServerPath) -> bool {
        self.looked_at.lock().insert(directory.clone())
    }

    /// Nothing was found there.
    pub(crate) fn look_again(&self, directory: &ServerPath) {
        self.looked_at.lock().remove(directory);
    }
}

impl DirectoryHolds {
    /// Notes that the calling thread holds this znode.
    pub(crate) fn add(&self, kind: HoldKind, node: &Arc<HeldNode>) {
        let life = if kind == HoldKind::AnyThread { None } else { life() };
        self.holds.lock().push(ThreadHold { thread: thread_id(), life, kind, node: node.clone() });
    }

    /// Adds a cache that keeps znodes there between holds, as long as it lives.
    pub(crate) fn add_cache(&self, cache: Weak<dyn ZnodeCache>) {
        let mut caches = self.caches.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// The caches that keep znodes there. Dropping the last reference to one gives its znodes back.
    pub(crate) fn caches(&self) -> Vec<Arc<dyn ZnodeCache>> {
        self.caches.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes the hold of a znode that some thread has released.
    pub(crate) fn remove(&self, node: &HeldNode) {
        let mut holds = self.holds.lock();
        let index = holds.iter().position(|hold| std::ptr::eq(&raw const *hold.node, node));
        let hold = index.map(|index| holds.swap_remove(index));
        drop_unlocked(holds, hold);
    }

    /// The holds of the calling thread, and of threads that have ended; without lost ones, for which no contender waits.
    pub(crate) fn obstacles(&self) -> Vec<Obstacle> {
        let me = thread_id();
        let obstacle = |hold: &ThreadHold| {
            let has_ended = hold.life.as_ref().is_some_and(|life| life.strong_count() == 0);
            let is_one = hold.thread == me || has_ended;
            is_one.then(|| Obstacle { kind: hold.kind, node: hold.node.clone(), has_ended })
        };
        let mut obstacles: Vec<_> = self.holds.lock().iter().filter_map(obstacle).collect();
        obstacles.retain(|obstacle| obstacle.node.lost().is_none());
        obstacles
    }
}

impl Drop for DirectoryHolds {
    fn drop(&mut self) {
        let Some(directories) = self.directories.upgrade() else { return };
        let mut directories = directories.lock();
        // Another one may have taken its place.
        if directories.get(&self.directory).is_some_and(|holds| holds.strong_count() == 0) {
            directories.remove(&self.directory);
        }
    }
}
