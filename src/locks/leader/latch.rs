//! The leader latch, whose listeners are told when it leads.

use std::{mem, sync::Arc, time::Duration};

use crate::{
    base::{
        channel::{never, select},
        clock,
        unlocked::drop_unlocked,
    },
    error::{Error, Result},
    framework::{
        client::core::{CuratorFramework, ListenerId},
        held::holds::HoldKind,
    },
    locks::{
        acquire::internals::LockInternals,
        leader::{
            candidate::Candidate,
            leadership::{CloseMode, LeaderState, Leadership},
            methods::leader_methods,
        },
        options::acquire::AcquireOptions,
        recipe::{driver::StandardLockInternalsDriver, spec::Recipe},
    },
    session::wait::cancel::CancelToken,
};

const WHAT: &str = "the leader latch";

/// A candidate for leadership, which leads until it is told otherwise, or closed. Java: `LeaderLatch`.
///
/// It queues when it is started, on a thread of its own that sleeps nearly always and ends with the close. Listeners are
/// told on the client's dispatch thread, [`await_leadership`](LeaderLatch::await_leadership) waits, and
/// [`has_leadership`](LeaderLatch::has_leadership) asks.
/// Processes in Java with Curator's `LeaderLatch` stand in the same queue. A [`LeaderSelector`](crate::LeaderSelector) sorts its znodes by
/// another name and needs another path.
///
/// # When the connection goes
/// At the first suspension, or as the client's
/// [policy](crate::Builder::connection_state_error_policy) says, a leader leads no more, and again after the
/// reconnect if its znode is still there. By the policy [`Session`](crate::ConnectionStateErrorPolicy::Session) it
/// leads on over a short suspension. In either case it is told at [`Hold::valid_until`](crate::Hold::valid_until) at
/// the latest, before another one can be told that it leads. When its session is lost, or somebody deletes its znode,
/// it is told and queues again, at the end.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{CloseMode, LeaderLatch, LeaderLatchListener, Leadership};
///
/// struct Scheduler;
///
/// impl LeaderLatchListener for Scheduler {
///     fn is_leader(&self, leadership: &Leadership) {
///         println!("begins, with the number {}", leadership.fencing_token());
///     }
///     fn not_leader(&self) {
///         println!("stops");
///     }
/// }
///
/// let latch = LeaderLatch::new(&client, "/scheduler")?.with_id("host-17").with_close_mode(CloseMode::NotifyLeader);
/// latch.add_listener(Scheduler);
/// latch.start()?;
/// if latch.await_leadership_timeout(Duration::from_secs(10))? {
///     assert_eq!(latch.leader()?.ok_or("nobody leads")?.id(), "host-17");
///     assert_eq!((latch.participants()?.len(), latch.our_path()), (1, latch.last_path_is_leader()));
/// }
/// latch.close().unwrap_or_else(|error| eprintln!("closed, but {error}")); // stops, and only then the next one begins
/// # Ok(()) });
/// ```
///
/// Without a listener:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// let latch = curator_locks::LeaderLatch::new(&client, "/scheduler")?;
/// latch.start()?;
/// latch.await_leadership()?; // `await_leadership_with` takes a time and a cancel token
/// if let Some(leadership) = latch.leadership() { // else it has just been lost again
///     println!("leads, with the number {}", leadership.fencing_token());
///     while latch.has_leadership() {
///         // ... a piece of the work ...
///         # break;
///     }
/// }
/// # Ok(()) });
/// ```
pub struct LeaderLatch {
    pub(super) candidate: Arc<Candidate>,
    id: String,
}

impl LeaderLatch {
    /// A latch in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str) -> Result<LeaderLatch> {
        let driver = StandardLockInternalsDriver::with_lock_name("latch-");
        let internals = LockInternals::new(client, path, Recipe::new(HoldKind::AnyThread, driver))?;
        internals.set_data("");
        let close = |candidate: &Candidate| {
            let close_mode = candidate.state.lock().close_mode;
            close(candidate, close_mode)
        };
        let candidate = Candidate::new(internals, Some(client.connection_state_error_policy()), close);
        Ok(LeaderLatch { candidate, id: String::new() })
    }

    /// Sets the data of this latch's znode, for others to read: see [`Participant::id`](crate::Participant::id).
    /// Defaults to nothing.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> LeaderLatch {
        self.id = id.into();
        self.candidate.lock.set_data(self.id.clone());
        self
    }

    /// Sets whether [`close`](LeaderLatch::close) and a drop tell the listeners. Defaults to [`CloseMode::Silent`].
    #[must_use]
    pub fn with_close_mode(self, close_mode: CloseMode) -> LeaderLatch {
        self.candidate.state.lock().close_mode = close_mode;
        self
    }

    /// Queues. Returns at once; without a connection the latch waits for one, however long that takes.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`]; [`Error::NotInUse`] after a close; [`Error::NotStarted`] or [`Error::ClientClosed`] of
    /// the client; [`Error::Io`] if no thread can be had: it may be started again.
    pub fn start(&self) -> Result<()> {
        self.candidate.lock.client().core.check_open()?;
        self.candidate.state.lock().life.start(WHAT, self.path())?;
        self.candidate.begin(None).inspect_err(|_| {
            // Fails if it was closed meanwhile.
            let _ = stop(&self.candidate, LeaderState::Latent, CloseMode::NotifyLeader);
        })
    }

    /// Calls the listener from now on, on the client's dispatch thread, in order and under no lock; while it runs, the
    /// client's other listeners wait. The listener may use the latch. It is not told of the state at the call.
    pub fn add_listener(&self, listener: impl LeaderLatchListener) -> ListenerId {
        self.add_listener_with_executor(listener, |task| task())
    }

    /// As [`add_listener`](LeaderLatch::add_listener), but `executor` runs the listener. It is called on the dispatch
    /// thread, with a task that it may run there or hand to a thread. The next task comes when this one was run or dropped.
    pub fn add_listener_with_executor(
        &self,
        listener: impl LeaderLatchListener,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> ListenerId {
        let tell = move |term: Option<&Leadership>| match term {
            Some(term) => listener.is_leader(term),
            None => listener.not_leader(),
        };
        self.candidate.listen(tell, executor, false)
    }

    /// Removes a listener; it may still be told what was under way.
    pub fn remove_listener(&self, id: ListenerId) {
        let mut state = self.candidate.state.lock();
        let removed: Vec<_> = state.listeners.extract_if(.., |(other, _)| *other == id).collect();
        drop_unlocked(state, removed);
    }

    /// Blocks until this latch leads, over suspensions and lost sessions. No listener delays the news of a grant; after a
    /// doubt or a loss it goes on when the listeners were told of the end of the last term. Java: `await()`.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started, also when it is closed meanwhile; [`Error::ClientClosed`]; the error with
    /// which the servers refuse its attempt to queue; and [`Error::Uncertain`] where the link is too slow to lead. If another
    /// attempt may help, the latch makes it, and this may be called again. Otherwise each call ends with this error.
    pub fn await_leadership(&self) -> Result<()> {
        self.await_leadership_with(&AcquireOptions::new()).map(drop)
    }

    /// Blocks until this latch leads, or the time is up: then `false`. Zero does not wait. Java: `await(long, TimeUnit)`.
    ///
    /// # Errors
    /// As [`await_leadership`](LeaderLatch::await_leadership).
    pub fn await_leadership_timeout(&self, timeout: Duration) -> Result<bool> {
        self.await_leadership_with(&AcquireOptions::new().timeout(timeout))
    }

    /// Blocks until this latch leads, with a timeout, a cancel token, both or neither. `false`: the time was up first.
    ///
    /// # Errors
    /// As [`await_leadership`](LeaderLatch::await_leadership), and [`Error::Cancelled`].
    pub fn await_leadership_with(&self, options: &AcquireOptions) -> Result<bool> {
        let (deadline, cancelled) = (options.deadline(), options.cancellation());
        let cancelled = cancelled.map_or_else(never, |token| token.signal().clone());
        loop {
            // No news are missed. Earlier news show in the check that follows, or have ended the wait; later news
            // cancel this very token, which stays cancelled.
            let news = self.news()?;
            if self.has_leadership() {
                return Ok(true);
            }
            // A time beyond what the clock can count has no end.
            let time = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(clock::now()));
            select! {
                // Otherwise check again in the next iteration.
                recv(news.signal()) -> _ => self.candidate.state.lock().failed.clone().map_or(Ok(()), Err)?,
                recv(self.candidate.lock.client().core.closed.signal()) -> _ => return Err(Error::ClientClosed),
                recv(cancelled) -> _ => return Err(Error::Cancelled { path: self.path().to_owned() }),
                default(time) => return Ok(self.has_leadership()),
            }
        }
    }

    /// Whether this latch leads, and nobody else can right now; no listener, however slow, delays that. Once `false`, it
    /// stays so until the listeners have been told of the end of this term and another one begins. Costs nothing.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        self.leadership().is_some()
    }

    /// The current term, if this latch leads.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        self.candidate.leadership()
    }

    /// The id that [`with_id`](LeaderLatch::with_id) has set; empty by default.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The path of this latch's znode; `None` while it has none. Java: `getOurPath`.
    #[must_use]
    pub fn our_path(&self) -> Option<String> {
        self.candidate.id()
    }

    /// The path of the znode with which this latch led last; `None` if it never did. Java: `getLastPathIsLeader`.
    #[must_use]
    pub fn last_path_is_leader(&self) -> Option<String> {
        self.candidate.state.lock().last_path.clone()
    }

    /// Leaves the queue for good, as [`with_close_mode`](LeaderLatch::with_close_mode) says.
    ///
    /// From the call on it has no leadership. With [`CloseMode::NotifyLeader`] a leader's listeners are told and have
    /// returned before its znode is deleted, so the next one leads after that. This waits for them, at most a second,
    /// and for one round trip; without a connection as the retry policy says, at most for the session timeout. The
    /// background does the rest. Called by a listener it does not wait.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started; [`Error::Timeout`] if the listeners take longer;
    /// [`Error::ConnectionLoss`] if the server did not confirm. It is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.close_with(self.close_mode())
    }

    /// [`close`](LeaderLatch::close) in this mode.
    ///
    /// # Errors
    /// As [`close`](LeaderLatch::close).
    pub fn close_with(&self, close_mode: CloseMode) -> Result<()> {
        close(&self.candidate, close_mode)
    }

    fn close_mode(&self) -> CloseMode {
        self.candidate.state.lock().close_mode
    }

    /// A token that is cancelled at the next news of this latch.
    fn news(&self) -> Result<CancelToken> {
        self.candidate.lock.client().core.check_open()?;
        let state = self.candidate.state.lock();
        state.life.check_started(WHAT, self.path())?;
        // After a final error there are no more news.
        state.failed.clone().filter(Error::is_final).map_or(Ok(()), Err)?;
        Ok(state.news.clone())
    }
}

impl Drop for LeaderLatch {
    fn drop(&mut self) {
        // Fails if the latch was never started, or is closed already.
        let _ = stop(&self.candidate, LeaderState::Closed, self.close_mode());
        self.candidate.abandon();
    }
}

fn close(candidate: &Candidate, close_mode: CloseMode) -> Result<()> {
    stop(candidate, LeaderState::Closed, close_mode)?;
    match candidate.close() {
        // The latch leads no more, as the caller asked.
        Err(Error::LockLost { .. }) => Ok(()),
        result => result,
    }
}

/// Takes a latch out of use.
fn stop(candidate: &Candidate, life: LeaderState, close_mode: CloseMode) -> Result<()> {
    let mut state = candidate.state.lock();
    state.life.check_started(WHAT, candidate.lock.base_path())?;
    state.life = life;
    let silenced = (close_mode == CloseMode::Silent).then(|| mem::take(&mut state.listeners));
    // The callers' listeners, and what they own: not under the lock.
    drop_unlocked(state, silenced);
    // The waiting threads look again, and find the latch closed.
    candidate.wake(None);
    Ok(())
}

leader_methods! { LeaderLatch, |latch| latch.candidate.state, latch.candidate.lock }

/// A listener that is told when a [`LeaderLatch`](crate::LeaderLatch) leads. Java: `LeaderLatchListener`. It has two methods, so no
/// closure is one.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{CloseMode, LeaderLatch, LeaderLatchListener, Leadership};
///
/// struct Tell(crossbeam_channel::Sender<&'static str>);
///
/// impl LeaderLatchListener for Tell {
///     fn is_leader(&self, _leadership: &Leadership) {
///         drop(self.0.send("leads")); // returns soon: the client's other listeners wait
///     }
///     fn not_leader(&self) {
///         drop(self.0.send("leads no more"));
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let latch = LeaderLatch::new(&client, "/scheduler")?;
/// latch.add_listener(Tell(tell));
/// latch.start()?;
/// assert_eq!(told.recv()?, "leads");
/// latch.close_with(CloseMode::NotifyLeader).unwrap_or_else(|error| eprintln!("closed, but {error}"));
/// assert_eq!(told.recv()?, "leads no more");
/// # Ok(()) });
/// ```
pub trait LeaderLatchListener: Send + Sync + 'static {
    /// The latch leads from now on, in this term.
    fn is_leader(&self, leadership: &Leadership);

    /// The latch does not lead any more. Called once for each [`is_leader`](LeaderLatchListener::is_leader), after that
    /// has returned; but not where the latch is closed or dropped with [`CloseMode::Silent`], the default. If the leader
    /// gives up by itself, the next one leads after this has returned; if it may have lost its session, this is called at [`Hold::valid_until`](crate::Hold::valid_until) at the latest, unless the process
    /// is paused or an earlier listener is still running.
    fn not_leader(&self);
}
