//! Which thread holds which locks of one client, to tell when a thread would wait for itself.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    thread::{self, ThreadId},
};

use parking_lot::Mutex;

use super::node::HeldNode;
use crate::{paths::ServerPath, unlocked::drop_unlocked};

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldKind {
    /// One thread, and nobody beside it.
    Mutex,
    /// Any number of threads, but no writer.
    Read,
    /// One thread, and nobody beside it.
    Write,
    /// A driver from outside decides who may be beside whom.
    Custom,
    /// One thread, and nobody beside it; but it is another lock than those that queue in the same directory.
    Unfair,
    /// Nobody beside it; but any thread may release it, so a thread that waits for itself may be helped.
    AnyThread,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldKind::Mutex => "the mutex",
            HoldKind::Read => "the read lock",
            HoldKind::Write => "the write lock",
            HoldKind::Custom => "the lock",
            HoldKind::Unfair => "the unfair mutex",
            HoldKind::AnyThread => "the semaphore mutex",
        })
    }
}

/// One lock that one thread holds.
#[derive(Debug, Clone)]
pub(crate) struct ThreadHold {
    thread: ThreadId,
    pub(crate) kind: HoldKind,
    pub(crate) node: Arc<HeldNode>,
}

/// The locks that the threads of this process hold through one client, by directory.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    directories: Mutex<HashMap<ServerPath, Vec<ThreadHold>>>,
}

impl Holds {
    /// The calling thread holds this znode in that directory.
    pub(crate) fn add(&self, directory: &ServerPath, kind: HoldKind, node: &Arc<HeldNode>) {
        let hold = ThreadHold { thread: thread::current().id(), kind, node: node.clone() };
        self.directories.lock().entry(directory.clone()).or_default().push(hold);
    }

    /// Some thread has released it.
    pub(crate) fn remove(&self, directory: &ServerPath, node: &HeldNode) {
        let mut directories = self.directories.lock();
        let Some(holds) = directories.get_mut(directory) else { return };
        let index = holds.iter().position(|hold| std::ptr::eq(&raw const *hold.node, node));
        let hold = index.map(|index| holds.swap_remove(index));
        if holds.is_empty() {
            directories.remove(directory);
        }
        drop_unlocked(directories, hold);
    }

    /// What the calling thread holds in that directory. A lost lock is not held: nobody waits for it.
    pub(crate) fn of_current_thread(&self, directory: &ServerPath) -> Vec<ThreadHold> {
        let me = thread::current().id();
        let mut holds = match self.directories.lock().get(directory) {
            Some(holds) => holds.iter().filter(|hold| hold.thread == me).cloned().collect(),
            None => Vec::new(),
        };
        holds.retain(|hold| hold.node.lost().is_none());
        holds
    }
}
