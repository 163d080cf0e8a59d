//! A held lock as a value.

use std::{fmt, marker::PhantomData, sync::Arc, time::Instant};

use crossbeam_channel::Receiver;

use super::{FencingToken, internals::LockInternals, owners::Owners};
use crate::{HoldState, Result, framework::HeldNode};

/// A held lock that belongs to a thread: dropping it releases the lock.
///
/// What the holder knows: the [fencing token](LockGuard::fencing_token), up to when the lock cannot have been given to
/// anybody else ([`valid_until`](LockGuard::valid_until)), and whether it was lost ([`state`](LockGuard::state), also as
/// a [channel](LockGuard::state_changes) and a [callback](LockGuard::on_state_change)).
///
/// ```
/// use std::time::{Duration, Instant};
/// use curator_locks::{HoldState, LostReason};
/// # use curator_locks::{CuratorFramework, InterProcessMutex, RetryOneTime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "testing")]
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # #[cfg(feature = "testing")]
/// # let servers = server.connect_string();
/// # #[cfg(not(feature = "testing"))]
/// # let servers = "zk1:2181";
/// # if cfg!(not(feature = "testing")) { return Ok(()) }
/// # let client = CuratorFramework::builder()
/// #     .connect_string(servers)
/// #     .retry_policy(RetryOneTime::new(Duration::from_millis(100)))
/// #     .build()?;
/// # client.start()?;
/// # let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// let changes = held.state_changes();
/// if held.valid_until() > Instant::now() + Duration::from_secs(1) {
///     // time enough for a second of work
/// }
///
/// client.delete().for_path(held.path())?; // what an administrator should not do
///
/// let change = changes.recv_timeout(Duration::from_secs(10))?;
/// assert_eq!(change, HoldState::Lost(LostReason::NodeDeleted));
/// assert!(held.release().is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct LockGuard<'a> {
    lock: &'a LockInternals,
    owners: &'a Owners,
    held: Arc<HeldNode>,
    path: String,
    is_open: bool,
    /// The lock belongs to the thread that acquired it.
    not_send: PhantomData<*const ()>,
}

impl<'a> LockGuard<'a> {
    pub(crate) fn new(lock: &'a LockInternals, owners: &'a Owners, held: Arc<HeldNode>) -> LockGuard<'a> {
        let path = lock.client_path(&held);
        LockGuard { lock, owners, held, path, is_open: true, not_send: PhantomData }
    }

    /// A number that grows with every grant of this lock, over all processes.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.held.token())
    }

    /// Up to here the servers cannot have given the lock to anybody else, unless somebody deletes its znode.
    ///
    /// It moves on with every heartbeat, a third of the session timeout apart. Once the lock is lost, it lies in the
    /// past. It rests on assumptions (clocks that run at one rate, a session timeout of at least two of the server's
    /// ticks), so it is a bound and no proof: the proof is the [fencing token](LockGuard::fencing_token).
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.held.valid_until()
    }

    /// Whether the lock is held for certain right now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// Whether the lock is gone for certain.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.state(), HoldState::Lost(_))
    }

    /// What is known about the lock right now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state(Instant::now())
    }

    /// Every change of the state from now on, in order. For `select!`.
    #[must_use]
    pub fn state_changes(&self) -> Receiver<HoldState> {
        self.held.channel()
    }

    /// Calls the listener on every change of the state from now on, in order, on the client's dispatch thread.
    pub fn on_state_change(&self, listener: impl Fn(HoldState) + Send + Sync + 'static) {
        self.held.listen(Arc::new(listener));
    }

    /// The path of the lock's own znode.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Releases the lock and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// [`Error::LockLost`](crate::Error::LockLost) if it was lost before; [`Error::ConnectionLoss`](crate::Error::ConnectionLoss)
    /// if the server did not confirm: the background goes on until the znode is gone.
    pub fn release(mut self) -> Result<()> {
        self.is_open = false;
        self.owners.release(self.lock, Some(&self.held))
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        if let Some(held) = self.owners.leave(self.lock, &self.held) {
            self.lock.release_in_background(&held);
        }
    }
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("path", &self.path).field("state", &self.state()).finish_non_exhaustive()
    }
}
