//! Znodes that have to go, whatever happens to the calls that made them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::background::Event;
use crate::{
    paths::ServerPath,
    proto::{Acl, CreateMode, ErrorCode, MultiOp, Request, Response, Stat},
    session::{Reply, Session, SessionError, Submission},
};

/// What is to be cleaned up.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// This znode.
    Node(ServerPath),
    /// The child with this prefix: a protected create whose outcome nobody knows.
    Protected { parent: ServerPath, prefix: String },
    /// A container that was made for a child which never came. The server removes containers that had a child once.
    NeverUsed(ServerPath),
    /// This session's znode on a name that others use too: read first, and delete only what bears the mark.
    Marked { path: ServerPath, mark: Mark, step: Step },
}

/// What tells one's own znode from another one of the same name, besides its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The transaction that created it.
    Czxid(i64),
    /// What its data begins with: a create whose reply was lost.
    Data(Vec<u8>),
}

impl Mark {
    fn is_on(&self, reply: &Response, session: &Arc<dyn Session>) -> Option<i32> {
        let (stat, data): (&Stat, &[u8]) = match reply {
            Response::Stat(stat) => (stat, &[]),
            Response::Data { stat, data } => (stat, data),
            _ => return None,
        };
        let is_marked = match self {
            Mark::Czxid(czxid) => stat.czxid == *czxid,
            Mark::Data(start) => data.starts_with(start),
        };
        (is_marked && stat.ephemeral_owner == session.id()).then_some(stat.version)
    }
}

/// How far the deletion of a marked znode has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Find out whose the znode is.
    Read,
    /// It was this session's, in this version.
    ///
    /// Another one's znode of version 0 could take its place before the delete arrives, but only if this one was gone by
    /// then. It does not go by an earlier delete of this process: whatever was sent before the read has been carried out
    /// before the read or never will be, as the server refuses what a former connection of the session left behind. Nor
    /// by the session's end, which refuses the delete too. What remains is an administrator's delete within one round
    /// trip, and ZooKeeper has no delete that checks for that.
    Delete(i32),
}

/// One thing to clean up.
pub(crate) struct Job {
    target: Target,
    /// The session that owns the znode: when it ends, so does the job. `None`: whatever session there is.
    session: Option<Arc<dyn Session>>,
    /// Dropped when the job is done.
    done: Option<Sender<()>>,
}

impl Job {
    fn new(target: Target, session: Option<&Arc<dyn Session>>) -> Job {
        Job { target, session: session.cloned(), done: None }
    }

    pub(crate) fn delete(path: ServerPath, session: Option<&Arc<dyn Session>>) -> Job {
        Job::new(Target::Node(path), session)
    }

    pub(crate) fn protected(parent: ServerPath, prefix: String, session: Option<&Arc<dyn Session>>) -> Job {
        Job::new(Target::Protected { parent, prefix }, session)
    }

    /// Deletes a znode on a name that others use too, if it is this session's and bears the mark.
    pub(crate) fn marked(path: ServerPath, mark: Mark, session: &Arc<dyn Session>) -> Job {
        Job::new(Target::Marked { path, mark, step: Step::Read }, Some(session))
    }

    pub(crate) fn never_used(path: ServerPath) -> Job {
        Job::new(Target::NeverUsed(path), None)
    }

    /// A channel that is disconnected when the job is done.
    pub(crate) fn done(&mut self) -> Receiver<()> {
        let (sender, receiver) = bounded(0);
        self.done = Some(sender);
        receiver
    }

    /// Whether the session that owned the znode has ended, and taken it along.
    fn is_over(&self) -> bool {
        self.session.as_ref().is_some_and(|owner| owner.is_ended())
    }

    /// Where a search for the znode looks.
    fn searches(&self) -> Option<&ServerPath> {
        match &self.target {
            Target::Protected { parent, .. } => Some(parent),
            Target::Node(_) | Target::NeverUsed(_) | Target::Marked { .. } => None,
        }
    }

    /// Whether the job can be done in this session. A marked znode is its session's own business.
    fn is_for(&self, session: &Arc<dyn Session>) -> bool {
        let is_marked = matches!(self.target, Target::Marked { .. });
        !is_marked || self.session.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, session))
    }

    /// A delete whose outcome is unknown is not repeated before another read.
    fn begin_anew(&mut self) {
        if let Target::Marked { step, .. } = &mut self.target {
            *step = Step::Read;
        }
    }

    /// What a search has found, to be deleted. Every other job ends with its reply. `sorted`: the names in the reply, since
    /// thousands of searches may share a list of thousands.
    fn found(&self, reply: &Reply, sorted: &[&str]) -> Vec<Job> {
        match (&self.target, reply) {
            (Target::Protected { parent, prefix }, Ok(Response::Children { .. })) => {
                let from = sorted.partition_point(|name| *name < prefix.as_str());
                let found = sorted.iter().skip(from).take_while(|name| name.starts_with(prefix));
                found.map(|name| Job::delete(parent.join(name), self.session.as_ref())).collect()
            }
            (_, Ok(_) | Err(SessionError::Server(ErrorCode::NoNode) | SessionError::Closed)) => Vec::new(),
            (target, Err(error)) => {
                log::warn!("gave up cleaning up {target:?}: {error:?}");
                Vec::new()
            }
        }
    }

    /// Takes the reply to a marked znode's read or delete. `true`: there is more to do.
    fn go_on(&mut self, reply: &Reply) -> bool {
        let (Target::Marked { mark, step, .. }, Some(session)) = (&mut self.target, &self.session) else {
            return false;
        };
        *step = match (*step, reply) {
            (Step::Read, Ok(response)) => match mark.is_on(response, session) {
                Some(version) => Step::Delete(version),
                None => return false,
            },
            // Its data was changed in between.
            (Step::Delete(_), Err(SessionError::Server(ErrorCode::BadVersion))) => Step::Read,
            (Step::Read | Step::Delete(_), _) => return false,
        };
        true
    }

    fn requests(&self) -> Vec<Request> {
        match &self.target {
            Target::Node(path) => vec![Request::Delete { path: path.as_str().to_owned(), version: -1 }],
            // Without the sync the search could ask a server that has not yet seen the create.
            Target::Protected { parent, .. } => vec![
                Request::Sync { path: parent.as_str().to_owned() },
                Request::GetChildren { path: parent.as_str().to_owned(), watch: false, with_stat: false },
            ],
            // Without the sync a server that has not yet seen our own delete could answer.
            Target::Marked { path, mark, step: Step::Read } => {
                let path = path.as_str().to_owned();
                let read = match mark {
                    Mark::Czxid(_) => Request::Exists { path: path.clone(), watch: false },
                    Mark::Data(_) => Request::GetData { path: path.clone(), watch: false },
                };
                vec![Request::Sync { path }, read]
            }
            Target::Marked { path, step: Step::Delete(version), .. } => {
                vec![Request::Delete { path: path.as_str().to_owned(), version: *version }]
            }
            Target::NeverUsed(path) => {
                let child = path.join("_unused").as_str().to_owned();
                let create = MultiOp::Create {
                    path: child.clone(),
                    data: Vec::new(),
                    acl: Acl::open_unsafe(),
                    mode: CreateMode::Ephemeral,
                };
                vec![Request::Multi(vec![create, MultiOp::Delete { path: child, version: -1 }])]
            }
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The list of what has to be cleaned up. The background thread works it off whenever there is a connection.
pub(crate) struct Cleanup {
    jobs: Mutex<Jobs>,
    next_id: AtomicU64,
    /// The background thread has been told that there is something to do, and has yet to look: once for all that comes
    /// until then. It clears this before it looks, so nothing that comes later is overlooked.
    is_told: AtomicBool,
    events: Sender<Event>,
}

/// Taken apart, so that a look costs what there is to do and not what is under way.
#[derive(Default)]
struct Jobs {
    waiting: BTreeMap<u64, Job>,
    under_way: HashMap<u64, Job>,
    /// The directories that are being searched.
    searched: HashSet<ServerPath>,
}

impl Cleanup {
    pub(crate) fn new(events: Sender<Event>) -> Self {
        Cleanup { jobs: Mutex::default(), next_id: AtomicU64::new(1), is_told: AtomicBool::new(false), events }
    }

    pub(crate) fn add(&self, job: Job) {
        log::debug!("to be cleaned up: {:?}", job.target);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.jobs.lock().waiting.insert(id, job);
        self.tell();
    }

    fn tell(&self) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            // The inbox lives as long as the client.
            let _ = self.events.send(Event::CleanUp);
        }
    }

    /// Whether creates in this directory are in doubt, because a server is slow to answer.
    pub(crate) fn is_searching(&self, directory: &ServerPath) -> bool {
        self.jobs.lock().searched.contains(directory)
    }

    /// Forgets every job: the client is closed, and with its sessions goes what they own.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        drop(jobs);
    }

    /// Submits every job that is not under way.
    pub(crate) fn work(&self, session: &Arc<dyn Session>) {
        self.is_told.store(false, Ordering::Release);
        let (mut batch, mut over) = (Vec::new(), Vec::new());
        {
            let mut jobs = self.jobs.lock();
            for ids in jobs.begin(session, &mut over) {
                let requests = ids.first().and_then(|id| jobs.under_way.get(id)).map(Job::requests).unwrap_or_default();
                let mut ids = Some(ids);
                let last = requests.len().saturating_sub(1);
                for (index, request) in requests.into_iter().enumerate() {
                    // What comes before the last request has no reply of interest.
                    let (events, ids) = (self.events.clone(), if index == last { ids.take() } else { None });
                    let on_reply = Box::new(move |reply| {
                        if let Some(ids) = ids {
                            // The inbox lives as long as the client.
                            let _ = events.send(Event::CleanedUp(ids, reply));
                        }
                    });
                    batch.push(Submission { request, watcher: None, on_reply });
                }
            }
        }
        drop(over);
        if !batch.is_empty() {
            session.submit(batch);
        }
    }

    /// Takes the reply to the last request of some jobs. `true`: the outcome is unknown, and they have to be tried
    /// again.
    pub(crate) fn answered(&self, ids: &[u64], reply: &Reply) -> bool {
        let mut sorted: Vec<&str> = match reply {
            Ok(Response::Children { names, .. }) => names.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        sorted.sort_unstable();
        let (mut found, mut ended, mut again, mut more) = (Vec::new(), Vec::new(), false, false);
        {
            let mut jobs = self.jobs.lock();
            for id in ids {
                let Some(mut job) = jobs.under_way.remove(id) else { continue };
                if let Some(directory) = job.searches() {
                    // Others may have come in the meantime, and wait for this.
                    more |= jobs.searched.remove(directory);
                }
                if job.go_on(reply) {
                    jobs.waiting.insert(*id, job);
                    more = true;
                } else if is_unknown(reply) && !job.is_over() {
                    job.begin_anew();
                    jobs.waiting.insert(*id, job);
                    again = true;
                } else {
                    found.extend(job.found(reply, &sorted));
                    ended.push(job);
                }
            }
            for job in found {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                jobs.waiting.insert(id, job);
                more = true;
            }
            more &= !jobs.waiting.is_empty();
        }
        drop(ended);
        if more && !again {
            self.tell();
        }
        again
    }
}

impl Jobs {
    /// The jobs to be submitted now, those together that one reply settles; from here on they are under way. Gives those
    /// whose session has taken its znodes with it to `over`.
    ///
    /// All searches in one directory share one listing, and there is one at a time. With one each, a server that is slow
    /// to answer creates would be asked for ever longer lists ever more often.
    fn begin(&mut self, session: &Arc<dyn Session>, over: &mut Vec<Job>) -> Vec<Vec<u64>> {
        let mut searches: HashMap<ServerPath, Vec<u64>> = HashMap::new();
        let mut due = Vec::new();
        for (id, job) in std::mem::take(&mut self.waiting) {
            let directory = job.searches().cloned();
            if job.is_over() {
                over.push(job);
                continue;
            }
            if !job.is_for(session) || directory.as_ref().is_some_and(|path| self.searched.contains(path)) {
                self.waiting.insert(id, job);
                continue;
            }
            match directory {
                Some(directory) => searches.entry(directory).or_default().push(id),
                None => due.push(vec![id]),
            }
            self.under_way.insert(id, job);
        }
        for (directory, ids) in searches {
            self.searched.insert(directory);
            due.push(ids);
        }
        due
    }
}

/// Whether a reply leaves open what has happened.
fn is_unknown(reply: &Reply) -> bool {
    match reply {
        Err(SessionError::ConnectionLoss(_) | SessionError::Expired) => true,
        Err(SessionError::Server(code)) => is_passing(*code),
        _ => false,
    }
}

fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConnectionLoss
            | ErrorCode::OperationTimeout
            | ErrorCode::SessionMoved
            | ErrorCode::SessionExpired
            | ErrorCode::ThrottledOp
            | ErrorCode::RequestTimeout
    )
}

#[cfg(test)]
mod tests;
