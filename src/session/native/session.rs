//! [`Session`] as its callers see it, over the state that they share with the reader thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    reader::ReaderThread,
    shared::{Guarded, SessionShared, millis},
};
#[cfg(feature = "sasl")]
use crate::session::sasl::mechanism::Authenticator;
use crate::{
    base::{
        channel::{RecvTimeoutError, TryRecvError, bounded},
        clock, log,
        sync::Mutex,
        threads::{spawn, start},
    },
    error::Result,
    session::{
        api::{Session, SessionConfig, SessionError, SessionFactory, SessionObserver, Submission, Ticket},
        dialect::Dialect,
        machine::Machine,
        servers::{connect_string::ConnectString, resolver::is_among},
        transport::{Transport, tcp::Tcp},
    },
};

/// An abandoned session is taken up again within this many session timeouts, or not at all. By then either the servers
/// have expired it, or all of them are down, and will expire it one session timeout after they are back.
const LEAVE_WITHIN: u32 = 10;

/// How long the thread of a session that no caller waits for goes on, to close it at the server.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// One session and the thread that reads for it.
///
/// Two locks, never nested. `state` orders requests and is held for moments. `writer` is held while bytes go to the
/// kernel; the reader thread takes it to hand over a new connection, after it has shut the old one down, so a write
/// that was stuck there has failed by then; and to write, for moments, the requests that follow from a frame.
///
/// Observer and watchers are called without a lock, in the order of the actions of one input. The reader thread carries
/// out the actions of a read before it reads on, so all that the servers bring about, session events too, comes in the
/// order in which it happened.
pub(super) struct NativeSession {
    shared: Arc<SessionShared>,
}

impl NativeSession {
    pub(super) fn open(
        config: &SessionConfig,
        factory: &NativeSessions,
        observer: SessionObserver,
    ) -> Result<Arc<dyn Session>> {
        let (wake, pauses) = bounded(1);
        let (alive, done) = bounded(0);
        let born = clock::now();
        let machine = Machine::new(config.clone(), born);
        let timeout_ms = AtomicU64::new(millis(machine.timeout()));
        let shared = Arc::new(SessionShared {
            config: config.clone(),
            transport: factory.transport.clone(),
            #[cfg(feature = "sasl")]
            sasl: factory.sasl.clone(),
            observer,
            state: Mutex::new(Guarded { machine, writing: false, stream: None, server: None }),
            writer: Mutex::new(None),
            last_error: Mutex::new(None),
            new_hosts: Mutex::new(None),
            wake,
            done,
            born,
            id: AtomicI64::new(0),
            timeout_ms,
            connection: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            left_behind: AtomicU64::new(0),
        });
        let reader = ReaderThread { shared: shared.clone(), pauses, _alive: alive };
        spawn("zk-session", move || reader.run())?;
        Ok(Arc::new(NativeSession { shared }))
    }
}

/// Opens sessions of this crate's own making.
///
/// ```
/// use curator_locks::{CuratorFramework, unversioned::NativeSessionFactory};
///
/// // What a client does unless it is told otherwise:
/// let builder = CuratorFramework::builder().connect_string("zk1:2181").session_factory(NativeSessionFactory);
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_secs(1));
/// # builder.retry_policy(retry).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct NativeSessionFactory;

impl SessionFactory for NativeSessionFactory {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        NativeSessions::default().open(config, observer)
    }
}

/// Opens sessions whose connections are encrypted, or authenticated.
pub(crate) struct NativeSessions {
    pub(crate) transport: Arc<dyn Transport>,
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<Arc<dyn Authenticator>>,
}

impl NativeSessions {
    /// Without SASL.
    pub(crate) fn over(transport: Arc<dyn Transport>) -> NativeSessions {
        NativeSessions {
            transport,
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }
}

impl Default for NativeSessions {
    fn default() -> NativeSessions {
        NativeSessions::over(Arc::new(Tcp))
    }
}

impl SessionFactory for NativeSessions {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        NativeSession::open(config, self, observer)
    }
}

impl Drop for NativeSession {
    fn drop(&mut self) {
        // The session has no user any more: the thread closes it if a server is at hand. An abandoned one is on its way
        // already, and takes the time that needs.
        if !self.is_ended() {
            self.shared.leave(SessionError::Closed, clock::now() + LEAVE_TIME);
        }
    }
}

impl Session for NativeSession {
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        let encoded: Vec<_> = batch.into_iter().map(|submission| (submission.request.encode(0), submission)).collect();
        self.shared.input(|machine, actions| {
            let submit = |(frame, Submission { request, watcher, on_reply })| {
                Ticket(machine.submit(&request, frame, on_reply, watcher, actions))
            };
            encoded.into_iter().map(submit).collect()
        })
    }

    fn withdraw(&self, ticket: Ticket) -> bool {
        self.shared.input(|machine, actions| machine.withdraw(ticket.0, actions))
    }

    fn unwatch(&self, ticket: Ticket) {
        self.shared.input(|machine, actions| machine.unwatch(ticket.0, actions));
    }

    fn tells_in_order(&self) -> bool {
        true
    }

    fn id(&self) -> i64 {
        self.shared.id.load(Ordering::Acquire)
    }

    fn password(&self) -> Vec<u8> {
        let state = self.shared.state.lock();
        if state.machine.session_id() == 0 { Vec::new() } else { state.machine.password().to_vec() }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.timeout_ms.load(Ordering::Acquire))
    }

    fn connection(&self) -> u64 {
        self.shared.connection.load(Ordering::Acquire)
    }

    fn valid_until(&self) -> Option<Instant> {
        self.shared.moment(&self.shared.valid_until)
    }

    fn left_behind(&self) -> Option<Instant> {
        self.shared.moment(&self.shared.left_behind)
    }

    fn dialect(&self) -> Option<Dialect> {
        self.shared.state.lock().machine.abilities().map(|known| known.dialect)
    }

    fn has_containers(&self) -> bool {
        self.shared.state.lock().machine.abilities().is_none_or(|known| known.has_containers)
    }

    fn reads_together(&self) -> bool {
        self.shared.state.lock().machine.abilities().is_some_and(|known| known.reads_together)
    }

    fn last_error(&self) -> Option<Arc<io::Error>> {
        if self.connection() != 0 { None } else { self.shared.last_error.lock().clone() }
    }

    fn is_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    fn update_hosts(&self, hosts: &ConnectString) {
        *self.shared.new_hosts.lock() = Some(hosts.clone());
        // A full channel means that a wake-up is on its way already.
        let _ = self.shared.wake.try_send(());
    }

    fn locate(&self, lists: [Vec<(String, u16)>; 2], then: Box<dyn FnOnce(Option<usize>) + Send>) {
        let state = self.shared.state.lock();
        let Some(server) = state.server.clone().filter(|_| state.machine.connection() != 0) else { return };
        drop(state);
        let transport = self.shared.transport.clone();
        let search = move || {
            let names = |list: &Vec<_>| is_among(list, &server, |host, port| transport.resolve(host, port));
            then(lists.iter().position(names));
        };
        if let Err(error) = start("zk-resolver", search) {
            log::warn!("no thread to find the server among those of the ensemble: {error}");
        }
    }

    fn reconnect(&self) {
        self.shared.state.lock().hang_up();
    }

    fn is_finished(&self) -> bool {
        self.shared.done.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn abandon(&self) {
        let until = clock::now() + self.timeout() * LEAVE_WITHIN;
        self.shared.leave(SessionError::Expired, until);
    }

    fn nobody_holds(&self) {
        self.shared.input(|machine, _| machine.nobody_holds());
        // A full channel means that a wake-up is on its way already.
        let _ = self.shared.wake.try_send(());
    }

    fn close(&self, deadline: Instant) {
        // A caller that does not wait wants the session closed, too, and not to expire with its znodes in the way of others.
        let until = deadline.max(clock::now() + LEAVE_TIME);
        self.shared.leave(SessionError::Closed, until);
        // Nothing is ever sent on it: the channel ends when the reader thread does.
        let timed_out = self.shared.done.recv_timeout(clock::until(deadline)) == Err(RecvTimeoutError::Timeout);
        if timed_out && clock::now() >= until {
            // The reader thread finds that there is no time left.
            self.shared.state.lock().hang_up();
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "real threads, in real time")]
mod tests;
