//! The one way in which all locks wait: create, decide, watch the predecessor, decide again.

use std::{
    fmt, slice,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, select};
use parking_lot::Mutex;

use crate::{
    error::{Error, LostReason, Result},
    framework::{
        cleanup::{jobs::Job, removal::Mark},
        client::{
            call::{Call, Failure},
            core::CuratorFramework,
        },
        held::{
            holds::HoldKind,
            node::{HeldNode, RevocableNode, Revocation},
        },
        znodes::create::protection,
    },
    locks::{
        api::{
            holds::{hold::Hold, unclean::Deaths},
            options::{acquire::AcquireOptions, terms::Terms, wait_strategy::WaitStrategy},
        },
        contender::{
            blocking::{Outcome, Wish},
            driver::{LockInternalsDriver, LockInternalsSorter, number_text, sorted_children, sorted_contenders},
            spec::{Companion, Leftover, Naming, Spec},
            unlisted::Unlisted,
        },
        threads::owners::Owners,
    },
    paths::ServerPath,
    proto::{
        request::Request,
        types::{CreateMode, ErrorCode},
    },
    session::{
        api::{Reply, Session, SessionError, Submission},
        wait::{
            deadline::{Stop, WaitEnd},
            pending::{Pending, Watch, submit_one},
        },
    },
};

/// How long a call whose time is up still waits for the reply to what is under way, so that a server which answers at
/// all leaves nothing in doubt.
const GRACE: Duration = Duration::from_millis(20);

/// How one attempt to get a lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// The end of the wait for others.
    pub(crate) stop: Stop<'a>,
    /// Do not wait for others at all, and do not write if the lock is taken.
    pub(crate) only_try: bool,
    pub(crate) terms: &'a Terms,
}

impl<'a> Patience<'a> {
    /// From the moment of this call on, unless it is part of one that has begun before.
    pub(in crate::locks) fn of(options: &'a AcquireOptions) -> Patience<'a> {
        let stop = Stop { deadline: options.deadline(), cancel: options.cancellation() };
        Patience { stop, only_try: options.is_mere_try(), terms: &options.terms }
    }

    /// The bound on requests. A mere try still waits for its own requests, as a lock that is free should be got.
    pub(crate) fn io(&self, connection_timeout: Duration) -> Stop<'a> {
        let deadline = if self.only_try {
            self.stop.deadline.unwrap_or_else(Instant::now).checked_add(connection_timeout)
        } else {
            // A deadline at the end of the clock's range is as good as one a moment later.
            self.stop.deadline.map(|deadline| deadline.checked_add(GRACE).unwrap_or(deadline))
        };
        Stop { deadline, cancel: self.stop.cancel }
    }

    /// How long to wait for a connection; `None` for a mere try, which ends with its requests.
    pub(in crate::locks) fn waits_until(&self) -> Option<Stop<'a>> {
        (!self.only_try).then_some(self.stop)
    }

    /// Whether the time to wait is up. A mere try has none: it ends with its requests.
    pub(crate) fn is_over(&self) -> bool {
        !self.only_try && self.stop.is_over() == Some(WaitEnd::Deadline)
    }
}

/// What the recipes share: a directory, whose children queue in the order that a driver decides. Java:
/// `LockInternals`.
pub struct LockInternals {
    client: CuratorFramework,
    driver: Arc<dyn LockInternalsDriver>,
    base_path: String,
    directory: ServerPath,
    naming: Naming,
    /// Makes a prefix, or the mark of a fixed name, from the session's id.
    unique: fn(i64) -> String,
    /// Whom the next hold tells about requests to give it back.
    revocation: Mutex<Option<Arc<Revocation>>>,
    pub(in crate::locks) kind: HoldKind,
    strategy: Mutex<WaitStrategy>,
    /// What the znodes carry from now on.
    data: Mutex<Vec<u8>>,
    /// What is known of the directory without asking, where one lock object is likely to come back to it.
    unlisted: Arc<Mutex<Unlisted<Watch>>>,
    goes_by_numbers: bool,
    has_persistent_directory: bool,
    deaths: Deaths,
}

/// How a release has gone. What the server has not confirmed is left to the background, and the channel is disconnected
/// when that has heard of the znode's end.
pub(crate) type Released = (Result<()>, Option<Receiver<()>>);

fn deletion_of(path: &ServerPath) -> Request {
    Request::Delete { path: path.as_str().to_owned(), version: -1 }
}

impl fmt::Debug for LockInternals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInternals").field("base_path", &self.base_path).finish_non_exhaustive()
    }
}

impl LockInternals {
    pub(crate) fn new(
        client: &CuratorFramework,
        base_path: &str,
        driver: Arc<dyn LockInternalsDriver>,
    ) -> Result<LockInternals> {
        let directory = client.prefix.to_server(base_path)?;
        if base_path == "/" {
            let rule = "a lock needs a directory of its own, for instance /locks/name".into();
            return Err(Error::InvalidPath { path: base_path.into(), rule });
        }
        Ok(LockInternals {
            client: client.clone(),
            base_path: base_path.into(),
            directory,
            naming: Naming::Unique(driver.lock_name().to_owned()),
            driver,
            unique: protection,
            revocation: Mutex::default(),
            kind: HoldKind::Custom,
            strategy: Mutex::default(),
            data: Mutex::new(client.core.config.default_data.clone()),
            unlisted: Arc::default(),
            goes_by_numbers: true,
            has_persistent_directory: false,
            deaths: Deaths::new(),
        })
    }

    pub(crate) fn set_strategy(&self, strategy: WaitStrategy) {
        *self.strategy.lock() = strategy;
    }

    pub(crate) fn set_data(&self, data: impl Into<Vec<u8>>) {
        *self.data.lock() = data.into();
    }

    pub(crate) fn directory(&self) -> &ServerPath {
        &self.directory
    }

    /// For a lock that is one znode of this name, which others use too: a delete that may have been carried out must not
    /// be repeated before another look at whose the znode is.
    pub(crate) fn set_fixed_name(&mut self, name: &str, unique: fn(i64) -> String) {
        self.naming = Naming::Fixed(name.to_owned());
        self.unique = unique;
    }

    /// For a lock whose znodes bear another prefix.
    pub(crate) fn set_unique(&mut self, unique: fn(i64) -> String) {
        self.unique = unique;
    }

    /// For a recipe whose directory is no container, and stays. Not for a thread that waits.
    pub(crate) fn set_persistent_directory(&mut self) {
        self.has_persistent_directory = true;
    }

    pub(in crate::locks) fn has_persistent_directory(&self) -> bool {
        self.has_persistent_directory
    }

    fn reuses_names(&self) -> bool {
        matches!(self.naming, Naming::Fixed(_))
    }

    /// The holds that are acquired from now on tell about requests to give them back, up to the next release.
    pub(crate) fn make_revocable(&self, revocation: Revocation) {
        let before = self.revocation.lock().replace(Arc::new(revocation));
        // The caller's listener: not under the lock.
        drop(before);
    }

    pub(crate) fn revocable_node(&self) -> Option<Arc<RevocableNode>> {
        self.revocation.lock().clone().map(RevocableNode::new)
    }

    /// A release ends the revocability of later holds, unless somebody has asked for it anew meanwhile.
    pub(in crate::locks) fn forget_revocation(&self, held: &HeldNode) {
        let Some(revocable) = held.revocable().filter(|revocable| !revocable.revocation().is_lasting()) else { return };
        let mut current = self.revocation.lock();
        let forgotten = current.take_if(|current| Arc::ptr_eq(current, revocable.revocation()));
        drop(current);
        // The caller's listener: not under the lock.
        drop(forgotten);
    }

    /// For a recipe whose queue is in a directory below its path. Messages name the recipe's path.
    pub(crate) fn below(
        client: &CuratorFramework,
        base_path: &str,
        name: &str,
        driver: Arc<dyn LockInternalsDriver>,
    ) -> Result<LockInternals> {
        let mut lock = LockInternals::new(client, base_path, driver)?;
        lock.directory = lock.directory.join(name);
        lock.goes_by_numbers = false;
        Ok(lock)
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(crate) fn driver(&self) -> &dyn LockInternalsDriver {
        &*self.driver
    }

    /// The path of a held znode as the caller sees it.
    pub(crate) fn client_path(&self, held: &HeldNode) -> String {
        self.client.prefix.to_client(held.path().as_str())
    }

    pub(crate) fn hold(&self, held: Arc<HeldNode>) -> Hold {
        let (path, deaths) = (self.client_path(&held), self.deaths_of(&held));
        Hold::new(held, path, deaths)
    }

    pub(in crate::locks) fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// The lock's path at the server.
    pub(in crate::locks) fn mark_base(&self) -> String {
        self.client.prefix.to_server(&self.base_path).map(ServerPath::into_string).unwrap_or_default()
    }

    /// Removes the lock's directory, unless somebody uses it. Java: `LockInternals.clean`.
    ///
    /// Servers remove it by themselves if it is a container, which it is unless the client was built with
    /// [`dont_use_container_parents`](crate::framework::Builder::dont_use_container_parents).
    ///
    /// # Errors
    /// As every operation on a znode; not for a directory that is in use or gone.
    pub fn clean(&self) -> Result<()> {
        match self.client.delete().for_path(&self.base_path) {
            Err(Error::Server { code: ErrorCode::NotEmpty | ErrorCode::NoNode | ErrorCode::BadVersion, .. }) => Ok(()),
            result => result,
        }
    }

    /// The contenders' paths in the order of the queue, the holder first; empty if there is no such directory. Java:
    /// `LockInternals.getParticipantNodes`.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn participant_nodes(client: &CuratorFramework, base_path: &str) -> Result<Vec<String>> {
        let children = children_of(client, base_path)?;
        let base_path = base_path.strip_suffix('/').unwrap_or(base_path);
        Ok(sorted_contenders(&children).into_iter().map(|name| format!("{base_path}/{name}")).collect())
    }

    /// The names of all children in the order of a sorter. Java: `LockInternals.getSortedChildren`.
    ///
    /// # Errors
    /// As every operation on a znode.
    pub fn sorted_children(
        client: &CuratorFramework,
        base_path: &str,
        lock_name: &str,
        sorter: &dyn LockInternalsSorter,
    ) -> Result<Vec<String>> {
        let children = children_of(client, base_path)?;
        Ok(sorted_children(&children, lock_name, sorter).into_iter().map(str::to_owned).collect())
    }

    /// Queues and waits for the turn, as `owners` if the lock belongs to a thread. `None`: the time was up first, and
    /// nothing is left in the queue.
    pub(crate) fn attempt_lock(
        &self,
        patience: Patience<'_>,
        owners: Option<&Owners>,
    ) -> Result<Option<Arc<HeldNode>>> {
        let spec = self.spec(patience);
        let (limit, place, writer) = (None, None, None);
        match (Wish { lock: self, spec, patience, limit, place, writer, owners, seeker: None }).acquire()? {
            Outcome::Granted { held, .. } => Ok(held.into_iter().next()),
            Outcome::TimeUp | Outcome::Barred | Outcome::WriterGone => Ok(None),
        }
    }

    /// What this kind of lock is, for one acquire.
    pub(in crate::locks) fn spec(&self, patience: Patience<'_>) -> Spec {
        Spec {
            directory: self.directory.as_str().to_owned(),
            driver: self.driver.clone(),
            naming: self.naming.clone(),
            count: 1,
            mode: if self.reuses_names() { CreateMode::Ephemeral } else { self.driver.create_mode() },
            data: self.data.lock().clone(),
            waits: (!patience.only_try).then(|| *self.strategy.lock()),
            looks_first: patience.only_try || patience.terms.max_ahead.is_some(),
            gate: None,
            companion: None,
            has_place: false,
            min_validity: patience.terms.min_validity,
            counts: patience.terms.counts(),
            max_ahead: patience.terms.max_ahead,
        }
    }

    /// Takes the place of a writer, in front of everybody who waits for it: with the writer's own number, so it is no
    /// sequential znode. Only while the writer's hold is certain (CURATOR-621, and what it forgot: a writer that has lost
    /// its lock must not get in front of the next one).
    pub(crate) fn downgrade(
        &self,
        patience: Patience<'_>,
        owners: &Owners,
        writer: &HeldNode,
    ) -> Result<Option<Arc<HeldNode>>> {
        if let Some(reason) = writer.lost() {
            return Err(self.lost(reason));
        }
        let companion = Companion { name: writer.path().name().to_owned(), session: writer.session().id() };
        let name = format!("{}{}", self.driver.lock_name(), number_text(&companion.name));
        let spec = Spec {
            naming: Naming::Unique(name),
            mode: CreateMode::Ephemeral,
            companion: Some(companion),
            looks_first: false,
            ..self.spec(patience)
        };
        let (limit, place, owners, seeker) = (None, None, Some(owners), None);
        match (Wish { lock: self, spec, patience, limit, place, writer: Some(writer), owners, seeker }).acquire()? {
            Outcome::Granted { held, .. } => Ok(held.into_iter().next()),
            Outcome::TimeUp | Outcome::Barred => Ok(None),
            Outcome::WriterGone => {
                self.client.core.check_open()?;
                if !writer.session().is_ended() {
                    writer.lose(LostReason::NodeDeleted);
                }
                Err(self.lost(writer.lost().unwrap_or(LostReason::SessionExpired)))
            }
        }
    }

    pub(in crate::locks) fn node_gone(&self) -> Error {
        Error::Server { code: ErrorCode::NoNode, operation: "acquire", path: self.base_path.clone() }
    }

    /// A prefix, or the mark of a fixed name, for one attempt in this session.
    pub(in crate::locks) fn unique(&self, session_id: i64) -> String {
        (self.unique)(session_id)
    }

    pub(in crate::locks) fn unlisted(&self) -> &Arc<Mutex<Unlisted<Watch>>> {
        &self.unlisted
    }

    /// Whether a create may be sent without a list, where the number says all.
    pub(in crate::locks) fn goes_by_numbers(&self) -> bool {
        self.goes_by_numbers
    }

    pub(crate) fn child(&self, name: &str) -> ServerPath {
        self.directory.join(name)
    }

    /// Gives a lock back, and reports the end of a hold that was lost. At most the session timeout.
    pub(crate) fn release(&self, held: &Arc<HeldNode>) -> Released {
        if let Some((keeper, tenure)) = held.keeper() {
            return (keeper.release(held, tenure), None);
        }
        self.release_all(slice::from_ref(held)).pop().unwrap_or((Ok(()), None))
    }

    /// The same for several, with one deadline for all, and in one round trip if nothing is in the way.
    pub(crate) fn release_all(&self, held: &[Arc<HeldNode>]) -> Vec<Released> {
        let timeout = held.iter().map(|held| held.session().timeout()).max().unwrap_or_default();
        let deadline = Instant::now() + timeout;
        let call = self.client.call("release", &self.base_path, Stop::at(deadline));
        let send = |held: &Arc<HeldNode>| {
            self.end(held)?;
            Ok((!self.stays(held)).then(|| self.delete(&call, held, false)))
        };
        let sent: Vec<Result<Option<Result<Option<Pending>>>>> = held.iter().map(send).collect();
        let finish = |(held, sent): (&Arc<HeldNode>, Result<_>)| match sent {
            Ok(Some(first)) => self.finish(&call, deadline, held, first),
            Ok(None) => (Ok(()), None),
            Err(lost) => (Err(lost), None),
        };
        held.iter().zip(sent).map(finish).collect()
    }

    /// It is not held any more, as far as this process is concerned.
    fn end(&self, held: &HeldNode) -> Result<()> {
        held.released();
        self.unregister(held);
        self.forget_revocation(held);
        // Its keeper has gone before it.
        let node = held.tenure().map_or(held, |tenure| &**tenure);
        node.released();
        self.client.core.held.remove(node);
        self.forget_mark(held);
        held.lost().map_or(Ok(()), |reason| Err(self.lost(reason)))
    }

    /// Sends for the end of a znode. `None`: its name may be another holder's by now, as it may be gone already, by a delete
    /// whose reply was lost or while the connection was.
    fn delete(&self, call: &Call<'_>, held: &HeldNode, in_doubt: bool) -> Result<Option<Pending>> {
        let session = self.session_of(call, held)?;
        // Not before the wait for a connection: without one the znode counts as certain up to `valid_until`.
        if self.reuses_names() && (in_doubt || !held.is_certain()) {
            return Ok(None);
        }
        self.unlisted.lock().leaves(held.path().name());
        Ok(Some(submit_one(&session, deletion_of(held.path()))))
    }

    /// Waits for the delete, and sends it again while the retry policy allows it.
    fn finish(
        &self,
        call: &Call<'_>,
        deadline: Instant,
        held: &HeldNode,
        mut sent: Result<Option<Pending>>,
    ) -> Released {
        let (mut retries, mut in_doubt) = (0, false);
        loop {
            let error = match sent {
                Ok(None) => return self.await_deletion(deadline, held, in_doubt),
                Ok(Some(pending)) => match call.reply_or_failure(pending) {
                    Ok(_) => {
                        self.unlisted.lock().left(held.path().name());
                        return (Ok(()), None);
                    }
                    Err(Failure { error, maybe_done }) => {
                        in_doubt |= maybe_done;
                        error
                    }
                },
                Err(error) => error,
            };
            if error.is_no_node() {
                // After a lost reply this is the answer to it.
                let result = if in_doubt { Ok(()) } else { Err(self.lost(LostReason::NodeDeleted)) };
                return (result, None);
            }
            if held.session().is_ended() && !held.outlives_session() {
                return (Err(self.expired(held)), None);
            }
            let refused = if error.is_retryable() { call.allow_retry(&mut retries, error) } else { Err(error) };
            if let Err(error) = refused {
                return (Err(error), Some(self.leave_to_background(held)));
            }
            sent = self.delete(call, held, in_doubt);
        }
    }

    /// Leaves a name that others use too to the clean-up, which looks whose it is (see [`Job::marked`]), and waits for
    /// that.
    fn await_deletion(&self, deadline: Instant, held: &HeldNode, in_doubt: bool) -> Released {
        let (gone, left) = self.await_gone(deadline, self.leave_to_background(held));
        let result = gone.and_then(|was_there| match was_there || in_doubt {
            _ if held.session().is_ended() => Err(self.expired(held)),
            true => Ok(()),
            false => Err(self.lost(LostReason::NodeDeleted)),
        });
        (result, left)
    }

    /// A second release, of a hold that the first one has left to the background: waits at most the session timeout.
    pub(crate) fn await_release(&self, done: Receiver<()>) -> Released {
        let (gone, left) = self.await_gone(Instant::now() + self.client.session_timeout(), done);
        (gone.map(drop), left)
    }

    /// Waits until the background has heard that a znode is gone: whether there was one to delete, if it had to look.
    fn await_gone(&self, deadline: Instant, done: Receiver<()>) -> (Result<bool>, Option<Receiver<()>>) {
        let core = &self.client.core;
        let mut was_there = false;
        loop {
            select! {
                recv(done) -> deleted => match deleted {
                    Ok(()) => was_there = true,
                    Err(_) => return (core.check_open().map(|()| was_there), None),
                },
                recv(core.closed.signal()) -> _ => return (Err(Error::ClientClosed), None),
                recv(crossbeam_channel::at(deadline)) -> _ => {
                    let call = self.client.call("release", &self.base_path, Stop::at(deadline));
                    return (Err(call.connection_loss()), Some(done));
                }
            }
        }
    }

    /// The session that owns the znode: no delete crosses over to the next one, unless no session owns it.
    fn session_of(&self, call: &Call<'_>, held: &HeldNode) -> Result<Arc<dyn Session>> {
        let session = call.session()?;
        if Arc::ptr_eq(&session, held.session()) || held.outlives_session() {
            Ok(session)
        } else {
            Err(call.error(SessionError::Expired))
        }
    }

    fn expired(&self, held: &HeldNode) -> Error {
        self.lost(held.lost().unwrap_or(LostReason::SessionExpired))
    }

    /// The channel is disconnected when the znode is gone.
    fn leave_to_background(&self, held: &HeldNode) -> Receiver<()> {
        let mut job = self.deletion_of_held(held);
        let done = job.done();
        self.client.core.clean_up(job);
        done
    }

    pub(in crate::locks) fn deletion_of_held(&self, held: &HeldNode) -> Job {
        let owner = (!held.outlives_session()).then_some(held.session());
        self.deletion(held.path().clone(), held.czxid(), owner)
    }

    /// The clean-up of a znode that exists.
    fn deletion(&self, path: ServerPath, czxid: i64, owner: Option<&Arc<dyn Session>>) -> Job {
        match owner.filter(|_| self.reuses_names()) {
            Some(owner) => Job::marked(path, Mark::Czxid(czxid), owner),
            None => Job::delete(path, owner),
        }
    }

    /// Gives a lock back without waiting: what the server does not confirm is left to the background.
    pub(crate) fn release_in_background(&self, held: &HeldNode) {
        if let Some((keeper, tenure)) = held.keeper() {
            // Its holder wants to hear nothing of it.
            return drop(keeper.release(held, tenure));
        }
        if self.end(held).is_err() {
            return;
        }
        if self.stays(held) {
            return;
        }
        let job = self.deletion_of_held(held);
        if held.outlives_session() || self.reuses_names() && !held.is_certain() {
            return self.client.core.clean_up(job);
        }
        self.unlisted.lock().leaves(held.path().name());
        self.delete_in_background(held.session(), held.path(), job);
    }

    /// What an acquire left behind goes in the background, until it is known to be gone or its session has ended.
    pub(in crate::locks) fn clean_up(&self, spec: &Spec, owner: &Arc<dyn Session>, leftover: Leftover) {
        let is_ephemeral = spec.mode.is_ephemeral();
        if is_ephemeral && owner.is_ended() {
            return;
        }
        let session = is_ephemeral.then_some(owner);
        let job = match (leftover, &spec.naming) {
            (Leftover::Node(node), naming) => {
                let path = self.child(&node.name);
                let job = self.deletion(path.clone(), node.czxid, session);
                if is_ephemeral && owner.connection() != 0 && matches!(naming, Naming::Unique(_)) {
                    // Sent now, so that it comes before whatever this thread sends next.
                    return self.delete_in_background(owner, &path, job);
                }
                job
            }
            (Leftover::Doubt(prefix), Naming::Unique(_)) => Job::protected(self.directory.clone(), prefix, session),
            (Leftover::Doubt(mark), Naming::Fixed(name)) => {
                Job::marked(self.child(name), Mark::Data(mark.into_bytes()), owner)
            }
        };
        self.client.core.clean_up(job);
    }

    /// Sends for the end of a znode without waiting. What the server does not confirm is left to the job.
    fn delete_in_background(&self, session: &Arc<dyn Session>, path: &ServerPath, job: Job) {
        let (core, unlisted, name) = (self.client.core.clone(), self.unlisted.clone(), path.name().to_owned());
        let on_reply = Box::new(move |reply: Reply| match reply {
            Ok(_) => unlisted.lock().left(&name),
            Err(SessionError::Expired | SessionError::Closed | SessionError::Server(ErrorCode::NoNode)) => {}
            Err(_) => core.clean_up(job),
        });
        session.submit(vec![Submission { request: deletion_of(path), watcher: None, on_reply }]);
    }

    pub(crate) fn lost(&self, reason: LostReason) -> Error {
        Error::LockLost { path: self.base_path.clone(), reason }
    }
}

/// The names of a znode's children, none if there is no such znode.
pub(in crate::locks) fn children_of(client: &CuratorFramework, base_path: &str) -> Result<Vec<String>> {
    match client.get_children().for_path(base_path) {
        Err(error) if error.is_no_node() => Ok(Vec::new()),
        result => result,
    }
}
