//! The client's own thread: connection states, the replacement of a lost session, clean-up, held znodes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use super::{
    core::{Core, CuratorFramework, LastHandle},
    ensemble_tracker::{EnsembleTracker, Move},
};
use crate::{
    base::{clock, log, panics::caught, paths::Prefix, threads::spawn},
    error::{Error, LostReason, Result},
    framework::{
        cleanup::jobs::Job,
        events::{
            connection_state::{ConnectionState, ConnectionStateMachine},
            event::{Event, ServersEvent, Task},
        },
    },
    session::{
        api::{Session, SessionConfig, SessionEvent, SessionObserver},
        servers::connect_string::ConnectString,
    },
};

/// While there is no connection, the thread asks the provider this often whether the servers have changed. It also tries
/// this often to open a session that could not be opened.
const LOOK_FOR_SERVERS: Duration = Duration::from_secs(1);

/// When the thread looks at the held znodes again if a look has panicked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Background {
    core: Arc<Core>,
    /// Listeners get a handle of the client, but this thread must not keep it open.
    last: Weak<LastHandle>,
    prefix: Arc<Prefix>,
    states: ConnectionStateMachine,
    /// The configuration of the next session: the servers may have changed.
    session: SessionConfig,
    /// The servers that the provider has named last.
    given: ConnectString,
    tracker: EnsembleTracker,
    /// Counts sessions, so that late events of an old one are not taken for events of the new one.
    generation: u64,
    next_servers: Option<Instant>,
    next_look: Option<Instant>,
    /// The tasks, the next one first, as every event looks at it: there may be tens of thousands.
    later: BTreeMap<Instant, Vec<Task>>,
    /// Whether the log has said that there was no connection so far.
    has_warned: bool,
}

impl Background {
    pub(crate) fn start(core: Arc<Core>, last: Weak<LastHandle>, prefix: Arc<Prefix>) -> Result<()> {
        let mut background = Background::new(core, last, prefix);
        background.open_session()?;
        spawn("curator-client", move || background.run())
    }

    fn new(core: Arc<Core>, last: Weak<LastHandle>, prefix: Arc<Prefix>) -> Background {
        let session = core.session.clone();
        let states = ConnectionStateMachine::new(session.session_timeout, core.config.expiration_percent);
        let tracker = EnsembleTracker::new(core.config.ensemble_tracker, core.events.clone());
        Background {
            core,
            last,
            prefix,
            states,
            given: session.hosts.clone(),
            session,
            tracker,
            generation: 0,
            next_servers: None,
            next_look: None,
            later: BTreeMap::new(),
            has_warned: false,
        }
    }

    fn run(mut self) {
        loop {
            let event = match self.next_deadline() {
                Some(at) => self.core.received.recv_timeout(clock::until(at)).ok(),
                None => self.core.received.recv().ok(),
            };
            // Sessions, providers and tasks may run the caller's code, which may panic. Without this thread no holder would
            // be told of anything.
            match event {
                Some(Event::Stop) => {
                    self.look(clock::now());
                    self.core.held.remove_all();
                    return self.core.dispatcher.stop();
                }
                Some(event) => drop(caught("a step of the client's thread", || self.take(event))),
                None => {}
            }
            let _ = caught("a timer of the client's thread", || self.timers(clock::now()));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Session(generation, event) if generation == self.generation => self.session_event(event),
            Event::Servers(generation, event) if generation == self.generation => self.servers_event(event),
            Event::Session(..) | Event::Servers(..) | Event::Stop => {}
            Event::Look => self.next_look = Some(clock::now()),
            Event::CleanUp => self.clean_up(),
            Event::Run(at, task) => self.later.entry(at).or_default().push(task),
            Event::CleanedUp(ids, replies) => self.core.cleanup.answered(&ids, replies, clock::now()),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let next_clean_up = self.core.cleanup.next_try();
        let next_later = self.later.keys().next().copied();
        let timers = [self.states.next_deadline(), self.next_servers, self.next_look, next_clean_up, next_later];
        timers.into_iter().flatten().min()
    }

    fn session_event(&mut self, event: SessionEvent) {
        let now = clock::now();
        match event {
            SessionEvent::Connected { .. } => {
                if let Some(session) = self.core.current_session() {
                    self.states.set_timeout(session.timeout());
                }
                self.next_servers = None;
                self.next_look = Some(now);
                // A factory may open sessions that do not begin with what the last one has left.
                drop(self.session.successor.take());
                // Before anybody is woken: with what a session has left behind in the way, an acquire would have to wait.
                self.core.cleanup.wake(None);
                self.clean_up();
                let state = self.states.connected(now);
                self.raise(state);
                self.core.wake_waiting();
                if let Some(session) = self.core.current_session() {
                    self.tracker.connected(&session, self.generation);
                }
            }
            SessionEvent::Disconnected => {
                self.next_servers = Some(now + LOOK_FOR_SERVERS);
                let state = self.states.disconnected(now);
                self.raise(state);
            }
            SessionEvent::Expired => {
                let state = self.states.expired(now);
                self.lose_session(LostReason::SessionExpired, state);
            }
            SessionEvent::AuthFailed { scheme, detail } => {
                // The credentials do not get better by trying: calls fail with AuthFailed from now on.
                let error = Error::AuthFailed { scheme: scheme.clone(), detail: detail.clone() };
                if let Some(session) = self.core.current_session() {
                    self.core.held.lose_all(Some(&session), LostReason::SessionExpired);
                }
                self.core.unhandled("no session will come".into(), error);
                self.next_look = Some(now);
                self.core.link.lock().auth_failed = Some((scheme, detail));
                if let Some(session) = self.core.current_session() {
                    self.core.held.end_unless_held(&session);
                }
                // No session will come: ends every call that waits for one.
                self.core.wake_waiting();
                let state = self.states.expired(now);
                self.raise(state);
            }
        }
    }

    /// Sets each timer anew before it does the timer's work, which may panic.
    fn timers(&mut self, now: Instant) {
        if let Some(lost) = self.states.tick(now) {
            self.lose_session(LostReason::SuspendedTooLong, Some(lost));
        }
        if self.next_servers.is_some_and(|at| now >= at) {
            self.next_servers = Some(now + LOOK_FOR_SERVERS);
            self.warn_if_never_connected();
            self.look_for_servers();
        }
        if self.core.cleanup.wake(Some(now)) {
            self.clean_up();
        }
        while let Some(next) = self.later.first_entry().filter(|next| *next.key() <= now) {
            for task in next.remove() {
                let _ = caught("a task of the client's thread", task);
            }
        }
        if self.next_look.is_some_and(|at| now >= at) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Instant) {
        let looked = caught("a look at what is held", || self.core.held.look(now));
        self.next_look = looked.unwrap_or(Some(now + LOOK_AGAIN));
    }

    /// Gives the session up and opens another. Tells the holders first, so that they know before anybody else can hold.
    fn lose_session(&mut self, reason: LostReason, state: Option<ConnectionState>) {
        if let Some(session) = self.core.current_session() {
            self.core.held.lose_all(Some(&session), reason);
        }
        let retired = self.core.retire_session();
        if let Some(session) = &retired {
            self.delete_left_behind(session);
        }
        self.look(clock::now());
        self.raise_of(retired.as_ref(), state);
        if let Some(session) = retired {
            session.abandon();
            self.core.held.end_unless_held(&session);
            // A contender with znodes in it waits for its end.
            self.core.wake_waiting();
        }
        self.states.set_timeout(self.session.session_timeout);
        self.replace_session();
    }

    /// A holder may still be at work, and has to be told first. From the moment on at which it must have noticed without that,
    /// its znode only keeps others from the lock.
    fn delete_left_behind(&self, session: &Arc<dyn Session>) {
        let now = clock::now();
        for (path, until) in self.core.held.left_behind(session) {
            self.core.clean_up_later(until.saturating_duration_since(now), Job::delete(path, Some(session)));
        }
    }

    fn replace_session(&mut self) {
        if let Err(error) = self.open_session() {
            self.core.unhandled("cannot open a new session".into(), error);
        }
    }

    fn open_session(&mut self) -> Result<()> {
        self.generation += 1;
        let (events, generation) = (self.core.events.clone(), self.generation);
        let observer: SessionObserver = Arc::new(move |event| events.send(Event::Session(generation, event)));
        self.next_servers = Some(clock::now() + LOOK_FOR_SERVERS);
        let opened = self.core.session_factory.open(&self.session, observer);
        // The events of a session that failed to open must not have another one opened at once; nor must a factory that
        // fails late.
        let session = opened.inspect_err(|_| {
            self.generation += 1;
            self.next_servers = Some(clock::now() + LOOK_FOR_SERVERS);
        })?;
        self.core.set_session(session);
        Ok(())
    }

    /// Warns once. A connection that goes later shows as a change of the state.
    fn warn_if_never_connected(&mut self) {
        let session = self.core.current_session().filter(|_| self.states.current().is_none() && !self.has_warned);
        if let Some(error) = session.and_then(|session| session.last_error()) {
            self.has_warned = true;
            log::warn!("{}no connection so far: {error}", self.core.config.speaker());
        }
    }

    /// The connect string may have changed, which matters only while there is no connection.
    fn look_for_servers(&mut self) {
        let ensemble = &self.core.ensemble;
        let asked = caught("the ensemble provider", || ensemble.connection_string().parse::<ConnectString>());
        match asked.unwrap_or_else(|| Ok(self.given.clone())) {
            Ok(hosts) if hosts == self.given => {
                if self.tracker.leads_nowhere() {
                    let given = self.given.hosts().iter().filter(|host| !self.session.hosts.hosts().contains(host));
                    let all = self.session.hosts.hosts().iter().chain(given).cloned().collect();
                    self.use_servers(self.given.with_hosts(all));
                }
            }
            Ok(hosts) if hosts.chroot() != self.given.chroot() => {
                log::error!("the connect string changed to {hosts}, ignored: the chroot cannot change");
            }
            Ok(hosts) => {
                self.given = hosts.clone();
                self.tracker.forget();
                self.use_servers(hosts);
            }
            Err(error) => self.core.unhandled("the ensemble provider gave a bad connect string".into(), error),
        }
        // The provider may have taken its time, and the client was closed meanwhile.
        if self.core.current_session().is_none() && self.core.check_open().is_ok() {
            self.replace_session();
        }
    }

    fn use_servers(&mut self, hosts: ConnectString) {
        if hosts == self.session.hosts {
            return;
        }
        log::info!("the connect string changed to {hosts}");
        self.session.hosts = hosts;
        if let Some(session) = self.core.current_session() {
            session.update_hosts(&self.session.hosts);
        }
    }

    fn servers_event(&mut self, event: ServersEvent) {
        let Some(session) = self.core.current_session() else { return };
        if let Some(Move { hosts, was_removed }) = self.tracker.take(&session, self.generation, event) {
            self.use_servers(self.given.with_hosts(hosts));
            if was_removed {
                session.reconnect();
            }
        }
    }

    fn clean_up(&self) {
        if let Some(session) = self.core.current_session().filter(|session| session.connection() != 0) {
            self.core.cleanup.work(&session);
        }
    }

    /// Publishes a connection state, has the recipes react, and tells the listeners.
    fn raise(&self, state: Option<ConnectionState>) {
        self.raise_of(self.core.current_session().as_ref(), state);
    }

    fn raise_of(&self, session: Option<&Arc<dyn Session>>, state: Option<ConnectionState>) {
        let Some(state) = state else { return };
        self.report(session, state);
        {
            let mut link = self.core.link.lock();
            link.state = Some(state);
            link.wake_all();
        }
        for reaction in self.core.reactions.living() {
            let _ = caught("a reaction to a connection state", || reaction(state));
        }
        let Some(last) = self.last.upgrade() else { return };
        let client = CuratorFramework { core: self.core.clone(), prefix: self.prefix.clone(), last };
        let listeners: Vec<_> = self.core.listeners.lock().iter().map(|(_, listener)| listener.clone()).collect();
        for listener in listeners {
            let client = client.clone();
            self.core.dispatcher.run(move || listener(&client, state));
        }
    }

    /// Counts the state, and writes one line when a connection goes, one when the session is given up for that, and one when
    /// there is a connection again.
    fn report(&self, session: Option<&Arc<dyn Session>>, state: ConnectionState) {
        let connections = &self.core.counters.connections;
        let id = session.map_or(0, |session| session.id());
        let cause = session.and_then(|session| session.last_error());
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let (me, servers) = (self.core.config.speaker(), &self.session.hosts);
        let counter = match state {
            ConnectionState::Suspended => {
                log::warn!("{me}connection state {state}, session {id:#x} at {servers} may live on{cause}");
                &connections.suspended
            }
            ConnectionState::Lost => {
                log::warn!("{me}connection state {state}: session {id:#x} at {servers} is gone with its locks{cause}");
                &connections.lost
            }
            ConnectionState::Connected | ConnectionState::Reconnected => {
                log::info!("{me}connection state {state}, session {id:#x}");
                if state == ConnectionState::Connected { &connections.connected } else { &connections.reconnected }
            }
        };
        counter.count();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::base::channel::{Sender, unbounded};

    use super::*;
    use crate::{
        RetryOneTime,
        base::paths::ServerPath,
        framework::client::core::CuratorFrameworkState,
        session::{
            api::{Session, SessionFactory},
            fake::stub::StubSession,
        },
    };

    const LONG: Duration = Duration::from_secs(20);

    /// Gives out one session. Those that cannot be opened raise their end all the same.
    struct Once {
        is_first: AtomicBool,
        opened: Sender<(Instant, SessionObserver)>,
    }

    impl SessionFactory for Once {
        fn open(&self, _config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
            self.opened.send((clock::now(), observer.clone())).unwrap_or_default();
            if self.is_first.swap(false, Ordering::SeqCst) {
                return Ok(StubSession::new());
            }
            observer(SessionEvent::Expired);
            let source = std::io::Error::from(std::io::ErrorKind::WouldBlock);
            Err(Error::Io { what: "no thread".into(), source: source.into() })
        }
    }

    /// Says with which configuration each session is opened.
    struct OfConfigs(Sender<(SessionConfig, SessionObserver)>);

    impl SessionFactory for OfConfigs {
        fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
            self.0.send((config.clone(), observer)).unwrap_or_default();
            Ok(StubSession::new())
        }
    }

    fn client(factory: Once) -> CuratorFramework {
        let builder = CuratorFramework::builder().connect_string("127.0.0.1:2181");
        builder.retry_policy(RetryOneTime::new(LONG)).session_factory(factory).build().unwrap()
    }

    #[test]
    fn a_look_that_panics_leaves_a_lost_session_to_be_replaced() {
        let (opened, tries) = unbounded();
        let client = client(Once { is_first: AtomicBool::new(true), opened });
        client.core.link.lock().life = CuratorFrameworkState::Started;
        let (core, last) = (client.core.clone(), Arc::downgrade(&client.last));
        let mut background = Background::new(core, last, client.prefix.clone());
        let unwell = StubSession::new();
        let _held = client.core.held.add(ServerPath::from_server("/held"), unwell.clone(), 3, 1, None);
        *unwell.when_asked.lock() = Some(Box::new(|| panic!("a session of the caller's own")));
        background.lose_session(LostReason::SessionExpired, Some(ConnectionState::Lost));
        assert_eq!((client.connection_state(), tries.len()), (Some(ConnectionState::Lost), 1));
        assert!(client.core.current_session().is_some() && background.next_look.is_some());
    }

    #[test]
    fn all_sessions_of_a_client_share_the_addresses_that_its_servers_names_had() {
        let (opened, configs) = unbounded();
        let factory = OfConfigs(opened);
        let builder = CuratorFramework::builder().connect_string("zk1:2181");
        let client = builder.retry_policy(RetryOneTime::new(LONG)).session_factory(factory).build().unwrap();
        client.start().unwrap();
        let (first, observer) = configs.recv_timeout(LONG).unwrap();
        observer(SessionEvent::Expired);
        let (second, _) = configs.recv_timeout(LONG).unwrap();
        assert!(Arc::ptr_eq(&first.known, &second.known));
    }

    #[test]
    fn a_session_that_cannot_be_opened_is_tried_again_after_a_pause() {
        let (opened, tries) = unbounded();
        let factory = Once { is_first: AtomicBool::new(true), opened };
        let client = client(factory);
        client.start().unwrap();
        let (_, observer) = tries.recv_timeout(LONG).unwrap();
        observer(SessionEvent::Expired);
        let (second, third) = (tries.recv_timeout(LONG).unwrap().0, tries.recv_timeout(LONG).unwrap().0);
        assert!(third - second >= LOOK_FOR_SERVERS);
    }
}
