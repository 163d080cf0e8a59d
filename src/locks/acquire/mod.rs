//! One acquire, and its release: carries out what a contender wants, on the thread that waits.
//!
//! [`contention`] is a contender with its watches and holds, [`batch`] several that begin together, [`last_look`] makes
//! sure of several holds at one moment, [`unclean`] tells how the holder before went. [`release`] gives a lock back; where
//! the outcome is unknown, the client's clean-up goes on. [`internals`] is the part of a lock that all of them use,
//! [`owners`] knows which thread holds it, [`limit`] how many may, [`kinds`] whether locks of other kinds are at the same
//! path.

pub(in crate::locks) mod batch;
pub(in crate::locks) mod contention;
pub(crate) mod internals;
pub(in crate::locks) mod kinds;
pub(in crate::locks) mod last_look;
pub(in crate::locks) mod limit;
pub(in crate::locks) mod owners;
pub(in crate::locks) mod release;
pub(in crate::locks) mod unclean;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    base::{clock, log, paths::ServerPath},
    error::{Error, LostReason, Result},
    framework::{
        cleanup::jobs::Job,
        client::{call::Call, core::CuratorFramework},
        events::reactions::WakeUp,
        held::node::HeldNode,
    },
    locks::{
        acquire::{
            batch::Batch,
            contention::{Acquire, Contention, failed, with_acl},
            internals::LockInternals,
            last_look::pause,
            owners::Owners,
            release::QueueHead,
        },
        options::{acquire::Wait, wait_strategy::WaitStrategy},
        recipe::{
            driver::number_text,
            spec::{Companion, Do, End, Failed, Input, Reaction, Spec, WatchId},
        },
    },
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode},
    },
    session::{
        machine::liveness::longest_round_trip,
        wait::{
            deadline::{WaitBound, WaitEnd},
            pending::{Pending, UNDONE, Watch, submit},
        },
    },
};

/// How long a waiter that gives up waits for the deletes of its znodes; after that the client goes on in the
/// background. A call whose time is up thus returns within 50 ms, also where the network has died without a word.
const WITHDRAWAL: Duration = Duration::from_millis(25);

/// How an acquire ended.
pub(crate) enum Outcome {
    /// The lock was granted. `has_waited`: others were in front.
    Granted { held: Vec<Arc<HeldNode>>, has_waited: bool },
    /// The time was up, or it would have had to wait.
    TimeUp,
    /// The head of the wait queue was lost.
    QueueHeadLost,
    /// The write lock does not stand any more.
    WriterGone,
}

impl LockInternals {
    /// Queues and waits for the lock. `owners` counts the hold, if the lock belongs to a thread; the contender may have been
    /// sent for with a batch. `None`: the time was up first, and nothing is left in the queue.
    pub(crate) fn attempt_lock(
        &self,
        wait: Wait<'_>,
        owners: Option<&Owners>,
        batch: Option<&Batch>,
    ) -> Result<Option<Arc<HeldNode>>> {
        let acquire = Acquire { owners, batch, ..Acquire::new(self, self.spec(wait), wait) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(None) };
        Ok(held.into_iter().next())
    }

    /// Takes the place of a writer, in front of everybody who waits for it: with the writer's own number, so it is no
    /// sequential znode. It does so only while the writer's hold is certain (CURATOR-621, and what it forgot: a writer that has
    /// lost its lock must not get in front of the next one).
    pub(crate) fn attempt_downgrade(
        &self,
        wait: Wait<'_>,
        owners: &Owners,
        writer: &HeldNode,
    ) -> Result<Option<Arc<HeldNode>>> {
        if let Some(reason) = writer.lost() {
            return Err(self.lost(reason));
        }
        let companion = Companion {
            name: writer.path().name().to_owned(),
            session: writer.session().id(),
            token: writer.token(),
            grant: writer.grant_number(),
        };
        let name = format!("{}{}", self.driver().lock_name(), number_text(&companion.name));
        let spec = Spec {
            name,
            mode: CreateMode::Ephemeral,
            companion: Some(companion),
            looks_first: false,
            ..self.spec(wait)
        };
        match (Acquire { owners: Some(owners), ..Acquire::new(self, spec, wait) }).run()? {
            Outcome::Granted { held, .. } => Ok(held.into_iter().next()),
            Outcome::TimeUp | Outcome::QueueHeadLost => Ok(None),
            Outcome::WriterGone => {
                self.client().core.check_open()?;
                if !writer.session().is_ended() {
                    writer.lose(LostReason::NodeDeleted);
                }
                Err(self.lost(writer.lost().unwrap_or(LostReason::SessionExpired)))
            }
        }
    }
}

impl<'a> Acquire<'a> {
    /// Makes an acquire with the defaults: one lease, no queue head, no owners, no batch, no delegate.
    pub(crate) fn new(lock: &'a LockInternals, spec: Spec, wait: Wait<'a>) -> Acquire<'a> {
        let (limit, queue_head, owners, batch, delegate, on_step) = (None, None, None, None, None, None);
        Acquire { lock, spec, wait, limit, queue_head, owners, batch, delegate, on_step }
    }

    /// Blocks until the lock is granted, or the caller's time is up. Every other outcome takes the znodes out of the
    /// queue, in the background if need be.
    pub(crate) fn run(mut self) -> Result<Outcome> {
        self.wait.options.check_validity(self.lock.client().session_timeout())?;
        let io = self.wait.io(self.lock.client().core.config.connection_timeout);
        let call = self.lock.client().call("acquire", self.lock.base_path(), io);
        self.lock.refuse_other_kinds(&call)?;
        let since = self.wait.since.unwrap_or_else(clock::now);
        let (queue_head, mut contention) = (self.queue_head.take(), self.contender());
        let mut wake = |input: Input<Error>| -> Arc<WakeUp> {
            let send = contention.sender();
            Arc::new(move || send(input.clone()))
        };
        // It listens before the first look at the limit, so that no change after that is missed.
        let _subscription = self.limit.map(|limit| limit.subscribe(|| wake(Input::Woken)));
        let _on_loss = queue_head.as_ref().map(|head| {
            let wake = wake(Input::QueueHeadLost);
            head.held.znode().wake_on_loss(&wake);
            wake
        });
        let (acquire, call, sent) = (&self, &call, clock::now());
        let has_made_directory = self.batch.is_some_and(|batch| batch.take_directory(self.lock));
        let (retries, gone, granted) = (0, 0, Vec::new());
        Run { acquire, call, io, contention, queue_head, since, retries, gone, has_made_directory, sent, granted }.run()
    }

    /// Returns a new contender, or the one that this thread takes over.
    fn contender(&self) -> Contention {
        let Some(delegate) = self.delegate else { return Contention::new(self.lock.revocable_node()) };
        let Some(mut contention) = delegate.take_over() else {
            return Contention::new(Some(delegate.revocable_node()));
        };
        // This thread does not know yet how many are in front.
        contention.contender.ahead = None;
        contention
    }
}

/// The answer to one request.
type Answer = std::result::Result<Response, Failed<Error>>;

struct Run<'a> {
    acquire: &'a Acquire<'a>,
    call: &'a Call<'a>,
    io: WaitBound<'a>,
    contention: Contention,
    queue_head: Option<QueueHead<'a>>,
    /// When the call began.
    since: Instant,
    /// How often the retry policy was asked about a lost connection, and about a znode that was gone, since the last wait.
    retries: u32,
    gone: u32,
    has_made_directory: bool,
    /// When the last requests were sent.
    sent: Instant,
    /// The holds that are granted, and not handed out yet.
    granted: Vec<Arc<HeldNode>>,
}

impl<'a> Run<'a> {
    fn run(mut self) -> Result<Outcome> {
        let mut input = Input::Begin;
        loop {
            input = match self.step(input) {
                Do::Connect => self.connect(),
                Do::Ask(requests) => Input::Answers(self.ask(requests)),
                Do::MakeDirectory => Input::DirectoryMade(self.make_directory()),
                Do::Again(error) => self.again(error),
                Do::Sleep => self.sleep(),
                Do::Doze => self.doze(),
                Do::Hold => self.hold(),
                Do::End(end) => return self.ended(end),
            };
        }
    }

    fn step(&mut self, input: Input<Error>) -> Do<Error> {
        let begins = matches!(input, Input::Begin | Input::Connected);
        let next = self.contention.step(self.acquire, input);
        if let Some(delegate) = self.acquire.delegate.filter(|_| self.contention.contender.stands()) {
            delegate.created();
        }
        let goes_on = begins || matches!(next, Do::Hold | Do::End(End::Granted));
        if let Some(batch) = self.acquire.batch.filter(|_| !goes_on) {
            batch.withdraw();
            if self.contention.contender.has_waited {
                batch.met_others(self.acquire.lock);
            }
        }
        if let Some(on_step) = self.acquire.on_step {
            let node = self.contention.contender.nodes.last().map(|node| self.acquire.lock.child(&node.name));
            on_step(node, matches!(next, Do::Sleep | Do::Doze | Do::Connect));
        }
        next
    }

    fn client(&self) -> &'a CuratorFramework {
        self.acquire.lock.client()
    }

    /// While its znodes may stand it waits as long as its session lasts, like a contender asleep in the queue, which
    /// its watches tell of that end. Without znodes the connection timeout and the retry policy end the wait.
    fn connect(&mut self) -> Input<Error> {
        let found = if self.contention.contender.stands() {
            let bound = self.acquire.wait.waits_until().unwrap_or(self.io);
            self.client().core.connected_session(self.contention.session.as_ref(), bound)
        } else {
            self.call.session().map(Ok)
        };
        match found {
            Ok(Ok(session)) => {
                if session.is_ended() {
                    self.has_waited();
                }
                self.contention.session = Some(session);
                Input::Connected
            }
            Ok(Err(end)) => self.stopped(end),
            Err(error) => Input::Failed(self.failed(error, false)),
        }
    }

    /// A failure after a wait in the queue starts a new count of failures: others may empty the directory at each
    /// hand-over, and the server remove it.
    fn has_waited(&mut self) {
        (self.retries, self.gone) = (0, 0);
        self.call.begin_anew();
    }

    fn stopped(&self, end: WaitEnd) -> Input<Error> {
        match end {
            WaitEnd::Cancelled => Input::Failed(self.failed(self.call.cancelled(), false)),
            WaitEnd::Deadline if self.acquire.wait.only_try => {
                Input::Failed(self.failed(self.call.connection_loss(), false))
            }
            WaitEnd::Deadline => Input::TimeUp,
        }
    }

    fn failed(&self, error: Error, maybe_done: bool) -> Failed<Error> {
        match self.io.is_over() {
            None => failed(error, maybe_done, None),
            // A multi lock tells a cancellation from the end of the time.
            Some(WaitEnd::Cancelled) if error.is_retryable() => failed(self.call.cancelled(), maybe_done, None),
            Some(_) if self.acquire.wait.only_try => failed(error, maybe_done, Some(Reaction::Final)),
            Some(_) => failed(error, maybe_done, Some(Reaction::TimeUp)),
        }
    }

    fn ask(&mut self, asked: Vec<(Request, Option<WatchId>)>) -> Vec<Answer> {
        let core = &self.client().core;
        let has_containers = || core.current_session().is_none_or(|session| session.has_containers());
        if let Some(answers) = self.acquire.batch.and_then(|batch| self.answers_of(batch, &asked)) {
            return answers;
        }
        let again = if self.acquire.spec.is_sole && has_containers() { asked.clone() } else { Vec::new() };
        let answers = self.ask_once(asked);
        // The transaction makes its directory as a container, and the servers have just said that they know none.
        let is_refused = !again.is_empty() && answers.iter().any(std::result::Result::is_err) && !has_containers();
        if is_refused { self.ask_once(again) } else { answers }
    }

    fn ask_once(&mut self, asked: Vec<(Request, Option<WatchId>)>) -> Vec<Answer> {
        self.sent = clock::now();
        let creates = asked.iter().any(|(request, _)| matches!(request, Request::Create { .. } | Request::Multi(_)));
        let Some(session) = self.contention.sends(&asked, creates) else { return Vec::new() };
        let mut requests = Vec::with_capacity(asked.len());
        for (request, watch) in asked {
            let watcher = watch.map(|watch| self.contention.watcher(watch));
            requests.push((with_acl(self.client(), request), watcher));
        }
        let sent = submit(&session, requests);
        // Nothing is on its way where the session has ended, or waits for a connection: the process would give up its place
        // without having another.
        let is_on_its_way = |(pending, _): &(Pending, _)| session.connection() != 0 && !pending.is_settled();
        if let Some(delegate) = self.acquire.delegate.filter(|_| creates && sent.first().is_some_and(is_on_its_way)) {
            delegate.created();
        }
        self.receive(sent)
    }

    /// Receives the answers to what was sent with a batch. `None`: nothing was, or its transaction has failed as a whole,
    /// whichever of its contenders is to blame.
    fn answers_of(&mut self, batch: &Batch, asked: &[(Request, Option<WatchId>)]) -> Option<Vec<Answer>> {
        let taken = batch.take(&asked.first()?.0, self.call);
        let Some((mut sent, is_same)) = taken else {
            batch.withdraw();
            return None;
        };
        sent.truncate(asked.len());
        self.sent = batch.sent().unwrap_or_else(clock::now);
        // A share is of the session that the contender has.
        self.contention.sends(asked, true)?;
        let mut answers = self.receive(sent);
        // Servers that have just said that they do not take several lists at once, or whose answer was too large, are asked for
        // this one by itself.
        let is_refused = |answer: &Answer| {
            let says_so = |failed: &Failed<Error>| {
                failed.code == Some(ErrorCode::Unimplemented) || matches!(failed.error, Error::FrameTooLarge { .. })
            };
            answer.as_ref().is_err_and(says_so)
        };
        if let [_, list] = &answers[..]
            && list.as_ref().is_err_and(|failed| failed.code.is_none() || is_refused(list))
        {
            batch.lost_a_list(self.acquire.lock, list.as_ref().err().map(|failed| &failed.error));
        }
        if answers.last().is_some_and(|list| !is_same && list.is_ok() || answers.len() > 1 && is_refused(list)) {
            answers.truncate(1);
        }
        match answers.first().and_then(|answer| answer.as_ref().err()?.code) {
            Some(UNDONE) => batch.failed(self.acquire.lock),
            Some(ErrorCode::NoNode) => {
                self.has_made_directory |= batch.lacks_directories(self.acquire.lock, self.call);
            }
            _ => return Some(answers),
        }
        None
    }

    fn receive(&mut self, mut sent: Vec<(Pending, Option<Watch>)>) -> Vec<Answer> {
        self.call.await_last(&mut sent);
        self.contention.sent(&mut sent);
        let failed = |(error, maybe_done)| self.failed(error, maybe_done);
        sent.into_iter().map(|(pending, _)| self.call.reply_or_doubt(pending).map_err(failed)).collect()
    }

    fn make_directory(&mut self) -> std::result::Result<(), Failed<Error>> {
        self.sent = clock::now();
        let (directory, containers) =
            (self.acquire.lock.directory(), !self.acquire.lock.recipe.has_persistent_directory);
        let make = |session| self.client().make_directory(self.call, &session, directory, containers);
        let made = self.call.session().and_then(make);
        // The servers remove a container that was used, and never one that was not.
        self.has_made_directory |= containers && matches!(made, Ok(true));
        made.map(drop).map_err(|error| {
            let is_final = error.code() == Some(ErrorCode::NoChildrenForEphemerals) && self.is_below_ephemeral();
            let failed = self.failed(error, false);
            Failed { code: failed.code.filter(|_| !is_final), ..failed }
        })
    }

    /// Whether a znode above the directory's own parent can have no children. The parent's end lets this contender go on, and
    /// it may have ended already: it is not asked for. Nor does an answer that does not come say anything.
    fn is_below_ephemeral(&self) -> bool {
        let mut above: Vec<_> = self.acquire.lock.directory().ancestors().collect();
        above.pop();
        let look = |path: ServerPath| Request::Exists { path: path.into_string(), watch: false };
        let Ok(session) = self.call.session() else { return false };
        let found = self.call.ask_all(&session, above.into_iter().map(look).collect::<Vec<_>>());
        found.iter().any(|found| matches!(found, Ok(Response::Stat(stat)) if stat.ephemeral_owner != 0))
    }

    fn again(&mut self, error: Error) -> Input<Error> {
        let allowed = if error.is_no_node() {
            self.call.allow_again(&mut self.gone, error)
        } else {
            self.call.allow_retry(&mut self.retries, error)
        };
        match allowed {
            Ok(()) => Input::Begin,
            Err(error) => Input::Failed(failed(error, false, Some(Reaction::Final))),
        }
    }

    /// Sleeps until something happens.
    ///
    /// No wake-up can be lost: an event stays in the mailbox, and a change from before the watch shows in the reply
    /// that sets it. If a bug loses one all the same, the re-check makes it a delay.
    fn sleep(&mut self) -> Input<Error> {
        let interval = self.acquire.spec.waits.and_then(WaitStrategy::interval);
        let recheck = match interval {
            Some(interval) => clock::now().checked_add(interval),
            None => next_recheck(self.client()),
        };
        let (contender, path) = (&self.contention.contender, self.acquire.lock.base_path());
        if let (Some(node), Some(_), Some(other)) =
            (contender.nodes.first(), contender.waits_for(), &self.contention.in_front)
        {
            log::debug!("{path}: {} waits for {other}", node.name);
        }
        let bound = self.acquire.wait.bound;
        let until = recheck.map_or(bound, |at| bound.by(at));
        let received = self.contention.receive(until);
        self.has_waited();
        match received {
            Ok(input) => input,
            Err(end) => match bound.is_over().or((until.deadline == bound.deadline).then_some(end)) {
                Some(end) => self.stopped(end),
                None => Input::Woken,
            },
        }
    }

    fn doze(&mut self) -> Input<Error> {
        let bound = self.acquire.wait.waits_until().unwrap_or(self.io);
        pause(self.client().session_timeout(), bound);
        bound.is_over().map_or(Input::Woken, |end| self.stopped(end))
    }

    fn hold(&mut self) -> Input<Error> {
        let queue_head = self.queue_head.take();
        let queued = queue_head.as_ref().and_then(|head| head.held.waited_for());
        self.contention.hold(self.acquire, self.since, queued);
        drop(queue_head);
        Input::Woken
    }

    fn ended(mut self, end: End<Error>) -> Result<Outcome> {
        // A thread that took over an exhausted number would not find that out. And others have waited for a session timeout
        // already behind a znode that its session cannot vouch for.
        let is_of_use = !matches!(end, End::Granted | End::Exhausted(_) | End::Uncertain);
        let outcome = self.outcome(end);
        if is_of_use {
            self.hand_over();
        }
        outcome
    }

    /// Hands the contender over to the next thread of the process, which so keeps the place in the queue.
    fn hand_over(&mut self) {
        let Some(delegate) = self.acquire.delegate.filter(|_| !self.contention.contender.leftovers().is_empty()) else {
            return;
        };
        let contention = std::mem::take(&mut self.contention);
        if let Some(contention) = delegate.hand_over(contention) {
            self.contention = contention;
        }
    }

    fn outcome(&mut self, end: End<Error>) -> Result<Outcome> {
        match end {
            End::Granted => self.granted(),
            End::TimeUp => self.time_is_up(),
            End::QueueHeadLost => Ok(Outcome::QueueHeadLost),
            End::CompanionGone => Ok(Outcome::WriterGone),
            End::Busy(ahead) => Err(Error::Busy { path: self.acquire.lock.base_path().to_owned(), ahead }),
            End::Uncertain => Err(self.acquire.lock.uncertain(self.acquire.spec.min_validity)),
            End::Exhausted(number) => {
                Err(Error::SequenceExhausted { path: self.acquire.lock.base_path().to_owned(), number })
            }
            End::Failed(error) if self.ran_out_of_time(&error) => self.time_is_up(),
            // The cancellation came after the end of the time, which it hides.
            End::Failed(error) if error.is_no_node() && self.acquire.wait.bound.is_cancelled() => {
                Err(self.call.cancelled())
            }
            End::Failed(error) => Err(error),
        }
    }

    fn granted(&mut self) -> Result<Outcome> {
        let Acquire { lock, spec, wait, .. } = self.acquire;
        self.granted = self.contention.take_held();
        let counters = self.granted.first().and_then(|held| held.counters());
        if let Some(counters) = counters.filter(|_| self.acquire.on_step.is_none()) {
            counters.waits.record(clock::since(self.since));
        }
        if let Some(session) = self.contention.session.as_ref().filter(|_| self.contention.sees_other_kinds) {
            lock.warn_of_other_kinds(session);
        }
        for held in &self.granted {
            log::debug!("{}: {} granted after {:?}", lock.base_path(), held.path().name(), clock::since(self.since));
        }
        if lock.hear_of_deaths(&self.granted, &spec.data, *wait)? {
            lock.limit_holds(&self.granted, wait.options);
            let (held, has_waited) = (std::mem::take(&mut self.granted), self.contention.contender.has_waited);
            Ok(Outcome::Granted { held, has_waited })
        } else if wait.options.timeout_is_error {
            Err(lock.still_taken(None))
        } else {
            Ok(Outcome::TimeUp)
        }
    }

    fn time_is_up(&self) -> Result<Outcome> {
        let waits = self.acquire.spec.waits.is_some() || self.acquire.wait.only_try;
        if waits && self.acquire.wait.options.timeout_is_error {
            return Err(self.acquire.lock.still_taken(self.contention.contender.ahead));
        }
        Ok(Outcome::TimeUp)
    }

    /// Whether it failed only because its time was up: before a reply came, or while the server removed the directory,
    /// empty for a moment, as fast as it was made.
    fn ran_out_of_time(&self, error: &Error) -> bool {
        let is_so = self.acquire.wait.is_over() && (error.is_no_node() || error.is_retryable() && !self.is_silent());
        if is_so {
            log::debug!("{}: the time was up first: {error}", self.acquire.lock.base_path());
        }
        is_so
    }

    /// Whether a request without an answer means more than that the time was short: there is no connection, or the
    /// servers are silent for longer than a heartbeat of a session takes that stays certain.
    fn is_silent(&self) -> bool {
        !self.client().is_connected() || clock::since(self.sent) > longest_round_trip(self.client().session_timeout())
    }
}

impl Drop for Run<'_> {
    /// Takes the contender out of the queue, and gives back what cannot be handed out: after a panic of the caller's code,
    /// too.
    fn drop(&mut self) {
        let Acquire { lock, spec, owners, .. } = self.acquire;
        let is_held = self.contention.contender.is_held;
        let call = self.client().call("release", lock.base_path(), WaitBound::at(clock::now() + WITHDRAWAL));
        // With `must_be_empty` it does not wait for the deletes: this contender queues in that directory next.
        self.contention.end(lock, *owners, spec.must_be_empty.is_none().then_some(&call));
        for held in &self.granted {
            drop(owners.and_then(|owners| owners.leave(lock, held)));
            // Nobody had it, so its znode need not stay.
            held.limit(None, None, || ());
            lock.release_in_background(held);
        }
        if self.has_made_directory && !is_held {
            self.client().core.cleanup.add(Job::never_used(lock.directory().clone()));
        }
    }
}

/// When a waiter looks again although no event came.
pub(crate) fn next_recheck(client: &CuratorFramework) -> Option<Instant> {
    clock::now().checked_add(spread(client.core.config.recheck_interval?))
}

/// Adds or takes away up to a quarter, so that waiters do not all look at once.
fn spread(interval: Duration) -> Duration {
    let quarter = interval / 4;
    quarter.saturating_mul(3).saturating_add(quarter.mul_f64(2.0 * fastrand::f64()))
}
