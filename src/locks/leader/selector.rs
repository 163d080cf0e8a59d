//! The leader selector, which leads on a thread of its own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    base::{log, panics::caught, sync::Mutex, threads::spawn},
    error::{Error, Result},
    framework::{
        client::core::{AnyError, CuratorFramework, ListenerId},
        events::{connection_state::ConnectionState, event::Task},
    },
    locks::{
        leader::{
            candidate::{await_connection, campaign},
            leadership::{CancelLeadership, LeaderState, Leadership},
            methods::leader_methods,
        },
        mutex::InterProcessMutex,
        options::acquire::AcquireOptions,
    },
    session::wait::cancel::CancelToken,
};

/// How a leader's term has ended.
type TermResult = std::result::Result<(), Box<AnyError>>;

const WHAT: &str = "the leader selector";

/// Leads while a call lasts: queues, calls [`take_leadership`](LeaderSelectorListener::take_leadership) when it is this
/// process's turn, and gives leadership up when that returns. Java: `LeaderSelector`.
///
/// A selector is an [`InterProcessMutex`] held by a thread of its own, so processes in Java with Curator's
/// `LeaderSelector`, and mutexes on this path, stand in the same queue. A [`LeaderLatch`](crate::LeaderLatch) sorts its
/// znodes by another name and needs another path. Each queueing leads once; with
/// [`auto_requeue`](LeaderSelector::auto_requeue) it queues again after each term.
///
/// # When the connection goes
/// A waiter keeps its place while the session may live. A leader is told by its [`Leadership`]: at the first
/// suspension, or wherever its listener's [`state_changed`](LeaderSelectorListener::state_changed) says so, and at
/// [`Hold::valid_until`](crate::Hold::valid_until) at the latest, before another one can be told that it leads. It is
/// told as well when somebody deletes its znode, the session is lost or the client is closed. The listener has to
/// return then; the next term of this process begins after that.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, LeaderSelector, Leadership};
///
/// let (led, terms) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::new(&client, "/scheduler", move |_: &CuratorFramework, leadership: &Leadership| {
///     let _ = led.send(leadership.fencing_token());
///     // ... the work, until it is done or `leadership.is_cancelled()` ...
///     Ok(())
/// })?;
/// selector.set_id("host-17");
/// selector.auto_requeue(); // leads again whenever it is its turn
/// selector.start()?;
///
/// let first = terms.recv_timeout(Duration::from_secs(10))?;
/// let second = terms.recv_timeout(Duration::from_secs(10))?;
/// assert!(second > first);
/// selector.close()?;
/// # Ok(()) });
/// ```
///
/// A listener with a rule of its own for connection states:
///
/// ```
/// use curator_locks::{CancelLeadership, ConnectionState, CuratorFramework, LeaderSelectorListener, Leadership};
///
/// struct Patient;
///
/// impl LeaderSelectorListener for Patient {
///     fn take_leadership(
///         &self,
///         _client: &CuratorFramework,
///         leadership: &Leadership,
///     ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         while !leadership.is_cancelled() { /* a piece of the work, which may fail */ }
///         Ok(())
///     }
///
///     /// Leads on over a short suspension, up to `valid_until`.
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) -> Result<(), CancelLeadership> {
///         if state == ConnectionState::Lost { Err(CancelLeadership) } else { Ok(()) }
///     }
/// }
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
/// assert_eq!(Patient.state_changed(&client, ConnectionState::Suspended), Ok(()));
/// # Ok::<(), curator_locks::Error>(())
/// ```
///
/// One term for each call, on threads of your own, and all methods:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{CuratorFramework, LeaderSelector, Leadership};
///
/// let (lead, leads) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::with_executor(
///     &client,
///     "/scheduler",
///     |task| drop(std::thread::spawn(task)), // or a pool of threads
///     move |_: &CuratorFramework, leadership: &Leadership| {
///         let _ = lead.send(());
///         let _ = leadership.cancelled().recv();
///         Ok(())
///     },
/// )?;
/// selector.set_id("host-17");
/// selector.start()?;
/// leads.recv()?;
/// assert!(selector.has_leadership() && !selector.requeue()?); // it leads already
/// assert_eq!((selector.path(), selector.id()), ("/scheduler", "host-17".to_owned()));
/// assert_eq!(selector.leader()?, selector.participants()?.into_iter().next());
/// selector.interrupt_leadership(); // the listener returns
/// while !selector.requeue()? {
///     std::thread::yield_now();
/// }
/// leads.recv()?; // once more
/// selector.close()?;
/// # Ok(()) });
/// ```
pub struct LeaderSelector {
    pub(super) shared: Arc<SelectorShared>,
}

impl LeaderSelector {
    /// A selector in the directory `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for an invalid path, or `/`.
    pub fn new(client: &CuratorFramework, path: &str, listener: impl LeaderSelectorListener) -> Result<LeaderSelector> {
        LeaderSelector::build(client, path, listener, |task| spawn("curator-leader", task))
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
        let executor = move |task| {
            executor(task);
            Ok(())
        };
        LeaderSelector::build(client, path, listener, executor)
    }

    fn build(
        client: &CuratorFramework,
        path: &str,
        listener: impl LeaderSelectorListener,
        executor: impl Fn(Task) -> Result<()> + Send + Sync + 'static,
    ) -> Result<LeaderSelector> {
        let shared = SelectorShared {
            mutex: InterProcessMutex::new(client, path)?,
            listener: Box::new(listener),
            executor: Box::new(executor),
            closed: CancelToken::new(),
            state: Mutex::default(),
        };
        Ok(LeaderSelector { shared: Arc::new(shared) })
    }

    /// Queues again after each term, until the selector is closed. Defaults to once for each call of
    /// [`start`](LeaderSelector::start) and [`requeue`](LeaderSelector::requeue). Java: `autoRequeue`.
    pub fn auto_requeue(&self) {
        self.shared.state.lock().requeues = true;
    }

    /// Sets the data of this selector's znode, for others to read: see [`Participant::id`](crate::Participant::id).
    /// Takes effect at the next queueing. Defaults to the client's default data, as an empty one does. Java: `setId`.
    pub fn set_id(&self, id: impl Into<String>) {
        self.shared.state.lock().id = id.into();
    }

    /// The id that [`set_id`](LeaderSelector::set_id) has set; empty by default.
    #[must_use]
    pub fn id(&self) -> String {
        self.shared.state.lock().id.clone()
    }

    /// Queues for leadership. Returns at once; without a connection the selector waits for one, however long that takes.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`]; [`Error::NotInUse`] after a close; [`Error::NotStarted`] or [`Error::ClientClosed`]
    /// of the client; the errors of [`requeue`](LeaderSelector::requeue).
    pub fn start(&self) -> Result<()> {
        let shared = &self.shared;
        shared.client().core.check_open()?;
        let weak = Arc::downgrade(shared);
        {
            // Both under one lock: a thread that closes the selector from now on finds the listener, and removes it.
            let mut state = shared.state.lock();
            state.life.start(WHAT, self.path())?;
            state.on_connection = Some(shared.client().add_connection_state_listener(move |client, state| {
                if let Some(shared) = weak.upgrade() {
                    shared.state_changed(client, state);
                }
            }));
        }
        self.requeue().map(drop)
    }

    /// Queues once more. `false`: this object queues or leads already. Returns at once.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started; [`Error::Io`] if no thread can be had; [`Error::InvalidArgument`] if the
    /// executor drops its task.
    pub fn requeue(&self) -> Result<bool> {
        let shared = &self.shared;
        {
            let mut state = shared.state.lock();
            state.life.check_started(WHAT, self.path())?;
            if std::mem::replace(&mut state.is_queued, true) {
                return Ok(false);
            }
        }
        let is_dropped = Arc::new(AtomicBool::new(false));
        let mut task = SelectorTask { shared: shared.clone(), is_dropped: Some(is_dropped.clone()) };
        (shared.executor)(Box::new(move || {
            let shared = task.shared.clone();
            campaign(&shared.closed, || shared.lead(), |has_led| task.goes_on(has_led));
        }))?;
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
            term.cancel_token().cancel();
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

    /// Leaves the queue for good, in the background. A term ends at once:
    /// [`has_leadership`](LeaderSelector::has_leadership) is `false`, the leader is asked to return, and the next one leads after it has. Dropping the selector does the same.
    ///
    /// # Errors
    /// [`Error::NotInUse`] unless it is started.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }
}

impl Drop for LeaderSelector {
    fn drop(&mut self) {
        // Fails if the selector was never started, or is closed already.
        let _ = self.close();
    }
}

leader_methods! { LeaderSelector, |selector| selector.shared.state, selector.shared.mutex.internals() }

/// The listener that a [`LeaderSelector`](crate::LeaderSelector) calls. Java: `LeaderSelectorListener`, with the rule
/// of `LeaderSelectorListenerAdapter` for connection states.
///
/// Every `Fn(&CuratorFramework, &Leadership) -> Result<(), Box<dyn Error + Send + Sync>>` that is `Send`, `Sync` and
/// `'static` is one. In a closure the types have to be written: `|_: &CuratorFramework, leadership: &Leadership| ..`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{
///     CancelLeadership, ConnectionState, CuratorFramework, Error, LeaderSelector, LeaderSelectorListener, Leadership,
/// };
///
/// struct Scheduler(crossbeam_channel::Sender<String>);
/// impl LeaderSelectorListener for Scheduler {
///     fn take_leadership(
///         &self,
///         _client: &CuratorFramework,
///         leadership: &Leadership,
///     ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         self.0.send(leadership.path().to_owned())?; // an error ends the term, and is told
///         let _ = leadership.cancelled().recv(); // the work, until it is time to stop
///         Ok(())
///     }
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) -> Result<(), CancelLeadership> {
///         if state.is_connected() { Ok(()) } else { Err(CancelLeadership) }
///     }
///     fn queueing_failed(&self, _: &CuratorFramework, error: &Error) {
///         eprintln!("cannot queue for now: {error}");
///     }
/// }
///
/// let (led, leads) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::new(&client, "/scheduler", Scheduler(led))?;
/// selector.start()?;
/// println!("leads with {}", leads.recv()?);
/// selector.close()?;
/// # Ok(()) });
/// ```
pub trait LeaderSelectorListener: Send + Sync + 'static {
    /// Leads: from the call to the return, on the selector's own thread, never twice at a time. It has to return soon
    /// after [`Leadership::is_cancelled`], and must not work on after [`Leadership::has_leadership`] has become `false`:
    /// another process may lead by then. A panic ends the term as a return does, and is logged.
    ///
    /// # Errors
    /// Whatever ends the term, as a return does: the client's
    /// [listeners for unhandled errors](crate::CuratorFramework::add_unhandled_error_listener) are told.
    fn take_leadership(
        &self,
        client: &CuratorFramework,
        leadership: &Leadership,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// The client's connection state has changed. An error ends the current term: its
    /// [`has_leadership`](Leadership::has_leadership) is `false` from then on, and its token is cancelled. A waiter
    /// keeps its place in the queue (in Curator it loses it).
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
    /// [`LeaderSelector::requeue`](crate::LeaderSelector::requeue) may be called. By default it is logged, unless the client
    /// was closed.
    fn queueing_failed(&self, client: &CuratorFramework, error: &Error) {
        let _ = client;
        let level = if matches!(error, Error::ClientClosed) { log::Level::Debug } else { log::Level::Error };
        log::log!(level, "cannot queue for leadership: {error}");
    }
}

impl<F> LeaderSelectorListener for F
where
    F: Fn(&CuratorFramework, &Leadership) -> TermResult + Send + Sync + 'static,
{
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership) -> TermResult {
        self(client, leadership)
    }
}

/// The state that a selector and its task share.
pub(super) struct SelectorShared {
    /// Each term is a hold of another lock object with its settings.
    mutex: InterProcessMutex,
    listener: Box<dyn LeaderSelectorListener>,
    /// Runs a task on some thread.
    executor: Box<dyn Fn(Task) -> Result<()> + Send + Sync>,
    /// Cancelled at the close: ends the waits of the task.
    closed: CancelToken,
    state: Mutex<SelectorState>,
}

#[derive(Default)]
struct SelectorState {
    life: LeaderState,
    id: String,
    requeues: bool,
    /// A task queues or leads, or is about to.
    is_queued: bool,
    term: Option<Leadership>,
    /// Whether the listener wants no leadership in the last connection state that it was told.
    is_unwanted: bool,
    on_connection: Option<ListenerId>,
}

/// Queues and leads until the selector wants no further term.
struct SelectorTask {
    shared: Arc<SelectorShared>,
    /// Set if the task is dropped before its end: the executor did not run it. `None` at its end.
    is_dropped: Option<Arc<AtomicBool>>,
}

impl SelectorTask {
    /// A task that queues has to lead once. The listener is told of errors.
    fn goes_on(&mut self, has_led: &Result<bool>) -> bool {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let is_started = state.life == LeaderState::Started;
        let goes_on = is_started
            && match has_led {
                Ok(true) => state.requeues,
                Ok(false) => true,
                Err(error) => !error.is_final(),
            };
        state.is_queued = goes_on;
        drop(state);
        if !goes_on {
            // Another task may have been made since: this one is over.
            self.is_dropped = None;
        }
        if let (true, Err(error)) = (is_started, has_led) {
            let _ = caught("a leader selector's listener", || shared.listener.queueing_failed(shared.client(), error));
        }
        goes_on
    }
}

impl Drop for SelectorTask {
    fn drop(&mut self) {
        if let Some(is_dropped) = &self.is_dropped {
            is_dropped.store(true, Ordering::Release);
            self.shared.state.lock().is_queued = false;
            log::error!("{}: what queues for leadership was dropped", self.shared.mutex.internals().base_path());
        }
    }
}

impl SelectorShared {
    fn client(&self) -> &CuratorFramework {
        self.mutex.internals().client()
    }

    fn close(&self) -> Result<()> {
        let (on_connection, term) = {
            let mut state = self.state.lock();
            state.life.check_started(WHAT, self.mutex.internals().base_path())?;
            state.life = LeaderState::Closed;
            (state.on_connection.take(), state.term.clone())
        };
        if let Some(term) = term {
            term.end();
        }
        self.closed.cancel();
        if let Some(id) = on_connection {
            self.client().remove_connection_state_listener(id);
        }
        Ok(())
    }

    /// Queues and leads, once. `false`: it was over before the listener was called.
    fn lead(self: &Arc<Self>) -> Result<bool> {
        if !await_connection(self.client(), &self.closed)? {
            return Ok(false);
        }
        let id = self.state.lock().id.clone();
        let mutex = self.mutex.configured(|internals| {
            if !id.is_empty() {
                internals.set_data(id);
            }
        });
        let Some(held) = mutex.lock_with(&AcquireOptions::new().cancel_token(&self.closed))? else {
            return Ok(false);
        };
        let owner = Arc::downgrade(self);
        let term = Leadership::new(held.clone(), move || owner.upgrade().map_or(Ok(()), |owner| owner.close()));
        let begins = self.begins(&term);
        if begins {
            let result = caught("a leader", || self.listener.take_leadership(self.client(), &term));
            // Before the release: no other process leads before this term has ended.
            term.end();
            self.state.lock().term = None;
            if let Some(Err(error)) = result {
                let path = mutex.internals().base_path();
                self.client().core.unhandled(format!("{path}: a leader's term has ended with an error"), error);
            }
        }
        if let Err(error) = held.release() {
            log::debug!("{}: at the end of a term: {error}", mutex.internals().base_path());
        }
        Ok(begins)
    }

    /// The term begins, unless it is over already.
    fn begins(&self, leadership: &Leadership) -> bool {
        let mut state = self.state.lock();
        // Read under the lock: a state that the listener was told already shows here, and later ones find the term.
        let is_connected = self.client().connection_state().is_some_and(ConnectionState::is_connected);
        // Earlier states were not about this term, but a suspension may last.
        let is_wanted = state.life == LeaderState::Started && (is_connected || !state.is_unwanted);
        if is_wanted && leadership.has_leadership() {
            state.term = Some(leadership.clone());
            return true;
        }
        false
    }

    /// Asks the listener about a connection state, on the dispatch thread.
    fn state_changed(&self, client: &CuratorFramework, connection: ConnectionState) {
        let ask = || self.listener.state_changed(client, connection);
        let is_unwanted = match caught("a leader selector's listener", ask) {
            Some(verdict) => verdict.is_err(),
            None => client.connection_state_error_policy().is_error_state(connection),
        };
        let mut state = self.state.lock();
        state.is_unwanted = is_unwanted;
        let term = state.term.clone().filter(|_| is_unwanted);
        drop(state);
        if let Some(term) = term {
            term.end();
        }
    }
}
