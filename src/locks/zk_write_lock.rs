//! The lock of ZooKeeper's own recipes: no call waits for others, a listener is told.

mod contender;
mod listener;
mod znode_name;

use std::{fmt, sync::Arc};

use self::contender::Contender;
pub use self::{listener::LockListener, znode_name::ZNodeName};
use super::{FencingToken, LockInternals, StandardLockInternalsDriver};
use crate::{CuratorFramework, Result, framework::HoldKind};

#[cfg(doc)]
use crate::{Error, InterProcessMutex};

/// An exclusive lock whose acquisition is told to a listener instead of being waited for. Java: `WriteLock` of
/// `zookeeper-recipes-lock`.
///
/// [`lock`](WriteLock::lock) queues and returns; when the lock is this object's, its [`LockListener`] is told. That makes
/// it a leader election: each candidate calls `lock`, the one that is told leads until it is told otherwise. It needs no
/// thread of its own, and it belongs to no thread: whoever has the object may unlock it. It is not re-entrant.
///
/// Processes that use ZooKeeper's own recipe, one object per session, stand in the same queue: the directory is
/// persistent, the names begin with `x-<session id>-` and end in a sequence number, and [`ZNodeName`] is their order.
/// (Between the two stands a unique id, which ZooKeeper's own recipe takes for part of the prefix; without it, two objects
/// of one session adopt each other's znode there.) It is another lock than [`InterProcessMutex`].
///
/// A process of ZooKeeper's own recipe (3.8.0) that loses the reply of its create finds its znode again, but never takes
/// itself for the owner: the queue behind it stands still until that process deletes the znode or ends its session.
///
/// # When the connection goes
/// While it is suspended the place in the queue stays, and [`is_owner`](WriteLock::is_owner) is `false` as soon as the
/// servers may have given the lock to another. When the session is lost, or somebody deletes the znode, an owner's
/// listener is told [`lock_released`](LockListener::lock_released), and the object queues again, at the end, until it is
/// unlocked.
///
/// ```no_run
/// # use curator_locks::{CuratorFramework, LockListener, WriteLock};
/// struct Candidate;
///
/// impl LockListener for Candidate {
///     fn lock_acquired(&self) { /* begin to lead */ }
///     fn lock_released(&self) { /* stop leading, at once */ }
/// }
///
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let election = WriteLock::with_listener(client, "/elections/scheduler", Candidate)?;
/// let leads_already = election.lock()?; // does not wait
/// // ... until the end of the program:
/// election.close()
/// # }
/// ```
pub struct WriteLock {
    contender: Arc<Contender>,
}

impl WriteLock {
    /// A lock in the directory `dir`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`.
    pub fn new(client: &CuratorFramework, dir: &str) -> Result<WriteLock> {
        WriteLock::build(client, dir, None)
    }

    /// The same, with whom to tell.
    ///
    /// # Errors
    /// As [`WriteLock::new`].
    pub fn with_listener(client: &CuratorFramework, dir: &str, listener: impl LockListener) -> Result<WriteLock> {
        WriteLock::build(client, dir, Some(Arc::new(listener)))
    }

    fn build(client: &CuratorFramework, dir: &str, listener: Option<Arc<dyn LockListener>>) -> Result<WriteLock> {
        let mut internals = LockInternals::new(client, dir, Arc::new(StandardLockInternalsDriver::new()), 1)?;
        internals.set_kind(HoldKind::AnyThread);
        Ok(WriteLock { contender: Contender::new(internals, listener) })
    }

    /// Has this listener told from now on, and the former one not any more. What it missed is not told again.
    pub fn set_lock_listener(&self, listener: impl LockListener) {
        self.contender.set_listener(Some(Arc::new(listener)));
    }

    /// Queues for the lock. `true`: it is this object's already; `false`: the listener will be told.
    ///
    /// Does not wait for other contenders, only for the server: two round trips the first time in a directory, then one.
    /// While the connection is gone it waits and tries again as the client's retry policy says. A second call does nothing
    /// but tell whether the lock is this object's. After [`close`](WriteLock::close) it is always `false`.
    ///
    /// # Errors
    /// [`Error::ConnectionLoss`] or [`Error::SessionExpired`] when the retry policy is exhausted, [`Error::ClientClosed`],
    /// [`Error::SequenceExhausted`], and what the server refuses ([`Error::Server`]). It is not queued then.
    pub fn lock(&self) -> Result<bool> {
        self.contender.lock()
    }

    /// Gives the lock back, or the place in the queue; one round trip. The owner's listener is told. Does nothing if this
    /// object is not queued.
    ///
    /// From the call on this object is not the owner, whatever becomes of the request: without the server's confirmation
    /// the background goes on until the znode is gone.
    ///
    /// # Errors
    /// [`Error::LockLost`] if it was lost meanwhile; [`Error::ConnectionLoss`] if the server did not confirm, after at most
    /// the session timeout.
    pub fn unlock(&self) -> Result<()> {
        self.contender.unlock()
    }

    /// Whether the lock is this object's for certain right now.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.contender.is_owner()
    }

    /// The path of this object's znode; `None` while it is not queued.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.contender.id()
    }

    /// The lock's directory.
    #[must_use]
    pub fn dir(&self) -> &str {
        self.contender.lock_internals().base_path()
    }

    /// A number that grows with every grant of this lock, over all processes; `None` for who is not the owner.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.contender.held().map(|held| FencingToken::new(held.czxid()))
    }

    /// Unlocks for good: the znode is removed, and a later [`lock`](WriteLock::lock) does nothing. Dropping the object
    /// does the same without waiting for the server.
    ///
    /// # Errors
    /// As [`WriteLock::unlock`].
    pub fn close(&self) -> Result<()> {
        self.contender.close()
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        self.contender.abandon();
    }
}

impl fmt::Debug for WriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteLock")
            .field("dir", &self.dir())
            .field("is_owner", &self.is_owner())
            .finish_non_exhaustive()
    }
}
