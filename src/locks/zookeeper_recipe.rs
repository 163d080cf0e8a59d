//! The lock of ZooKeeper's own recipes: no call waits for others, a listener is told. Java:
//! `org.apache.zookeeper.recipes.lock`.

use std::{fmt, sync::Arc};

pub use crate::locks::recipe::znode_name::ZNodeName;
use crate::{
    base::random,
    error::Result,
    framework::{client::core::CuratorFramework, held::holds::HoldKind},
    locks::{
        acquire::internals::LockInternals,
        holds::{fencing::token::FencingToken, hold::Hold},
        leader::{candidate::Candidate, leadership::Leadership},
        recipe::{driver::ZNodeNameDriver, spec::Recipe},
    },
};

#[cfg(doc)]
use crate::{error::Error, locks::mutex::InterProcessMutex};

/// The data that ZooKeeper's own recipe puts into its znodes.
const DATA: [u8; 2] = [0x12, 0x34];

/// The prefix of a znode's name: as in ZooKeeper's own recipe, `x-<session id>-`, and then an id of the attempt. With
/// the session alone two objects of one session could not tell their znodes apart after a lost reply.
fn unique_name(session_id: i64) -> String {
    format!("x-{session_id}-{}-", random::uuid())
}

/// An exclusive lock whose acquisition is told to a listener instead of being waited for. Java: `WriteLock` of
/// `zookeeper-recipes-lock`.
///
/// [`lock`](WriteLock::lock) queues and returns; when the lock is this object's, its [`LockListener`] is told. That
/// makes it a leader election: each candidate calls `lock`, the one that is told leads until it is told otherwise. From
/// `lock` to `unlock` it has a thread of its own, which sleeps nearly always. The lock belongs to no thread: any thread
/// that has the object may unlock it. It is not re-entrant.
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
/// While the connection is suspended the place in the queue stays. As soon as the servers may have given the lock to
/// another, at [`Hold::valid_until`], an owner's listener is told [`lock_released`](LockListener::lock_released),
/// before another one can be told [`lock_acquired`](LockListener::lock_acquired). If the session turns out to live, it
/// is told `lock_acquired` again. When the session is lost, or somebody deletes the znode, the object queues again, at
/// the end, until it is unlocked.
///
/// An error that no other attempt would mend ends that, with a message in the log: [`id`](WriteLock::id) is `None` then,
/// and [`lock`](WriteLock::lock) may be called again. Such are a directory whose list is larger than
/// [`max_frame_size`](crate::Builder::max_frame_size), and numbers that are used up.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::zookeeper_recipe::{LockListener, WriteLock};
///
/// struct Tell(crossbeam_channel::Sender<&'static str>);
///
/// impl LockListener for Tell {
///     fn lock_acquired(&self) {
///         let _ = self.0.send("leads");
///     }
///     fn lock_released(&self) {
///         let _ = self.0.send("leads no more");
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let election = WriteLock::with_listener(&client, "/elections/scheduler", Tell(tell))?.with_data("host-17");
/// election.lock()?; // does not wait for others
/// assert_eq!(told.recv()?, "leads");
/// election.close()?; // deletes its znode when the listener has been told
/// assert_eq!(told.recv()?, "leads no more");
/// # Ok(()) });
/// ```
pub struct WriteLock {
    candidate: Arc<Candidate>,
}

impl WriteLock {
    /// A lock in the directory `dir`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, dir: &str) -> Result<WriteLock> {
        let recipe = Recipe {
            unique: Some(unique_name),
            has_persistent_directory: true,
            ..Recipe::new(HoldKind::AnyThread, ZNodeNameDriver)
        };
        let internals = LockInternals::new(client, dir, recipe)?;
        internals.set_data(DATA);
        Ok(WriteLock { candidate: Candidate::new(internals, None, Candidate::close) })
    }

    /// A lock in the directory `dir`, with a listener. Does no I/O.
    ///
    /// # Errors
    /// As [`WriteLock::new`].
    pub fn with_listener(client: &CuratorFramework, dir: &str, listener: impl LockListener) -> Result<WriteLock> {
        let lock = WriteLock::new(client, dir)?;
        lock.set_lock_listener(listener);
        Ok(lock)
    }

    /// Sets the data of this object's znodes from the next one on, for others to read. Defaults to the two bytes of
    /// ZooKeeper's own recipe, which does not look at them.
    #[must_use]
    pub fn with_data(self, data: impl Into<Vec<u8>>) -> WriteLock {
        self.candidate.lock.set_data(data);
        self
    }

    /// Tells this listener from now on, and the former one no more. Past events are not told again.
    pub fn set_lock_listener(&self, listener: impl LockListener) {
        let tell = move |term: Option<&Leadership>| match term {
            Some(_) => listener.lock_acquired(),
            None => listener.lock_released(),
        };
        self.candidate.listen(tell, |task| task(), true);
    }

    /// Queues for the lock. `true`: it is this object's already; `false`: the listener will be told.
    ///
    /// Does not wait for other contenders, only for the server: one round trip for a znode that is the first, two for one
    /// that has to wait, three more where the directory is missing.
    /// While the connection is gone it waits and tries again as the client's retry policy says, until it has queued. A second
    /// call does nothing but tell whether the lock is this object's. After [`close`](WriteLock::close) it is always `false`.
    ///
    /// # Errors
    /// [`Error::ConnectionLoss`] or [`Error::SessionExpired`] when the retry policy is exhausted,
    /// [`Error::ClientClosed`], [`Error::SequenceExhausted`], [`Error::Server`] when the server refuses, and
    /// [`Error::Io`] if no thread can be had. It is not queued then.
    pub fn lock(&self) -> Result<bool> {
        self.candidate.lock()
    }

    /// Gives the lock back, or the place in the queue. Does nothing if this object is not queued.
    ///
    /// From the call on this object is not the owner, whatever becomes of the request. An owner's listener is told
    /// first, and has returned before the znode is deleted: so the next owner is told after that. This waits for the
    /// listener, at most a second, and for one round trip; without a connection as the retry policy says, at most for
    /// the session timeout. The background does the rest. Called by a listener it does not wait.
    ///
    /// # Errors
    /// [`Error::LockLost`] if it was lost meanwhile; [`Error::Timeout`] if the listener takes longer;
    /// [`Error::ConnectionLoss`] if the server did not confirm, after at most the session timeout.
    pub fn unlock(&self) -> Result<()> {
        self.candidate.unlock()
    }

    /// Whether the lock is this object's, and nobody else's right now: from the grant up to
    /// [`Hold::valid_until`](crate::Hold::valid_until), however slow a listener is. Once `false`, it stays so until the
    /// listener has been told of the end of this term and another one begins.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.candidate.leadership().is_some()
    }

    /// The path of this object's znode; `None` while it is not queued.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.candidate.id()
    }

    /// The lock's directory.
    #[must_use]
    pub fn dir(&self) -> &str {
        self.candidate.lock.base_path()
    }

    /// A number that grows with every grant of this lock, over all processes; `None` if this object is not the owner.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold().map(|hold| hold.fencing_token())
    }

    /// The owner's hold; `None` if this object is not the owner. A hold that was returned once goes on to tell its
    /// state, also in a doubt.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.candidate.leadership().map(|term| term.hold().clone())
    }

    /// Unlocks for good: the znode is removed, and a later [`lock`](WriteLock::lock) does nothing. Dropping the object
    /// does the same without waiting for the server.
    ///
    /// # Errors
    /// As [`WriteLock::unlock`].
    pub fn close(&self) -> Result<()> {
        self.candidate.close()
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        self.candidate.abandon();
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

/// A listener that is told when a [`WriteLock`](crate::locks::zookeeper_recipe::WriteLock) is acquired and released.
/// Java: `LockListener` of ZooKeeper's lock recipe.
///
/// Both run on the client's dispatch thread, one at a time, in order and under no lock; while one runs, the client's
/// other listeners wait, so that long work belongs to a thread of its own. They may use the lock.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::zookeeper_recipe::{LockListener, WriteLock};
///
/// struct Tell(crossbeam_channel::Sender<&'static str>);
/// impl LockListener for Tell {
///     fn lock_acquired(&self) {
///         let _ = self.0.send("acquired");
///     }
///     fn lock_released(&self) {
///         let _ = self.0.send("released");
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let lock = WriteLock::new(&client, "/locks/order-42")?;
/// lock.set_lock_listener(Tell(tell));
/// lock.lock()?;
/// assert_eq!(told.recv()?, "acquired");
/// assert!(lock.is_owner() && lock.id() == lock.hold().map(|hold| hold.path().to_owned()));
/// println!("{} with token {:?}", lock.dir(), lock.fencing_token());
/// lock.unlock()?;
/// assert_eq!(told.recv()?, "released");
/// # Ok(()) });
/// ```
pub trait LockListener: Send + Sync + 'static {
    /// The lock is this object's from now on. Called again after a doubt that has passed.
    fn lock_acquired(&self);

    /// The lock was unlocked or lost, or is in doubt: another object may be told that it has the lock from now on. Called
    /// once for each [`lock_acquired`](LockListener::lock_acquired), at [`Hold::valid_until`](crate::Hold::valid_until) at
    /// the latest, unless the process is paused or an earlier listener is still running.
    fn lock_released(&self);
}
