//! The state that all handles of one client share: its life, its session, the threads that wait for a connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    base::{
        channel::{Receiver, Sender, bounded},
        clock, log,
        panics::caught,
        paths::{Prefix, ServerPath},
        sync::Mutex,
        telemetry::counters::Counters,
        unlocked::drop_unlocked,
    },
    error::{Error, LostReason, Result},
    framework::{
        cleanup::jobs::{Cleanup, Job},
        config::{Config, ensemble::EnsembleProvider, retry::RetryPolicy},
        events::{
            connection_state::ConnectionState,
            dispatch::Dispatcher,
            event::{Event, EventSender, event_channel},
            reactions::Reactions,
        },
        held::{FAR, grants::RecentGrants, holds::Holds, registry::HeldNodes},
    },
    session::{
        api::{Session, SessionConfig, SessionFactory},
        wait::{
            cancel::CancelToken,
            deadline::{WaitBound, WaitEnd},
        },
    },
};

/// The stage of a client's life. Java: `CuratorFrameworkState`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, CuratorFrameworkState, RetryOneTime};
///
/// let client = CuratorFrameworkFactory::new_client("zk1:2181", RetryOneTime::new(Duration::from_secs(1)))?;
/// assert_eq!(client.state(), CuratorFrameworkState::Latent);
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CuratorFrameworkState {
    /// `start` was not called yet.
    #[default]
    Latent,
    /// In use.
    Started,
    /// Closed, for good.
    Stopped,
}

/// Names a registered listener, to remove it again.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, ListenerId, RetryOneTime};
///
/// let client = CuratorFrameworkFactory::new_client("zk1:2181", RetryOneTime::new(Duration::from_secs(1)))?;
/// let id: ListenerId = client.add_connection_state_listener(|_, state| println!("{state}"));
/// client.remove_connection_state_listener(id);
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u64);

pub(super) type StateListener = Arc<dyn Fn(&CuratorFramework, ConnectionState) + Send + Sync>;

/// An error of any kind, a caller's own among them.
pub(crate) type AnyError = dyn std::error::Error + Send + Sync;

pub(super) type ErrorListener = Arc<dyn Fn(&str, &AnyError) + Send + Sync>;

/// The state that all handles of one client share.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(super) ensemble: Arc<dyn EnsembleProvider>,
    pub(super) retry_policy: Arc<dyn RetryPolicy>,
    /// The configuration that the first session is opened with.
    pub(super) session: SessionConfig,
    pub(super) session_factory: Arc<dyn SessionFactory>,
    pub(crate) counters: Arc<Counters>,
    /// Cancelled when the client is closed.
    pub(crate) closed: CancelToken,
    pub(crate) held: HeldNodes,
    pub(crate) holds: Holds,
    pub(crate) cleanup: Cleanup,
    pub(crate) grants: RecentGrants,
    /// How many more acquires of multi locks go one by one, as one has met others lately.
    pub(crate) one_by_one: AtomicU32,
    /// Several lists as one reply were too large: from then on each goes by itself.
    pub(crate) lists_are_large: AtomicBool,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) reactions: Reactions,
    pub(super) events: EventSender,
    /// Messages to the client's own thread.
    pub(super) received: Receiver<Event>,
    pub(super) link: Mutex<Lifecycle>,
    pub(super) listeners: Mutex<Vec<(ListenerId, StateListener)>>,
    pub(super) error_listeners: Mutex<Vec<(ListenerId, ErrorListener)>>,
    pub(super) next_listener: AtomicU64,
    pub(super) has_said_that_parents_stay: AtomicBool,
}

#[derive(Default)]
pub(super) struct Lifecycle {
    pub(super) life: CuratorFrameworkState,
    pub(super) state: Option<ConnectionState>,
    pub(super) session: Option<Arc<dyn Session>>,
    /// The scheme whose credentials are not accepted, and why: no session will come.
    pub(super) auth_failed: Option<(String, String)>,
    /// Sessions given up, on their way to be closed at the server.
    pub(super) retired: Vec<Arc<dyn Session>>,
    /// The threads that wait for a connection, woken on every change.
    pub(super) waiting: Vec<Sender<()>>,
}

impl Lifecycle {
    fn check_open(&self) -> Result<()> {
        match self.life {
            CuratorFrameworkState::Started => Ok(()),
            CuratorFrameworkState::Latent => Err(Error::NotStarted),
            CuratorFrameworkState::Stopped => Err(Error::ClientClosed),
        }
    }

    pub(super) fn wake_all(&mut self) {
        for sender in self.waiting.drain(..) {
            // Full or gone: either way there is nothing to wake.
            let _ = sender.try_send(());
        }
    }
}

/// A client of one ZooKeeper ensemble. Java: `CuratorFramework`.
///
/// Cloning is cheap: all clones share one session, and dropping the last one closes it. Each client has three threads of
/// its own (one reads the socket, one looks after states and clean-up, one runs listeners), however many callers there are.
///
/// Calls block until the server has answered. While the connection is gone they wait for it, at most the connection
/// timeout, and then do as the retry policy says. When the session is lost, the client opens a new one by itself.
///
/// Clones are handles of one client, and each lock object has one. Dropping the last handle closes the client in the
/// background and waits for nothing: if the process ends right after it, the servers may keep the locks until the session
/// timeout. [`close`](CuratorFramework::close) waits for the server's confirmation.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_locks::testing::TestingServer::start()?;
/// use std::time::Duration;
/// use curator_locks::{ConnectionStateErrorPolicy, CuratorFramework, CuratorFrameworkState, RetryOneTime};
///
/// # let servers = server.connect_string();
/// let client = CuratorFramework::builder()
///     .connect_string(servers)
///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
///     .namespace("shop")
///     .build()?;
/// let listener = client.add_connection_state_listener(|client, state| println!("{state}: {:#x}", client.session_id()));
/// client.start()?;
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))? && client.is_connected());
/// println!("{:?}, the session lasts {:?}", client.connection_state(), client.session_timeout());
/// assert_eq!(client.connection_state_error_policy(), ConnectionStateErrorPolicy::Standard);
/// assert_eq!(client.session_password().len(), 16);
///
/// client.create().creating_parents_if_needed().for_path_and_data("/currency", "EUR")?; // "/shop/currency" at the servers
/// client.set_data().for_path_and_data("/currency", "CHF")?;
/// client.sync().for_path("/currency")?;
/// assert_eq!(client.get_data().for_path("/currency")?, b"CHF");
/// let acl = client.get_acl().for_path("/currency")?;
/// client.set_acl().for_path("/currency", acl)?;
///
/// let everything = client.using_namespace("")?;
/// assert_eq!((client.namespace(), everything.namespace()), ("shop", ""));
/// assert_eq!(everything.get_children().for_path("/shop")?, ["currency"]);
/// client.delete().for_path("/currency")?;
/// assert!(client.check_exists().for_path("/currency")?.is_none());
///
/// client.remove_connection_state_listener(listener);
/// client.close();
/// assert_eq!(client.state(), CuratorFrameworkState::Stopped);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct CuratorFramework {
    pub(crate) core: Arc<Core>,
    pub(crate) prefix: Arc<Prefix>,
    pub(super) last: Arc<LastHandle>,
}

/// Closes the client when the last handle is dropped.
pub(crate) struct LastHandle {
    core: Arc<Core>,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        // A drop does not wait: the session's thread goes on by itself for a moment.
        self.core.close(Duration::ZERO);
    }
}

impl CuratorFramework {
    pub(super) fn new(
        config: Config,
        ensemble: Arc<dyn EnsembleProvider>,
        retry_policy: Arc<dyn RetryPolicy>,
        session: SessionConfig,
        session_factory: Arc<dyn SessionFactory>,
        prefix: Prefix,
    ) -> Self {
        let (events, received) = event_channel();
        let dispatcher = Arc::new(Dispatcher::new());
        let counters = session.counters.clone();
        let core = Arc::new(Core {
            held: HeldNodes::new(config.max_hold_time, events.clone(), dispatcher.clone(), counters.clone()),
            config,
            ensemble,
            retry_policy,
            session,
            session_factory,
            closed: CancelToken::new(),
            holds: Holds::default(),
            cleanup: Cleanup::new(events.clone(), counters.clone()),
            counters,
            grants: RecentGrants::default(),
            one_by_one: AtomicU32::new(0),
            lists_are_large: AtomicBool::new(false),
            dispatcher,
            reactions: Reactions::default(),
            events,
            received,
            link: Mutex::default(),
            listeners: Mutex::default(),
            error_listeners: Mutex::default(),
            next_listener: AtomicU64::new(1),
            has_said_that_parents_stay: AtomicBool::new(false),
        });
        CuratorFramework { last: Arc::new(LastHandle { core: core.clone() }), core, prefix: Arc::new(prefix) }
    }
}

/// The largest transaction of several locks' requests: far below the 1 MiB that servers take.
const LARGEST_TRANSACTION: usize = 128 * 1024;

/// How much of the largest reply each list may have that goes with others.
const SHARE_OF_REPLY: usize = 64 * 1024;

impl Core {
    /// How large a transaction of several locks' requests may be: 0 where they go back to back instead. Its reply is no larger.
    ///
    /// A session that cannot say what its servers speak may have no transactions, as that of the package `zookeeper`.
    pub(crate) fn transaction_limit(&self, session: &Arc<dyn Session>) -> usize {
        if session.dialect().is_none() {
            return 0;
        }
        LARGEST_TRANSACTION.min(self.session.max_frame_size).min(self.session.max_request_size)
    }

    /// How many reads go as one request: each has its share of the largest reply, so that the lists of 1,000 contenders each make none
    /// that is too large.
    pub(crate) fn reads_at_a_time(&self, session: &Arc<dyn Session>) -> usize {
        let may_go = session.reads_together() && !self.lists_are_large.load(Ordering::Relaxed);
        if may_go { (self.session.max_frame_size / SHARE_OF_REPLY).max(1) } else { 1 }
    }

    /// Runs a task on the client's own thread after this time, unless the client is closed. It must not block.
    pub(crate) fn run_later(&self, delay: Duration, task: impl FnOnce() + Send + 'static) {
        let now = clock::now();
        let task = Event::Run(now.checked_add(delay).unwrap_or(now + FAR), Box::new(task));
        // Posted under the lock under which the client's life ends, so in front of the thread's last event: nothing is left
        // in the channel that would keep the client alive.
        let link = self.link.lock();
        if link.life == CuratorFrameworkState::Started {
            return self.events.send(task);
        }
        drop_unlocked(link, [task]);
    }

    /// Logs an error that no call returns, and tells the listeners for such errors.
    pub(crate) fn unhandled(&self, message: String, error: impl Into<Box<AnyError>>) {
        let error: Arc<AnyError> = error.into().into();
        log::error!("{}{message}: {error}", self.config.speaker());
        for (_, listener) in &*self.error_listeners.lock() {
            let (listener, message, error) = (listener.clone(), message.clone(), error.clone());
            self.dispatcher.run(move || listener(&message, &*error));
        }
    }

    /// An error unless the client is in use.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.link.lock().check_open()
    }

    /// The current session if it is connected, waiting for that if need be. `place`: the session that owns the caller's
    /// znodes. Once that has ended there is nothing to wait for any more, and it is returned.
    ///
    /// A change between the look and the wait is not lost: the channel is registered under the lock under which the
    /// look was made, and every change wakes all that are registered.
    pub(crate) fn connected_session(
        &self,
        place: Option<&Arc<dyn Session>>,
        bound: WaitBound<'_>,
    ) -> Result<std::result::Result<Arc<dyn Session>, WaitEnd>> {
        loop {
            let (sender, wake) = {
                let mut link = self.link.lock();
                link.check_open()?;
                if let Some((scheme, detail)) = link.auth_failed.clone() {
                    return Err(Error::AuthFailed { scheme, detail });
                }
                // A call that was cancelled before begins nothing: its reply could come before the next look.
                if bound.is_cancelled() {
                    return Ok(Err(WaitEnd::Cancelled));
                }
                if let Some(session) = &link.session
                    && session.connection() != 0
                {
                    return Ok(Ok(session.clone()));
                }
                if let Some(place) = place.filter(|place| place.is_ended()) {
                    return Ok(Ok(place.clone()));
                }
                let (sender, wake) = bounded(1);
                link.waiting.push(sender.clone());
                (sender, wake)
            };
            if let Err(end) = bound.recv(&wake) {
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
        link.wake_all();
    }

    /// Gives the current session up. The caller replaces it.
    pub(crate) fn retire_session(&self) -> Option<Arc<dyn Session>> {
        let mut link = self.link.lock();
        let session = link.session.take()?;
        link.retired.retain(|session| !session.is_finished());
        link.retired.push(session.clone());
        Some(session)
    }

    /// Wakes the threads that wait for a connection, to look again.
    /// How many threads wait for a connection.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.link.lock().waiting.len()
    }

    pub(crate) fn wake_waiting(&self) {
        self.link.lock().wake_all();
    }

    /// Says once that the parents of locks stay, of which this is the first one.
    pub(crate) fn parents_stay(&self, path: &ServerPath) {
        if !self.has_said_that_parents_stay.swap(true, Ordering::Relaxed) {
            let dialect = self.current_session().and_then(|session| session.dialect());
            let servers = dialect.map_or_else(|| "the servers".to_owned(), |dialect| dialect.to_string());
            log::info!(
                "{servers} may have no containers: {path} and other directories of locks are persistent, and stay"
            );
        }
    }

    pub(crate) fn clean_up_later(self: &Arc<Self>, delay: Duration, job: Job) {
        let this = self.clone();
        self.run_later(delay, move || this.cleanup.add(job));
    }

    pub(super) fn close(&self, wait: Duration) {
        let deadline = clock::now() + wait.min(FAR);
        let (session, retired) = {
            let mut link = self.link.lock();
            let life = std::mem::replace(&mut link.life, CuratorFrameworkState::Stopped);
            if life == CuratorFrameworkState::Stopped {
                return;
            }
            // Threads that wait for a connection stop now, not after the server's confirmation.
            link.wake_all();
            (link.session.take(), std::mem::take(&mut link.retired))
        };
        self.closed.cancel();
        self.held.lose_all(None, LostReason::ClientClosed);
        self.held.disarm_fences();
        // The background thread tells the holders, and then ends itself and the dispatcher.
        self.events.send(Event::Stop);
        // Before the session ends, because the background thread may not have come round to it: containers that never had
        // a child stay for ever.
        if let Some(session) = session.as_ref().filter(|session| session.connection() != 0) {
            self.cleanup.wake(None);
            self.cleanup.work(session);
        }
        self.cleanup.clear();
        for session in session.into_iter().chain(retired) {
            session.close(deadline);
        }
        // Nobody goes on with it.
        drop(self.session.successor.take());
        // The last handle may go while its thread unwinds.
        let _ = caught("the ensemble provider", || self.ensemble.close());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use super::*;
    use crate::framework::config::retry::RetryOneTime;

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

    #[test]
    fn what_is_due_beyond_the_range_of_the_clock_is_not_run_at_once() {
        let client = client();
        let (tell, told) = crate::base::channel::unbounded();
        let others = tell.clone();
        client.core.run_later(Duration::MAX, move || others.send("far").unwrap_or_default());
        client.core.run_later(Duration::ZERO, move || tell.send("now").unwrap_or_default());
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok("now"));
        client.close();
    }
}
