//! Clean-up jobs: znodes that have to go, whatever happens to the calls that made them.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::removal::{Progress, Removal};
use crate::{
    base::{
        channel::{Receiver, Sender, bounded},
        collections::{HashMap, HashSet},
        log,
        paths::ServerPath,
        sync::Mutex,
        telemetry::counters::Counters,
        unlocked::drop_unlocked,
    },
    error::Meaning,
    framework::events::event::{Event, EventSender},
    proto::{response::Response, types::ErrorCode},
    session::{
        api::{Reply, Session, SessionError},
        wait::pending::answered_together,
    },
};

/// How long a job rests after a server could not do it. The pause doubles each time, and starts anew with each connection.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One clean-up job.
pub(crate) struct Job {
    removal: Removal,
    /// The session that owns the znode: when it ends, so does the job, unless it leaves its znodes to the next one. `None`: any
    /// session will do.
    session: Option<Arc<dyn Session>>,
    /// Dropped when the job is done.
    done: Option<Sender<()>>,
    pause: Duration,
    has_warned: bool,
    /// Set while it is counted.
    counted: Option<Arc<Counters>>,
}

impl Job {
    pub(crate) fn new(removal: Removal, session: Option<&Arc<dyn Session>>) -> Job {
        Job { removal, session: session.cloned(), done: None, pause: FIRST_PAUSE, has_warned: false, counted: None }
    }

    pub(crate) fn delete(path: ServerPath, session: Option<&Arc<dyn Session>>) -> Job {
        Job::new(Removal::Nodes(vec![path]), session)
    }

    pub(crate) fn protected(parent: ServerPath, prefix: String, session: Option<&Arc<dyn Session>>) -> Job {
        let is_ephemeral = session.is_some();
        Job::new(Removal::Protected { parent, prefix, is_ephemeral, too_large: None }, session)
    }

    pub(crate) fn never_used(path: ServerPath) -> Job {
        Job::new(Removal::NeverUsed(path), None)
    }

    /// A channel that ends when the job is done.
    pub(crate) fn done(&mut self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        self.done = Some(sender);
        receiver
    }

    /// Whether the session that owns the znode has ended without it.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.session.as_ref().is_some_and(|owner| owner.left_behind().is_some())
    }

    /// Whether the session that owned the znode has ended, and taken it along.
    fn is_over(&self) -> bool {
        self.session.as_ref().is_some_and(|owner| owner.has_taken_its_znodes())
    }

    /// Whether the job can be done in this session. A name that nobody uses again may be deleted in any.
    fn is_for(&self, session: &Arc<dyn Session>) -> bool {
        self.is_left_behind() || self.session.as_ref().is_none_or(|owner| Arc::ptr_eq(owner, session))
    }

    /// The directory whose children a search lists next.
    fn lists(&self) -> Option<&ServerPath> {
        match &self.removal {
            Removal::Protected { parent, too_large: None, .. } => Some(parent),
            _ => None,
        }
    }

    /// The warning that these replies call for, unless the job has warned before.
    fn warning(&mut self, replies: &[Reply]) -> Option<String> {
        let refusal = replies.iter().find_map(|reply| match reply {
            Err(SessionError::Server(code)) if *code != ErrorCode::NoNode => Some(*code),
            _ => None,
        });
        let code = refusal.filter(|code| matches!(code.meaning(), Meaning::NotNow | Meaning::Final))?;
        let is_new = !mem::replace(&mut self.has_warned, true);
        is_new.then(|| format!("cannot clean up {:?} yet, and tries until it is gone: {code}", self.removal))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(counters) = &self.counted {
            counters.clean_up_jobs.add(-1);
        }
    }
}

/// The list of clean-up jobs. The background thread works it off whenever there is a connection.
pub(crate) struct Cleanup {
    jobs: Mutex<Jobs>,
    events: EventSender,
    counters: Arc<Counters>,
}

/// The jobs by their state, so that a look costs only what there is to do.
#[derive(Default)]
struct Jobs {
    last_id: u64,
    /// Whether the background thread was told of work, and has yet to look.
    is_told: bool,
    waiting: BTreeMap<u64, Job>,
    /// The jobs in a pause, with its end.
    resting: BTreeMap<(Instant, u64), Job>,
    under_way: HashMap<u64, Job>,
    /// The directories that are being listed.
    listed: HashSet<ServerPath>,
}

impl Cleanup {
    pub(crate) fn new(events: EventSender, counters: Arc<Counters>) -> Self {
        Cleanup { jobs: Mutex::default(), events, counters }
    }

    pub(crate) fn add(&self, mut job: Job) {
        self.counters.clean_up_jobs.add(1);
        job.counted = Some(self.counters.clone());
        log::debug!("to be cleaned up: {:?}", job.removal);
        let jobs = &mut *self.jobs.lock();
        jobs.last_id += 1;
        jobs.waiting.insert(jobs.last_id, job);
        self.tell(jobs);
    }

    fn tell(&self, jobs: &mut Jobs) {
        if !mem::replace(&mut jobs.is_told, true) {
            self.events.send(Event::CleanUp);
        }
    }

    /// Whether creates in this directory are in doubt, because a server is slow to answer.
    pub(crate) fn is_searching(&self, directory: &ServerPath) -> bool {
        self.jobs.lock().listed.contains(directory)
    }

    /// Forgets every job: the client is closed, and with its sessions goes what they own.
    pub(crate) fn clear(&self) {
        let mut jobs = self.jobs.lock();
        // A late reply must find no other job under its number.
        let empty = Jobs { last_id: jobs.last_id, ..Jobs::default() };
        let forgotten = mem::replace(&mut *jobs, empty);
        drop_unlocked(jobs, [forgotten]);
    }

    /// When the next pause is over.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.jobs.lock().resting.keys().next().map(|(at, _)| *at)
    }

    /// Queues the jobs whose pause is over; `None`: all of them, as there is a new connection. `false`: there are none.
    pub(crate) fn wake(&self, now: Option<Instant>) -> bool {
        let jobs = &mut *self.jobs.lock();
        let later = now.map(|now| jobs.resting.split_off(&(now, u64::MAX)));
        let rested = mem::replace(&mut jobs.resting, later.unwrap_or_default());
        let is_any = !rested.is_empty();
        for ((_, id), mut job) in rested {
            if now.is_none() {
                job.pause = FIRST_PAUSE;
            }
            jobs.waiting.insert(id, job);
        }
        is_any
    }

    /// Submits every job that waits.
    pub(crate) fn work(&self, session: &Arc<dyn Session>) {
        let (mut batch, mut over) = (Vec::new(), Vec::new());
        {
            let jobs = &mut *self.jobs.lock();
            jobs.is_told = false;
            for ids in jobs.begin(session, &mut over) {
                let first = ids.first().and_then(|id| jobs.under_way.get(id));
                let requests = first.map(|job| job.removal.requests()).unwrap_or_default();
                let (requests, events) = (requests.into_iter().map(|request| (request, None)), self.events.clone());
                let then = move |replies| events.send(Event::CleanedUp(ids, replies));
                batch.extend(answered_together(requests.collect(), then));
            }
        }
        drop(over);
        if !batch.is_empty() {
            session.submit(batch);
        }
    }

    /// Takes the replies to the requests of some jobs.
    pub(crate) fn answered(&self, ids: &[u64], mut replies: Vec<Reply>, now: Instant) {
        if let [_, Ok(Response::Children { names, .. })] = replies.as_mut_slice() {
            names.sort_unstable();
        }
        let (mut ended, mut is_more) = (Vec::new(), false);
        // For the log, but not under the lock, which every acquire takes.
        let mut lines = Vec::new();
        {
            let jobs = &mut *self.jobs.lock();
            for id in ids {
                let Some(mut job) = jobs.under_way.remove(id) else { continue };
                if let Some(directory) = job.lists() {
                    // Other searches in this directory may have come meanwhile, and wait for the end of this one.
                    is_more |= jobs.listed.remove(directory);
                }
                match job.removal.take(&replies) {
                    Progress::More => {
                        jobs.waiting.insert(*id, job);
                        is_more = true;
                    }
                    Progress::Again if !job.is_over() => {
                        lines.extend(job.warning(&replies).map(|warning| (log::Level::Warn, warning)));
                        jobs.rest(*id, job, now);
                    }
                    Progress::GaveUp(reason) => {
                        lines.push((log::Level::Error, reason));
                        ended.push(job);
                    }
                    Progress::Done | Progress::Again => ended.push(job),
                }
            }
            if is_more && !jobs.waiting.is_empty() {
                self.tell(jobs);
            }
        }
        drop(ended);
        lines.iter().for_each(|(level, line)| log::log!(*level, "{line}"));
    }
}

impl Jobs {
    /// The jobs to be submitted now, those together that one reply settles; from here on they are under way. Gives those
    /// whose session has taken its znodes with it to `over`.
    ///
    /// All searches in one directory share one listing, and there is one at a time. With one each, a server that is slow
    /// to answer creates would be asked for ever longer lists ever more often.
    fn begin(&mut self, session: &Arc<dyn Session>, over: &mut Vec<Job>) -> Vec<Vec<u64>> {
        let mut searches: HashMap<ServerPath, Vec<u64>> = HashMap::default();
        let mut due = Vec::new();
        for (id, job) in mem::take(&mut self.waiting) {
            let directory = job.lists().cloned();
            if job.is_over() {
                over.push(job);
                continue;
            }
            if !job.is_for(session) || directory.as_ref().is_some_and(|path| self.listed.contains(path)) {
                self.waiting.insert(id, job);
                continue;
            }
            match directory {
                Some(directory) => searches.entry(directory).or_default().push(id),
                None => due.push(vec![id]),
            }
            self.under_way.insert(id, job);
        }
        self.listed.extend(searches.keys().cloned());
        due.extend(searches.into_values());
        due
    }

    fn rest(&mut self, id: u64, mut job: Job, now: Instant) {
        let pause = job.pause;
        job.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        self.resting.insert((now + pause, id), job);
    }
}

#[cfg(test)]
mod tests;
