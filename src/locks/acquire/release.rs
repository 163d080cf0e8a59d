//! The release of a lock.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    base::{
        channel::{Receiver, select},
        clock, log,
        panics::caught,
        paths::ServerPath,
        unlocked::drop_unlocked,
    },
    error::{Error, LostReason, Result},
    framework::{cleanup::jobs::Job, client::call::Call, held::node::HeldNode},
    locks::{
        acquire::internals::LockInternals,
        options::acquire::{AcquireOptions, PutOff},
        recipe::spec::Leftover,
    },
    proto::{request::Request, types::ErrorCode},
    session::{
        api::{Reply, Session, SessionError, Submission},
        wait::{
            deadline::WaitBound,
            pending::{Pending, UNDONE, submit_one, submit_together},
        },
    },
};

/// The result of a release. `Some`: the server has not confirmed it, the client goes on in the background, and the
/// channel ends when the znode is gone.
pub(crate) type Released = (Result<()>, Option<Receiver<()>>);

fn deletion_of(path: &ServerPath) -> Request {
    Request::Delete { path: path.as_str().to_owned(), version: -1 }
}

impl LockInternals {
    /// Gives a lock back, and reports the end of a hold that was lost. Takes at most the session timeout.
    pub(crate) fn release(&self, held: &Arc<HeldNode>) -> Released {
        if let Some((cache, tenure)) = held.cache() {
            return (cache.release(held, tenure), None);
        }
        self.release_all(slice::from_ref(held)).pop().unwrap_or((Ok(()), None))
    }

    /// Gives several holds back, with one deadline for all, and in one round trip if nothing is in the way.
    pub(crate) fn release_all(&self, held: &[Arc<HeldNode>]) -> Vec<Released> {
        let timeout = held.iter().map(|held| held.session().timeout()).max().unwrap_or_default();
        let deadline = clock::now() + timeout;
        let call = self.client().call("release", self.base_path(), WaitBound::at(deadline));
        let sent: Vec<_> = held.iter().map(|held| self.begin(&call, held)).collect();
        let finish = |(held, sent): (&Arc<HeldNode>, Result<_, _>)| {
            sent.map_or_else(|over| over, |sent| self.finish(&call, held, sent, None))
        };
        held.iter().zip(sent).map(finish).collect()
    }

    /// Ends the hold, and sends the delete. `Err`: there is no delete to wait for.
    fn begin(&self, call: &Call<'_>, held: &HeldNode) -> Result<Result<Pending>, Released> {
        self.let_go(held).map(|()| self.delete(call, held))
    }

    /// Ends the hold. `Err`: there is nothing to delete.
    fn let_go(&self, held: &HeldNode) -> Result<(), Released> {
        self.end(held).map_err(|lost| (Err(lost), None))?;
        if self.stays(held) || held.has_left_others() { Err((Ok(()), None)) } else { Ok(()) }
    }

    /// Ends the hold in this process.
    fn end(&self, held: &HeldNode) -> Result<()> {
        let mut lost = held.released();
        self.thread_holds.remove(held);
        // If the cache is gone, the znode goes with the last hold by it.
        if !held.has_left_others() {
            log::debug!("{}: {} released", self.base_path(), held.path().name());
            // The loss may have come, and been counted, since the hold's own end, which runs code of the caller's.
            let since = held.znode().released();
            lost = lost.or(since);
            self.client().core.held.remove(held);
        }
        self.forget_mark(held);
        if matches!(lost, Some(LostReason::SessionExpired | LostReason::SuspendedTooLong)) {
            self.delete_left_behind(held);
        }
        self.forget_revocation(held);
        let Some(reason) = lost else { return Ok(()) };
        Err(self.lost(reason))
    }

    /// Deletes the znode of a hold that is over, if its session ends without it: nobody else could lock before the servers
    /// expire that session. Its holder hears of the loss before the session says how it ends: so one counts that would be left to
    /// others who may rely on it.
    fn delete_left_behind(&self, held: &HeldNode) {
        let session = held.session();
        let may_be_left = || session.valid_until().is_some_and(|until| clock::now() < until);
        if (session.left_behind().is_some() || may_be_left()) && !held.has_left_others() && !self.stays(held) {
            self.client().core.cleanup.add(self.deletion_of_held(held));
        }
    }

    /// Deletes the mark of a hold that ends, before its znode: a mark without a znode means that nobody released. A
    /// thread that unwinds leaves its mark, so that the next holder hears of it. What no acquire has handed out was no hold.
    fn forget_mark(&self, held: &HeldNode) {
        let Some((mark, is_handed_out)) = self.deaths.as_ref().and_then(|deaths| deaths.mark_of(held)) else { return };
        if is_handed_out && (held.lost().is_some() || thread::panicking()) {
            return;
        }
        let (core, job) = (self.client().core.clone(), Job::delete(mark.clone(), None));
        let on_reply = Box::new(move |reply: Reply| match reply {
            // Another holder was told of this hold already, or the session's own end came first.
            Ok(_) | Err(SessionError::Closed | SessionError::Server(ErrorCode::NoNode)) => {}
            Err(SessionError::Expired) if is_handed_out => {}
            Err(_) => core.cleanup.add(job),
        });
        let request = Request::Delete { path: mark.into_string(), version: -1 };
        held.session().submit(vec![Submission { request, watcher: None, on_reply }]);
    }

    /// Sends the delete, in the session that owns the znode and in no other.
    fn delete(&self, call: &Call<'_>, held: &HeldNode) -> Result<Pending> {
        // The retry policy, the caller's code, is asked about a session that was lost.
        let session =
            caught("a retry policy", || call.session()).unwrap_or_else(|| Err(call.error(SessionError::Expired)))?;
        let is_owner = Arc::ptr_eq(&session, held.session());
        if is_owner {
            Ok(submit_one(&session, deletion_of(held.path())))
        } else {
            Err(call.error(SessionError::Expired))
        }
    }

    /// Waits for the delete, and sends it again while the retry policy allows it. `batch`: it went as one transaction with
    /// others, and the retry policy's answer about that. Where it has failed as a whole, each is sent by itself.
    fn finish(
        &self,
        call: &Call<'_>,
        held: &HeldNode,
        mut sent: Result<Pending>,
        mut batch: Option<&Cell<Option<bool>>>,
    ) -> Released {
        let (mut retries, mut in_doubt) = (0, false);
        loop {
            let error = match sent {
                Ok(pending) => match call.reply_or_doubt(pending) {
                    Ok(_) => return (Ok(()), None),
                    Err((error, maybe_done)) => {
                        in_doubt |= maybe_done;
                        error
                    }
                },
                Err(error) => error,
            };
            let verdict = batch.take().filter(|_| !held.session().is_ended());
            let is_undone = verdict.is_some() && error.code() == Some(UNDONE);
            let verdict = verdict.filter(|_| error.code().is_none() && error.is_retryable());
            let may_retry = verdict.and_then(Cell::get);
            if is_undone || may_retry == Some(true) {
                sent = self.delete(call, held);
                continue;
            }
            if error.is_no_node() && in_doubt {
                // After a lost reply this is the answer to the delete that was carried out.
                return (Ok(()), None);
            }
            if error.is_no_node() {
                return (Err(self.was_lost(held, LostReason::NodeDeleted)), None);
            }
            if held.session().is_ended() {
                self.delete_left_behind(held);
                let error = match (self.client().core.held.why_over(held.session()), error) {
                    // The holder's own doing.
                    (LostReason::SessionExpired, Error::ClientClosed) => self.lost(LostReason::ClientClosed),
                    (reason, _) => self.was_lost(held, reason),
                };
                return (Err(error), None);
            }
            // The retry policy is the caller's code. If it panics the znode needs a clean-up job all the same.
            let refused = match error.is_retryable() && may_retry != Some(false) {
                true => {
                    caught("a retry policy", || call.allow_retry(&mut retries, error.clone())).unwrap_or(Err(error))
                }
                false => Err(error),
            };
            if let Some(verdict) = verdict {
                verdict.set(Some(refused.is_ok()));
            }
            if let Err(error) = refused {
                let mut job = self.deletion_of_held(held);
                let done = job.done();
                self.client().core.cleanup.add(job);
                return (Err(error), Some(done));
            }
            sent = self.delete(call, held);
        }
    }

    /// The release has found it lost.
    fn was_lost(&self, held: &HeldNode, reason: LostReason) -> Error {
        held.znode().was_lost()(reason);
        self.lost(reason)
    }

    /// Releases a hold a second time, which the first release has left to the background: waits until the clean-up knows that
    /// the znode is gone.
    pub(crate) fn await_release(&self, done: Receiver<()>, deadline: Instant) -> Released {
        let core = &self.client().core;
        select! {
            recv(done) -> _ => (core.check_open(), None),
            recv(core.closed.signal()) -> _ => (Err(Error::ClientClosed), None),
            default(clock::until(deadline)) => {
                let call = self.client().call("release", self.base_path(), WaitBound::at(deadline));
                (Err(call.connection_loss()), Some(done))
            }
        }
    }

    pub(in crate::locks) fn deletion_of_held(&self, held: &HeldNode) -> Job {
        Job::delete(held.path().clone(), Some(held.session()))
    }

    /// Gives a lock back without waiting. If the server does not confirm it, the client goes on in the background.
    pub(crate) fn release_in_background(&self, held: &HeldNode) {
        if let Some((cache, tenure)) = held.cache() {
            // The result is of no use to the caller.
            return drop(cache.release(held, tenure));
        }
        if self.end(held).is_err() || self.stays(held) || held.has_left_others() {
            return;
        }
        let job = self.deletion_of_held(held);
        self.delete_in_background(held.session(), held.path(), job, held.znode().was_lost());
    }

    /// Deletes an acquire's leftover, in the background, until it is known to be gone or its session has taken it along.
    pub(in crate::locks) fn clean_up(&self, owner: &Arc<dyn Session>, leftover: Leftover) {
        if owner.has_taken_its_znodes() {
            return;
        }
        let job = match leftover {
            Leftover::Node(node) => {
                let path = self.child(&node.name);
                let job = Job::delete(path.clone(), Some(owner));
                if owner.connection() != 0 {
                    // The delete is sent now, so that it comes before this thread's next requests.
                    return self.delete_in_background(owner, &path, job, |_| {});
                }
                job
            }
            Leftover::Doubt(prefix) => Job::protected(self.directory().clone(), prefix, Some(owner)),
        };
        self.client().core.cleanup.add(job);
    }

    /// Sends a delete without waiting. If the server does not confirm it, the job goes on; if there was no znode,
    /// `was_lost` is called.
    fn delete_in_background(
        &self,
        session: &Arc<dyn Session>,
        path: &ServerPath,
        job: Job,
        was_lost: impl FnOnce(LostReason) + Send + 'static,
    ) {
        let core = self.client().core.clone();
        let on_reply = Box::new(move |reply: Reply| match reply {
            Err(SessionError::Server(ErrorCode::NoNode)) => was_lost(LostReason::NodeDeleted),
            Ok(_) | Err(SessionError::Closed) => {}
            Err(SessionError::Expired) if !job.is_left_behind() => {}
            Err(_) => core.cleanup.add(job),
        });
        session.submit(vec![Submission { request: deletion_of(path), watcher: None, on_reply }]);
    }

    /// Ends the revocability of later holds with a release, unless somebody has asked for it anew meanwhile.
    pub(in crate::locks) fn forget_revocation(&self, held: &HeldNode) {
        let Some(revocable) = held.revocable().filter(|revocable| !revocable.revocation().is_lasting()) else { return };
        let mut current = self.revocation.lock();
        let forgotten = current.take_if(|current| Arc::ptr_eq(current, revocable.revocation()));
        drop_unlocked(current, forgotten);
    }

    /// Sets the limits of holds that have just been granted.
    pub(in crate::locks) fn limit_holds(&self, held: &[Arc<HeldNode>], options: &AcquireOptions) {
        let (least, most) = (options.hold_at_least, options.hold_at_most);
        if least.is_none() && most.is_none() {
            return;
        }
        let rest = least.zip(most).map_or(Duration::ZERO, |(least, most)| least.saturating_sub(most));
        for held in held {
            // The reference is weak, so as not to keep the client alive, which keeps the hold.
            let (core, job) = (Arc::downgrade(&self.client().core), self.deletion_of_held(held));
            let give_back = move || {
                if let Some(core) = core.upgrade() {
                    core.clean_up_later(rest, job);
                }
            };
            let held = held.clone();
            let step = Box::new(move || held.limit(least, most, give_back));
            options.when_all_is_had(PutOff { step, delay: None });
        }
    }

    /// Whether a hold that was given back keeps its znode for now.
    pub(in crate::locks) fn stays(&self, held: &HeldNode) -> bool {
        let Some(rest) = held.has_to_stay() else { return false };
        self.client().core.clean_up_later(rest, self.deletion_of_held(held));
        true
    }
}

/// Gives holds of several locks of one client back, with one deadline for all: their deletes go as one transaction.
pub(super) fn release_together(held: &[(&LockInternals, Arc<HeldNode>)]) -> Vec<thread::Result<Released>> {
    let timeout = held.iter().map(|(_, held)| held.session().timeout()).max().unwrap_or_default();
    let bound = WaitBound::at(clock::now() + timeout);
    let calls: Vec<_> = held.iter().map(|(lock, _)| lock.client().call("release", lock.base_path(), bound)).collect();
    // A session may be the caller's own code.
    let let_go = |(lock, held): &(&LockInternals, Arc<HeldNode>)| catch_unwind(AssertUnwindSafe(|| lock.let_go(held)));
    let begun: Vec<_> = held.iter().map(let_go).collect();
    let is_to_go = |begun: &thread::Result<Result<(), Released>>| matches!(begun, Ok(Ok(())));
    // A hold that is lost takes no request, and waits for no connection.
    let session = |call: &Call<'_>| caught("a retry policy", || call.session())?.ok();
    let session = calls.first().filter(|_| begun.iter().any(is_to_go)).and_then(session);
    let goes = |held: &HeldNode| session.as_ref().is_some_and(|session| Arc::ptr_eq(session, held.session()));
    let of_batch = held.iter().zip(&begun).filter(|((_, held), begun)| is_to_go(begun) && goes(held));
    let deletes: Vec<_> = of_batch.map(|((_, held), _)| deletion_of(held.path())).collect();
    let limit = |session| held.first().map_or(0, |(lock, _)| lock.client().core.transaction_limit(session));
    let sent = session.as_ref().map(|session| submit_together(session, deletes, Vec::new(), limit(session)).0);
    let (mut sent, verdict) = (sent.into_iter().flatten(), Cell::new(None));
    let mut finish = |call: &Call<'_>, lock: &LockInternals, held: &HeldNode| {
        let delete = if goes(held) { sent.next() } else { None };
        lock.finish(call, held, delete.map_or_else(|| lock.delete(call, held), Ok), Some(&verdict))
    };
    let each = calls.iter().zip(held).zip(begun);
    let release =
        |((call, (lock, held)), begun): ((&Call<'_>, &(&LockInternals, Arc<HeldNode>)), thread::Result<_>)| {
            let finish = || {
                begun.map(|begun: Result<(), Released>| begun.map_or_else(|over| over, |()| finish(call, lock, held)))
            };
            let released = catch_unwind(AssertUnwindSafe(finish)).flatten();
            if released.is_err() {
                lock.client().core.cleanup.add(lock.deletion_of_held(held));
            }
            released
        };
    each.map(release).collect()
}

/// The head of a queue: only the contender that has it may wait for something else. Dropping it gives it up without
/// waiting.
pub(crate) struct QueueHead<'a> {
    pub(crate) queue: &'a LockInternals,
    pub(crate) held: Arc<HeldNode>,
}

impl Drop for QueueHead<'_> {
    fn drop(&mut self) {
        self.queue.release_in_background(&self.held);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;
