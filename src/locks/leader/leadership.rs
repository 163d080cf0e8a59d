//! A leader's term, and how the leader is told that it leads no more.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use crate::{
    base::{channel::Receiver, clock},
    error::{Error, Result},
    locks::holds::hold::Hold,
    session::wait::{cancel::CancelToken, deadline::WaitBound},
};

/// The stage of a leader recipe's life. Java: `LeaderLatch.State`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{LeaderLatch, LeaderState};
///
/// let latch = LeaderLatch::new(&client, "/scheduler")?;
/// assert_eq!(latch.state(), LeaderState::Latent);
/// latch.start()?;
/// assert_eq!(latch.state(), LeaderState::Started);
/// latch.close()?;
/// assert_eq!(latch.state(), LeaderState::Closed);
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LeaderState {
    /// `start` was not called yet.
    #[default]
    Latent,
    /// The recipe queues or leads.
    Started,
    /// `close` was called.
    Closed,
}

impl LeaderState {
    /// Fails unless the recipe is in use.
    pub(super) fn check_started(self, what: &'static str, path: &str) -> Result<()> {
        let state = match self {
            LeaderState::Started => return Ok(()),
            LeaderState::Latent => "not started",
            LeaderState::Closed => "closed",
        };
        Err(Error::NotInUse { what, path: path.to_owned(), state })
    }

    /// Begins the recipe's life, once.
    pub(super) fn start(&mut self, what: &'static str, path: &str) -> Result<()> {
        match self {
            LeaderState::Latent => *self = LeaderState::Started,
            LeaderState::Started => return Err(Error::AlreadyStarted),
            LeaderState::Closed => self.check_started(what, path)?,
        }
        Ok(())
    }
}

/// Whether a leader's listeners are told when its latch is closed. Java: `LeaderLatch.CloseMode`.
///
/// ```
/// use curator_locks::{CloseMode, LeaderLatch};
///
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
/// let latch = LeaderLatch::new(&client, "/scheduler")?.with_close_mode(CloseMode::NotifyLeader);
/// drop(latch); // a leader's listeners would be told
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CloseMode {
    /// The listeners are not told.
    #[default]
    Silent,
    /// The listeners are told, before the znode is deleted.
    NotifyLeader,
}

/// Asks for leadership to be given up. Java: `CancelLeadershipException`.
///
/// ```
/// use curator_locks::{CancelLeadership, ConnectionState};
///
/// /// A rule for `LeaderSelectorListener::state_changed`: leads on over a short suspension.
/// fn rule(state: ConnectionState) -> Result<(), CancelLeadership> {
///     if state == ConnectionState::Lost { Err(CancelLeadership) } else { Ok(()) }
/// }
/// assert_eq!(rule(ConnectionState::Suspended), Ok(()));
/// assert_eq!(rule(ConnectionState::Lost), Err(CancelLeadership));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("leadership is to be given up")]
pub struct CancelLeadership;

/// One term of a leader: from the moment it was told that it leads until it was told that it does not.
///
/// A term that has ended stays so, even if the connection comes back and the znode is still there: a leader that was
/// told to stop leads again only in another term. It ends at [`Hold::valid_until`] at the latest, before the servers
/// can let another one lead. A term dereferences to its [`Hold`], which has the znode's path and the [fencing
/// token](Hold::fencing_token). Clones are handles of the same term.
///
/// Only [`sleep`](Leadership::sleep) and [`close`](Leadership::close) block, and only `close` talks to a server.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, LeaderSelector, Leadership};
///
/// let (done, turns) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::new(&client, "/leader", move |_: &CuratorFramework, leadership: &Leadership| {
///     // Until somebody else may lead, or `close` or `interrupt_leadership` is called:
///     while leadership.has_leadership() && !leadership.sleep(Duration::from_millis(10)) {
///         let _ = done.send(leadership.fencing_token()); // a piece of the work
///     }
///     Ok(())
/// })?;
/// selector.start()?;
/// turns.recv_timeout(Duration::from_secs(10))?;
/// selector.close()?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Leadership {
    hold: Arc<Hold>,
    /// Cancelled when the leader was told, or has seen, that it may not lead any more.
    ended: CancelToken,
    /// Cancelled when the leader should stop: because the term has ended, or because somebody asks for it.
    cancel: CancelToken,
    /// Closes the latch or selector that leads.
    close: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl Leadership {
    pub(super) fn new(hold: Hold, close: impl Fn() -> Result<()> + Send + Sync + 'static) -> Leadership {
        let (ended, cancel) = (CancelToken::new(), CancelToken::new());
        hold.node().cancel_at_the_end(&[&ended, &cancel]);
        Leadership { hold: Arc::new(hold), ended, cancel, close: Arc::new(close) }
    }

    /// Whether this term lasts, and nobody else can lead right now. Once `false`, it stays so.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        // A caller that has seen the end must not see the term begin again, whatever the next heartbeat says.
        if !self.ended.is_cancelled() && self.hold.node().valid_until() <= clock::now() {
            self.end();
        }
        !self.ended.is_cancelled()
    }

    /// Whether the leader should stop: the term has ended, or somebody has asked for it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        !self.has_leadership() || self.cancel.is_cancelled()
    }

    /// Cancelled when the leader should stop, for the calls of this crate that the work consists of. Cancelled on the
    /// client's own thread, so no slow listener delays it.
    #[must_use]
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Disconnected when the leader should stop, for `select!`; nothing is ever sent.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use curator_locks::{CuratorFramework, LeaderSelector, Leadership};
    /// # let work = crossbeam_channel::never::<u32>();
    /// # let selector = LeaderSelector::new(client, "/example", move |_: &CuratorFramework, leadership: &Leadership| {
    /// loop {
    ///     crossbeam_channel::select! {
    ///         recv(leadership.cancelled()) -> _ => return Ok(()),
    ///         recv(work) -> next => println!("{next:?}"),
    ///     }
    /// }
    /// # })?;
    /// # selector.start()?;
    /// # while !selector.has_leadership() { std::thread::yield_now(); }
    /// # selector.close()?;
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn cancelled(&self) -> &Receiver<()> {
        self.cancel.signal()
    }

    /// Blocks for this time, or until the leader should stop: then `true`. Java: `Thread.sleep`, which is interrupted.
    #[must_use = "true asks the leader to stop"]
    pub fn sleep(&self, duration: Duration) -> bool {
        // Nothing is ever sent: the end of the channel is the end of the term.
        let _ = self.cancelled().recv_timeout(duration);
        self.is_cancelled()
    }

    /// The hold by which it leads.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Closes the [`LeaderLatch`](crate::LeaderLatch) or [`LeaderSelector`](crate::LeaderSelector) that leads, as its own
    /// `close` does: so a listener needs no handle of it. Called by a listener, this does not wait.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use curator_locks::{LeaderLatch, LeaderLatchListener, LeaderState, Leadership};
    ///
    /// struct Starts;
    /// impl LeaderLatchListener for Starts {
    ///     fn is_leader(&self, leadership: &Leadership) {
    ///         if "what it needs is not there".len() > 0 {
    ///             let _ = leadership.close(); // somebody else may try
    ///         }
    ///     }
    ///     fn not_leader(&self) {}
    /// }
    ///
    /// let latch = LeaderLatch::new(&client, "/scheduler")?;
    /// latch.add_listener(Starts);
    /// latch.start()?;
    /// while latch.state() != LeaderState::Closed { std::thread::yield_now() }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`LeaderLatch::close`](crate::LeaderLatch::close): [`Error::NotInUse`] if it is closed already. If it was dropped
    /// there is nothing left to close.
    pub fn close(&self) -> Result<()> {
        (self.close)()
    }

    /// Ends the term. In this order: a thread that finds the work cancelled must not find the term lasting.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.cancel.cancel();
    }

    /// Blocks until the term ends; it ends with the client, too.
    pub(super) fn await_end(&self, closed: &CancelToken) {
        let _ = WaitBound { deadline: None, cancel: Some(closed) }.recv(self.ended.signal());
        self.end();
    }
}

impl Deref for Leadership {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.hold()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.ended.is_cancelled();
        f.debug_struct("Leadership").field("hold", &self.hold).field("ended", &ended).finish_non_exhaustive()
    }
}
