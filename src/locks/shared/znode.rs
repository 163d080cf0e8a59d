//! The znode under a shared value: reads and watches it, writes it, and tells of changes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    base::{panics::caught, paths::ServerPath, sync::Mutex, unlocked::drop_unlocked},
    error::{Error, Meaning, Result},
    framework::{
        client::{
            call::Call,
            core::{CuratorFramework, CuratorFrameworkState, ListenerId},
        },
        events::{
            connection_state::ConnectionState,
            event::Task,
            reactions::{OnConnection, WakeUp},
        },
    },
    locks::shared::versioned::{UNREAD, VersionedValue},
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode, Stat},
    },
    session::{
        api::{OnReply, Reply, Session, SessionError, Submission, Ticket, WatchEvent, Watcher},
        wait::{
            deadline::WaitBound,
            pending::{Watch, submit},
        },
    },
};

/// How long it waits before it repeats a request that the server has put off, and one that it has refused.
const WHEN_PUT_OFF: Duration = Duration::from_millis(100);
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// The bytes of a reply that are not the value: its header, the length, the stat.
const BESIDE_THE_DATA: usize = 16 + 4 + 68;

fn size_of_reply(stat: &Stat) -> usize {
    usize::try_from(stat.data_length).unwrap_or_default() + BESIDE_THE_DATA
}

/// The kind of values that a recipe keeps in its znode.
pub(super) struct Kind {
    /// The recipe's name in an error.
    pub(super) what: &'static str,
    /// The rule that these bytes break, if they are no such value.
    pub(super) broken_rule: fn(&[u8]) -> Option<String>,
}

/// What listeners are told.
#[derive(Clone)]
pub(super) enum News {
    Value(Arc<[u8]>),
    Connection(ConnectionState),
}

/// Called on the dispatch thread.
type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// The state that all handles of one shared value have.
pub(super) struct ValueZnode {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    node: ServerPath,
    kind: Kind,
    state: Mutex<ValueState>,
}

struct ValueState {
    life: CuratorFrameworkState,
    /// The seed before the first read.
    known: VersionedValue<Vec<u8>>,
    /// The session in which the known value was read: writes before that one are old news, and so are replies of an earlier
    /// session. No order of zxids tells that: other servers may begin them anew.
    session_id: i64,
    /// How many reads have been begun, each of which asks for a watch.
    reads: u64,
    /// That of the latest of these reads, and which one that was.
    watch: (u64, Option<Watch>),
    /// The occasion of the request that is about to be repeated, because the server has put it off.
    put_off: Option<Occasion>,
    /// Whether the last read was refused, of which an unhandled error tells once.
    is_refused: bool,
    /// The client's limit for a reply that was larger: asked for again, it would end the connection again.
    too_large: Option<usize>,
    /// Reads the value again; no listener delays that, as a limit of leases may have shrunk.
    on_connection: Option<Arc<OnConnection>>,
    listeners: Vec<(ListenerId, Listener)>,
    next_listener: u64,
    /// Called at once, on the thread that learns of a change.
    wakes: Vec<Weak<WakeUp>>,
}

/// Why the value is read, which decides whether the listeners are told. As in Curator's `SharedValue`. If two occasions
/// meet, the later variant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Occasion {
    /// The recipe starts: they are not told.
    Start,
    /// The value has changed, or may have: they are told if it is news.
    Change,
    /// There is a connection again: they are told in any case (CURATOR-311).
    Connection,
}

impl ValueZnode {
    pub(super) fn new(client: &CuratorFramework, path: &str, seed: Vec<u8>, kind: Kind) -> Result<Arc<ValueZnode>> {
        let node = client.prefix.to_server(path)?;
        let state = ValueState {
            life: CuratorFrameworkState::Latent,
            known: VersionedValue::unread(seed),
            session_id: 0,
            reads: 0,
            watch: (0, None),
            put_off: None,
            is_refused: false,
            too_large: None,
            on_connection: None,
            listeners: Vec::new(),
            next_listener: 1,
            wakes: Vec::new(),
        };
        let (client, path) = (client.clone(), path.to_owned());
        Ok(Arc::new(ValueZnode { client, path, node, kind, state: Mutex::new(state) }))
    }

    /// Reads the value, or makes the znode, and watches it from here on.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let seed = {
            let mut state = self.state.lock();
            if state.life != CuratorFrameworkState::Latent {
                return Err(Error::AlreadyStarted);
            }
            state.life = CuratorFrameworkState::Started;
            // Under the same lock: a thread that closes it from now on finds the reaction, and drops it. A new session
            // has no watch, and the writes in between were missed.
            state.on_connection = Some(self.client.core.reactions.add(move |state| {
                let Some(znode) = weak.upgrade() else { return };
                // Handed over before the value is asked for: a listener hears of the connection first.
                znode.connection_changed(state);
                if state.is_connected() {
                    znode.refresh(Occasion::Connection);
                }
            }));
            state.known.value.clone()
        };
        let result = self.read_or_create(&seed);
        if result.is_err() {
            self.stop(CuratorFrameworkState::Latent);
        }
        if self.state.lock().life == CuratorFrameworkState::Stopped {
            return Err(self.not_in_use("closed"));
        }
        result
    }

    /// Looks at the value that is known, under the lock.
    pub(super) fn known<T>(&self, look: impl FnOnce(&VersionedValue<Vec<u8>>) -> T) -> T {
        look(&self.state.lock().known)
    }

    /// Writes the value, whatever it is now.
    pub(super) fn set(&self, operation: &'static str, data: &[u8]) -> Result<()> {
        let call = self.client.call(operation, &self.path, WaitBound::default());
        call.retry(|session| self.write(&call, session, data, -1))
    }

    /// Writes the value unless somebody wrote one since `previous`: then `false`, and the known value is read again.
    pub(super) fn try_set(
        self: &Arc<Self>,
        operation: &'static str,
        previous: &VersionedValue<Vec<u8>>,
        data: &[u8],
    ) -> Result<bool> {
        let is_known = self.known(|known| (known.version != UNREAD).then(|| known == previous));
        // The server would take the version of a value that was not read for any.
        if !is_known.ok_or_else(|| self.not_in_use("not started"))? {
            return Ok(false);
        }
        let call = self.client.call(operation, &self.path, WaitBound::default());
        let mut doubt = None;
        let is_written = call.retry(|session| match self.write(&call, session, data, previous.version) {
            Ok(()) => Ok(true),
            Err(error) if error.code() == Some(ErrorCode::BadVersion) => Ok(false),
            Err(error) => {
                doubt = doubt.take().or_else(|| error.is_retryable().then(|| error.clone()));
                Err(error)
            }
        })?;
        if is_written {
            return Ok(true);
        }
        self.read(Occasion::Change)?;
        // An earlier attempt without a reply can have written this version and no other.
        let next = previous.version.wrapping_add(1);
        let is_of_another = self.known(|known| known.version == next && known.value != data);
        doubt.filter(|_| !is_of_another).map_or(Ok(false), Err)
    }

    /// Has the executor call this listener from now on, on the dispatch thread or wherever it likes.
    pub(super) fn listen(
        self: &Arc<Self>,
        tell: impl Fn(&Arc<ValueZnode>, News) + Send + Sync + 'static,
        executor: impl Fn(Task) + Send + Sync + 'static,
    ) -> ListenerId {
        let (tell, weak) = (Arc::new(tell), Arc::downgrade(self));
        let listener = move |news| {
            let (tell, weak) = (tell.clone(), weak.clone());
            executor(Box::new(move || {
                let Some(znode) = weak.upgrade() else { return };
                let _ = caught("a shared value's listener", || tell(&znode, news));
            }));
        };
        let mut state = self.state.lock();
        let id = ListenerId(state.next_listener);
        state.next_listener += 1;
        state.listeners.push((id, Arc::new(listener)));
        id
    }

    pub(super) fn remove_listener(&self, id: ListenerId) {
        let mut state = self.state.lock();
        let removed: Vec<_> = state.listeners.extract_if(.., |(other, _)| *other == id).collect();
        drop_unlocked(state, removed);
    }

    /// Calls `wake` on every change, as long as its owner keeps it.
    pub(super) fn wake_on_change(&self, wake: Weak<WakeUp>) {
        let wakes = &mut self.state.lock().wakes;
        wakes.retain(|wake| wake.strong_count() > 0);
        wakes.push(wake);
    }

    pub(super) fn close(&self) {
        self.stop(CuratorFrameworkState::Stopped);
    }

    fn not_in_use(&self, state: &'static str) -> Error {
        Error::NotInUse { what: self.kind.what, path: self.path.clone(), state }
    }

    /// Writes a value over this version, or over any: -1.
    fn write(&self, call: &Call<'_>, session: &Arc<dyn Session>, value: &[u8], version: i32) -> Result<()> {
        let (path, data) = (self.node.as_str().to_owned(), value.to_vec());
        match call.ask(session, Request::SetData { path, data, version })? {
            Response::Stat(stat) => {
                self.accept(session, &stat, value, Occasion::Change);
                Ok(())
            }
            other => Err(call.unexpected(&other)),
        }
    }

    fn read_or_create(self: &Arc<Self>, seed: &[u8]) -> Result<()> {
        let call = self.client.call("start", &self.path, WaitBound::default());
        let (mut is_created, mut retries) = (false, 0);
        loop {
            match self.read(Occasion::Start) {
                // Somebody has deleted the znode again.
                Err(error) if error.is_no_node() && is_created => call.allow_again(&mut retries, error)?,
                Err(error) if error.is_no_node() => {}
                result => return result,
            }
            is_created = true;
            let create = self.client.create().with_mode(CreateMode::Persistent).creating_parents_if_needed();
            match create.for_path_and_data(&self.path, seed) {
                Err(error) if !error.is_node_exists() => return Err(error),
                _ => {}
            }
        }
    }

    /// One request that leaves a watch, whether there is a znode or not, and one for the value.
    fn requests(&self) -> (Request, Request) {
        let path = || self.node.as_str().to_owned();
        (Request::Exists { path: path(), watch: true }, Request::GetData { path: path(), watch: false })
    }

    fn look(&self) -> Request {
        Request::Exists { path: self.node.as_str().to_owned(), watch: false }
    }

    /// Reads the value and watches it, and waits for that.
    fn read(self: &Arc<Self>, occasion: Occasion) -> Result<()> {
        let call = self.client.call("get_data", &self.path, WaitBound::default());
        call.retry(|session| {
            let (exists, get) = self.requests();
            let was_too_large = self.state.lock().too_large.is_some();
            if was_too_large
                && let Response::Stat(stat) = call.ask(session, self.look())?
                && let Some(limit) = self.limit_below(&stat)
            {
                return Err(call.error(SessionError::FrameTooLarge { size: size_of_reply(&stat), limit }));
            }
            let number = self.next_read();
            let mut sent = submit(session, vec![(exists, Some(self.watcher())), (get, None)]).into_iter();
            let (Some((looked, watch)), Some((read, _))) = (sent.next(), sent.next()) else {
                return Err(call.connection_loss());
            };
            call.reply(looked)?;
            let read = call.reply(read);
            if let Err(Error::FrameTooLarge { limit, .. }) = &read {
                self.state.lock().too_large = Some(*limit);
            }
            match read? {
                Response::Data { data, stat } => {
                    self.watched_by(number, watch);
                    self.take(session, &data, &stat, occasion)
                }
                other => Err(call.unexpected(&other)),
            }
        })
    }

    /// Reads the value and watches it, without waiting for that. If it fails because the connection goes, the next
    /// connection brings another call, and a request that the server puts off is repeated. If somebody has deleted the
    /// znode, the value stays until there is a new one.
    pub(super) fn refresh(self: &Arc<Self>, occasion: Occasion) {
        let Some(session) = self.client.core.current_session() else { return };
        if self.state.lock().life != CuratorFrameworkState::Started {
            return;
        }
        let on_reply = || -> OnReply {
            let (weak, asked) = (Arc::downgrade(self), session.clone());
            Box::new(move |reply| {
                if let Some(znode) = weak.upgrade() {
                    znode.answered(&asked, reply, occasion);
                }
            })
        };
        let (exists, get) = self.requests();
        let number = self.next_read();
        let mut requests = vec![Submission { request: exists, watcher: Some(self.watcher()), on_reply: on_reply() }];
        if self.state.lock().too_large.is_none() {
            requests.push(Submission { request: get, watcher: None, on_reply: on_reply() });
        }
        let tickets = session.submit(requests);
        self.watched_by(number, Some(Watch::new(session, tickets.first().copied().unwrap_or(Ticket(0)))));
    }

    fn answered(self: &Arc<Self>, session: &Arc<dyn Session>, reply: Reply, occasion: Occasion) {
        match reply {
            Ok(Response::Data { data, stat }) => {
                if let Err(error) = self.take(session, &data, &stat, occasion) {
                    self.keeps_last_value(error);
                }
            }
            Err(SessionError::Server(code)) => match code.meaning() {
                Meaning::SessionGone => {}
                // The watch tells of the next one.
                Meaning::Final if code == ErrorCode::NoNode => {
                    let mut state = self.state.lock();
                    (state.is_refused, state.too_large) = (false, None);
                }
                Meaning::NotNow | Meaning::Unknown => self.ask_later(occasion, WHEN_PUT_OFF),
                // Servers may send no event without permission to read, nor when that is given back.
                Meaning::Final => {
                    self.refused(SessionError::Server(code));
                    self.ask_later(occasion, AFTER_REFUSAL);
                }
            },
            Err(SessionError::FrameTooLarge { size, limit }) => {
                self.state.lock().too_large = Some(limit);
                self.refused(SessionError::FrameTooLarge { size, limit });
            }
            Ok(Response::Stat(stat)) if self.state.lock().too_large.is_some() => {
                // Not from a thread that reads for the session.
                let pause = if self.limit_below(&stat).is_some() { AFTER_REFUSAL } else { Duration::ZERO };
                self.ask_later(occasion, pause);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The client's limit, if the value was larger and still is.
    fn limit_below(&self, stat: &Stat) -> Option<usize> {
        let limit = &mut self.state.lock().too_large;
        *limit = limit.filter(|limit| *limit < size_of_reply(stat));
        *limit
    }

    /// Tells it once, up to the next value.
    fn refused(&self, error: SessionError) {
        let mut state = self.state.lock();
        let is_news = !std::mem::replace(&mut state.is_refused, true);
        let is_in_use = state.life == CuratorFrameworkState::Started;
        drop(state);
        if is_news && is_in_use {
            let call = self.client.call("get_data", &self.path, WaitBound::default());
            self.keeps_last_value(call.error(error));
        }
    }

    fn keeps_last_value(&self, error: Error) {
        self.client.core.unhandled(format!("{} keeps its last value", self.kind.what), error);
    }

    /// Plans one repetition, however many answers have asked for it.
    fn ask_later(self: &Arc<Self>, occasion: Occasion, pause: Duration) {
        let is_planned = {
            let put_off = &mut self.state.lock().put_off;
            put_off.replace(occasion.max(put_off.unwrap_or(occasion))).is_some()
        };
        if is_planned {
            return;
        }
        let weak = Arc::downgrade(self);
        self.client.core.run_later(pause, move || {
            let Some(znode) = weak.upgrade() else { return };
            let occasion = znode.state.lock().put_off.take();
            if let Some(occasion) = occasion {
                znode.refresh(occasion);
            }
        });
    }

    fn watcher(self: &Arc<Self>) -> Watcher {
        let weak: Weak<ValueZnode> = Arc::downgrade(self);
        Arc::new(move |event: &WatchEvent| {
            // `on_connection` sees to the other events.
            if let (WatchEvent::Node { .. }, Some(znode)) = (event, weak.upgrade()) {
                let weak = weak.clone();
                // Not from a thread that reads for the session, which a full socket could block, and not behind listeners.
                znode.client.core.run_later(Duration::ZERO, move || {
                    if let Some(znode) = weak.upgrade() {
                        znode.refresh(Occasion::Change);
                    }
                });
            }
        })
    }

    fn next_read(&self) -> u64 {
        let reads = &mut self.state.lock().reads;
        *reads += 1;
        *reads
    }

    /// Keeps the watch, unless a later read has left its own meanwhile: an event may have used this one up before that. The later
    /// one stands, or has brought another read.
    fn watched_by(&self, number: u64, watch: Option<Watch>) {
        let mut state = self.state.lock();
        let old = if state.life == CuratorFrameworkState::Started && state.watch.0 < number {
            std::mem::replace(&mut state.watch, (number, watch)).1
        } else {
            watch
        };
        drop_unlocked(state, old);
    }

    fn take(&self, session: &Arc<dyn Session>, data: &[u8], stat: &Stat, occasion: Occasion) -> Result<()> {
        self.state.lock().is_refused = false;
        if let Some(rule) = (self.kind.broken_rule)(data) {
            return Err(Error::InvalidPath { path: self.path.clone(), rule });
        }
        self.accept(session, stat, data, occasion);
        Ok(())
    }

    /// Takes note of a value that is or was at the server, unless a later one is known, and tells of it.
    pub(super) fn accept(&self, session: &Arc<dyn Session>, stat: &Stat, value: &[u8], occasion: Occasion) {
        let mut state = self.state.lock();
        let current = self.client.core.current_session();
        let is_known_of_now = current.as_ref().is_some_and(|current| current.id() == state.session_id);
        let is_of_now = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session));
        // A value of the current session gives way only to answers of that session.
        let is_old = if is_known_of_now == is_of_now { stat.mzxid < state.known.zxid } else { is_known_of_now };
        let known = VersionedValue { zxid: stat.mzxid, version: stat.version, value: value.to_vec() };
        let is_news = !is_old && known != state.known;
        if !is_old {
            (state.known, state.session_id) = (known, session.id());
        }
        let is_told = match occasion {
            Occasion::Start => false,
            Occasion::Change => is_news,
            Occasion::Connection => true,
        };
        if is_told && !state.listeners.is_empty() {
            let news = News::Value(state.known.value.as_slice().into());
            self.tell(&state, &news);
        }
        let wakes: Vec<_> = state.wakes.iter().filter(|_| is_news).filter_map(Weak::upgrade).collect();
        drop(state);
        wakes.iter().for_each(|wake| wake());
    }

    fn connection_changed(&self, connection: ConnectionState) {
        let state = self.state.lock();
        // It may have been closed since the reaction was taken from the client's list.
        if state.life == CuratorFrameworkState::Started {
            self.tell(&state, &News::Connection(connection));
        }
    }

    /// Hands the news over under the lock, so that all are told in the order in which values were accepted.
    fn tell(&self, state: &ValueState, news: &News) {
        for (_, listener) in &state.listeners {
            let (listener, news) = (listener.clone(), news.clone());
            self.client.core.dispatcher.run(move || listener(news));
        }
    }

    fn stop(&self, life: CuratorFrameworkState) {
        let mut state = self.state.lock();
        // Once closed, it stays so.
        if state.life != CuratorFrameworkState::Stopped {
            state.life = life;
        }
        let (watch, on_connection) = (state.watch.1.take(), state.on_connection.take());
        let is_over = state.life == CuratorFrameworkState::Stopped;
        let listeners = if is_over { std::mem::take(&mut state.listeners) } else { Vec::new() };
        drop_unlocked(state, watch);
        drop_unlocked((), on_connection);
        drop_unlocked((), listeners);
    }
}

impl Drop for ValueZnode {
    fn drop(&mut self) {
        self.stop(CuratorFrameworkState::Stopped);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;
