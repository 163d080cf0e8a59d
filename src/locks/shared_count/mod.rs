//! A number that processes share.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    base::{paths::ServerPath, sync::Mutex, unlocked::drop_unlocked},
    error::{Error, Meaning, Result},
    framework::{
        client::{
            call::Call,
            core::{CuratorFramework, CuratorFrameworkState, ListenerId},
        },
        events::reactions::{OnConnection, WakeUp},
    },
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

/// How long it waits before it repeats a request that the server has put off.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// The version of a value that was not read yet.
const UNREAD: i32 = -1;

/// A number that processes share and can watch. Java: `SharedCount`.
///
/// It is a persistent znode with four bytes, the most significant first, as in Curator. Clones are handles of the same
/// count.
///
/// While the connection is suspended the value may be old. After a reconnect, and in a new session, the client reads it
/// again. Reading it here costs nothing: the client keeps the last known value, and a watch keeps that up to date.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::SharedCount;
/// let count = SharedCount::new(&client, "/limit", 3)?;
/// let (tell, told) = crossbeam_channel::unbounded();
/// let listener = count.add_listener(move |value| tell.send(value).unwrap_or_default());
/// count.start()?;
/// assert!(count.try_set_count(count.versioned_value(), 4)?);
/// while told.recv()? != 4 {} // after a connect it hears the old value, too
/// count.remove_listener(listener);
/// count.close();
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct SharedCount {
    shared: Arc<CountShared>,
}

type CountListener = Arc<dyn Fn(i32) + Send + Sync>;

struct CountShared {
    client: CuratorFramework,
    path: String,
    node: ServerPath,
    seed: i32,
    state: Mutex<CountState>,
}

struct CountState {
    life: CuratorFrameworkState,
    known: VersionedValue<i32>,
    /// The transaction that wrote the known value, and the session in which it was read: earlier writes are old news,
    /// and so are replies of an earlier session. No order of numbers tells that: other servers may begin them anew.
    mzxid: i64,
    session_id: i64,
    watch: Option<Watch>,
    /// The occasion of the request that is about to be repeated, because the server has put it off.
    put_off: Option<Occasion>,
    /// Reads the value again; no listener delays that, as a limit of leases may have shrunk.
    on_connection: Option<Arc<OnConnection>>,
    listeners: Vec<(ListenerId, CountListener)>,
    next_listener: u64,
    /// Called at once, on the thread that learns of a change.
    wakes: Vec<Weak<WakeUp>>,
}

/// Why the value is read, which decides whether the listeners are told. As in Curator's `SharedValue`. If two occasions
/// meet, the later variant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Occasion {
    /// The count starts: they are not told.
    Start,
    /// The value has changed, or may have: they are told if it is news.
    Change,
    /// There is a connection again: they are told in any case (CURATOR-311).
    Connection,
}

impl SharedCount {
    /// A count in the znode `path`. If there is none, the start makes it with the value `seed`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`].
    pub fn new(client: &CuratorFramework, path: &str, seed: i32) -> Result<SharedCount> {
        let node = client.prefix.to_server(path)?;
        let state = CountState {
            life: CuratorFrameworkState::Latent,
            known: VersionedValue { version: UNREAD, value: seed },
            mzxid: 0,
            session_id: 0,
            watch: None,
            put_off: None,
            on_connection: None,
            listeners: Vec::new(),
            next_listener: 1,
            wakes: Vec::new(),
        };
        let shared =
            CountShared { client: client.clone(), path: path.to_owned(), node, seed, state: Mutex::new(state) };
        Ok(SharedCount { shared: Arc::new(shared) })
    }

    /// Reads the value, makes the znode with the seed if it is missing, and watches it from here on. Blocks for one
    /// round trip, or as long as the retry policy says.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`]; [`Error::NotInUse`] if it is closed meanwhile; [`Error::InvalidPath`] if the znode
    /// does not hold four bytes; and the errors of every operation: [`Error::ConnectionLoss`],
    /// [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn start(&self) -> Result<()> {
        let shared = &self.shared;
        let weak = Arc::downgrade(shared);
        {
            let mut state = shared.state.lock();
            if state.life != CuratorFrameworkState::Latent {
                return Err(Error::AlreadyStarted);
            }
            state.life = CuratorFrameworkState::Started;
            // Under the same lock: a thread that closes it from now on finds the reaction, and drops it. A new session
            // has no watch, and the writes in between were missed.
            state.on_connection = Some(shared.client.core.reactions.add(move |state| {
                if let (true, Some(shared)) = (state.is_connected(), weak.upgrade()) {
                    shared.refresh(Occasion::Connection);
                }
            }));
        }
        let result = shared.read_or_create();
        if result.is_err() {
            shared.stop(CuratorFrameworkState::Latent);
        }
        if shared.state.lock().life == CuratorFrameworkState::Stopped {
            return Err(shared.not_in_use("closed"));
        }
        result
    }

    /// The last known value; the seed before the start. Java: `getCount`.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.shared.state.lock().known.value
    }

    /// The last known value and its version. Java: `getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<i32> {
        self.shared.state.lock().known
    }

    /// Writes the value, whatever it is now. One round trip.
    ///
    /// # Errors
    /// [`Error::Server`] with `NoNode` if somebody deleted the znode, or `NoAuth`; and the errors of every operation:
    /// [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn set_count(&self, count: i32) -> Result<()> {
        let shared = &self.shared;
        let call = shared.client.call("set_count", &shared.path, WaitBound::default());
        call.retry(|session| shared.write(&call, session, count, -1))
    }

    /// Writes the value unless somebody wrote one since `previous`: then `false`, and the known value is read again.
    /// Java: `trySetCount`.
    ///
    /// If the reply is lost and the value has changed, the call fails with [`Error::ConnectionLoss`]: it never guesses
    /// whose write that was, or two that add one could count one step. (Curator says `false` then, even if the value was
    /// written.)
    ///
    /// # Errors
    /// As [`SharedCount::set_count`], and [`Error::NotInUse`] before a start, when nothing is known.
    pub fn try_set_count(&self, previous: VersionedValue<i32>, count: i32) -> Result<bool> {
        let shared = &self.shared;
        let known = shared.state.lock().known;
        if known.version == UNREAD {
            // The server would take this version for any.
            return Err(shared.not_in_use("not started"));
        }
        if known != previous {
            return Ok(false);
        }
        let call = shared.client.call("try_set_count", &shared.path, WaitBound::default());
        let mut doubt = None;
        let is_written = call.retry(|session| match shared.write(&call, session, count, previous.version) {
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
        shared.read(Occasion::Change)?;
        let known = shared.state.lock().known;
        // An earlier attempt without a reply can have written this version and no other.
        let is_of_another = known.version == previous.version.wrapping_add(1) && known.value != count;
        doubt.filter(|_| !is_of_another).map_or(Ok(false), Err)
    }

    /// Calls the listener with the value whenever it changes, and after each reconnect even if it has not changed, as
    /// Curator does. A change that another one follows quickly may be skipped. The start calls no listener. While the
    /// connection is suspended or the session lost, no listener is called; after the reconnect it is told of writes in
    /// between. The calls come in the order of the changes, on the client's dispatch thread and under no lock. Java:
    /// `addListener`.
    pub fn add_listener(&self, listener: impl Fn(i32) + Send + Sync + 'static) -> ListenerId {
        let mut state = self.shared.state.lock();
        let id = ListenerId(state.next_listener);
        state.next_listener += 1;
        state.listeners.push((id, Arc::new(listener)));
        id
    }

    /// Removes a listener. A call that is under way may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        let mut state = self.shared.state.lock();
        let removed: Vec<_> = state.listeners.extract_if(.., |(other, _)| *other == id).collect();
        drop_unlocked(state, removed);
    }

    /// Stops watching; the last known value stays readable and becomes old. Dropping the last handle stops it, too.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        let listeners = std::mem::take(&mut state.listeners);
        drop_unlocked(state, listeners);
        self.shared.stop(CuratorFrameworkState::Stopped);
    }

    /// Calls `wake` on every change, as long as the caller keeps it. It must not block.
    pub(crate) fn subscribe(&self, wake: &Arc<WakeUp>) {
        let wakes = &mut self.shared.state.lock().wakes;
        wakes.retain(|wake| wake.strong_count() > 0);
        wakes.push(Arc::downgrade(wake));
    }
}

impl CountShared {
    fn not_in_use(&self, state: &'static str) -> Error {
        Error::NotInUse { what: "the shared count", path: self.path.clone(), state }
    }

    /// Writes a value over this version, or over any: -1.
    fn write(&self, call: &Call<'_>, session: &Arc<dyn Session>, count: i32, version: i32) -> Result<()> {
        let (path, data) = (self.node.as_str().to_owned(), count.to_be_bytes().to_vec());
        match call.ask(session, Request::SetData { path, data, version })? {
            Response::Stat(stat) => {
                self.accept(session, &stat, count, Occasion::Change);
                Ok(())
            }
            other => Err(call.unexpected(&other)),
        }
    }

    fn read_or_create(self: &Arc<Self>) -> Result<()> {
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
            match create.for_path_and_data(&self.path, self.seed.to_be_bytes()) {
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

    /// Reads the value and watches it, and waits for that.
    fn read(self: &Arc<Self>, occasion: Occasion) -> Result<()> {
        let call = self.client.call("get_count", &self.path, WaitBound::default());
        call.retry(|session| {
            let (exists, get) = self.requests();
            let mut sent = submit(session, vec![(exists, Some(self.watcher())), (get, None)]).into_iter();
            let (Some((looked, watch)), Some((read, _))) = (sent.next(), sent.next()) else {
                return Err(call.connection_loss());
            };
            call.reply(looked)?;
            match call.reply(read)? {
                Response::Data { data, stat } => {
                    self.watched_by(watch);
                    self.take(session, &data, &stat, occasion)
                }
                other => Err(call.unexpected(&other)),
            }
        })
    }

    /// Reads the value and watches it, without waiting for that. If it fails because the connection goes, the next
    /// connection brings another call, and a request that the server puts off is repeated. If somebody has deleted the
    /// znode, the value stays until there is a new one.
    fn refresh(self: &Arc<Self>, occasion: Occasion) {
        let Some(session) = self.client.core.current_session() else { return };
        if self.state.lock().life != CuratorFrameworkState::Started {
            return;
        }
        let on_reply = || -> OnReply {
            let (weak, asked) = (Arc::downgrade(self), session.clone());
            Box::new(move |reply| {
                if let Some(shared) = weak.upgrade() {
                    shared.answered(&asked, reply, occasion);
                }
            })
        };
        let (exists, get) = self.requests();
        let tickets = session.submit(vec![
            Submission { request: exists, watcher: Some(self.watcher()), on_reply: on_reply() },
            Submission { request: get, watcher: None, on_reply: on_reply() },
        ]);
        self.watched_by(Some(Watch::new(session, tickets.first().copied().unwrap_or(Ticket(0)))));
    }

    fn answered(self: &Arc<Self>, session: &Arc<dyn Session>, reply: Reply, occasion: Occasion) {
        match reply {
            Ok(Response::Data { data, stat }) => {
                if let Err(error) = self.take(session, &data, &stat, occasion) {
                    log::error!("{error}");
                }
            }
            Err(SessionError::Server(code)) if code.meaning() == Meaning::NotNow => {
                self.ask_later(occasion);
            }
            _ => {}
        }
    }

    /// Plans one repetition, however many answers have asked for it.
    fn ask_later(self: &Arc<Self>, occasion: Occasion) {
        let is_planned = {
            let put_off = &mut self.state.lock().put_off;
            put_off.replace(occasion.max(put_off.unwrap_or(occasion))).is_some()
        };
        if is_planned {
            return;
        }
        let weak = Arc::downgrade(self);
        self.client.core.run_later(AFTER_REFUSAL, move || {
            let Some(shared) = weak.upgrade() else { return };
            let occasion = shared.state.lock().put_off.take();
            if let Some(occasion) = occasion {
                shared.refresh(occasion);
            }
        });
    }

    fn watcher(self: &Arc<Self>) -> Watcher {
        let weak: Weak<CountShared> = Arc::downgrade(self);
        Arc::new(move |event: &WatchEvent| {
            // `on_connection` sees to the other events.
            if let (WatchEvent::Node { .. }, Some(shared)) = (event, weak.upgrade()) {
                let weak = weak.clone();
                // Not from a thread that reads for the session, which a full socket could block, and not behind listeners.
                shared.client.core.run_later(Duration::ZERO, move || {
                    if let Some(shared) = weak.upgrade() {
                        shared.refresh(Occasion::Change);
                    }
                });
            }
        })
    }

    fn watched_by(&self, watch: Option<Watch>) {
        let mut state = self.state.lock();
        let old = if state.life == CuratorFrameworkState::Started {
            std::mem::replace(&mut state.watch, watch)
        } else {
            watch
        };
        drop_unlocked(state, old);
    }

    fn take(&self, session: &Arc<dyn Session>, data: &[u8], stat: &Stat, occasion: Occasion) -> Result<()> {
        let value = data.try_into().map(i32::from_be_bytes).map_err(|_| {
            let rule = format!("a shared count has 4 bytes, this znode has {}", data.len());
            Error::InvalidPath { path: self.path.clone(), rule }
        })?;
        self.accept(session, stat, value, occasion);
        Ok(())
    }

    /// Takes note of a value that is or was at the server, unless a later one is known, and tells of it.
    fn accept(&self, session: &Arc<dyn Session>, stat: &Stat, value: i32, occasion: Occasion) {
        let mut state = self.state.lock();
        let current = self.client.core.current_session();
        let is_known_of_now = current.as_ref().is_some_and(|current| current.id() == state.session_id);
        let is_of_now = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session));
        // A value of the current session gives way only to answers of that session.
        let is_old = if is_known_of_now == is_of_now { stat.mzxid < state.mzxid } else { is_known_of_now };
        let known = VersionedValue { version: stat.version, value };
        let is_news = !is_old && known != state.known;
        if !is_old {
            (state.known, state.mzxid, state.session_id) = (known, stat.mzxid, session.id());
        }
        let is_told = match occasion {
            Occasion::Start => false,
            Occasion::Change => is_news,
            Occasion::Connection => true,
        };
        let value = state.known.value;
        // Handed over under the lock, so that all are told in the order in which the values were accepted.
        for (_, listener) in state.listeners.iter().filter(|_| is_told) {
            let listener = listener.clone();
            self.client.core.dispatcher.run(move || listener(value));
        }
        let wakes: Vec<_> = state.wakes.iter().filter(|_| is_news).filter_map(Weak::upgrade).collect();
        drop(state);
        wakes.iter().for_each(|wake| wake());
    }

    fn stop(&self, life: CuratorFrameworkState) {
        let mut state = self.state.lock();
        // Once closed, it stays so.
        if state.life != CuratorFrameworkState::Stopped {
            state.life = life;
        }
        let (watch, on_connection) = (state.watch.take(), state.on_connection.take());
        drop_unlocked(state, (watch, on_connection));
    }
}

impl Drop for CountShared {
    fn drop(&mut self) {
        self.stop(CuratorFrameworkState::Stopped);
    }
}

impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCount")
            .field("path", &self.shared.path)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// A value and the version of the znode that holds it. Java: `VersionedValue`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::SharedCount;
///
/// let limit = SharedCount::new(&client, "/limit", 3)?;
/// limit.start()?;
/// loop {
///     let seen = limit.versioned_value();
///     if limit.try_set_count(seen, seen.value() + 1)? {
///         break; // and nobody's write was lost
///     }
/// }
/// assert_eq!(limit.count(), 4);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionedValue<T> {
    version: i32,
    value: T,
}

impl<T> VersionedValue<T> {
    /// The znode's version, which grows with every write; -1 before the first read.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.version
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;
