//! Carries out what a contender wants, for one that is told: no thread waits.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use super::{
    effects::{Debris, Effects, moment, with_acl},
    spec::{Answer, Ask, ConnectFor, Do, End, Environment, Failed, Input, Plan, Reaction, Spec, WatchId, is_end},
};
use crate::{
    Error, HoldState, Result,
    framework::{Call, Follower, HeldNode, RetrySleeper, caught},
    locks::{LockInternals, LockListener},
    paths::ServerPath,
    proto::{CreateMode, ErrorCode, Request},
    session::{Reply, Stop, Submission, Watch, WatchEvent, Watcher},
};

/// How long one that was queued before waits until it tries again what was refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// One object that wants the lock until it is given up. Each step runs on the client's own thread, where replies, watch
/// events and timers are handed in.
///
/// No step can be lost: every request is answered, if only with the end of the connection; whoever waits for a connection
/// is woken by each new one ([`Follower`]); and an event that comes at any other time waits in the mailbox.
pub(crate) struct Candidate {
    this: Weak<Candidate>,
    lock: LockInternals,
    spec: Spec,
    state: Mutex<State>,
}

struct State {
    is_wanted: bool,
    is_closed: bool,
    /// Counts attempts, so that what belongs to an earlier one is known as such.
    round: u64,
    attempt: Option<Attempt>,
    held: Option<Arc<HeldNode>>,
    /// The watch on its znode.
    own: Option<WatchId>,
    listener: Option<Arc<dyn LockListener>>,
    /// The hold of which the listener was told.
    told: Option<Arc<HeldNode>>,
}

/// One contender and what its shell keeps for it.
struct Attempt {
    effects: Effects,
    mailbox: VecDeque<Input<Error>>,
    awaits: Awaits,
    retries: u32,
    started: Instant,
    /// Who has called `lock` waits for the first news.
    caller: Option<Sender<Result<()>>>,
}

/// What has to happen before the next step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// Answers or a timer, which are handed in.
    Input,
    Connection,
    Event,
}

impl Candidate {
    pub(crate) fn new(lock: LockInternals, mut spec: Spec, listener: Option<Arc<dyn LockListener>>) -> Arc<Candidate> {
        spec.waits.get_or_insert_default();
        let state = State {
            is_wanted: false,
            is_closed: false,
            round: 0,
            attempt: None,
            held: None,
            own: None,
            listener,
            told: None,
        };
        let candidate = Arc::new_cyclic(|this: &Weak<Candidate>| Candidate {
            this: this.clone(),
            lock,
            spec,
            state: Mutex::new(state),
        });
        let follower: Weak<dyn Follower> = candidate.this.clone();
        candidate.lock.client().core.followers.add(follower);
        candidate
    }

    pub(crate) fn internals(&self) -> &LockInternals {
        &self.lock
    }

    pub(crate) fn set_listener(&self, listener: Option<Arc<dyn LockListener>>) {
        let before = std::mem::replace(&mut self.state.lock().listener, listener);
        // The caller's code: not under the lock.
        drop(before);
    }

    /// Queues, unless it does already, and waits until its place in the queue is known. `true` if the lock is its own.
    pub(crate) fn lock(self: &Arc<Self>) -> Result<bool> {
        let core = &self.lock.client().core;
        core.check_open()?;
        let news = {
            let mut state = self.state.lock();
            if state.is_closed {
                return Ok(false);
            }
            if state.is_wanted {
                drop(state);
                return Ok(self.is_owner());
            }
            state.is_wanted = true;
            let (caller, news) = bounded(1);
            self.begin(&mut state, Some(caller));
            news
        };
        self.await_news(&news)?;
        Ok(self.is_owner())
    }

    fn await_news(&self, news: &Receiver<Result<()>>) -> Result<()> {
        select! {
            // Nobody wants the lock any more where the sender is gone.
            recv(news) -> result => result.unwrap_or(Ok(())),
            recv(self.lock.client().core.closed.signal()) -> _ => {
                drop(self.leave());
                Err(Error::ClientClosed)
            }
        }
    }

    /// Begins a new attempt, on the client's own thread.
    fn begin(self: &Arc<Self>, state: &mut State, caller: Option<Sender<Result<()>>>) {
        state.round += 1;
        state.attempt = Some(Attempt {
            effects: Effects::new(),
            mailbox: VecDeque::new(),
            awaits: Awaits::Input,
            retries: 0,
            started: Instant::now(),
            caller,
        });
        self.later(state.round, Duration::ZERO, || Input::Begin);
    }

    /// Hands an input in, on the client's own thread.
    fn later(self: &Arc<Self>, round: u64, delay: Duration, input: impl FnOnce() -> Input<Error> + Send + 'static) {
        let this = self.clone();
        let core = self.lock.client().core.clone();
        core.run_later(delay, move || this.drive(round, input()));
    }

    fn drive(self: &Arc<Self>, round: u64, mut input: Input<Error>) {
        loop {
            let Some((next, debris)) = self.step(round, input) else { return };
            debris.clear_away(&self.lock, &self.spec);
            input = match next {
                Do::Sleep => match self.sleep(round) {
                    Some(input) => input,
                    None => return,
                },
                Do::Connect(patience) => match self.connect(round, patience) {
                    Some(input) => input,
                    None => return,
                },
                Do::Hold => match self.hold(round) {
                    Some(input) => input,
                    None => return,
                },
                Do::Ask(ask) => return self.ask(round, ask),
                Do::MakeDirectory => return self.make_directory(round),
                Do::Again(error) => return self.again(round, error),
                Do::Doze => return self.doze(round),
                Do::End(end) => return self.ended(round, end),
            };
        }
    }

    /// `None`: the attempt was given up.
    fn step(&self, round: u64, input: Input<Error>) -> Option<(Do<Error>, Debris)> {
        let mut state = self.state.lock();
        let attempt = state.attempt(round)?;
        attempt.awaits = Awaits::Input;
        let session = attempt.effects.session.as_ref().map_or(0, |session| session.id());
        Some(attempt.effects.step(&self.spec, &Surroundings { lock: &self.lock, session }, false, input))
    }

    fn sleep(&self, round: u64) -> Option<Input<Error>> {
        let (input, caller) = {
            let mut state = self.state.lock();
            let attempt = state.attempt(round)?;
            attempt.retries = 0;
            let input = attempt.mailbox.pop_front();
            if input.is_none() {
                attempt.awaits = Awaits::Event;
            }
            (input, attempt.caller.take())
        };
        // It has its place in the queue.
        if let Some(caller) = caller {
            let _ = caller.send(Ok(()));
        }
        input
    }

    fn connect(self: &Arc<Self>, round: u64, patience: ConnectFor) -> Option<Input<Error>> {
        let core = &self.lock.client().core;
        let session = match core.connected_session(Stop::at(Instant::now())) {
            Ok(found) => found.ok(),
            // None will come, so the retry policy is not asked.
            Err(error) => return Some(Input::Failed(failed(error))),
        };
        let mut state = self.state.lock();
        let attempt = state.attempt(round)?;
        if let Some(session) = session {
            attempt.effects.session = Some(session);
            return Some(Input::Connected);
        }
        attempt.awaits = Awaits::Connection;
        let has_caller = attempt.caller.is_some();
        drop(state);
        // It may have come in between; whoever follows then finds this contender waiting or not.
        self.wake_if_connected(round);
        if has_caller && patience == ConnectFor::Call {
            let this = self.clone();
            core.run_later(core.config.connection_timeout, move || this.connect_timed_out(round));
        }
        None
    }

    fn wake_if_connected(self: &Arc<Self>, round: u64) {
        let core = &self.lock.client().core;
        if core.current_session().is_some_and(|session| session.connection() != 0) {
            let this = self.clone();
            core.run_in_background(move || this.wake_round(round));
        }
    }

    fn connect_timed_out(self: &Arc<Self>, round: u64) {
        let is_waiting = {
            let mut state = self.state.lock();
            state.attempt(round).is_some_and(|attempt| attempt.awaits == Awaits::Connection && attempt.caller.is_some())
        };
        if is_waiting {
            let error = self.call().connection_loss();
            self.drive(round, Input::Failed(failed(error)));
        }
    }

    fn call(&self) -> Call<'_> {
        self.lock.client().call("lock", self.lock.base_path(), Stop::default())
    }

    /// Sends the requests; the last answer hands all of them in.
    fn ask(self: &Arc<Self>, round: u64, ask: Ask) {
        let requests = match self.with_acls(ask.requests) {
            Ok(requests) => requests,
            Err(failed) => return self.later(round, Duration::ZERO, || Input::Answers(vec![Err(failed)])),
        };
        let ask = Ask { requests, is_farewell: false };
        let (session, debris) = {
            let mut state = self.state.lock();
            let Some(attempt) = state.attempt(round) else { return };
            let Some(session) = attempt.effects.sends(&ask) else { return };
            (session, attempt.effects.debris_of_requests())
        };
        let requests = ask.requests;
        let answers = Answers::new(self.clone(), round, requests.len());
        let ids: Vec<Option<WatchId>> = requests.iter().map(|(_, watch)| *watch).collect();
        let submissions = requests.into_iter().enumerate().map(|(index, (request, watch))| {
            let answers = answers.clone();
            let on_reply = Box::new(move |reply: Reply| answers.put(index, reply));
            Submission { request, watcher: watch.map(|watch| self.watcher(round, watch)), on_reply }
        });
        let tickets = session.submit(submissions.collect());
        let watches = ids.into_iter().zip(tickets);
        let watches = watches.filter_map(|(id, ticket)| Some((id?, Watch::new(session.clone(), ticket))));
        let watches: Vec<(WatchId, Watch)> = watches.collect();
        let mut state = self.state.lock();
        if let Some(attempt) = state.attempt(round) {
            return watches.into_iter().for_each(|(id, watch)| attempt.effects.keep(id, watch));
        }
        drop(state);
        // Given up while the requests were on their way out: what was cleared away then came before them.
        drop(watches);
        debris.clear_away(&self.lock, &self.spec);
    }

    /// The provider is the caller's, and asked on the client's own thread.
    fn with_acls<T>(&self, requests: Vec<(Request, T)>) -> std::result::Result<Vec<(Request, T)>, Failed<Error>> {
        let client = self.lock.client();
        let add = |(request, watch)| (with_acl(client, request), watch);
        caught("the ACL provider", || requests.into_iter().map(add).collect()).ok_or_else(|| {
            let (name, value) = ("acl_provider", "a panic".into());
            let rule = "an access control list for each path".into();
            failed(Error::InvalidArgument { name, value, rule })
        })
    }

    fn watcher(&self, round: u64, id: WatchId) -> Watcher {
        let this = self.this.clone();
        Arc::new(move |event: &WatchEvent| {
            let Some(this) = this.upgrade() else { return };
            let (core, event) = (this.lock.client().core.clone(), event.clone());
            core.run_in_background(move || this.happened(round, id, event));
        })
    }

    fn happened(self: &Arc<Self>, round: u64, id: WatchId, event: WatchEvent) {
        let mut state = self.state.lock();
        if state.round != round {
            return;
        }
        if let Some((_, held)) = state.watched_hold().filter(|(watch, _)| *watch == id) {
            drop(state);
            return held.watched(&event);
        }
        let Some(attempt) = state.attempt(round) else { return };
        let input = Input::Event(id, event);
        if attempt.awaits != Awaits::Event {
            return attempt.mailbox.push_back(input);
        }
        drop(state);
        self.drive(round, input);
    }

    /// Persistent, as in ZooKeeper's own recipe, with all that is missing above it.
    fn make_directory(self: &Arc<Self>, round: u64) {
        let directory = self.lock.directory();
        let mut chain: Vec<ServerPath> = directory.ancestors().collect();
        chain.push(directory.clone());
        let create = |path: ServerPath| {
            let (mode, data, acl) = (CreateMode::Persistent, Vec::new(), Vec::new());
            (Request::Create { path: path.into_string(), data, acl, mode, with_stat: false }, ())
        };
        let session = self.state.lock().attempt(round).and_then(|attempt| attempt.effects.session.clone());
        let Some(session) = session else { return };
        let requests = match self.with_acls(chain.into_iter().map(create).collect()) {
            Ok(requests) => requests,
            Err(failed) => return self.later(round, Duration::ZERO, || Input::DirectoryMade(Err(failed))),
        };
        let last = requests.len().saturating_sub(1);
        let submission = |(index, (request, ())): (usize, (Request, ()))| {
            let this = self.clone();
            let on_reply = Box::new(move |reply: Reply| {
                if index == last {
                    let made = match this.answer(reply) {
                        Err(failed) if failed.code != Some(ErrorCode::NodeExists) => Err(failed),
                        _ => Ok(()),
                    };
                    this.later(round, Duration::ZERO, || Input::DirectoryMade(made));
                }
            });
            Submission { request, watcher: None, on_reply }
        };
        session.submit(requests.into_iter().enumerate().map(submission).collect());
    }

    fn answer(&self, reply: Reply) -> Answer<Error> {
        reply.map_err(|error| failed(self.call().error(error)))
    }

    /// The retry policy sleeps through the one who asks; nobody can here, so the time is taken down.
    fn again(self: &Arc<Self>, round: u64, error: Error) {
        let sleeper = Recorder(Mutex::new(Duration::ZERO));
        let policy = &self.lock.client().core.config.retry_policy;
        let (retries, elapsed, is_first) = {
            let mut state = self.state.lock();
            let Some(attempt) = state.attempt(round) else { return };
            attempt.retries += 1;
            (attempt.retries - 1, attempt.started.elapsed(), attempt.caller.is_some())
        };
        let allowed = caught("the retry policy", || {
            (error.is_no_node() || policy.allows_error(&error)) && policy.allow_retry(retries, elapsed, &sleeper)
        });
        let delay = sleeper.0.into_inner();
        match allowed {
            Some(true) => self.later(round, delay, || Input::Allowed),
            // One that has had its place once is not given up for want of a connection.
            _ if !is_first => self.later(round, delay.max(AFTER_REFUSAL), || Input::Allowed),
            _ => self.later(round, Duration::ZERO, || Input::Failed(failed(error))),
        }
    }

    fn doze(self: &Arc<Self>, round: u64) {
        let this = self.clone();
        let core = &self.lock.client().core;
        core.run_later(moment(self.lock.client()), move || {
            let input = this.state.lock().attempt(round).map(|attempt| attempt.effects.dozed());
            if let Some(input) = input {
                this.drive(round, input);
            }
        });
    }

    fn hold(&self, round: u64) -> Option<Input<Error>> {
        let mut state = self.state.lock();
        let attempt = state.attempt(round)?;
        let held = attempt.effects.hold(&self.lock, &self.spec, None, None);
        let effects = &attempt.effects;
        let of_own = attempt.mailbox.iter().filter_map(|input| match input {
            Input::Event(id, event) if effects.is_of_own(*id) => Some(event.clone()),
            _ => None,
        });
        let (ends, others): (Vec<WatchEvent>, Vec<WatchEvent>) = of_own.partition(is_end);
        drop(state);
        // A change of the data has used the watch up. Not under the lock: it gives the watch up.
        held.iter().for_each(|held| others.iter().for_each(|event| held.watched(event)));
        Some(Input::Held { is_deleted: !ends.is_empty() })
    }

    fn ended(self: &Arc<Self>, round: u64, end: End<Error>) {
        match end {
            End::Granted => self.granted(round),
            End::Exhausted(number) => {
                let path = self.lock.base_path().to_owned();
                self.gave_up(round, Error::SequenceExhausted { path, number });
            }
            End::Failed(error) => self.gave_up(round, error),
            // It has no deadline, no other queue, no companion, and wants no validity ahead.
            End::TimeUp | End::Barred | End::CompanionGone | End::Uncertain => {
                self.gave_up(round, self.lock.node_gone());
            }
        }
    }

    fn granted(self: &Arc<Self>, round: u64) {
        let mut state = self.state.lock();
        if state.round != round {
            return;
        }
        let Some(mut attempt) = state.attempt.take() else { return };
        state.own = attempt.effects.contender.own_watch();
        state.held = attempt.effects.take_held().pop();
        let held = state.held.clone();
        drop(state);
        let caller = attempt.caller.take();
        self.abandon_attempt(attempt);
        let Some(held) = held else { return };
        let (this, of_node) = (self.this.clone(), Arc::downgrade(&held));
        // On the dispatch thread already, which takes nothing new when the client is being closed.
        held.listen(Arc::new(move |state| {
            let (Some(this), Some(held)) = (this.upgrade(), of_node.upgrade()) else { return };
            if matches!(state, HoldState::Lost(_)) {
                this.lost(&held);
            }
            this.tell_now();
        }));
        self.tell();
        if let Some(caller) = caller {
            let _ = caller.send(Ok(()));
        }
    }

    /// The owner has lost the lock; it queues again.
    fn lost(self: &Arc<Self>, held: &Arc<HeldNode>) {
        let mut state = self.state.lock();
        if !state.held.as_ref().is_some_and(|now| Arc::ptr_eq(now, held)) {
            return;
        }
        state.held = None;
        if state.is_wanted {
            self.begin(&mut state, None);
        }
        drop(state);
        self.lock.client().core.held.remove(held);
    }

    /// The attempt has failed for good.
    fn gave_up(self: &Arc<Self>, round: u64, error: Error) {
        let mut state = self.state.lock();
        if state.round != round {
            return;
        }
        let Some(attempt) = state.attempt.take() else { return };
        let caller = attempt.caller.clone();
        // What an attempt after the first is refused may be allowed again.
        let tries_again = caller.is_none() && !is_final(&error);
        if tries_again {
            state.round += 1;
            let (round, this) = (state.round, self.clone());
            self.lock.client().core.run_later(AFTER_REFUSAL, move || this.begin_again(round));
        } else {
            state.is_wanted = false;
        }
        drop(state);
        match caller {
            Some(caller) => drop(caller.send(Err(error))),
            None if tries_again => log::error!("{}: cannot queue again for now: {error}", self.lock.base_path()),
            None => log::error!("{}: the lock is given up: {error}", self.lock.base_path()),
        }
        self.abandon_attempt(attempt);
    }

    fn begin_again(self: &Arc<Self>, round: u64) {
        let mut state = self.state.lock();
        if state.round == round && state.is_wanted && state.attempt.is_none() && state.held.is_none() {
            self.begin(&mut state, None);
        }
    }

    /// What it may have left in the queue goes in the background.
    fn abandon_attempt(&self, mut attempt: Attempt) {
        attempt.effects.take_debris().clear_away(&self.lock, &self.spec);
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again.
    pub(crate) fn unlock(self: &Arc<Self>) -> Result<()> {
        let Some(held) = self.leave() else { return Ok(()) };
        self.tell();
        let (result, job) = self.lock.release(&held);
        if let Some(job) = job {
            self.lock.client().core.clean_up(job);
        }
        result
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.state.lock().is_closed = true;
        self.unlock()
    }

    /// The object is gone: leaves without waiting.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.state.lock().is_closed = true;
        if let Some(held) = self.leave() {
            self.tell();
            self.lock.release_in_background(&held);
        }
    }

    /// Not wanted any more. The hold is handed out, to be released.
    fn leave(&self) -> Option<Arc<HeldNode>> {
        let (attempt, held) = {
            let mut state = self.state.lock();
            state.is_wanted = false;
            state.round += 1;
            (state.attempt.take(), state.held.take())
        };
        if let Some(attempt) = attempt {
            self.abandon_attempt(attempt);
        }
        held
    }

    /// Has the listener told of what has changed, on the dispatch thread.
    fn tell(self: &Arc<Self>) {
        let this = self.clone();
        self.lock.client().core.dispatcher.run(move || this.tell_now());
    }

    /// Tells what is true right now. An owner stays one up to `valid_until`, over a reconnect too, after which the client
    /// looks whether the znode is there; beyond it another one may be told.
    fn tell_now(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let (before, held) = (state.told.take(), state.held.clone());
        let was_told = |held: &Arc<HeldNode>| before.as_ref().is_some_and(|before| Arc::ptr_eq(before, held));
        let in_doubt = held.as_ref().filter(|held| !held.is_certain() && held.lost().is_none());
        let stays = in_doubt.filter(|held| was_told(held) && now < held.valid_until());
        // A doubt that begins and ends between two looks of the client changes nothing that would be told.
        let look_again = in_doubt.map(|_| stays.map_or(now + moment(self.lock.client()), |held| held.valid_until()));
        state.told = held.clone().filter(|held| held.is_certain() || stays.is_some());
        let is_released = before.is_some() && !state.told.as_ref().is_some_and(was_told);
        let is_acquired = state.told.as_ref().is_some_and(|held| !was_told(held));
        let listener = state.listener.clone();
        drop(state);
        if let Some(at) = look_again {
            self.tell_at(at);
        }
        let Some(listener) = listener else { return };
        // Whatever the first call throws, the second one is due.
        if is_released {
            let _ = caught("a lock listener", || listener.lock_released());
        }
        if is_acquired {
            listener.lock_acquired();
        }
    }

    fn tell_at(self: &Arc<Self>, at: Instant) {
        let this = self.clone();
        let delay = at.saturating_duration_since(Instant::now());
        self.lock.client().core.run_later(delay, move || this.tell());
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.held().is_some_and(|held| held.is_certain())
    }

    pub(crate) fn held(&self) -> Option<Arc<HeldNode>> {
        self.state.lock().held.clone()
    }

    /// The path of its znode, as the caller sees it.
    pub(crate) fn id(&self) -> Option<String> {
        let state = self.state.lock();
        let path = match (&state.held, &state.attempt) {
            (Some(held), _) => held.path().clone(),
            (None, attempt) => self.lock.child(&attempt.as_ref()?.effects.contender.nodes().last()?.name),
        };
        drop(state);
        Some(self.lock.client().prefix.to_client(path.as_str()))
    }

    fn wake_round(self: &Arc<Self>, round: u64) {
        let input = {
            let mut state = self.state.lock();
            let Some(attempt) = state.attempt(round) else { return };
            match attempt.awaits {
                Awaits::Input => return,
                Awaits::Event => Some(Input::Woken),
                Awaits::Connection => None,
            }
        };
        match input {
            Some(input) => self.drive(round, input),
            None => self.connected(round),
        }
    }

    fn connected(self: &Arc<Self>, round: u64) {
        let session = self.lock.client().core.current_session().filter(|session| session.connection() != 0);
        let Some(session) = session else { return };
        {
            let mut state = self.state.lock();
            let Some(attempt) = state.attempt(round) else { return };
            attempt.effects.session = Some(session);
        }
        self.drive(round, Input::Connected);
    }
}

impl State {
    /// What is held, or about to be, and the watch on its znode.
    fn watched_hold(&self) -> Option<(WatchId, Arc<HeldNode>)> {
        match (&self.held, &self.attempt) {
            (Some(held), _) => Some((self.own?, held.clone())),
            (None, attempt) => {
                let effects = &attempt.as_ref()?.effects;
                Some((effects.contender.own_watch()?, effects.held().last()?.clone()))
            }
        }
    }

    fn attempt(&mut self, round: u64) -> Option<&mut Attempt> {
        if self.round == round { self.attempt.as_mut() } else { None }
    }
}

impl Follower for Candidate {
    fn wake(self: Arc<Self>) {
        let round = self.state.lock().round;
        self.wake_round(round);
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("dir", &self.lock.base_path()).finish_non_exhaustive()
    }
}

/// Collects the answers to one [`Ask`].
#[derive(Clone)]
struct Answers {
    candidate: Arc<Candidate>,
    round: u64,
    answers: Arc<Mutex<Vec<Option<Answer<Error>>>>>,
}

impl Answers {
    fn new(candidate: Arc<Candidate>, round: u64, count: usize) -> Answers {
        let answers = std::iter::repeat_with(|| None).take(count).collect();
        Answers { candidate, round, answers: Arc::new(Mutex::new(answers)) }
    }

    fn put(&self, index: usize, reply: Reply) {
        let answer = self.candidate.answer(reply);
        let all = {
            let mut answers = self.answers.lock();
            if let Some(place) = answers.get_mut(index) {
                *place = Some(answer);
            }
            answers.iter().all(Option::is_some).then(|| std::mem::take(&mut *answers))
        };
        if let Some(all) = all {
            let answers = all.into_iter().flatten().collect();
            self.candidate.later(self.round, Duration::ZERO, || Input::Answers(answers));
        }
    }
}

/// Takes down how long a retry policy wants to sleep.
struct Recorder(Mutex<Duration>);

impl RetrySleeper for Recorder {
    fn sleep_for(&self, duration: Duration) -> bool {
        *self.0.lock() += duration;
        true
    }
}

/// Whether no other attempt would end otherwise.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::FrameTooLarge { .. } | Error::SequenceExhausted { .. } | Error::ClientClosed | Error::AuthFailed { .. }
    )
}

fn failed(error: Error) -> Failed<Error> {
    let reaction = if error.is_retryable() { Reaction::Retry } else { Reaction::Final };
    Failed { code: error.code(), maybe_done: error.is_in_doubt(), reaction, error }
}

/// What a contender asks of this process.
struct Surroundings<'a> {
    lock: &'a LockInternals,
    session: i64,
}

impl Environment<Error> for Surroundings<'_> {
    fn unique(&self) -> String {
        self.lock.unique(self.session)
    }

    fn max_leases(&self) -> usize {
        1
    }

    fn plan(&self) -> Plan {
        if self.lock.client().core.cleanup.is_searching(self.lock.directory()) { Plan::Bare } else { Plan::List }
    }

    fn proves_alone(&self, _name: &str) -> bool {
        false
    }

    fn was_granted_here(&self, _name: &str) -> bool {
        false
    }

    fn node_gone(&self) -> Error {
        self.lock.node_gone()
    }
}
