//! Carries out what a contender wants on the client's own thread, so that no thread waits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::{
    base::{panics::caught, paths::ServerPath},
    error::{Error, Result},
    framework::{
        cleanup::jobs::Job, client::call::Call, config::retry::RetrySleeper, events::followers::Follower,
        held::node::HeldNode, znodes::create::are_unknown,
    },
    locks::{
        api::options::{acquire::AcquireOptions, patience::Patience},
        contender::{
            effects::{LiveContender, Scene, failed, with_acl},
            internals::LockInternals,
            last_look::moment,
            spec::{Answer, Ask, Do, End, Failed, Input, Reaction, Spec},
        },
    },
    proto::types::ErrorCode,
    session::{
        api::Reply,
        wait::{
            deadline::Stop,
            pending::{Watch, answered_together},
        },
    },
};

/// How long an attempt without a caller rests before it tries again what was refused.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// One attempt to get a lock. All its steps are taken on the client's own thread, where replies, watch events and
/// timers are handed in.
///
/// No step can be lost: every request is answered, if only with the end of the connection; whoever waits for a
/// connection is woken by each new one ([`Follower`]); and an event that comes at any other time waits in the mailbox.
pub(crate) struct Attempt {
    lock: Arc<LockInternals>,
    spec: Spec,
    /// `None` once it has ended or was given up.
    work: Mutex<Option<Work>>,
}

/// The thread that waits for the first news: the attempt has queued, or has ended.
pub(crate) type Caller = Sender<Result<()>>;

/// Takes the end, and the caller if that is the first news.
pub(crate) type OnEnd = Box<dyn FnOnce(&Arc<Attempt>, Result<Arc<HeldNode>>, Option<Caller>) + Send>;

struct Work {
    live: LiveContender,
    awaits: Awaits,
    /// How often it has waited for a connection.
    waits: u32,
    retries: u32,
    started: Instant,
    /// A container, which the servers remove when it has been used.
    has_made_directory: bool,
    caller: Option<Caller>,
    on_end: OnEnd,
}

impl Work {
    /// What comes after a wait is a failure of its own.
    fn begin_anew(&mut self) {
        (self.retries, self.started) = (0, Instant::now());
    }

    fn mail(&mut self) -> Option<Input<Error>> {
        let mail = self.live.inputs().try_recv().ok()?;
        Some(self.live.read(mail))
    }
}

/// What has to happen before the next step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// Answers or a timer, which are handed in.
    Input,
    /// A connection; the number tells one wait from the next.
    Connection(u32),
    Event,
}

impl Attempt {
    /// Begins after `delay`. Without a caller it waits for a connection as long as it takes.
    pub(crate) fn begin(
        lock: &Arc<LockInternals>,
        delay: Duration,
        caller: Option<Caller>,
        on_end: OnEnd,
    ) -> Arc<Attempt> {
        let live = LiveContender::new(lock.revocable_node());
        let (awaits, waits, retries, started) = (Awaits::Input, 0, 0, Instant::now());
        let has_made_directory = false;
        let work = Work { live, awaits, waits, retries, started, has_made_directory, caller, on_end };
        let spec = lock.spec(Patience::of(&AcquireOptions::new()));
        let attempt = Arc::new(Attempt { lock: lock.clone(), spec, work: Mutex::new(Some(work)) });
        let follower: Arc<dyn Follower> = attempt.clone();
        lock.client().core.followers.add(Arc::downgrade(&follower));
        attempt.later(delay, Input::Begin);
        attempt
    }

    /// Leaves the queue; nobody is told of an end.
    pub(crate) fn give_up(&self) {
        let work = self.work.lock().take();
        if let Some(work) = work {
            self.clear_away(work.live, work.has_made_directory);
        }
    }

    /// The path of its znode, once it has one.
    pub(crate) fn node(&self) -> Option<ServerPath> {
        let name = self.with(|work| Some(work.live.contender.nodes.last()?.name.clone()))??;
        Some(self.lock.child(&name))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Work) -> T) -> Option<T> {
        self.work.lock().as_mut().map(act)
    }

    fn scene(&self) -> Scene<'_> {
        Scene { lock: &self.lock, spec: &self.spec, limit: None, stays_idle: false }
    }

    fn call(&self) -> Call<'_> {
        self.lock.client().call("lock", self.lock.base_path(), Stop::default())
    }

    /// Clears away what it may have left, in the background.
    fn clear_away(&self, mut live: LiveContender, is_directory_new: bool) {
        live.take_debris().clear_away(&self.lock, &self.spec);
        if is_directory_new {
            self.lock.client().core.clean_up(Job::never_used(self.lock.directory().clone()));
        }
    }

    /// Hands an input in, on the client's own thread.
    fn later(self: &Arc<Self>, delay: Duration, input: Input<Error>) {
        let this = self.clone();
        self.lock.client().core.run_later(delay, move || this.drive(Some(input)));
    }

    /// Takes steps for as long as the next input is at hand.
    fn drive(self: &Arc<Self>, mut next: Option<Input<Error>>) {
        while let Some(input) = next {
            let mut slot = self.work.lock();
            let Some(work) = slot.as_mut() else { return };
            if work.awaits == Awaits::Event {
                work.begin_anew();
            }
            work.awaits = Awaits::Input;
            let (wanted, debris) = work.live.step(self.scene(), false, input);
            // Under the lock of the step: whoever gives it up later would take a lock that is granted for one that is not.
            let over = slot.take_if(|_| matches!(wanted, Do::End(_)));
            drop(slot);
            debris.clear_away(&self.lock, &self.spec);
            next = match wanted {
                Do::Connect => self.connect(),
                Do::Ask(ask) => {
                    let add = |(request, watch)| (with_acl(self.lock.client(), request), watch);
                    self.ask(|| ask.into_iter().map(add).collect(), |_, answers| Some(Input::Answers(answers)))
                }
                Do::MakeDirectory => self.make_directory(!self.lock.has_persistent_directory),
                Do::Again(error) => self.again(error),
                Do::Sleep => self.sleep(),
                Do::Doze => self.doze(),
                Do::Hold => self.with(|work| work.live.hold(self.scene())),
                Do::End(end) => return over.map_or((), |work| self.ended(work, end)),
            };
        }
    }

    fn connect(self: &Arc<Self>) -> Option<Input<Error>> {
        if let Some(input) = self.connected() {
            return Some(input);
        }
        self.tell_queued();
        let (number, is_impatient) = self.with(|work| {
            work.waits += 1;
            work.awaits = Awaits::Connection(work.waits);
            (work.waits, work.caller.is_some())
        })?;
        if is_impatient {
            let (this, core) = (self.clone(), &self.lock.client().core);
            core.run_later(core.config.connection_timeout, move || this.waited_long(number));
        }
        None
    }

    /// Once it has queued, the caller need not wait for servers that are away or refuse to answer.
    fn tell_queued(&self) {
        let queued = |work: &mut Work| if work.live.contender.stands() { work.caller.take() } else { None };
        if let Some(caller) = self.with(queued).flatten() {
            let _ = caller.send(Ok(()));
        }
    }

    /// `None`: there is no connection yet. Its news comes on this very thread, so it cannot be missed.
    fn connected(&self) -> Option<Input<Error>> {
        match self.lock.client().core.connected_session(Stop::at(Instant::now())) {
            Ok(Ok(session)) => self.with(|work| {
                work.live.session = Some(session);
                Input::Connected
            }),
            Ok(Err(_)) => None,
            // The client is closed: no connection will come, so the retry policy is not asked.
            Err(error) => Some(Input::Failed(failed(error, false, None))),
        }
    }

    fn waited_long(self: &Arc<Self>, number: u32) {
        if self.with(|work| work.awaits) == Some(Awaits::Connection(number)) {
            self.drive(Some(Input::Failed(failed(self.call().connection_loss(), false, None))));
        }
    }

    /// Sends the requests; what `then` makes of all answers is handed in.
    fn ask(
        self: &Arc<Self>,
        ask: impl FnOnce() -> Ask,
        then: impl FnOnce(&Arc<Attempt>, Vec<Answer<Error>>) -> Option<Input<Error>> + Send + 'static,
    ) -> Option<Input<Error>> {
        // The provider is the caller's code: a panic in it must not end this thread.
        let Some(ask) = caught("the ACL provider", ask) else {
            let (name, value) = ("acl_provider", "a panic".into());
            let error = Error::InvalidArgument { name, value, rule: "an access control list for each path".into() };
            return then(self, vec![Err(failed(error, false, None))]);
        };
        let mut work = self.work.lock();
        // Sent under the lock: if this is given up meanwhile, what it leaves is cleared away behind the requests.
        let live = &mut work.as_mut()?.live;
        let session = live.sends(&ask)?;
        let requests = ask.into_iter().map(|(request, watch)| {
            let watcher = watch.map(|watch| {
                let tell = self.mail(live.sender());
                live.watcher(&self.lock, watch, tell)
            });
            (request, watcher)
        });
        let (this, core) = (self.clone(), self.lock.client().core.clone());
        let then = move |replies: Vec<Reply>| {
            core.run_in_background(move || {
                let answers = replies.into_iter().map(|reply| this.answer(reply)).collect();
                this.drive(then(&this, answers));
            });
        };
        let tickets = session.submit(answered_together(requests.collect(), then).collect());
        live.sent(tickets, |ticket| Some(Watch::new(session.clone(), ticket)));
        None
    }

    fn answer(&self, reply: Reply) -> Answer<Error> {
        reply.map_err(|error| {
            let error = self.call().error(error);
            let maybe_done = error.is_in_doubt();
            failed(error, maybe_done, None)
        })
    }

    /// Puts an input into the mailbox, and has somebody look there.
    fn mail(
        self: &Arc<Self>,
        send: impl Fn(Input<Error>) + Send + Sync + 'static,
    ) -> impl Fn(Input<Error>) + Send + Sync + 'static {
        let this = Arc::downgrade(self);
        move |input| {
            send(input);
            if let Some(this) = this.upgrade() {
                let core = this.lock.client().core.clone();
                core.run_in_background(move || this.look_into_mailbox());
            }
        }
    }

    fn look_into_mailbox(self: &Arc<Self>) {
        let take = |work: &mut Work| if work.awaits == Awaits::Event { work.mail() } else { None };
        self.drive(self.with(take).flatten());
    }

    /// Of containers, unless it is persistent as in ZooKeeper's own recipe; with all that is missing above it.
    fn make_directory(self: &Arc<Self>, containers: bool) -> Option<Input<Error>> {
        self.with(|work| work.has_made_directory = !self.lock.has_persistent_directory);
        let (client, directory) = (self.lock.client(), self.lock.directory());
        let create = |path| (client.parent_creation(&path, containers), None);
        let create = || directory.ancestors().chain([directory.clone()]).map(create).collect();
        self.ask(create, move |this, answers| {
            let codes = answers.iter().filter_map(|answer| answer.as_ref().err()?.code);
            if containers && are_unknown(codes) {
                return this.make_directory(false);
            }
            Some(Input::DirectoryMade(all_made(answers)))
        })
    }

    /// A retry policy sleeps in the thread that asks it. This thread must not sleep, so the time is recorded, and
    /// waited for by a timer.
    fn again(self: &Arc<Self>, error: Error) -> Option<Input<Error>> {
        let (retries, elapsed, has_caller) = self.with(|work| {
            work.retries += 1;
            (work.retries - 1, work.started.elapsed(), work.caller.is_some())
        })?;
        let sleeper = Recorder(Mutex::new(Duration::ZERO));
        let policy = &self.lock.client().core.config.retry_policy;
        let is_allowed = caught("the retry policy", || {
            (error.is_no_node() || policy.allows_error(&error)) && policy.allow_retry(retries, elapsed, &sleeper)
        });
        let delay = sleeper.0.into_inner();
        match is_allowed {
            Some(true) => self.later(delay, Input::Begin),
            _ if has_caller => return Some(Input::Failed(failed(error, false, Some(Reaction::Final)))),
            _ => self.later(delay.max(AFTER_REFUSAL), Input::Begin),
        }
        None
    }

    fn sleep(&self) -> Option<Input<Error>> {
        let (input, caller) = self.with(|work| {
            let input = work.mail();
            match input {
                Some(_) => work.begin_anew(),
                None => work.awaits = Awaits::Event,
            }
            (input, work.caller.take())
        })?;
        // It has queued.
        if let Some(caller) = caller {
            let _ = caller.send(Ok(()));
        }
        input
    }

    fn doze(self: &Arc<Self>) -> Option<Input<Error>> {
        self.tell_queued();
        let (this, client) = (self.clone(), self.lock.client());
        let moment = moment(client.session_timeout());
        client.core.run_later(moment, move || this.drive(this.with(|work| work.live.dozed())));
        None
    }

    fn ended(self: &Arc<Self>, mut work: Work, end: End<Error>) {
        let path = || self.lock.base_path().to_owned();
        let result = match end {
            End::Granted => work.live.take_held().pop().ok_or_else(|| self.lock.node_gone()),
            End::Exhausted(number) => Err(Error::SequenceExhausted { path: path(), number }),
            End::Failed(error) => Err(error),
            // It has no deadline, no other queue and no companion.
            End::TimeUp | End::Barred | End::CompanionGone | End::Uncertain | End::Busy(_) => {
                Err(self.lock.node_gone())
            }
        };
        self.clear_away(work.live, work.has_made_directory && result.is_err());
        if let Ok(held) = &result {
            self.lock.client().core.counters.acquires.told.count();
            held.trace(self.lock.base_path());
        }
        (work.on_end)(self, result, work.caller);
    }
}

/// What came of creating a path, each answer that of the znode below the one before. The last one decides: whoever may not
/// create a parent that is there needs not. Where a parent is missing, the first that was refused says why.
fn all_made(mut answers: Vec<Answer<Error>>) -> std::result::Result<(), Failed<Error>> {
    match answers.pop() {
        Some(Err(last)) if last.code == Some(ErrorCode::NoNode) => {
            let is_why =
                |failed: &Failed<Error>| !matches!(failed.code, Some(ErrorCode::NodeExists | ErrorCode::NoNode));
            Err(answers.into_iter().filter_map(std::result::Result::err).find(is_why).unwrap_or(last))
        }
        Some(Err(last)) if last.code != Some(ErrorCode::NodeExists) => Err(last),
        _ => Ok(()),
    }
}

impl Follower for Attempt {
    fn wake(self: Arc<Self>) {
        let input = match self.with(|work| work.awaits) {
            Some(Awaits::Event) => Some(Input::Woken),
            Some(Awaits::Connection(_)) => self.connected(),
            Some(Awaits::Input) | None => None,
        };
        self.drive(input);
    }
}

/// Records how long a retry policy wants to sleep.
struct Recorder(Mutex<Duration>);

impl RetrySleeper for Recorder {
    fn sleep_for(&self, duration: Duration) -> bool {
        *self.0.lock() += duration;
        true
    }
}
