//! Leaders that lead on a thread of their own.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    framework::{
        client::core::{CuratorFramework, ListenerId},
        events::connection_state::ConnectionState,
    },
    locks::{
        api::{options::acquire::AcquireOptions, participant::Participant},
        contender::internals::LockInternals,
        leader::{
            Executor,
            leadership::{CancelLeadership, LeaderState, Leadership},
        },
        mutex::InterProcessMutex,
    },
    panics::caught,
    session::wait::{cancel::CancelToken, deadline::Stop},
};

const WHAT: &str = "the leader selector";

/// How long to wait before the next attempt after the connection went, and after the servers refused one.
const AFTER_LOSS: Duration = Duration::from_millis(100);
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// What a [`LeaderSelector`] calls. Java: `LeaderSelectorListener`, with what `LeaderSelectorListenerAdapter` does about
/// connection states.
///
/// Every `Fn(&CuratorFramework, &Leadership) + Send + Sync + 'static` is one.
pub trait LeaderSelectorListener: Send + Sync + 'static {
    /// Leads: from the call to the return, on the selector's own thread, never twice at a time. It has to return soon
    /// after [`Leadership::is_cancelled`], and must not work on after [`Leadership::has_leadership`] has become `false`:
    /// another process may lead by then. A panic ends the term as a return does, and is logged.
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership);

    /// The client's connection state has changed. An error ends the current term: its
    /// [`has_leadership`](Leadership::has_leadership) is `false` from then on, and its token is cancelled. Whoever waits for
    /// its turn keeps its place (in Curator it loses it).
    ///
    /// By default an error in the states that the client's
    /// [policy](crate::Builder::connection_state_error_policy) names: suspended and lost. A term ends with
    /// [`Hold::valid_until`](crate::Hold::valid_until) whatever this returns. Called on the client's dispatch thread,
    /// from the start to the close.
    ///
    /// # Errors
    /// [`CancelLeadership`] to give leadership up.
    fn state_changed(
        &self,
        client: &CuratorFramework,
        state: ConnectionState,
    ) -> std::result::Result<(), CancelLeadership> {
        let is_error = client.connection_state_error_policy().is_error_state(state);
        if is_error { Err(CancelLeadership) } else { Ok(()) }
    }

    /// An attempt to queue has failed, on the selector's own thread. Another one follows, after a second or when there is
    /// a connection again, unless the error is one that no other attempt would mend: then
    /// [`LeaderSelector::requeue`] may be called. By default it is logged.
    fn queueing_failed(&self, client: &CuratorFramework, error: &Error) {
        let _ = client;
        log::error!("cannot queue for leadership: {error}");
    }
}

impl<F: Fn(&CuratorFramework, &Leadership) + Send + Sync + 'static> LeaderSelectorListener for F {
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership) {
        self(client, leadership);
    }
}

/// Leads while a call lasts: queues, calls [`take_leadership`](LeaderSelectorListener::take_leadership) when it is this
/// process's turn, and gives leadership up when that returns. Java: `LeaderSelector`.
///
/// It is an [`InterProcessMutex`] held by a thread of its own, so processes in Java with Curator's `LeaderSelector`, and
/// whoever locks a mutex on this path, stand in the same queue. A [`LeaderLatch`](crate::locks::leader::LeaderLatch) sorts its znodes by another name
/// and needs another path. Each queueing leads once; with [`auto_requeue`](LeaderSelector::auto_requeue) it queues again after each term.
///
/// # When the connection goes
/// A waiter keeps its place while the session may live. A leader is told by its [`Leadership`]: at the first suspension, or
/// wherever its listener's [`state_changed`](LeaderSelectorListener::state_changed) says so, and at
/// [`Hold::valid_until`](crate::Hold::valid_until) at the latest, before another one can be told that it leads. When its
/// znode is deleted by somebody, when the session is lost and when the client is closed, too. The listener has to return
/// then; the next term of this process begins after that.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, LeaderSelector, Leadership};
/// # use curator_locks::RetryOneTime;
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
/// let (led, terms) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::new(&client, "/scheduler", move |_: &CuratorFramework, leadership: &Leadership| {
///     let _ = led.send(leadership.fencing_token());
///     // ... the work, until it is done or `leadership.is_cancelled()` ...
/// })?;
/// selector.set_id("host-17");
/// selector.auto_requeue(); // leads again whenever it is its turn
/// selector.start()?;
///
/// let first = terms.recv_timeout(Duration::from_secs(10))?;
/// let second = terms.recv_timeout(Duration::from_secs(10))?;
/// assert!(second > first);
/// selector.close()?;
/// # Ok(())
/// # }
/// ```
///
/// A listener with a rule of its own for connection states:
///
/// ```no_run
/// use curator_locks::{CancelLeadership, ConnectionState, CuratorFramework, LeaderSelectorListener, Leadership};
///
/// struct Patient;
///
/// impl LeaderSelectorListener for Patient {
///     fn take_leadership(&self, _client: &CuratorFramework, leadership: &Leadership) {
///         while !leadership.is_cancelled() { /* a piece of the work */ }
///     }
///
///     /// Leads on over a short suspension, up to `valid_until`.
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) -> Result<(), CancelLeadership> {
///         if state == ConnectionState::Lost { Err(CancelLeadership) } else { Ok(()) }
///     }
/// }
/// ```
pub struct LeaderSelector {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    client: CuratorFramework,
    path: String,
    listener: Box<dyn LeaderSelectorListener>,
    /// Runs what queues and leads, instead of a thread of its own.
    executor: Option<Executor>,
    /// Ends whatever it waits for.
    closed: CancelToken,
    state: Mutex<State>,
}

struct State {
    life: LeaderState,
    id: String,
    requeues: bool,
    /// A task queues or leads, or is about to.
    is_queued: bool,
    term: Option<Leadership>,
    /// The listener wants no leadership in the connection state that it heard of last.
    is_unwanted: bool,
    on_connection: Option<ListenerId>,
}

impl LeaderSelector {
    /// A selector in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str, listener: impl LeaderSelectorListener) -> Result<LeaderSelector> {
        LeaderSelector::build(client, path, listener, None)
    }

    /// As [`new`](LeaderSelector::new), but `executor` gets each task that queues and leads, and runs it on some thread:
    /// not on the one that calls it, which is that of [`start`](LeaderSelector::start) or
    /// [`requeue`](LeaderSelector::requeue). A task ends when it has led, or when the selector is closed; with
    /// [`auto_requeue`](LeaderSelector::auto_requeue) it leads again and again.
    ///
    /// # Errors
    /// As [`new`](LeaderSelector::new).
    pub fn with_executor(
        client: &CuratorFramework,
        path: &str,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
        listener: impl LeaderSelectorListener,
    ) -> Result<LeaderSelector> {
        LeaderSelector::build(client, path, listener, Some(Box::new(executor)))
    }

    fn build(
        client: &CuratorFramework,
        path: &str,
        listener: impl LeaderSelectorListener,
        executor: Option<Executor>,
    ) -> Result<LeaderSelector> {
        // For its look at the path.
        InterProcessMutex::new(client, path)?;
        let state = State {
            life: LeaderState::Latent,
            id: String::new(),
            requeues: false,
            is_queued: false,
            term: None,
            is_unwanted: false,
            on_connection: None,
        };
        let shared = Shared {
            client: client.clone(),
            path: path.to_owned(),
            listener: Box::new(listener),
            executor,
            closed: CancelToken::new(),
            state: Mutex::new(state),
        };
        Ok(LeaderSelector { shared: Arc::new(shared) })
    }

    /// Queues again after each term, until the selector is closed. Defaults to once for each call of
    /// [`start`](LeaderSelector::start) and [`requeue`](LeaderSelector::requeue). Java: `autoRequeue`.
    pub fn auto_requeue(&self) {
        self.shared.state.lock().requeues = true;
    }

    /// What this selector's znode carries, for others to read: see [`Participant::id`]. Counts from the next queueing on.
    /// Defaults to the client's default data, as an empty one does. Java: `setId`.
    pub fn set_id(&self, id: impl Into<String>) {
        self.shared.state.lock().id = id.into();
    }

    /// What [`set_id`](LeaderSelector::set_id) was called with; empty by default.
    #[must_use]
    pub fn id(&self) -> String {
        self.shared.state.lock().id.clone()
    }

    /// Queues for leadership. Returns at once; without a connection the selector waits for one, however long that takes.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`]; [`Error::NotInUse`] after a close; [`Error::NotStarted`] or [`Error::ClientClosed`] of
    /// the client; what [`requeue`](LeaderSelector::requeue) can end with.
    pub fn start(&self) -> Result<()> {
        let shared = &self.shared;
        shared.client.core.check_open()?;
        let weak = Arc::downgrade(shared);
        {
            // Both under one lock: whoever closes the selector from now on finds the listener, and removes it.
            let mut state = shared.state.lock();
            state.life.start(WHAT, &shared.path)?;
            state.on_connection = Some(shared.client.add_connection_state_listener(move |client, state| {
                if let Some(shared) = weak.upgrade() {
                    shared.state_changed(client, state);
                }
            }));
        }
        self.requeue().map(drop)
    }

    /// Queues once more. `false`: it queues or leads already. Returns at once.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started; [`Error::Io`] if no thread can be had; [`Error::InvalidArgument`] if the
    /// executor drops its task.
    pub fn requeue(&self) -> Result<bool> {
        let shared = &self.shared;
        {
            let mut state = shared.state.lock();
            state.life.check_started(WHAT, &shared.path)?;
            if std::mem::replace(&mut state.is_queued, true) {
                return Ok(false);
            }
        }
        let is_dropped = Arc::new(AtomicBool::new(false));
        let task = Task { shared: shared.clone(), is_dropped: is_dropped.clone(), is_over: false };
        match &shared.executor {
            Some(executor) => executor(Box::new(move || task.run())),
            None => {
                let spawned = std::thread::Builder::new().name("curator-leader".into()).spawn(move || task.run());
                let what = || "cannot start a leader's thread".into();
                spawned.map_err(|error| Error::Io { what: what(), source: error.into() })?;
            }
        }
        if is_dropped.load(Ordering::Acquire) {
            let rule = "it has to run each task to its end".into();
            return Err(Error::InvalidArgument { name: "executor", value: "a task that was dropped".into(), rule });
        }
        Ok(true)
    }

    /// Asks the leader of this object to return: its term's [token](Leadership::cancel_token) is cancelled. It leads until
    /// it has returned. Does nothing if this object does not lead. Java: `interruptLeadership`.
    pub fn interrupt_leadership(&self) {
        let term = self.shared.state.lock().term.clone();
        if let Some(term) = term {
            term.interrupt();
        }
    }

    /// Whether this object leads, and nobody else can right now: from the grant until its listener returns, and no longer
    /// than [`Leadership::has_leadership`]. No listener, however slow, delays that.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        self.leadership().is_some()
    }

    /// The current term, if this object leads.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        let term = self.shared.state.lock().term.clone();
        term.filter(Leadership::has_leadership)
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> LeaderState {
        self.shared.state.lock().life
    }

    /// The directory in which it queues.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Everybody who queues, in whatever language, the leader first; empty if nobody does. Two round trips. Java:
    /// `getParticipants`.
    ///
    /// For an operator's view: who stands first may not know it yet, and what this shows may have changed by now.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn participants(&self) -> Result<Vec<Participant>> {
        LockInternals::participants(&self.shared.client, &self.shared.path)
    }

    /// The first of the [`participants`](LeaderSelector::participants); `None` if nobody queues. Java: `getLeader`.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn leader(&self) -> Result<Option<Participant>> {
        Ok(self.participants()?.into_iter().next())
    }

    /// Leaves the queue for good, in the background. A term ends at once: [`has_leadership`](LeaderSelector::has_leadership)
    /// is `false`, the leader is asked to return, and the next one leads after it has. Dropping the selector does the same.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started.
    pub fn close(&self) -> Result<()> {
        let shared = &self.shared;
        let (on_connection, term) = {
            let mut state = shared.state.lock();
            state.life.check_started(WHAT, &shared.path)?;
            state.life = LeaderState::Closed;
            (state.on_connection.take(), state.term.clone())
        };
        if let Some(term) = term {
            term.end();
        }
        shared.closed.cancel();
        if let Some(id) = on_connection {
            shared.client.remove_connection_state_listener(id);
        }
        Ok(())
    }
}

impl Drop for LeaderSelector {
    fn drop(&mut self) {
        // It may never have been started, or be closed already.
        let _ = self.close();
    }
}

impl fmt::Debug for LeaderSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderSelector")
            .field("path", &self.path())
            .field("state", &self.state())
            .field("has_leadership", &self.has_leadership())
            .finish_non_exhaustive()
    }
}

/// What queues and leads, on one thread.
struct Task {
    shared: Arc<Shared>,
    /// It was neither run to its end nor is it running.
    is_dropped: Arc<AtomicBool>,
    is_over: bool,
}

/// How one queueing ended.
enum Turn {
    /// The listener has led.
    Led,
    /// It was over before the listener was called.
    Missed,
    Failed(Error),
}

impl Task {
    fn run(mut self) {
        loop {
            // The retry policy and the ACL provider are the caller's code.
            let turn = caught("a leader selector", || self.shared.turn()).unwrap_or(Turn::Missed);
            let pause = match &turn {
                Turn::Led => Duration::ZERO,
                Turn::Failed(error) if !error.is_retryable() => AFTER_REFUSAL,
                Turn::Missed | Turn::Failed(_) => AFTER_LOSS,
            };
            if !self.goes_on(&turn) {
                return;
            }
            // Nothing is ever sent: the end of the channel is the selector's.
            let _ = self.shared.closed.signal().recv_timeout(pause);
        }
    }

    /// Who queues has to lead once. The listener hears of what is in the way.
    fn goes_on(&mut self, turn: &Turn) -> bool {
        let shared = &self.shared;
        let goes_on = {
            let mut state = shared.state.lock();
            let wants_more = match turn {
                Turn::Led => state.requeues,
                Turn::Missed => true,
                Turn::Failed(error) => !error.is_final(),
            };
            let is_started = state.life == LeaderState::Started;
            state.is_queued = is_started && wants_more;
            // From here on another task may be made.
            self.is_over = !state.is_queued;
            if !is_started {
                return false;
            }
            state.is_queued
        };
        if let Turn::Failed(error) = turn {
            let _ = caught("a leader selector's listener", || shared.listener.queueing_failed(&shared.client, error));
        }
        goes_on
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_dropped.store(true, Ordering::Release);
            self.shared.state.lock().is_queued = false;
            log::error!("{}: what queues for leadership was dropped", self.shared.path);
        }
    }
}

impl Shared {
    fn turn(&self) -> Turn {
        self.lead().unwrap_or_else(Turn::Failed)
    }

    /// Queues and leads, once.
    fn lead(&self) -> Result<Turn> {
        // However long that takes: the retry policy is for the requests.
        let forever = Stop { deadline: None, cancel: Some(&self.closed) };
        if self.client.core.connected_session(forever)?.is_err() {
            return Ok(Turn::Missed);
        }
        let mutex = InterProcessMutex::new(&self.client, &self.path)?;
        let id = self.state.lock().id.clone();
        let mutex = if id.is_empty() { mutex } else { mutex.with_lock_data(id) };
        let Some(held) = mutex.lock_with(&AcquireOptions::new().cancel_token(&self.closed))? else {
            return Ok(Turn::Missed);
        };
        let turn =
            match mutex.hold().map(|hold| Leadership::new(hold, || ())).filter(|leadership| self.begins(leadership)) {
                Some(leadership) => {
                    let lead = || self.listener.take_leadership(&self.client, &leadership);
                    let _ = caught("a leader", lead);
                    // Before the release: nobody leads before this one does not.
                    leadership.end();
                    self.state.lock().term = None;
                    Turn::Led
                }
                None => Turn::Missed,
            };
        if let Err(error) = held.release() {
            log::debug!("{}: at the end of a term: {error}", self.path);
        }
        Ok(turn)
    }

    /// The term begins, unless it is over already.
    fn begins(&self, leadership: &Leadership) -> bool {
        let mut state = self.state.lock();
        // Read behind the lock: news that the listener has heard of already shows here, and later news find the term.
        let is_connected = self.client.connection_state().is_some_and(ConnectionState::is_connected);
        // What came before the grant was not about this term, but a suspension may last.
        let is_wanted = state.life == LeaderState::Started && (is_connected || !state.is_unwanted);
        if is_wanted && leadership.has_leadership() {
            state.term = Some(leadership.clone());
            return true;
        }
        false
    }

    /// On the dispatch thread.
    fn state_changed(&self, client: &CuratorFramework, connection: ConnectionState) {
        let ask = || self.listener.state_changed(client, connection);
        let is_unwanted = match caught("a leader selector's listener", ask) {
            Some(verdict) => verdict.is_err(),
            None => client.connection_state_error_policy().is_error_state(connection),
        };
        let term = {
            let mut state = self.state.lock();
            state.is_unwanted = is_unwanted;
            state.term.clone()
        };
        if let Some(term) = term.filter(|_| is_unwanted) {
            term.end();
        }
    }
}
