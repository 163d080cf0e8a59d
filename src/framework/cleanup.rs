//! Znodes that have to go, whatever happens to the calls that made them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::{background::Event, paths::ServerPath};
use crate::{
    proto::{Acl, CreateMode, ErrorCode, MultiOp, Request, Response},
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
}

/// One thing to clean up.
pub(crate) struct Job {
    target: Target,
    /// The session that owns the znode: when it ends, so does the job. `None`: whatever session there is.
    session: Option<Arc<dyn Session>>,
    /// Dropped when the job is done.
    done: Option<Sender<()>>,
    in_flight: bool,
}

impl Job {
    fn new(target: Target, session: Option<&Arc<dyn Session>>) -> Job {
        Job { target, session: session.cloned(), done: None, in_flight: false }
    }

    pub(crate) fn delete(path: ServerPath, session: Option<&Arc<dyn Session>>) -> Job {
        Job::new(Target::Node(path), session)
    }

    pub(crate) fn protected(parent: ServerPath, prefix: String, session: Option<&Arc<dyn Session>>) -> Job {
        Job::new(Target::Protected { parent, prefix }, session)
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

    fn requests(&self) -> Vec<Request> {
        match &self.target {
            Target::Node(path) => vec![Request::Delete { path: path.as_str().to_owned(), version: -1 }],
            // Without the sync the search could ask a server that has not yet seen the create.
            Target::Protected { parent, .. } => vec![
                Request::Sync { path: parent.as_str().to_owned() },
                Request::GetChildren { path: parent.as_str().to_owned(), watch: false, with_stat: false },
            ],
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
    jobs: Mutex<BTreeMap<u64, Job>>,
    next_id: AtomicU64,
    events: Sender<Event>,
}

impl Cleanup {
    pub(crate) fn new(events: Sender<Event>) -> Self {
        Cleanup { jobs: Mutex::new(BTreeMap::new()), next_id: AtomicU64::new(1), events }
    }

    pub(crate) fn add(&self, job: Job) {
        log::debug!("to be cleaned up: {:?}", job.target);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.jobs.lock().insert(id, job);
        // The inbox lives as long as the client.
        let _ = self.events.send(Event::CleanUp);
    }

    /// Forgets every job: the client is closed, and with its sessions goes what they own.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        drop(jobs);
    }

    /// Submits every job that is not under way.
    pub(crate) fn work(&self, session: &Arc<dyn Session>) {
        let mut batch = Vec::new();
        {
            let mut jobs = self.jobs.lock();
            // A session that has ended takes its znodes with it.
            jobs.retain(|_, job| job.session.as_ref().is_none_or(|owner| !owner.is_ended()));
            for (id, job) in jobs.iter_mut().filter(|(_, job)| !job.in_flight) {
                job.in_flight = true;
                let requests = job.requests();
                let last = requests.len().saturating_sub(1);
                for (index, request) in requests.into_iter().enumerate() {
                    let (events, id, is_last) = (self.events.clone(), *id, index == last);
                    let on_reply = Box::new(move |reply| {
                        if is_last {
                            // The inbox lives as long as the client.
                            let _ = events.send(Event::CleanedUp(id, reply));
                        }
                    });
                    batch.push(Submission { request, watcher: None, on_reply });
                }
            }
        }
        if !batch.is_empty() {
            session.submit(batch);
        }
    }

    /// Takes the reply to a job's last request. `true`: the outcome is unknown, and the job has to be tried again.
    pub(crate) fn answered(&self, id: u64, reply: Reply) -> bool {
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get_mut(&id) else { return false };
        job.in_flight = false;
        let found = match (&job.target, reply) {
            // The outcome is unknown: it stays on the list.
            (_, Err(SessionError::ConnectionLoss(_) | SessionError::Expired)) => return true,
            (_, Err(SessionError::Server(code))) if is_passing(code) => return true,
            (Target::Protected { parent, prefix }, Ok(Response::Children { names, .. })) => {
                names.iter().filter(|name| name.starts_with(prefix)).map(|name| parent.join(name)).collect()
            }
            (_, Err(SessionError::Server(ErrorCode::NoNode)) | Ok(_)) => Vec::new(),
            (target, Err(error)) => {
                log::warn!("gave up cleaning up {target:?}: {error:?}");
                Vec::new()
            }
        };
        let Some(job) = jobs.remove(&id) else { return false };
        drop(jobs);
        for path in found {
            self.add(Job::delete(path, job.session.as_ref()));
        }
        false
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
