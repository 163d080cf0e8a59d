//! The one way in which all locks wait: create, decide, watch the predecessor, decide again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    AcquireOptions, Hold, WaitStrategy,
    driver::{
        LockInternalsDriver, LockInternalsSorter, is_exhausted, number_text, sequence_for, sorted_children,
        sorted_contenders,
    },
    wait::{Queued, Turn},
};
use crate::{
    CuratorFramework, Error, ErrorCode, LostReason, Result,
    framework::{Call, Claim, Creation, HeldNode, HoldKind, Job, Mark, RevocableNode, Revocation, Vacancy, protection},
    paths::ServerPath,
    proto::{CreateMode, Request, Response},
    session::{Pending, Reply, Session, SessionError, Stop, Submission, WaitEnd, submit, submit_one},
};

/// How long a call whose time is up still waits for the reply to what is under way, so that a server which answers at
/// all leaves nothing in doubt.
const GRACE: Duration = Duration::from_millis(20);

/// How long a contender that gives up waits until its znode is known to be gone; beyond it the background goes on. A
/// call whose time is up ends within 50 ms, also where the network has died without a word.
const LEAVE_GRACE: Duration = Duration::from_millis(25);

/// How one attempt to get a lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// The end of the wait for others.
    pub(crate) stop: Stop<'a>,
    /// Do not wait for others at all, and do not write if the lock is taken.
    pub(crate) only_try: bool,
}

impl<'a> Patience<'a> {
    /// From the moment of this call on, unless it is part of one that has begun before.
    pub(super) fn of(options: &'a AcquireOptions) -> Patience<'a> {
        let stop = Stop { deadline: options.deadline(), cancel: options.cancellation() };
        Patience { stop, only_try: options.is_mere_try() }
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
    pub(super) fn waits_until(&self) -> Option<Stop<'a>> {
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
    max_leases: AtomicUsize,
    /// The znodes' names are used again and again, by everybody: a delete that may have been carried out must not be
    /// repeated before another look at whose the znode is.
    reuses_names: bool,
    /// Whom the next hold tells about requests to give it back.
    revocation: Mutex<Option<Arc<Revocation>>>,
    kind: HoldKind,
    strategy: Mutex<WaitStrategy>,
    vacancy: Vacancy,
}

fn deletion_of(held: &HeldNode) -> Request {
    Request::Delete { path: held.path().as_str().to_owned(), version: -1 }
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
        max_leases: usize,
    ) -> Result<LockInternals> {
        let directory = client.prefix.to_server(base_path)?;
        if base_path == "/" {
            let rule = "a lock needs a directory of its own, for instance /locks/name".into();
            return Err(Error::InvalidPath { path: base_path.into(), rule });
        }
        let max_leases = AtomicUsize::new(max_leases);
        let (client, base_path) = (client.clone(), base_path.into());
        let (kind, strategy) = (HoldKind::Custom, Mutex::default());
        let (reuses_names, revocation) = (false, Mutex::new(None));
        Ok(LockInternals {
            client,
            driver,
            base_path,
            directory,
            max_leases,
            kind,
            strategy,
            reuses_names,
            revocation,
            vacancy: Vacancy::default(),
        })
    }

    pub(crate) fn set_kind(&mut self, kind: HoldKind) {
        self.kind = kind;
    }

    pub(crate) fn kind(&self) -> HoldKind {
        self.kind
    }

    pub(crate) fn set_strategy(&self, strategy: WaitStrategy) {
        *self.strategy.lock() = strategy;
    }

    pub(crate) fn strategy(&self) -> WaitStrategy {
        *self.strategy.lock()
    }

    pub(crate) fn directory(&self) -> &ServerPath {
        &self.directory
    }

    /// For a lock whose znodes bear names that others use too.
    pub(crate) fn set_reuses_names(&mut self) {
        self.reuses_names = true;
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
    fn forget_revocation(&self, held: &HeldNode) {
        let Some(revocable) = held.revocable() else { return };
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
        max_leases: usize,
    ) -> Result<LockInternals> {
        let mut lock = LockInternals::new(client, base_path, driver, max_leases)?;
        lock.directory = lock.directory.join(name);
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

    pub(crate) fn max_leases(&self) -> usize {
        self.max_leases.load(Ordering::Relaxed)
    }

    /// The path of a held znode as the caller sees it.
    pub(crate) fn client_path(&self, held: &HeldNode) -> String {
        self.client.prefix.to_client(held.path().as_str())
    }

    pub(crate) fn hold(&self, held: Arc<HeldNode>) -> Hold {
        let path = self.client_path(&held);
        Hold::new(held, path)
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

    /// Queues and waits for the turn. `None`: the time was up first, and nothing is left in the queue.
    pub(crate) fn attempt_lock(&self, data: &[u8], patience: Patience<'_>) -> Result<Option<Arc<HeldNode>>> {
        let io = patience.io(self.client.core.config.connection_timeout);
        if patience.only_try && self.is_taken(io)? {
            return Ok(None);
        }
        let mut retries = 0;
        loop {
            let begin = Instant::now();
            let turn = match self.queue_and_wait(data, patience, io) {
                Err(error) if self.ran_out_of_time(&error, patience, begin) => Turn::TimeIsUp,
                result => result?,
            };
            match turn {
                Turn::Granted(held) => return Ok(Some(held)),
                Turn::TimeIsUp => return Ok(None),
                // The lock is free to be asked for again, in the session that follows.
                Turn::SessionEnded => self.client.core.check_open()?,
                Turn::NodeGone | Turn::WriterGone => {
                    if patience.is_over() {
                        return Ok(None);
                    }
                    let call = self.client.call("acquire", &self.base_path, io);
                    call.allow_again(&mut retries, self.node_gone())?;
                }
            }
        }
    }

    /// Whether an acquire that began then failed only because its time was up: before a reply came, or while the server
    /// removed the directory, empty for a moment, as fast as it was made.
    pub(crate) fn ran_out_of_time(&self, error: &Error, patience: Patience<'_>, begin: Instant) -> bool {
        let is_so = patience.is_over() && (error.is_no_node() || error.is_retryable() && !self.is_silent(begin));
        if is_so {
            log::debug!("{}: the time was up first: {error}", self.base_path);
        }
        is_so
    }

    /// Whether a request that was sent then and is unanswered means more than that the time was short: there is no
    /// connection, or the servers are silent for longer than a prompt heartbeat takes.
    fn is_silent(&self, sent: Instant) -> bool {
        !self.client.is_connected() || sent.elapsed() > self.client.session_timeout() / 6
    }

    fn queue_and_wait(&self, data: &[u8], patience: Patience<'_>, io: Stop<'_>) -> Result<Turn> {
        let call = self.client.call("acquire", &self.base_path, io);
        let created = Creation { vacancy: Some(&self.vacancy), ..self.creation(data) }.run(&call)?;
        let queued = Queued::new(self, &call, patience, created, None)?;
        self.check_number(queued.name())?;
        queued.wait()
    }

    /// Takes the place of a writer, in front of everybody who waits for it: with the writer's own number, so it is no
    /// sequential znode. Only while the writer's hold is certain (CURATOR-621, and what it forgot: a writer that has lost
    /// its lock must not get in front of the next one).
    pub(crate) fn downgrade(
        &self,
        data: &[u8],
        patience: Patience<'_>,
        writer: &HeldNode,
    ) -> Result<Option<Arc<HeldNode>>> {
        let io = patience.io(self.client.core.config.connection_timeout);
        let name = format!("{}{}", self.driver.lock_name(), number_text(writer.path().name()));
        let mut retries = 0;
        loop {
            if let Some(reason) = writer.lost() {
                return Err(self.lost(reason));
            }
            let call = self.client.call("acquire", &self.base_path, io);
            let creation =
                Creation { name: &name, mode: CreateMode::Ephemeral, make_parents: false, ..self.creation(data) };
            let turn = match creation.run(&call) {
                Ok(created) => Queued::new(self, &call, patience, created, Some(writer))?.wait()?,
                // A directory cannot go while the writer's znode stands in it.
                Err(error) if error.is_no_node() => Turn::WriterGone,
                Err(error) => return Err(error),
            };
            match turn {
                Turn::Granted(held) => return Ok(Some(held)),
                Turn::TimeIsUp => return Ok(None),
                Turn::SessionEnded => {
                    self.client.core.check_open()?;
                    return Err(self.lost(writer.lost().unwrap_or(LostReason::SessionExpired)));
                }
                Turn::WriterGone => writer.lose(LostReason::NodeDeleted),
                Turn::NodeGone => call.allow_again(&mut retries, self.node_gone())?,
            }
        }
    }

    fn node_gone(&self) -> Error {
        Error::Server { code: ErrorCode::NoNode, operation: "acquire", path: self.base_path.clone() }
    }

    pub(super) fn creation<'a>(&'a self, data: &'a [u8]) -> Creation<'a> {
        Creation {
            client: &self.client,
            unique: protection,
            parent: self.directory.clone(),
            name: self.driver.lock_name(),
            data,
            mode: self.driver.create_mode(),
            acl: None,
            make_parents: true,
            list: true,
            vacancy: None,
        }
    }

    /// Whether a contender that came now would have to wait: one read, no write.
    fn is_taken(&self, io: Stop<'_>) -> Result<bool> {
        let call = self.client.call("acquire", &self.base_path, io);
        match call.retry(|session| call.ask(session, self.list_request(false))) {
            Ok(Response::Children { mut names, .. }) => {
                let newcomer = format!("{}{:010}", self.driver.lock_name(), i32::MAX);
                names.push(newcomer.clone());
                Ok(self.driver.decide(&names, &newcomer, self.max_leases()) != super::Decision::Granted)
            }
            Ok(other) => Err(call.unexpected(&other)),
            Err(error) if error.is_no_node() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is known of the directory without asking.
    pub(super) fn vacancy(&self) -> &Vacancy {
        &self.vacancy
    }

    pub(crate) fn list_request(&self, watch: bool) -> Request {
        Request::GetChildren { path: self.directory.as_str().to_owned(), watch, with_stat: false }
    }

    pub(crate) fn child(&self, name: &str) -> ServerPath {
        self.directory.join(name)
    }

    pub(super) fn check_number(&self, name: &str) -> Result<()> {
        match sequence_for(name, self.driver.lock_name()) {
            Some(number) if is_exhausted(number) => {
                Err(Error::SequenceExhausted { path: self.base_path.clone(), number })
            }
            _ => Ok(()),
        }
    }

    /// Takes a znode out of the queue that did not get the lock: at once if the server answers in time, else in the
    /// background.
    pub(crate) fn withdraw(&self, claim: Claim) {
        self.withdraw_all(vec![claim]);
    }

    /// [`withdraw`](Self::withdraw) for several, back to back.
    pub(super) fn withdraw_all(&self, claims: Vec<Claim>) {
        let call = self.client.call("release", &self.base_path, Stop::at(Instant::now() + LEAVE_GRACE));
        let mut pending = Vec::with_capacity(claims.len());
        for claim in claims {
            // Dropping the claim hands the znode to the background.
            let Some(path) = claim.path().filter(|_| claim.session().connection() != 0) else { continue };
            let request = Request::Delete { path: path.as_str().to_owned(), version: -1 };
            pending.push((submit_one(claim.session(), request), claim));
        }
        for (pending, claim) in pending {
            match call.reply(pending) {
                Ok(_) => claim.keep(),
                Err(error) if error.is_no_node() => claim.keep(),
                Err(error) => log::debug!("{}: to be deleted in the background: {error}", self.base_path),
            }
        }
    }

    /// Asks whether a lock whose certainty has run out is still held: the znode exists, belongs to its session, and the
    /// answer is no older than half of the session timeout.
    pub(crate) fn confirms(&self, held: &HeldNode) -> bool {
        let asked = Instant::now();
        let half = held.session().timeout() / 2;
        let stop = asked.checked_add(half).map_or_else(Stop::default, Stop::at);
        let call = self.client.call("acquire", &self.base_path, stop);
        let request = Request::Exists { path: held.path().as_str().to_owned(), watch: false };
        match call.ask(held.session(), request) {
            Ok(Response::Stat(stat)) => held.is_ours(&stat) && held.lost().is_none() && asked.elapsed() < half,
            _ => false,
        }
    }

    /// Gives a lock back. An error that [is retryable](Error::is_retryable) leaves the znode to the background; the job
    /// is handed out then.
    pub(crate) fn release(&self, held: &HeldNode) -> (Result<()>, Option<Job>) {
        if let Err(error) = self.end(held) {
            return (Err(error), None);
        }
        let stop = Stop::at(Instant::now() + held.session().timeout());
        let call = self.client.call("release", &self.base_path, stop);
        self.remove(&call, held, None)
    }

    /// The same for several, with one deadline for all, and in one round trip if nothing is in the way. Not for names that
    /// are reused.
    pub(crate) fn release_all(&self, held: &[Arc<HeldNode>]) -> Vec<(Result<()>, Option<Job>)> {
        let timeout = held.iter().map(|held| held.session().timeout()).max().unwrap_or_default();
        let call = self.client.call("release", &self.base_path, Stop::at(Instant::now() + timeout));
        let send = |held: &Arc<HeldNode>| {
            self.end(held)?;
            Ok(self.session_of(&call, held).map(|session| submit_one(&session, deletion_of(held))))
        };
        let sent: Vec<Result<Result<Pending>>> = held.iter().map(send).collect();
        let finish = |(held, sent): (&Arc<HeldNode>, Result<Result<Pending>>)| match sent {
            Ok(sent) => {
                let deleted = sent.and_then(|pending| call.reply(pending)).map(drop);
                self.remove(&call, held, Some(deleted))
            }
            Err(lost) => (Err(lost), None),
        };
        held.iter().zip(sent).map(finish).collect()
    }

    /// It is not held any more, as far as this process is concerned.
    fn end(&self, held: &HeldNode) -> Result<()> {
        held.released();
        self.forget_revocation(held);
        self.client.core.held.remove(held);
        held.lost().map_or(Ok(()), |reason| Err(self.lost(reason)))
    }

    /// Deletes a znode, and again while the retry policy allows it. `first`: how the first attempt went, if there was one.
    fn remove(&self, call: &Call<'_>, held: &HeldNode, mut first: Option<Result<()>>) -> (Result<()>, Option<Job>) {
        let mut retries = 0;
        let mut sent_before = false;
        let left = if first.is_none() { self.vacancy.leaves(held.path()) } else { None };
        loop {
            let deleted = match first.take() {
                Some(deleted) => deleted,
                None if self.reuses_names && (sent_before || !held.is_certain()) => self.delete_if_ours(call, held),
                None => self.delete(call, held),
            };
            let error = match deleted {
                Ok(()) => {
                    left.inspect(|left| left.store(true, Ordering::Release));
                    return (Ok(()), None);
                }
                Err(error) => error,
            };
            if error.is_no_node() {
                // After a lost reply this is the answer to it.
                let result = if sent_before { Ok(()) } else { Err(self.lost(LostReason::NodeDeleted)) };
                return (result, None);
            }
            if held.session().is_ended() && !held.outlives_session() {
                return (Err(self.lost(held.lost().unwrap_or(LostReason::SessionExpired))), None);
            }
            if !error.is_retryable() {
                return (Err(error), None);
            }
            sent_before = true;
            if let Err(error) = call.allow_retry(&mut retries, error) {
                return (Err(error), Some(self.deletion(held)));
            }
        }
    }

    fn delete(&self, call: &Call<'_>, held: &HeldNode) -> Result<()> {
        let session = self.session_of(call, held)?;
        call.ask(&session, deletion_of(held)).map(drop)
    }

    /// Deletes the znode where it may be gone already, by a delete whose reply was lost or while the connection was: the
    /// name may be another holder's by now. What can still happen between the look and the delete: see `Job::marked`.
    fn delete_if_ours(&self, call: &Call<'_>, held: &HeldNode) -> Result<()> {
        let session = self.session_of(call, held)?;
        let path = || held.path().as_str().to_owned();
        loop {
            let sync = Request::Sync { path: path() };
            let look = Request::Exists { path: path(), watch: false };
            let replies = submit(&session, vec![(sync, None), (look, None)]);
            let mut stat = None;
            for (pending, _) in replies {
                if let Response::Stat(found) = call.reply(pending)? {
                    stat = Some(found);
                }
            }
            let Some(stat) = stat.filter(|stat| held.is_ours(stat)) else { return Ok(()) };
            match call.ask(&session, Request::Delete { path: path(), version: stat.version }) {
                // Its data was changed in between.
                Err(error) if error.code() == Some(ErrorCode::BadVersion) => {}
                result => return result.map(drop),
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

    /// What is left to the background when a delete's outcome is unknown.
    fn deletion(&self, held: &HeldNode) -> Job {
        if self.reuses_names {
            Job::marked(held.path().clone(), Mark::Czxid(held.czxid()), held.session())
        } else {
            Job::delete(held.path().clone(), (!held.outlives_session()).then_some(held.session()))
        }
    }

    /// Gives a lock back without waiting: what the server does not confirm is left to the background.
    pub(crate) fn release_in_background(&self, held: &HeldNode) {
        if self.end(held).is_err() {
            return;
        }
        let (core, job) = (self.client.core.clone(), self.deletion(held));
        if held.outlives_session() || self.reuses_names && !held.is_certain() {
            return core.clean_up(job);
        }
        let left = self.vacancy.leaves(held.path());
        let on_reply = Box::new(move |reply: Reply| match reply {
            Ok(_) => {
                left.inspect(|left| left.store(true, Ordering::Release));
            }
            Err(SessionError::Expired | SessionError::Closed) => {}
            Err(SessionError::Server(ErrorCode::NoNode)) => {}
            Err(_) => core.clean_up(job),
        });
        let request = deletion_of(held);
        held.session().submit(vec![Submission { request, watcher: None, on_reply }]);
    }

    /// Sends for the end of a znode with a unique name, without waiting: what the server does not confirm is left to the
    /// background.
    pub(super) fn delete_in_background(&self, session: &Arc<dyn Session>, path: ServerPath) {
        let request = Request::Delete { path: path.as_str().to_owned(), version: -1 };
        let (core, owner) = (self.client.core.clone(), session.clone());
        let on_reply = Box::new(move |reply: Reply| match reply {
            Ok(_) | Err(SessionError::Expired | SessionError::Closed) => {}
            Err(SessionError::Server(ErrorCode::NoNode)) => {}
            Err(_) => core.clean_up(Job::delete(path, Some(&owner))),
        });
        session.submit(vec![Submission { request, watcher: None, on_reply }]);
    }

    pub(crate) fn lost(&self, reason: LostReason) -> Error {
        Error::LockLost { path: self.base_path.clone(), reason }
    }
}

fn children_of(client: &CuratorFramework, base_path: &str) -> Result<Vec<String>> {
    match client.get_children().for_path(base_path) {
        Err(error) if error.is_no_node() => Ok(Vec::new()),
        result => result,
    }
}
