//! Requests to give a lock back: the asker's part, and the part of the lock and its listeners.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use crate::{
    base::paths::name_of,
    error::{Error, LostReason, Result},
    framework::{
        client::core::CuratorFramework,
        held::{
            node::{HeldNode, Revocation},
            revocation::{REVOKE_MESSAGE, with_request},
        },
        znodes::create::is_curators,
    },
    locks::{acquire::internals::LockInternals, holds::hold::Hold, recipe::driver::sequence_for},
    proto::types::{ErrorCode, Stat},
};

/// A request to give a lock back. The listeners of
/// [`InterProcessMutex::on_revocation`](crate::InterProcessMutex::on_revocation) and its like for every kind but a multi lock,
/// whose members have it, get it.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::{InterProcessSemaphoreV2, Revoker};
/// let downloads = InterProcessSemaphoreV2::new(&client, "/downloads", 3)?;
/// downloads.on_revocation(|request| {
///     println!("{request}"); // the operator asks for the lock (maintenance at noon)
///     request.release();
/// });
/// let lease = downloads.acquire()?;
///
/// // Elsewhere:
/// Revoker::request(&client, lease.path(), "the operator", "maintenance at noon")?;
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct RevocationRequest {
    who: String,
    why: String,
    lock: Weak<LockInternals>,
    held: Option<Arc<HeldNode>>,
}

impl RevocationRequest {
    /// The name of the asker, if the request gives one: Curator's requests do not.
    #[must_use]
    pub fn who(&self) -> Option<&str> {
        Some(&*self.who).filter(|who| !who.is_empty())
    }

    /// The reason, if the request gives one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        Some(&*self.why).filter(|why| !why.is_empty())
    }

    /// The hold that is asked for; `None` if the request has come to a waiter, or if the lock object is gone.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        Some(self.lock.upgrade()?.hold(self.held.clone()?))
    }

    /// Gives the lock back from the listener, whichever thread holds it: the hold is [`Lost`](crate::HoldState::Lost)
    /// with [`Revoked`](LostReason::Revoked) first, of which its holder is told, and then the client deletes its znode
    /// in the background. The holder's own release then fails with [`Error::LockLost`](crate::Error::LockLost). A
    /// holder that cannot stop at any moment should rather set a flag. Does nothing for a waiter, or for a lock that
    /// was given back. The znode stays as long as [`hold_at_least`](crate::AcquireOptions::hold_at_least) says.
    pub fn release(&self) {
        let (Some(lock), Some(held)) = (self.lock.upgrade(), &self.held) else { return };
        if held.lose_unless_over(LostReason::Revoked) && !lock.stays(held) {
            lock.client().core.cleanup.add(lock.deletion_of_held(held));
        }
    }
}

/// Who asks, and why: `the operator asks for the lock (maintenance at noon)`. What cannot be seen is escaped: both are the asker's,
/// and go to logs and terminals.
impl fmt::Display for RevocationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible =
            |text: &str| text.split('\'').map(|part| part.escape_debug().to_string()).collect::<Vec<_>>().join("'");
        write!(f, "{} asks for the lock", visible(self.who().unwrap_or("somebody")))?;
        self.why().map_or(Ok(()), |why| write!(f, " ({})", visible(why)))
    }
}

impl Hold {
    /// The name and the reason of the last request for this lock; `None` without a request, or if the lock does not
    /// listen for any ([`InterProcessMutex::on_revocation`](crate::InterProcessMutex::on_revocation),
    /// [`make_revocable`](crate::InterProcessMutex::make_revocable)). Both are empty if the request does not give them.
    #[must_use]
    pub fn revocation(&self) -> Option<(String, String)> {
        self.node().revocable()?.last()
    }
}

impl LockInternals {
    /// Every hold from now on, and every wait, tells this listener; up to the next release unless it is lasting.
    pub(in crate::locks) fn on_revocation(
        self: &Arc<LockInternals>,
        is_lasting: bool,
        listener: Arc<dyn Fn(&RevocationRequest) + Send + Sync>,
    ) {
        // Weak, as the lock that keeps the listener keeps the client, too.
        let (core, lock) = (Arc::downgrade(&self.client().core), Arc::downgrade(self));
        self.make_revocable(Revocation::new(is_lasting, move |(who, why), held| {
            let Some(core) = core.upgrade() else { return };
            let (who, why, listener) = (who.clone(), why.clone(), listener.clone());
            let request = RevocationRequest { who, why, lock: lock.clone(), held };
            core.dispatcher.run(move || listener(&request));
        }));
    }
}

/// A listener of requests to give a lock back. Java: `RevocationListener`.
///
/// Every `Fn(&T) + Send + Sync + 'static` is one. In a closure the type has to be written: `|lock: &InterProcessMutex| ..`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, RevocationListener};
///
/// struct Tell(crossbeam_channel::Sender<()>);
/// impl RevocationListener<InterProcessMutex> for Tell {
///     fn revocation_requested(&self, _lock: &InterProcessMutex) {
///         let _ = self.0.send(()); // the thread that holds the lock receives it
///     }
/// }
///
/// let (tell, asked) = crossbeam_channel::unbounded();
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// mutex.make_revocable(Tell(tell));
/// let held = mutex.lock()?;
/// curator_locks::Revoker::attempt_revoke(&client, held.path())?; // by anybody, anywhere
/// asked.recv()?;
/// held.release()?;
/// # Ok(()) });
/// ```
pub trait RevocationListener<T>: Send + Sync + 'static {
    /// Called when somebody asks for `for_lock`. The listener decides what to do; nothing is released by itself.
    ///
    /// The lock belongs to the thread that acquired it, so a listener usually sets a flag or sends on a channel that the
    /// holder looks at.
    fn revocation_requested(&self, for_lock: &T);
}

impl<T, F: Fn(&T) + Send + Sync + 'static> RevocationListener<T> for F {
    fn revocation_requested(&self, for_lock: &T) {
        self(for_lock);
    }
}

/// A lock whose holder can be asked to give it back. Java: `Revocable`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, Revocable, Revoker};
///
/// fn tells<L: Revocable<L> + 'static>(lock: &L, tell: crossbeam_channel::Sender<()>) {
///     lock.make_revocable(move |_: &L| tell.send(()).unwrap_or_default());
/// }
/// fn tells_on_a_thread<L: Revocable<L> + 'static>(lock: &L, tell: crossbeam_channel::Sender<()>) {
///     let listener = move |_: &L| tell.send(()).unwrap_or_default();
///     lock.make_revocable_with_executor(listener, |task| drop(std::thread::spawn(task)));
/// }
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// for make_revocable in [tells, tells_on_a_thread] {
///     let (tell, told) = crossbeam_channel::unbounded();
///     make_revocable(&mutex, tell);
///     let held = mutex.lock()?;
///     Revoker::attempt_revoke(&client, held.path())?;
///     told.recv()?;
///     held.release()?;
/// }
/// # Ok(()) });
/// ```
pub trait Revocable<T> {
    /// Makes the holds that are acquired from now on revocable, up to the next release; see
    /// [`InterProcessMutex::make_revocable`](crate::InterProcessMutex::make_revocable).
    fn make_revocable(&self, listener: impl RevocationListener<T>) {
        self.make_revocable_with_executor(listener, |task| task());
    }

    /// Like [`make_revocable`](Revocable::make_revocable), but `executor` runs the listener, not the dispatch thread.
    fn make_revocable_with_executor(
        &self,
        listener: impl RevocationListener<T>,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    );
}

/// Asks holders to give their locks back. Java: `Revoker`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::{InterProcessMutex, Revoker};
/// # let mutex = InterProcessMutex::new(client, "/example")?;
/// # mutex.acquire()?;
/// # let mutex = &mutex;
/// if let Some(holder) = mutex.participant_nodes()?.first() {
///     Revoker::attempt_revoke(&client, holder)?;
/// }
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub enum Revoker {}

impl Revoker {
    /// Asks the owner of a lock's znode to give the lock back, by writing `__REVOKE__` over the znode's data, which is
    /// lost thereby. Whether the owner listens is its own affair. Blocks for one round trip, and while the connection is
    /// gone as the retry policy says. A znode that is gone is no error: the lock was given back.
    ///
    /// Holders of all languages understand it. [`Revoker::request`] gives a name and a reason, and leaves the data. So
    /// does this call, without both and in two round trips, if the znode's name has no number, as that of
    /// [`InterProcessUnfairMutex`](crate::InterProcessUnfairMutex).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a znode that is no contender's, such as a lock's directory, and otherwise as
    /// [every operation on a znode](crate::operations#errors).
    pub fn attempt_revoke(client: &CuratorFramework, path: &str) -> Result<()> {
        if !is_numbered(path) {
            // The path may be that of a directory, which a read tells.
            return Revoker::request(client, path, "", "");
        }
        match client.set_data().for_path_and_data(path, REVOKE_MESSAGE) {
            Err(error) if error.is_no_node() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Asks the owner of a lock's znode to give the lock back, and says who asks and why. Two round trips, more if the data
    /// change in between. A znode that is gone is no error: the lock was given back.
    ///
    /// The znode of one of this crate's contenders keeps its data, and the request stands behind them. Curator's own
    /// contenders understand nothing but the bare `__REVOKE__`, so they are asked as by
    /// [`attempt_revoke`](Revoker::attempt_revoke); the znode's name tells which of both it is.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use curator_locks::{InterProcessMutex, Revoker};
    /// let (tell, told) = crossbeam_channel::unbounded();
    /// let mutex = InterProcessMutex::new(&client, "/locks/report")?;
    /// mutex.on_revocation(move |request| drop(tell.send(request.who().map(str::to_owned))));
    /// let held = mutex.lock()?;
    /// Revoker::request(&client, held.path(), "the operator", "maintenance at noon")?;
    /// assert_eq!(told.recv()?.as_deref(), Some("the operator"));
    /// held.release()?;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a znode that is no contender's, such as a lock's directory, and otherwise as
    /// [every operation on a znode](crate::operations#errors).
    pub fn request(client: &CuratorFramework, path: &str, who: &str, why: &str) -> Result<()> {
        let mut written: Option<Vec<u8>> = None;
        loop {
            let mut stat = Stat::default();
            let data = match client.get_data().storing_stat_in(&mut stat).for_path(path) {
                Err(error) if error.is_no_node() => return Ok(()),
                data => data?,
            };
            // The write's reply was lost, and the client's second attempt found the first one's version.
            if written.as_ref() == Some(&data) {
                return Ok(());
            }
            check_contender(path, &stat)?;
            let is_curators = is_curators(name_of(path));
            let request = if is_curators { REVOKE_MESSAGE.to_vec() } else { with_request(&data, who, why) };
            match client.set_data().with_version(stat.version).for_path_and_data(path, request.clone()) {
                Err(error) if error.is_no_node() => return Ok(()),
                Err(error) if error.code() == Some(ErrorCode::BadVersion) => written = Some(request),
                result => return result.map(drop),
            }
        }
    }
}

/// Whether the name has a number: a contender's has one, a lock's directory has none.
fn is_numbered(path: &str) -> bool {
    sequence_for(name_of(path), "").is_some()
}

/// Fails unless the znode is a contender's: ephemeral, or with a number in its name.
fn check_contender(path: &str, stat: &Stat) -> Result<()> {
    if stat.ephemeral_owner != 0 || is_numbered(path) {
        return Ok(());
    }
    let rule = "the znode of one that holds or waits: this is a directory".to_owned();
    Err(Error::InvalidArgument { name: "path", value: path.to_owned(), rule })
}
