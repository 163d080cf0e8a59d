//! One attempt to get a lock that is one ephemeral znode of a fixed name.

use std::{sync::Arc, time::Instant};

use crossbeam_channel::{Receiver, unbounded};

use crate::{
    Error, LockInternals, Result,
    framework::{Call, Failure, HeldNode, Job, Mark},
    locks::{internals::Patience, wait::next_recheck},
    paths::ServerPath,
    proto::{CreateMode, EventType, Request, Response, Stat},
    session::{Session, WaitEnd, Watch, WatchEvent, Watcher, submit, submit_one},
};

/// The one owner of the clean-up of a znode that may be ours, from the moment its create is sent.
struct Claim<'a> {
    lock: &'a LockInternals,
    session: Arc<dyn Session>,
    path: ServerPath,
    /// What our znode's data begins with; empty when there is nothing to clean up.
    mark: Vec<u8>,
}

impl Claim<'_> {
    /// From here on somebody else sees to the znode, or there is none.
    fn settle(mut self) {
        self.mark.clear();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.mark.is_empty() || self.session.is_ended() {
            return;
        }
        let mark = Mark::Data(std::mem::take(&mut self.mark));
        self.lock.client().core.clean_up(Job::marked(self.path.clone(), mark, &self.session));
    }
}

/// What a request to the server showed.
enum Seen<'a> {
    /// There is no such znode.
    Free,
    /// Somebody has it.
    Taken,
    /// Somebody has it, and its end will be reported.
    Watched(Watch, Receiver<WatchEvent>),
    /// It is ours, as seen over this connection.
    Ours(Claim<'a>, Stat, u64),
}

#[derive(Clone, Copy)]
enum Next {
    Create,
    Look,
}

pub(crate) struct Attempt<'a> {
    lock: &'a LockInternals,
    path: ServerPath,
    data: &'a [u8],
    patience: Patience<'a>,
    /// A create whose reply was lost.
    doubt: Option<Claim<'a>>,
    made_directory: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(lock: &'a LockInternals, name: &str, data: &'a [u8], patience: Patience<'a>) -> Attempt<'a> {
        Attempt { lock, path: lock.child(name), data, patience, doubt: None, made_directory: false }
    }

    /// `None`: the time was up first.
    pub(crate) fn run(mut self) -> Result<Option<Arc<HeldNode>>> {
        let begin = Instant::now();
        let result = match self.contend() {
            // As in the queue: a reply that comes too late is no error, what it left is seen to in the background.
            Err(error) if self.lock.ran_out_of_time(&error, self.patience, begin) => Ok(None),
            result => result,
        };
        if self.made_directory && !matches!(result, Ok(Some(_))) {
            self.lock.client().core.clean_up(Job::never_used(self.lock.directory().clone()));
        }
        result
    }

    fn contend(&mut self) -> Result<Option<Arc<HeldNode>>> {
        let io = self.patience.io(self.lock.client().core.config.connection_timeout);
        let call = self.lock.client().call("acquire", self.lock.base_path(), io);
        // A mere try costs no write if somebody has the lock.
        let mut next = if self.patience.only_try { Next::Look } else { Next::Create };
        let (mut retries, mut missing) = (0, 0);
        loop {
            let seen = call.session().and_then(|session| match next {
                Next::Create => self.create(&call, &session),
                Next::Look => self.look(&call, &session),
            });
            next = match seen {
                Ok(Seen::Ours(claim, stat, connection)) => match self.grant(&call, claim, &stat, connection) {
                    Ok(Some(held)) => return Ok(Some(held)),
                    Ok(None) => Next::Create,
                    Err(error) => self.outlast(&call, &mut retries, error)?,
                },
                Ok(Seen::Free) => Next::Create,
                Ok(Seen::Taken | Seen::Watched(..)) if self.patience.only_try => return Ok(None),
                Ok(Seen::Taken) => Next::Look,
                Ok(Seen::Watched(watch, events)) => {
                    retries = 0;
                    let next = self.sleep(&call, &events)?;
                    drop(watch);
                    match next {
                        Some(next) => next,
                        None => return Ok(None),
                    }
                }
                Err(error) if error.is_no_node() => {
                    // Once is normal. Again means that the server removed the parents in between, as empty containers.
                    missing += 1;
                    if missing > 1 {
                        call.allow_again(&mut retries, error)?;
                    }
                    match self.make_directory(&call) {
                        Ok(()) => Next::Create,
                        // A parent that was there a moment ago has been removed: the create finds out.
                        Err(removed) if removed.is_no_node() => Next::Create,
                        Err(error) => self.outlast(&call, &mut retries, error)?,
                    }
                }
                Err(error) => self.outlast(&call, &mut retries, error)?,
            };
            if self.patience.is_over() {
                return Ok(None);
            }
            if self.patience.stop.is_over() == Some(WaitEnd::Cancelled) {
                return Err(call.cancelled());
            }
        }
    }

    fn make_directory(&mut self, call: &Call<'_>) -> Result<()> {
        let session = call.session()?;
        self.made_directory |= self.lock.client().make_directory(call, &session, self.lock.directory())?;
        Ok(())
    }

    /// Where to go on after an error, if the retry policy allows that.
    fn outlast(&self, call: &Call<'_>, retries: &mut u32, error: Error) -> Result<Next> {
        if !error.is_retryable() {
            return Err(error);
        }
        call.allow_retry(retries, error)?;
        Ok(if self.doubt.is_some() || self.patience.only_try { Next::Look } else { Next::Create })
    }

    fn create(&mut self, call: &Call<'_>, session: &Arc<dyn Session>) -> Result<Seen<'a>> {
        let mark = format!("{}\n", uuid::Uuid::new_v4()).into_bytes();
        let request = Request::Create {
            path: self.path.as_str().to_owned(),
            data: [&mark, self.data].concat(),
            acl: self.lock.client().leaf_acl(&self.path),
            mode: CreateMode::Ephemeral,
            with_stat: true,
        };
        let claim = Claim { lock: self.lock, session: session.clone(), path: self.path.clone(), mark };
        let connection = session.connection();
        match call.reply_or_failure(submit_one(session, request)) {
            Ok(Response::Created { stat: Some(stat), .. }) => Ok(Seen::Ours(claim, stat, connection)),
            Ok(other) => Err(call.unexpected(&other)),
            Err(Failure { error, maybe_done: true }) => {
                self.doubt = Some(claim);
                Err(error)
            }
            Err(Failure { error, maybe_done: false }) => {
                claim.settle();
                if error.is_node_exists() { Ok(Seen::Taken) } else { Err(error) }
            }
        }
    }

    /// Reads who has the lock, and leaves a watch if anybody does.
    ///
    /// After a create whose reply was lost the znode is ours if it bears the mark of that very create and belongs to this
    /// session: one of the same name alone could be anybody's. The sync makes sure that the server asked has seen the
    /// create. In another session the doubtful znode is no use, as it is about to vanish (CURATOR-498).
    fn look(&mut self, call: &Call<'_>, session: &Arc<dyn Session>) -> Result<Seen<'a>> {
        let doubt = self.doubt.take().filter(|doubt| Arc::ptr_eq(&doubt.session, session));
        match self.read(call, session, doubt.is_some()) {
            Ok((data, stat, watched, connection)) => match doubt {
                Some(claim) if stat.ephemeral_owner == session.id() && data.starts_with(&claim.mark) => {
                    Ok(Seen::Ours(claim, stat, connection))
                }
                doubt => {
                    if let Some(claim) = doubt {
                        claim.settle();
                    }
                    Ok(watched.map_or(Seen::Taken, |(watch, events)| Seen::Watched(watch, events)))
                }
            },
            Err(error) if error.is_no_node() => {
                if let Some(claim) = doubt {
                    claim.settle();
                }
                Ok(Seen::Free)
            }
            Err(error) => {
                self.doubt = doubt;
                Err(error)
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "a reply with its watch, taken apart by the only caller")]
    fn read(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        sync: bool,
    ) -> Result<(Vec<u8>, Stat, Option<(Watch, Receiver<WatchEvent>)>, u64)> {
        let path = || self.path.as_str().to_owned();
        let mut requests = Vec::with_capacity(2);
        if sync {
            requests.push((Request::Sync { path: path() }, None));
        }
        let (sender, events) = unbounded();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| drop(sender.send(event.clone())));
        let watch = !self.patience.only_try;
        // getData leaves no watch on a znode that is gone, which `exists` would (CURATOR-107).
        requests.push((Request::GetData { path: path(), watch }, watch.then_some(watcher)));
        let connection = session.connection();
        let mut replies: Vec<_> = submit(session, requests)
            .into_iter()
            .map(|(pending, watch)| call.reply(pending).map(|response| (response, watch)))
            .collect();
        let read = replies.pop();
        for synced in replies {
            synced?;
        }
        match read {
            Some(Ok((Response::Data { data, stat }, watch))) => {
                Ok((data, stat, watch.map(|watch| (watch, events)), connection))
            }
            Some(Ok((other, _))) => Err(call.unexpected(&other)),
            Some(Err(error)) => Err(error),
            None => Err(call.connection_loss()),
        }
    }

    /// Sleeps until the lock may be free. `None`: the time is up.
    ///
    /// No wake-up can be lost: the channel exists before the watch is sent for, whatever fires stays in it, and a deletion
    /// from before the watch shows in the reply that sets it. The re-check turns what nobody thought of into a delay.
    fn sleep(&self, call: &Call<'_>, events: &Receiver<WatchEvent>) -> Result<Option<Next>> {
        let recheck = next_recheck(self.lock.client());
        let stop = self.patience.stop;
        let bound = recheck.map_or(stop, |at| stop.by(at));
        loop {
            match bound.recv(events) {
                Ok(WatchEvent::Node { event: EventType::NodeDeleted, .. }) => return Ok(Some(Next::Create)),
                Ok(WatchEvent::Node { .. } | WatchEvent::Reconnected { .. } | WatchEvent::Ended) => {
                    return Ok(Some(Next::Look));
                }
                Ok(WatchEvent::Disconnected) => {}
                Err(WaitEnd::Cancelled) => return Err(call.cancelled()),
                Err(WaitEnd::Deadline) if stop.is_over().is_some() => return Ok(None),
                Err(WaitEnd::Deadline) => return Ok(Some(Next::Look)),
            }
        }
    }

    /// The znode is ours: makes sure that it is still there and its session alive. `None`: it is not.
    fn grant(
        &mut self,
        call: &Call<'_>,
        claim: Claim<'a>,
        stat: &Stat,
        connection: u64,
    ) -> Result<Option<Arc<HeldNode>>> {
        let session = claim.session.clone();
        let mut seen_over = connection;
        let is_certain = connection != 0
            && session.connection() == connection
            && session.valid_until().is_some_and(|at| Instant::now() < at);
        if !is_certain {
            // A process may be paused for long between the reply and this line.
            seen_over = session.connection();
            match call.ask(&session, Request::Exists { path: self.path.as_str().to_owned(), watch: false }) {
                Ok(Response::Stat(now)) if now.czxid == stat.czxid && now.ephemeral_owner == session.id() => {}
                Ok(Response::Stat(_)) => return Ok(None),
                Ok(other) => return Err(call.unexpected(&other)),
                Err(error) if error.is_no_node() => return Ok(None),
                Err(error) => {
                    self.doubt = Some(claim);
                    return Err(error);
                }
            }
        }
        if session.is_ended() {
            return Ok(None);
        }
        let held = self.lock.client().core.held.add(self.path.clone(), session, stat.czxid, seen_over, None);
        claim.settle();
        Ok(Some(held))
    }
}
