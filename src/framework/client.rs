//! The client: its life, its session, its connection states.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use super::{
    ConnectionState, ConnectionStateErrorPolicy,
    background::{Background, Event},
    builder::{Builder, Config},
    call::Call,
    cleanup::{Cleanup, Job},
    dispatch::Dispatcher,
    followers::Followers,
    grants::RecentGrants,
    held::HeldNodes,
    holds::Holds,
};
use crate::{
    CancelToken, Error, LostReason, Result,
    panics::caught,
    paths::Prefix,
    session::{Session, Stop, WaitEnd},
};

/// Where a client is in its life. Java: `CuratorFrameworkState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CuratorFrameworkState {
    /// `start` was not called yet.
    Latent,
    /// In use.
    Started,
    /// Closed, for good.
    Stopped,
}

/// Names a registered listener, to remove it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u64);

/// `close` waits no longer, whatever was configured, so that the clock's range is enough.
const LONGEST_CLOSE: Duration = Duration::from_secs(365 * 24 * 3600);

type StateListener = Arc<dyn Fn(&CuratorFramework, ConnectionState) + Send + Sync>;

/// What all handles of one client share.
pub(crate) struct Core {
    pub(crate) config: Config,
    /// Cancelled when the client is closed.
    pub(crate) closed: CancelToken,
    pub(crate) held: HeldNodes,
    pub(crate) holds: Holds,
    pub(crate) cleanup: Cleanup,
    pub(crate) grants: RecentGrants,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) followers: Followers,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    link: Mutex<Link>,
    listeners: Mutex<Vec<(ListenerId, StateListener)>>,
    next_listener: AtomicU64,
}

struct Link {
    life: CuratorFrameworkState,
    state: Option<ConnectionState>,
    session: Option<Arc<dyn Session>>,
    /// The server rejected the credentials of this scheme: no session will come.
    auth_failed: Option<String>,
    /// Sessions given up, on their way to be closed at the server.
    retired: Vec<Arc<dyn Session>>,
    /// One for each thread that waits for a connection; woken on every change.
    waiting: Vec<Sender<()>>,
}

/// A client of one ZooKeeper ensemble. Java: `CuratorFramework`.
///
/// A cheap clone: all clones share one session, and the last one to go closes it. Each client has three threads of its
/// own (one reads the socket, one looks after states and clean-up, one runs listeners), however many callers there are.
///
/// Calls block until the server has answered. While the connection is gone they wait for it, at most the connection
/// timeout, and then do as the retry policy says. When the session is lost, a new one takes its place by itself.
#[derive(Clone)]
pub struct CuratorFramework {
    pub(crate) core: Arc<Core>,
    pub(crate) prefix: Arc<Prefix>,
    last: Arc<LastHandle>,
}

/// Closes the client when the last handle is dropped.
pub(crate) struct LastHandle {
    core: Arc<Core>,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        // Not the time to wait: the session's thread goes on by itself for a moment.
        self.core.close(Duration::ZERO);
    }
}

impl CuratorFramework {
    pub(crate) fn new(config: Config, prefix: Prefix) -> Self {
        let (events, inbox) = unbounded();
        let dispatcher = Arc::new(Dispatcher::new());
        let core = Arc::new(Core {
            held: HeldNodes::new(config.max_hold_time, events.clone(), dispatcher.clone()),
            config,
            closed: CancelToken::new(),
            holds: Holds::default(),
            cleanup: Cleanup::new(events.clone()),
            grants: RecentGrants::default(),
            dispatcher,
            followers: Followers::default(),
            events,
            inbox,
            link: Mutex::new(Link {
                life: CuratorFrameworkState::Latent,
                state: None,
                session: None,
                auth_failed: None,
                retired: Vec::new(),
                waiting: Vec::new(),
            }),
            listeners: Mutex::new(Vec::new()),
            next_listener: AtomicU64::new(1),
        });
        CuratorFramework { last: Arc::new(LastHandle { core: core.clone() }), core, prefix: Arc::new(prefix) }
    }

    /// Begins to configure a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts the client: from here on it connects, and reconnects, by itself. Returns at once.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`], [`Error::ClientClosed`]; [`Error::Io`] if no thread can be had: then the client is
    /// closed.
    pub fn start(&self) -> Result<()> {
        {
            let mut link = self.core.link.lock();
            match link.life {
                CuratorFrameworkState::Latent => link.life = CuratorFrameworkState::Started,
                CuratorFrameworkState::Started => return Err(Error::AlreadyStarted),
                CuratorFrameworkState::Stopped => return Err(Error::ClientClosed),
            }
        }
        let started = self.start_threads();
        if started.is_err() {
            self.core.close(Duration::ZERO);
            // There may be no background thread to do it.
            self.core.dispatcher.stop();
        }
        started
    }

    fn start_threads(&self) -> Result<()> {
        self.core.config.ensemble.start()?;
        self.core.dispatcher.start()?;
        Background::start(self.core.clone(), Arc::downgrade(&self.last), self.prefix.clone())
    }

    /// Waits until there is a connection: `true`, or `false` when the time is up. `None` waits for ever.
    ///
    /// # Errors
    /// [`Error::NotStarted`]; [`Error::ClientClosed`], also when it is closed meanwhile; [`Error::AuthFailed`].
    pub fn block_until_connected(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(self.core.connected_session(Stop { deadline, cancel: None })?.is_ok())
    }

    /// Closes the session, and with it gives up every lock held through it. Waits for the server's confirmation at most
    /// [`Builder::max_close_wait`]. Every call that is blocked ends with [`Error::ClientClosed`]. A second call does
    /// nothing.
    pub fn close(&self) {
        self.core.close(self.core.config.max_close_wait);
    }

    /// Where the client is in its life.
    #[must_use]
    pub fn state(&self) -> CuratorFrameworkState {
        self.core.link.lock().life
    }

    /// The last connection state that was raised; `None` before the first connection.
    #[must_use]
    pub fn connection_state(&self) -> Option<ConnectionState> {
        self.core.link.lock().state
    }

    /// In which connection states a leader gives leadership up, as configured.
    #[must_use]
    pub fn connection_state_error_policy(&self) -> ConnectionStateErrorPolicy {
        self.core.config.error_policy
    }

    /// Whether there is a connection right now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.core.link.lock().session.as_ref().is_some_and(|session| session.connection() != 0)
    }

    /// A client that puts another namespace in front of its paths, on the same session. Empty for none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a namespace that makes no valid path.
    pub fn using_namespace(&self, namespace: impl AsRef<str>) -> Result<CuratorFramework> {
        let prefix = Arc::new(Prefix::new(self.prefix.chroot(), namespace.as_ref())?);
        Ok(CuratorFramework { core: self.core.clone(), prefix, last: self.last.clone() })
    }

    /// The namespace, empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.prefix.namespace()
    }

    /// The id of the current session; 0 before a server gave one.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.core.link.lock().session.as_ref().map_or(0, |session| session.id())
    }

    /// The password of the current session; whoever has it and the id can take the session over.
    #[must_use]
    pub fn session_password(&self) -> Vec<u8> {
        self.core.link.lock().session.as_ref().map(|session| session.password()).unwrap_or_default()
    }

    /// The session timeout: as negotiated, or before that as configured.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        let link = self.core.link.lock();
        link.session.as_ref().map_or(self.core.config.session_timeout, |session| session.timeout())
    }

    /// Calls the listener on every change of the connection state, in order, on the client's dispatch thread and under
    /// no lock. A listener may use the client, also close it; while it runs, others wait.
    pub fn add_connection_state_listener(
        &self,
        listener: impl Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static,
    ) -> ListenerId {
        let id = ListenerId(self.core.next_listener.fetch_add(1, Ordering::Relaxed));
        self.core.listeners.lock().push((id, Arc::new(listener)));
        id
    }

    /// Removes a listener; it may still be told what was under way.
    pub fn remove_connection_state_listener(&self, id: ListenerId) {
        let mut listeners = self.core.listeners.lock();
        let removed = listeners.iter().position(|(other, _)| *other == id).map(|at| listeners.remove(at));
        drop(listeners);
        // The caller's listener, and what it owns: not under the lock.
        drop(removed);
    }

    pub(crate) fn call<'a>(&'a self, operation: &'static str, path: &'a str, stop: Stop<'a>) -> Call<'a> {
        Call::new(&self.core, operation, path, stop)
    }

    pub(crate) fn from_parts(core: &Arc<Core>, last: Arc<LastHandle>, prefix: &Arc<Prefix>) -> CuratorFramework {
        CuratorFramework { core: core.clone(), prefix: prefix.clone(), last }
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorFramework")
            .field("namespace", &self.namespace())
            .field("state", &self.state())
            .field("connection_state", &self.connection_state())
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn inbox(&self) -> &Receiver<Event> {
        &self.inbox
    }

    pub(crate) fn post(&self, event: Event) {
        // The inbox lives as long as this object.
        let _ = self.events.send(event);
    }

    /// Runs a task on the client's own thread, unless the client is closed. It must not block.
    pub(crate) fn run_in_background(&self, task: impl FnOnce() + Send + 'static) {
        self.post_task(Event::Run(Box::new(task)));
    }

    /// The same after a while.
    pub(crate) fn run_later(&self, delay: Duration, task: impl FnOnce() + Send + 'static) {
        match Instant::now().checked_add(delay).filter(|_| !delay.is_zero()) {
            Some(at) => self.post_task(Event::RunAt(at, Box::new(task))),
            None => self.run_in_background(task),
        }
    }

    fn post_task(&self, task: Event) {
        // Posted under the lock under which the client's life ends, so in front of the thread's last event: nothing is left
        // in the inbox that would keep the client alive.
        let link = self.link.lock();
        if link.life == CuratorFrameworkState::Started {
            return self.post(task);
        }
        drop(link);
        // It may own anything: not under the lock.
        drop(task);
    }

    pub(crate) fn poster(&self) -> Sender<Event> {
        self.events.clone()
    }

    /// An error unless the client is in use.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.link.lock().life {
            CuratorFrameworkState::Started => Ok(()),
            CuratorFrameworkState::Latent => Err(Error::NotStarted),
            CuratorFrameworkState::Stopped => Err(Error::ClientClosed),
        }
    }

    /// The current session if it is connected, waiting for that if need be.
    ///
    /// A change between the look and the wait is not lost: the channel is registered under the lock under which the
    /// look was made, and whoever makes a change wakes all that are registered.
    pub(crate) fn connected_session(&self, stop: Stop<'_>) -> Result<std::result::Result<Arc<dyn Session>, WaitEnd>> {
        loop {
            let (sender, wake) = {
                let mut link = self.link.lock();
                match link.life {
                    CuratorFrameworkState::Started => {}
                    CuratorFrameworkState::Latent => return Err(Error::NotStarted),
                    CuratorFrameworkState::Stopped => return Err(Error::ClientClosed),
                }
                if let Some(scheme) = &link.auth_failed {
                    return Err(Error::AuthFailed { scheme: scheme.clone() });
                }
                // Nothing is begun for a call that was cancelled before: its reply could come before the next look.
                if stop.is_cancelled() {
                    return Ok(Err(WaitEnd::Cancelled));
                }
                if let Some(session) = &link.session
                    && session.connection() != 0
                {
                    return Ok(Ok(session.clone()));
                }
                let (sender, wake) = bounded(1);
                link.waiting.push(sender.clone());
                (sender, wake)
            };
            if let Err(end) = stop.recv(&wake) {
                // Its own entry alone: with a wake-up for all, a thousand callers that give up at one time would wake each
                // other a million times.
                self.link.lock().waiting.retain(|other| !other.same_channel(&sender));
                return Ok(Err(end));
            }
        }
    }

    pub(crate) fn current_session(&self) -> Option<Arc<dyn Session>> {
        self.link.lock().session.clone()
    }

    /// Puts a session in the place of the current one.
    pub(crate) fn set_session(&self, session: Arc<dyn Session>) {
        let mut link = self.link.lock();
        if link.life != CuratorFrameworkState::Started {
            // Closed in between. Dropping the session closes it.
            return;
        }
        link.session = Some(session);
        wake_all(&mut link);
    }

    /// Gives the current session up. The caller replaces it.
    pub(crate) fn retire_session(&self) -> Option<Arc<dyn Session>> {
        let mut link = self.link.lock();
        let session = link.session.take()?;
        link.retired.retain(|session| !session.is_finished());
        link.retired.push(session.clone());
        Some(session)
    }

    /// Publishes a connection state and tells the listeners.
    pub(crate) fn raise(&self, client: Option<CuratorFramework>, state: ConnectionState) {
        log::debug!("connection state {state}");
        {
            let mut link = self.link.lock();
            link.state = Some(state);
            wake_all(&mut link);
        }
        let listeners: Vec<StateListener> =
            self.listeners.lock().iter().map(|(_, listener)| listener.clone()).collect();
        let Some(client) = client else { return };
        for listener in listeners {
            let client = client.clone();
            self.dispatcher.run(move || listener(&client, state));
        }
    }

    /// No session will come: ends every call that waits for one.
    pub(crate) fn auth_failed(&self, scheme: String) {
        let mut link = self.link.lock();
        link.auth_failed = Some(scheme);
        wake_all(&mut link);
    }

    /// Wakes whoever waits for a connection, to look again.
    pub(crate) fn wake_waiting(&self) {
        wake_all(&mut self.link.lock());
    }

    pub(crate) fn clean_up(&self, job: Job) {
        self.cleanup.add(job);
    }

    fn close(&self, wait: Duration) {
        let deadline = Instant::now() + wait.min(LONGEST_CLOSE);
        let (session, retired) = {
            let mut link = self.link.lock();
            let life = std::mem::replace(&mut link.life, CuratorFrameworkState::Stopped);
            if life == CuratorFrameworkState::Stopped {
                return;
            }
            // Whoever waits for a connection ends now, not after the server's confirmation.
            wake_all(&mut link);
            (link.session.take(), std::mem::take(&mut link.retired))
        };
        self.closed.cancel();
        self.held.lose_all(None, LostReason::ClientClosed);
        // The background thread tells the holders, and then ends itself and the dispatcher.
        self.post(Event::Stop);
        // In front of the session's end, because the background thread may not have come round to it: containers that
        // were made for nothing stay for ever.
        if let Some(session) = session.as_ref().filter(|session| session.connection() != 0) {
            self.cleanup.wake_all();
            self.cleanup.work(session);
        }
        self.cleanup.clear();
        if let Some(session) = session {
            session.close(deadline);
        }
        for session in retired {
            session.close(deadline);
        }
        // The last handle may go while its thread unwinds.
        let _ = caught("the ensemble provider", || self.config.ensemble.close());
    }
}

fn wake_all(link: &mut Link) {
    for sender in link.waiting.drain(..) {
        // Full or gone: either way there is nothing to wake.
        let _ = sender.try_send(());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::RetryOneTime;

    /// A client whose servers are not there.
    fn client() -> CuratorFramework {
        let client = CuratorFramework::builder()
            .connect_string("127.0.0.1:1")
            .retry_policy(RetryOneTime::new(Duration::from_millis(1)))
            .build()
            .unwrap();
        client.start().unwrap();
        client
    }

    #[test]
    fn who_gives_up_waiting_for_a_connection_wakes_nobody() {
        let client = client();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| client.block_until_connected(None));
            let first = loop {
                if let Some(sender) = client.core.link.lock().waiting.first() {
                    break sender.clone();
                }
                std::thread::yield_now();
            };
            for _ in 0..100 {
                assert!(!client.block_until_connected(Some(Duration::ZERO)).unwrap());
            }
            let link = client.core.link.lock();
            assert!(link.waiting.len() == 1 && link.waiting.iter().all(|sender| sender.same_channel(&first)));
            assert!(first.is_empty());
            drop(link);
            client.close();
            assert!(matches!(waiting.join().unwrap(), Err(Error::ClientClosed)));
        });
    }
}
