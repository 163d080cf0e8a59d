//! Carries out what a contender wants, for a thread that waits.

use std::{
    cell::Cell,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::{
    effects::{Debris, Effects, moment, with_acl},
    spec::{Answer, Ask, ConnectFor, Do, End, Environment, Failed, Input, Plan, Reaction, Spec, WatchId, is_end},
    unlisted::{Over, Unlisted},
};
use crate::{
    CuratorFramework, Error, HoldState, LostReason, Result, WaitStrategy,
    framework::{Call, Failure, HeldNode, Job, RevocableNode},
    locks::{LockInternals, internals::Patience, limit::Limit, owners::Owners},
    proto::Response,
    session::{Pending, Session, Stop, WaitEnd, Watch, WatchEvent, Watcher, submit},
};

/// How long one that gives up waits until its znodes are known to be gone; beyond it the background goes on. A call whose
/// time is up ends within 50 ms, also where the network has died without a word.
const FAREWELL: Duration = Duration::from_millis(25);

/// One wish to acquire a lock.
pub(crate) struct Wish<'a> {
    pub(crate) lock: &'a LockInternals,
    pub(crate) spec: Spec,
    pub(crate) patience: Patience<'a>,
    /// How many leases there are, where that is not the lock's own affair.
    pub(crate) limit: Option<&'a Limit>,
    /// A place in another queue without which it may not wait.
    pub(crate) place: Option<&'a Place<'a>>,
    /// The write lock whose place a reader takes.
    pub(crate) writer: Option<&'a HeldNode>,
    /// The threads of this process that hold the lock, where it belongs to a thread.
    pub(crate) owners: Option<&'a Owners>,
}

/// A place at the head of a queue, where only who has it may wait for something else. Dropping it gives it up without
/// waiting.
pub(crate) struct Place<'a> {
    queue: &'a LockInternals,
    held: Arc<HeldNode>,
    is_left: AtomicBool,
}

impl<'a> Place<'a> {
    pub(crate) fn new(queue: &'a LockInternals, held: Arc<HeldNode>) -> Place<'a> {
        Place { queue, held, is_left: AtomicBool::new(false) }
    }

    /// For certain, and the reason is known.
    fn is_lost(&self) -> bool {
        matches!(self.held.state(Instant::now()), HoldState::Lost(_))
    }

    /// It went with its session.
    pub(crate) fn has_ended(&self) -> bool {
        self.held.session().is_ended() || self.held.lost().is_some_and(|reason| reason != LostReason::NodeDeleted)
    }

    fn leave(&self) {
        if !self.is_left.swap(true, Ordering::AcqRel) {
            self.queue.release_in_background(&self.held);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// How it ended.
pub(crate) enum Outcome {
    /// With the lock; whether others were in front.
    Granted { held: Vec<Arc<HeldNode>>, has_waited: bool },
    /// The time was up, or it would have had to wait.
    TimeUp,
    /// The place in the other queue was lost.
    Barred,
    /// The write lock does not stand any more.
    WriterGone,
}

/// What wakes the thread, on a channel of its own, so that one event wakes one thread.
enum Message {
    Event(WatchId, WatchEvent),
    /// The number of leases may have changed.
    Limit,
    Barred,
}

impl Wish<'_> {
    /// Blocks until it is granted, or the caller's time is up. Every way out but the grant takes the znodes out of the
    /// queue, in the background if need be.
    pub(crate) fn acquire(self) -> Result<Outcome> {
        self.lock.check_validity(self.spec.min_validity)?;
        let io = self.patience.io(self.lock.client().core.config.connection_timeout);
        let call = self.lock.client().call("acquire", self.lock.base_path(), io);
        let mailbox = self.mailbox();
        let _subscription = match (self.limit, &mailbox) {
            // Before the first look at the limit, so that no change after it is missed.
            (Some(limit), Some((sender, _))) => {
                let sender = sender.clone();
                limit.subscribe(Arc::new(move || drop(sender.send(Message::Limit))))
            }
            _ => None,
        };
        let outcome = Shell::new(&self, &call, io, mailbox).run()?;
        match &outcome {
            Outcome::Granted { held, .. } => {
                let is_in_time = self.lock.hear_of_deaths(held, &self.spec.data, self.patience, self.owners)?;
                Ok(if is_in_time { outcome } else { Outcome::TimeUp })
            }
            _ => Ok(outcome),
        }
    }

    fn mailbox(&self) -> Option<(Sender<Message>, Receiver<Message>)> {
        let (sender, receiver) = self.place.map(|_| unbounded())?;
        if let Some(place) = self.place {
            let barred = sender.clone();
            place.held.listen(Arc::new(move |_| drop(barred.send(Message::Barred))));
        }
        Some((sender, receiver))
    }
}

struct Shell<'a> {
    wish: &'a Wish<'a>,
    call: &'a Call<'a>,
    io: Stop<'a>,
    effects: Effects,
    mailbox: Option<(Sender<Message>, Receiver<Message>)>,
    /// To whom the watch on the own znode reports.
    target: Option<Arc<Mutex<Target>>>,
    /// The watch on the directory that goes out with the next create.
    guard: Cell<Option<(u64, Over)>>,
    /// Somebody wants to know about requests to give the lock back, which a waiter can be sent, too.
    revocable: Option<Arc<RevocableNode>>,
    /// How often the retry policy was asked about a lost connection, and about a znode that was gone.
    retries: u32,
    gone: u32,
    has_made_directory: bool,
    /// When the last requests were sent.
    sent: Instant,
}

impl<'a> Shell<'a> {
    fn new(
        wish: &'a Wish<'a>,
        call: &'a Call<'a>,
        io: Stop<'a>,
        mailbox: Option<(Sender<Message>, Receiver<Message>)>,
    ) -> Shell<'a> {
        Shell {
            wish,
            call,
            io,
            effects: Effects::new(),
            mailbox,
            target: None,
            guard: Cell::new(None),
            revocable: wish.lock.revocable_node(),
            retries: 0,
            gone: 0,
            has_made_directory: false,
            sent: Instant::now(),
        }
    }

    fn run(mut self) -> Result<Outcome> {
        let mut input = Input::Begin;
        loop {
            input = match self.step(input) {
                Do::Connect(patience) => self.connect(patience),
                Do::Ask(ask) => Input::Answers(self.ask(ask)),
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
        let wish = self.wish;
        let surroundings = Surroundings { wish, session: self.effects.session.clone(), guard: &self.guard };
        let (next, debris) = self.effects.step(&wish.spec, &surroundings, wish.patience.is_over(), input);
        self.clear_away(debris);
        next
    }

    fn clear_away(&self, debris: Debris) {
        for (held, owners) in debris.held.iter().zip(self.wish.owners.iter().cycle()) {
            drop(owners.leave(self.wish.lock, held));
        }
        debris.clear_away(self.wish.lock, &self.wish.spec);
    }

    fn client(&self) -> &'a CuratorFramework {
        self.wish.lock.client()
    }

    fn connect(&mut self, patience: ConnectFor) -> Input<Error> {
        let found = match patience {
            ConnectFor::Call => self.call.session().map(Ok),
            ConnectFor::Wait => {
                self.client().core.connected_session(self.wish.patience.waits_until().unwrap_or(self.io))
            }
        };
        match found {
            Ok(Ok(session)) => {
                self.effects.session = Some(session);
                Input::Connected
            }
            Ok(Err(end)) => self.stopped(end),
            Err(error) => Input::Failed(self.failed(error, false)),
        }
    }

    fn stopped(&self, end: WaitEnd) -> Input<Error> {
        match end {
            WaitEnd::Cancelled => Input::Failed(self.failed(self.call.cancelled(), false)),
            WaitEnd::Deadline if self.wish.patience.only_try => {
                Input::Failed(self.failed(self.call.connection_loss(), false))
            }
            WaitEnd::Deadline => Input::TimeUp,
        }
    }

    fn failed(&self, error: Error, maybe_done: bool) -> Failed<Error> {
        let reaction = match self.io.is_over() {
            _ if !error.is_retryable() => Reaction::Final,
            None => Reaction::Retry,
            Some(_) if self.wish.patience.only_try => Reaction::Final,
            Some(_) => Reaction::TimeUp,
        };
        Failed { code: error.code(), maybe_done, reaction, error }
    }

    fn ask(&mut self, ask: Ask) -> Vec<Answer<Error>> {
        self.sent = Instant::now();
        let Some(session) = self.effects.sends(&ask) else { return Vec::new() };
        let watches: Vec<Option<WatchId>> = ask.requests.iter().map(|(_, watch)| *watch).collect();
        let mut requests = Vec::with_capacity(watches.len());
        for (request, watch) in ask.requests {
            requests.push((with_acl(self.client(), request), watch.map(|watch| self.watcher(watch))));
        }
        let farewell = self.client().call("release", self.wish.lock.base_path(), Stop::at(self.sent + FAREWELL));
        let call = if ask.is_farewell { &farewell } else { self.call };
        let mut sent = submit(&session, requests);
        call.await_last(&mut sent);
        sent.into_iter().zip(watches).map(|((pending, watch), id)| self.answer(call, pending, id.zip(watch))).collect()
    }

    fn answer(&mut self, call: &Call<'_>, pending: Pending, watch: Option<(WatchId, Watch)>) -> Answer<Error> {
        match call.reply_or_failure(pending) {
            Ok(response) => {
                if let Some((id, watch)) = watch {
                    self.watched(id, watch, &response);
                }
                Ok(response)
            }
            Err(Failure { error, maybe_done }) => {
                if let Some((WatchId::Guard, _)) = watch {
                    let number = self.guard.get().map_or(0, |(number, _)| number);
                    drop(self.wish.lock.unlisted().lock().fired(number));
                }
                Err(self.failed(error, maybe_done))
            }
        }
    }

    fn watched(&mut self, id: WatchId, watch: Watch, response: &Response) {
        if let (WatchId::Own(_), Response::Data { data, stat }, Some(revocable)) = (id, response, &self.revocable) {
            revocable.read(data, stat);
        }
        if id != WatchId::Guard {
            return self.effects.keep(id, watch);
        }
        let Some((number, over)) = self.guard.get() else { return };
        let before = self.wish.lock.unlisted().lock().guarded(number, over, watch);
        drop(before);
    }

    fn watcher(&mut self, id: WatchId) -> Watcher {
        if id == WatchId::Guard {
            return guard_watcher(self.wish.lock.unlisted(), self.guard.get().map_or(0, |(number, _)| number));
        }
        let (sender, _) = self.mailbox.get_or_insert_with(unbounded);
        let sender = sender.clone();
        if !matches!(id, WatchId::Own(_)) {
            // The thread may have gone.
            return Arc::new(move |event: &WatchEvent| drop(sender.send(Message::Event(id, event.clone()))));
        }
        let target = Arc::new(Mutex::new(Target::Waiter(id, sender)));
        self.target = Some(target.clone());
        own_watcher(target)
    }

    fn make_directory(&mut self) -> std::result::Result<(), Failed<Error>> {
        let directory = self.wish.lock.directory();
        let made = self.call.session().and_then(|session| self.client().make_directory(self.call, &session, directory));
        self.has_made_directory |= matches!(made, Ok(true));
        made.map(drop).map_err(|error| self.failed(error, false))
    }

    fn again(&mut self, error: Error) -> Input<Error> {
        let allowed = if error.is_no_node() {
            self.call.allow_again(&mut self.gone, error)
        } else {
            self.call.allow_retry(&mut self.retries, error)
        };
        match allowed {
            Ok(()) => Input::Allowed,
            Err(error) => Input::Failed(self.failed(error, false)),
        }
    }

    /// Sleeps until something happens.
    ///
    /// No wake-up can be lost: the channel exists before the watches are sent for, whatever fires stays in it, and a
    /// change from before the watch shows in the reply that sets it. The re-check turns what nobody thought of into a
    /// delay.
    fn sleep(&mut self) -> Input<Error> {
        self.retries = 0;
        let interval = self.wish.spec.waits.and_then(WaitStrategy::interval);
        let recheck = match interval {
            Some(interval) => Instant::now().checked_add(interval),
            None => next_recheck(self.client()),
        };
        let stop = self.wish.patience.stop;
        let bound = recheck.map_or(stop, |at| stop.by(at));
        let (_, mailbox) = self.mailbox.get_or_insert_with(unbounded);
        match bound.recv(mailbox) {
            Ok(Message::Event(watch, event)) => Input::Event(watch, event),
            Ok(Message::Limit) => Input::Woken,
            Ok(Message::Barred) if self.wish.place.is_some_and(Place::is_lost) => Input::Barred,
            Ok(Message::Barred) => Input::Woken,
            Err(end) => match stop.is_over().or((bound.deadline == stop.deadline).then_some(end)) {
                Some(end) => self.stopped(end),
                None => Input::Woken,
            },
        }
    }

    fn doze(&mut self) -> Input<Error> {
        let stop = self.wish.patience.waits_until().unwrap_or(self.io);
        let _ = stop.by(Instant::now() + moment(self.client())).recv(&crossbeam_channel::never::<()>());
        stop.is_over().map_or_else(|| self.effects.dozed(), |end| self.stopped(end))
    }

    fn hold(&mut self) -> Input<Error> {
        let wish = self.wish;
        let watched = self.effects.hold(wish.lock, &wish.spec, wish.writer, self.revocable.as_ref());
        let is_deleted = watched.is_some_and(|held| self.hand_over(&held));
        self.remember();
        for (held, owners) in self.effects.held().iter().zip(wish.owners.iter().cycle()) {
            owners.entered(wish.lock, held.clone());
        }
        if let Some(place) = wish.place {
            place.leave();
        }
        Input::Held { is_deleted }
    }

    /// From here on events of the own znode go to its holder; those from before are in the channel. Whether one of them
    /// is the znode's end.
    fn hand_over(&self, held: &Arc<HeldNode>) -> bool {
        let (Some(target), Some((_, mailbox))) = (&self.target, &self.mailbox) else { return false };
        let before = std::mem::replace(&mut *target.lock(), Target::Holder(Arc::downgrade(held)));
        drop(before);
        let of_own = mailbox.try_iter().filter_map(|message| match message {
            Message::Event(id, event) if self.effects.is_of_own(id) => Some(event),
            _ => None,
        });
        let (ends, others): (Vec<WatchEvent>, Vec<WatchEvent>) = of_own.partition(is_end);
        // A change of the data has used the watch up.
        others.iter().for_each(|event| held.watched(event));
        !ends.is_empty()
    }

    /// For those who come later.
    fn remember(&self) {
        let (lock, contender) = (self.wish.lock, &self.effects.contender);
        let [node] = contender.nodes() else { return };
        // Who was never behind anybody was hardly ever seen behind anybody: its successors know from their own lists that
        // it holds the lock.
        if contender.has_waited() && self.wish.spec.driver.successor_follows_holder() {
            self.client().core.grants.add(&lock.child(&node.name));
        }
        if contender.is_alone() && self.wish.writer.is_none() {
            let useless = lock.unlisted().lock().stands_alone(&node.name);
            drop(useless);
        }
    }

    fn ended(mut self, end: End<Error>) -> Result<Outcome> {
        match end {
            End::Granted => {
                let (held, has_waited) = (self.effects.take_held(), self.effects.contender.has_waited());
                Ok(Outcome::Granted { held, has_waited })
            }
            End::TimeUp => Ok(Outcome::TimeUp),
            End::Barred => Ok(Outcome::Barred),
            End::CompanionGone => Ok(Outcome::WriterGone),
            End::Uncertain => Err(self.wish.lock.uncertain(self.wish.spec.min_validity)),
            End::Exhausted(number) => {
                Err(Error::SequenceExhausted { path: self.wish.lock.base_path().to_owned(), number })
            }
            End::Failed(error) if self.ran_out_of_time(&error) => Ok(Outcome::TimeUp),
            End::Failed(error) => Err(error),
        }
    }

    /// Whether it failed only because its time was up: before a reply came, or while the server removed the directory,
    /// empty for a moment, as fast as it was made.
    fn ran_out_of_time(&self, error: &Error) -> bool {
        let is_so = self.wish.patience.is_over() && (error.is_no_node() || error.is_retryable() && !self.is_silent());
        if is_so {
            log::debug!("{}: the time was up first: {error}", self.wish.lock.base_path());
        }
        is_so
    }

    /// Whether a request without an answer means more than that the time was short: there is no connection, or the
    /// servers are silent for longer than a prompt heartbeat takes.
    fn is_silent(&self) -> bool {
        !self.client().is_connected() || self.sent.elapsed() > self.client().session_timeout() / 6
    }
}

impl Drop for Shell<'_> {
    /// After a panic of the caller's code, too.
    fn drop(&mut self) {
        let debris = self.effects.take_debris();
        self.clear_away(debris);
        if self.has_made_directory && !self.effects.contender.is_held() {
            self.client().core.clean_up(Job::never_used(self.wish.lock.directory().clone()));
        }
    }
}

/// To whom the watch on the own znode reports.
enum Target {
    Waiter(WatchId, Sender<Message>),
    Holder(Weak<HeldNode>),
}

fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let target = target.lock();
        match &*target {
            // Put there under the lock, so that none comes after the waiter has looked for the last time. To send wakes
            // the waiter at most, which takes this lock only when it is granted the lock.
            Target::Waiter(id, sender) => drop(sender.send(Message::Event(*id, event.clone()))),
            Target::Holder(held) => {
                let held = held.upgrade();
                drop(target);
                if let Some(held) = held {
                    held.watched(event);
                }
            }
        }
    })
}

/// What a contender asks of this process.
struct Surroundings<'a> {
    wish: &'a Wish<'a>,
    session: Option<Arc<dyn Session>>,
    guard: &'a Cell<Option<(u64, Over)>>,
}

impl Surroundings<'_> {
    fn over(&self) -> Option<Over> {
        let session = self.session.as_ref().filter(|session| session.tells_in_order())?;
        Some(Over { session: session.id(), connection: session.connection() })
    }
}

impl Environment<Error> for Surroundings<'_> {
    fn unique(&self) -> String {
        self.wish.lock.unique(self.session.as_ref().map_or(0, |session| session.id()))
    }

    fn max_leases(&self) -> usize {
        self.wish.limit.map_or(1, Limit::current)
    }

    fn plan(&self) -> Plan {
        let lock = self.wish.lock;
        // A server that is slow to answer creates must not be asked for lists that come too late, too: they grow with each
        // znode that is left in doubt meanwhile. Whoever has its znode in time asks for the list then.
        if lock.client().core.cleanup.is_searching(lock.directory()) {
            return Plan::Bare;
        }
        let Some(over) = self.over().filter(|_| self.wish.lock.goes_by_numbers() && self.wish.writer.is_none()) else {
            return Plan::List;
        };
        let (plan, guard) = lock.unlisted().lock().plan(over);
        self.guard.set(Some((guard, over)));
        plan
    }

    fn proves_alone(&self, name: &str) -> bool {
        self.over().is_some_and(|over| self.wish.lock.unlisted().lock().proves_alone(name, over))
    }

    fn was_granted_here(&self, name: &str) -> bool {
        self.wish.lock.client().core.grants.contains(&self.wish.lock.child(name))
    }

    fn node_gone(&self) -> Error {
        self.wish.lock.node_gone()
    }
}

fn guard_watcher(unlisted: &Arc<Mutex<Unlisted<Watch>>>, number: u64) -> Watcher {
    // The session has the watcher, and the watch the session.
    let unlisted = Arc::downgrade(unlisted);
    Arc::new(move |_: &WatchEvent| {
        let Some(unlisted) = unlisted.upgrade() else { return };
        let before = unlisted.lock().fired(number);
        // It may have to tell the server.
        drop(before);
    })
}

/// When a waiter looks again although nothing has happened.
pub(crate) fn next_recheck(client: &CuratorFramework) -> Option<Instant> {
    Instant::now().checked_add(spread(client.core.config.recheck_interval?))
}

/// A quarter more or less, so that waiters do not all look at once.
fn spread(interval: Duration) -> Duration {
    let quarter = interval / 4;
    quarter.saturating_mul(3).saturating_add(quarter.mul_f64(2.0 * fastrand::f64()))
}
