//! A candidate contends for a lock until it gives up, and tells listeners when it has the lock; and the campaign that its
//! thread runs, as that of a leader selector does.

use std::{
    cell::RefCell,
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    base::{
        channel::{Receiver, Sender, bounded, select},
        clock,
        panics::caught,
        paths::ServerPath,
        sync::Mutex,
        threads::spawn,
        unlocked::drop_unlocked,
    },
    error::{Error, Result},
    framework::{
        client::core::{CuratorFramework, ListenerId},
        events::{
            connection_state::ConnectionStateErrorPolicy,
            dispatch::{as_listener, is_listener},
            reactions::OnConnection,
        },
        held::{changes::HoldState, node::HeldNode},
    },
    locks::{
        acquire::{Outcome, contention::Acquire, internals::LockInternals, last_look::pause},
        leader::leadership::{CloseMode, LeaderState, Leadership},
        options::acquire::{AcquireOptions, Wait},
        recipe::doubt::Doubt,
    },
    session::wait::{cancel::CancelToken, deadline::WaitBound},
};

/// How long a release waits until the listeners have been told. A listener that itself waits for the caller thus makes a
/// delay, and no deadlock.
const LONGEST_TELLING: Duration = Duration::from_secs(1);

/// How long to wait before the next attempt after the connection went, and after the servers refused one.
const AFTER_LOSS: Duration = Duration::from_millis(100);
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

type TermListener = Arc<dyn Fn(Option<Leadership>, Sender<()>) + Send + Sync>;

/// One object that wants the lock: it queues, is told, and queues again after a loss, on a thread that lives as long as it
/// wants the lock.
pub(in crate::locks) struct Candidate {
    pub(in crate::locks) lock: LockInternals,
    /// Closes its owner, as the owner's own `close` does.
    close: fn(&Candidate) -> Result<()>,
    /// Says in which states of the connection it may not lead; `None`: in every state it may.
    policy: Option<ConnectionStateErrorPolicy>,
    pub(super) state: Mutex<CandidateState>,
    /// Locked by the thread of a candidacy from the first message to its listeners to its end: the next candidacy's
    /// thread tells nothing before. The listeners run on another thread.
    telling: Mutex<()>,
}

#[derive(Default)]
pub(super) struct CandidateState {
    pub(super) life: LeaderState,
    pub(super) close_mode: CloseMode,
    /// The object's part of a candidacy, which lasts from the moment when the lock is wanted until it is given up: a token
    /// that is cancelled then, and a channel of holds to release once the listeners know of their end. The channel closes
    /// with the thread.
    candidacy: Option<(CancelToken, Receiver<Arc<HeldNode>>)>,
    /// The path of its znode, once it has one.
    node: Option<ServerPath>,
    /// The current hold's term. It begins with the grant, and again when a doubt has passed of which the listeners were
    /// told.
    term: Option<Leadership>,
    /// The holds that it has lost: who closes it knows of that, and their fences go.
    lost: Vec<Weak<HeldNode>>,
    /// The path of the znode with which it led last.
    pub(super) last_path: Option<String>,
    /// Whether the listeners were told of a term's beginning, and not yet of its end.
    is_told: bool,
    /// The listeners are told on the dispatch thread and one call at a time: of the term that begins, or by `None` of the end
    /// of one. Each has been told once its sender is dropped, by which nothing is ever sent. Nothing else is told, and
    /// nothing given back, before all of them have been told.
    pub(super) listeners: Vec<(ListenerId, TermListener)>,
    /// The number of the listener that was added last.
    last_listener: u64,
    /// Cancelled at the next news, for the threads that wait for leadership. Later waiters get another token.
    pub(super) news: CancelToken,
    /// The error of the last news, if an attempt to queue has failed.
    pub(super) failed: Option<Error>,
    /// Ends the term of a candidacy, as the policy says; no listener delays that.
    on_connection: Option<Arc<OnConnection>>,
}

impl Candidate {
    /// Makes a candidate. Its owner must [`abandon`](Candidate::abandon) it in the end.
    pub(in crate::locks) fn new(
        lock: LockInternals,
        policy: Option<ConnectionStateErrorPolicy>,
        close: fn(&Candidate) -> Result<()>,
    ) -> Arc<Candidate> {
        Arc::new(Candidate { lock, close, policy, state: Mutex::default(), telling: Mutex::default() })
    }

    /// Queues, unless it does already, and waits until its place in the queue is known, or the servers are away. `true` if
    /// the lock is its own.
    pub(in crate::locks) fn lock(self: &Arc<Self>) -> Result<bool> {
        let core = &self.lock.client().core;
        core.check_open()?;
        let (caller, news) = bounded(1);
        self.begin(Some(caller))?;
        select! {
            // The sender is gone if there is no news to come.
            recv(news) -> result => result.unwrap_or(Ok(()))?,
            recv(core.closed.signal()) -> _ => {
                drop(self.leave());
                return Err(Error::ClientClosed);
            },
        }
        Ok(self.leadership().is_some())
    }

    /// Queues, unless it does already or is closed. Without a caller it waits for a connection as long as it takes.
    /// `Err`: no thread could be started, and nothing was begun.
    pub(super) fn begin(self: &Arc<Self>, caller: Option<Sender<Result<()>>>) -> Result<()> {
        let mut state = self.state.lock();
        // The caller that queued first waits for the news.
        if state.life == LeaderState::Closed || state.candidacy.is_some() {
            return Ok(());
        }
        let (left, (returns, returned)) = (CancelToken::new(), bounded(0));
        let (candidate, caller) = (self.clone(), RefCell::new(caller));
        let task = CandidateTask { candidate, left: left.clone(), caller, returns };
        // The thread starts under the lock, so that no other one finds a candidacy that has no thread.
        spawn("curator-leader", move || campaign(&task.left, || task.lead(), |has_led| task.goes_on(has_led)))?;
        state.candidacy = Some((left, returned));
        if let Some(policy) = self.policy {
            let candidate = Arc::downgrade(self);
            state.on_connection = Some(self.lock.client().core.reactions.add(move |state| {
                let Some(candidate) = candidate.upgrade().filter(|_| policy.is_error_state(state)) else { return };
                let term = candidate.state.lock().term.clone();
                // The term ends even if there is a connection again by now. Another one begins when that was told, if the hold
                // is certain then.
                if let Some(term) = term {
                    term.end();
                }
            }));
        }
        Ok(())
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again. Listeners that were told of the lock
    /// are told first.
    pub(in crate::locks) fn unlock(&self) -> Result<()> {
        // A listener cannot wait for itself.
        let Some(returned) = self.leave().filter(|_| !is_listener()) else { return Ok(()) };
        select! {
            // The sender is gone where there was nothing to release.
            recv(returned) -> held => held.map_or(Ok(()), |held| self.lock.release(&held).0),
            default(LONGEST_TELLING) => {
                Err(Error::Timeout { what: "telling the listener".into(), after: LONGEST_TELLING })
            }
        }
    }

    pub(in crate::locks) fn close(&self) -> Result<()> {
        self.state.lock().life = LeaderState::Closed;
        self.unlock()
    }

    /// Leaves without waiting, as the object is gone.
    pub(in crate::locks) fn abandon(&self) {
        self.state.lock().life = LeaderState::Closed;
        drop(self.leave());
    }

    /// Gives the candidacy up. Its thread wakes up, and releases the hold unless a caller waits to release it: that caller
    /// gets the hold from the channel.
    fn leave(&self) -> Option<Receiver<Arc<HeldNode>>> {
        let mut state = self.state.lock();
        let (candidacy, term, lost) = (state.candidacy.take(), state.term.take(), mem::take(&mut state.lost));
        if let Some((left, _)) = &candidacy {
            left.cancel();
        }
        (state.node, state.on_connection) = (None, None);
        drop(state);
        if let Some(term) = term {
            term.end();
        }
        lost.iter().filter_map(Weak::upgrade).for_each(|held| held.disarm());
        candidacy.map(|(_, returned)| returned)
    }

    /// Returns the current term.
    pub(in crate::locks) fn leadership(&self) -> Option<Leadership> {
        let term = self.state.lock().term.clone()?;
        // A caller that has seen it not lead must not see it lead again in the same term.
        if !self.may_lead() {
            term.end();
        }
        Some(term).filter(Leadership::has_leadership)
    }

    /// Returns the path of its znode as the caller sees it.
    pub(in crate::locks) fn id(&self) -> Option<String> {
        let path = self.state.lock().node.clone();
        Some(self.lock.client().prefix.to_client(path?.as_str()))
    }

    /// Whether the candidate may lead right now, as far as the connection tells.
    fn may_lead(&self) -> bool {
        let Some((policy, state)) = self.policy.zip(self.lock.client().connection_state()) else { return true };
        !policy.is_error_state(state)
    }

    /// Tells this listener from now on when a term begins (`Some`) and when it is over (`None`), but nothing of the past. The
    /// executor calls it on the thread that tells it, or on another one. `is_only`: no other listener is told any more.
    pub(in crate::locks) fn listen(
        &self,
        tell: impl Fn(Option<&Leadership>) + Send + Sync + 'static,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
        is_only: bool,
    ) -> ListenerId {
        let tell = Arc::new(tell);
        let listener = move |term: Option<Leadership>, telling: Sender<()>| {
            let tell = tell.clone();
            let task = move || {
                as_listener(|| {
                    let _ = caught("a candidate's listener", || tell(term.as_ref()));
                });
                drop(telling);
            };
            // A task that it drops counts as told: the other listeners are told all the same.
            let _ = caught("a candidate's executor", || executor(Box::new(task)));
        };
        let mut state = self.state.lock();
        let former = if is_only { mem::take(&mut state.listeners) } else { Vec::new() };
        state.last_listener += 1;
        let id = ListenerId(state.last_listener);
        state.listeners.push((id, Arc::new(listener)));
        // The former listeners are the caller's code.
        drop_unlocked(state, former);
        id
    }

    /// Wakes the threads that wait for leadership.
    pub(super) fn wake(&self, failed: Option<&Error>) {
        let news = {
            let mut state = self.state.lock();
            state.failed = failed.cloned();
            mem::take(&mut state.news)
        };
        news.cancel();
    }

    /// Tells the listeners on the dispatch thread, and waits until they have returned: of the term that begins, with the
    /// token that ends its candidacy, or of the end of the last one. Without listeners, and after the client's end, no other
    /// thread is needed.
    fn tell(self: &Arc<Self>, begun: Option<(Leadership, CancelToken)>) {
        let (telling, told) = bounded(0);
        let this = self.clone();
        let task = move || this.tell_listeners(begun, &telling);
        let is_any = !self.state.lock().listeners.is_empty();
        if !is_any || !self.lock.client().core.dispatcher.run(task.clone()) {
            task();
        } else {
            drop(task);
        }
        // Nothing is ever sent: the channel ends when all have been told.
        let _ = told.recv();
    }

    fn tell_listeners(&self, begun: Option<(Leadership, CancelToken)>, telling: &Sender<()>) {
        if let Some((term, left)) = &begun {
            // The dispatch thread may come to this late, when others lead. A term that was given up by its own object is told
            // all the same, since its lock is not given back before that.
            let is_meant = term.has_leadership() || left.is_cancelled();
            if !is_meant || clock::now() >= term.node().valid_until() || !self.may_lead() {
                return term.end();
            }
        }
        let listeners = {
            let mut state = self.state.lock();
            let was_told = mem::replace(&mut state.is_told, begun.is_some());
            if begun.is_some() || was_told { state.listeners.clone() } else { Vec::new() }
        };
        for (_, tell) in listeners {
            tell(begun.as_ref().map(|(term, _)| term.clone()), telling.clone());
        }
    }
}

/// The thread of one candidacy.
struct CandidateTask {
    candidate: Arc<Candidate>,
    left: CancelToken,
    /// The thread that waits for the place in the queue, until it was told.
    caller: RefCell<Option<Sender<Result<()>>>>,
    /// Hands the hold to the thread that waits to release it; there is none once the other end is dropped.
    returns: Sender<Arc<HeldNode>>,
}

impl CandidateTask {
    /// Queues, leads and gives the lock back, once. `false`: it was given up before it led.
    fn lead(&self) -> Result<bool> {
        let Some(held) = self.acquire()? else { return Ok(false) };
        let candidate = self.candidate.clone();
        let mut telling = None;
        while let Some(term) = self.next_term(&held)? {
            telling.get_or_insert_with(|| candidate.telling.lock());
            candidate.tell(Some((term.clone(), self.left.clone())));
            term.await_end(&candidate.lock.client().core.closed);
            candidate.tell(None);
        }
        if !self.left.is_cancelled() {
            // The hold was lost.
            forget_once_told(&held, candidate.lock.client());
            let noted = self.write(|state| {
                state.node = None;
                state.lost.retain(|other| other.strong_count() > 0);
                state.lost.push(Arc::downgrade(&held));
            });
            if noted.is_none() {
                held.disarm();
            }
        } else if let Err(refused) = self.returns.send(held) {
            candidate.lock.release_in_background(&refused.into_inner());
        }
        Ok(true)
    }

    /// Whether it queues again.
    fn goes_on(&self, has_led: &Result<bool>) -> bool {
        if self.left.is_cancelled() {
            return false;
        }
        let Err(error) = has_led else { return true };
        let caller = self.caller.take();
        // Without a waiting caller it tries again: a request that the server refuses now it may allow later.
        let goes_on = caller.is_none() && !error.is_final();
        if !goes_on {
            self.write(|state| (state.candidacy, state.node) = (None, None));
        }
        if let Some(caller) = caller {
            let _ = caller.send(Err(error.clone()));
        } else if !is_passing(error) {
            let fate = if goes_on { "cannot queue for now" } else { "the lock is given up" };
            let lock = &self.candidate.lock;
            lock.client().core.unhandled(format!("{}: {fate}", lock.base_path()), error.clone());
            self.candidate.wake(Some(error));
        }
        goes_on
    }

    /// Updates the candidate's state, unless the candidacy was given up: another one may have begun since.
    fn write<T>(&self, write: impl FnOnce(&mut CandidateState) -> T) -> Option<T> {
        let mut state = self.candidate.state.lock();
        // Checked under the lock under which the candidacy is given up.
        (!self.left.is_cancelled()).then(|| write(&mut state))
    }

    /// Queues and waits for the lock. `None`: it was given up.
    fn acquire(&self) -> Result<Option<Arc<HeldNode>>> {
        let lock = &self.candidate.lock;
        if self.caller.borrow().is_none() && !await_connection(lock.client(), &self.left)? {
            return Ok(None);
        }
        let options = AcquireOptions::new().cancel_token(&self.left);
        let wait = Wait::of(&options);
        let on_step = |node: Option<ServerPath>, waits: bool| self.has_stepped(node, waits);
        let acquire = Acquire { on_step: Some(&on_step), ..Acquire::new(lock, lock.spec(wait), wait) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(None) };
        let Some(held) = held.into_iter().next() else { return Ok(None) };
        lock.client().core.counters.acquires.told.count();
        held.trace(lock.base_path());
        Ok(Some(held))
    }

    /// Notes a step of the contender.
    fn has_stepped(&self, node: Option<ServerPath>, waits: bool) {
        let stands = node.is_some();
        self.write(|state| state.node = node);
        // The znode stands: the caller need not wait for others, nor for servers that are away or refuse to answer.
        if stands && waits {
            self.tell_caller();
        }
    }

    fn tell_caller(&self) {
        if let Some(caller) = self.caller.take() {
            let _ = caller.send(Ok(()));
        }
    }

    /// Waits until the hold is certain and the object may lead. `None`: the candidacy was given up, or the hold lost. A hold
    /// that does not become certain for a session timeout is released: others wait behind it, and nobody leads.
    fn next_term(&self, held: &Arc<HeldNode>) -> Result<Option<Leadership>> {
        let (lock, timeout) = (&self.candidate.lock, held.session().timeout());
        let core = &lock.client().core;
        let until_left = WaitBound { deadline: None, cancel: Some(&self.left) };
        let mut doubt = Doubt::default();
        loop {
            doubt.steps(clock::now(), timeout);
            if held.session().connection() == 0 {
                doubt.ends();
            }
            let term = self.begin_term(held);
            if term.is_some() {
                self.candidate.wake(None);
            }
            self.tell_caller();
            if term.is_some() || self.left.is_cancelled() || held.lost().is_some() || core.check_open().is_err() {
                return Ok(term);
            }
            // A znode that may not be read is asked about again after a session timeout, and the answer takes its time.
            if doubt.has_lasted(clock::now(), timeout * 5 / 4) {
                self.write(|state| state.node = None);
                lock.release_in_background(held);
                return Err(lock.uncertain(Duration::ZERO));
            }
            doubt.sleeps(clock::now(), false);
            // Nothing becomes certain without a connection. The next iteration checks the result of the wait.
            let _ = core.connected_session(Some(held.session()), until_left);
            pause(timeout, until_left);
        }
    }

    fn begin_term(&self, held: &Arc<HeldNode>) -> Option<Leadership> {
        let candidate = &self.candidate;
        self.write(|state| {
            // Checked under the lock: earlier changes of the connection show here, and later ones find the term.
            // The client's end ends a term at once, and only after that the hold: none begins in between.
            let is_closed = candidate.lock.client().core.closed.is_cancelled();
            let may_begin = !is_closed && held.state(clock::now()) == HoldState::Held && candidate.may_lead();
            let owner = Arc::downgrade(candidate);
            // Without an owner there is nothing left to close.
            let close = move || owner.upgrade().map_or(Ok(()), |owner| (owner.close)(&owner));
            let term = may_begin.then(|| Leadership::new(candidate.lock.hold(held.clone()), close))?;
            state.last_path = Some(term.path().to_owned());
            state.term = Some(term.clone());
            Some(term)
        })?
    }
}

/// Removes a lost hold once the reason is known and told, which takes an answer of the servers. Who only asks whether it leads may
/// work on what it was told.
fn forget_once_told(held: &Arc<HeldNode>, client: &CuratorFramework) {
    let (core, of) = (Arc::downgrade(&client.core), Arc::downgrade(held));
    held.listen(Arc::new(move |state| {
        if let (HoldState::Lost(_), Some(core), Some(held)) = (state, core.upgrade(), of.upgrade()) {
            core.held.remove_relied_on(&held);
        }
    }));
}

/// Whether an attempt failed because the connection or somebody's delete was in the way, or the client was closed,
/// which is no refusal.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::ConnectionLoss { .. } | Error::SessionExpired { .. } | Error::ClientClosed)
        || error.is_no_node()
}

/// Runs a campaign to its end: `lead` queues, leads and gives the lock back, once; `false`: it was over before the candidate
/// led. `goes_on` says whether to queue again. `left` is cancelled when the campaign is given up. No caller waits for this
/// thread.
pub(super) fn campaign(
    left: &CancelToken,
    lead: impl Fn() -> Result<bool>,
    mut goes_on: impl FnMut(&Result<bool>) -> bool,
) {
    loop {
        // The retry policy and the ACL provider are the caller's code.
        let has_led = caught("a candidate", &lead).unwrap_or_else(|| Err(panicked()));
        if !goes_on(&has_led) {
            return;
        }
        let pause = match &has_led {
            Ok(true) => Duration::ZERO,
            Err(error) if !error.is_retryable() => AFTER_REFUSAL,
            Ok(false) | Err(_) => AFTER_LOSS,
        };
        // Nothing is ever sent: the channel ends when the campaign is given up.
        let _ = left.signal().recv_timeout(pause);
    }
}

/// Waits for a connection as long as it takes: the retry policy is for the requests. `false`: the campaign was given up.
pub(super) fn await_connection(client: &CuratorFramework, left: &CancelToken) -> Result<bool> {
    let forever = WaitBound { deadline: None, cancel: Some(left) };
    Ok(client.core.connected_session(None, forever)?.is_ok())
}

fn panicked() -> Error {
    let rule = "it names an access control list for each path, and the retry policy answers; neither may panic".into();
    Error::InvalidArgument { name: "acl_provider", value: "a panic".into(), rule }
}
