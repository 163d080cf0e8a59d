//! A candidate contends for a lock until it gives up, and tells listeners when it has the lock.

use std::{
    cell::RefCell,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use crate::{
    base::{paths::ServerPath, threads::spawn},
    error::{Error, Result},
    framework::{
        client::core::CuratorFramework,
        events::dispatch::is_listener,
        held::{changes::HoldState, node::HeldNode},
    },
    locks::{
        acquire::{Acquire, Outcome, internals::LockInternals, last_look::pause},
        leader::{
            campaign::{Campaign, await_connection},
            leadership::Leadership,
        },
        options::{acquire::AcquireOptions, wait::Wait},
        recipe::{machine::Contender, spec::Do},
    },
    session::wait::{cancel::CancelToken, deadline::WaitBound},
};

/// How long a release waits until the listeners have been told. A listener that itself waits for the caller thus makes a
/// delay, and no deadlock.
const LONGEST_TELLING: Duration = Duration::from_secs(1);

/// Nothing is ever sent: a listener has been told once its sender is dropped.
pub(in crate::locks) type Telling = Sender<()>;

/// Who is told, on the dispatch thread and one call at a time. Nothing else is told, and nothing given back, before all
/// clones of `telling` are dropped.
pub(in crate::locks) trait Listeners: Send + Sync {
    /// A term has begun, of which nobody was told yet. It must not block.
    fn granted(&self) {}

    /// A term begins.
    fn acquired(&self, term: &Leadership, telling: Telling);

    /// The term that was told last is over.
    fn released(&self, telling: Telling);

    /// Whether there is any. Without, nothing waits for the dispatch thread.
    fn is_any(&self) -> bool;

    /// Whether somebody may lead right now. Asked often, also under a lock; it must not block.
    fn may_lead(&self) -> bool {
        true
    }

    /// An attempt for which nobody waits has failed. It must not block.
    fn failed(&self, error: &Error) {
        let _ = error;
    }
}

/// One object that wants the lock: it queues, is told, and queues again after a loss, on a thread that lives as long as it
/// wants the lock.
pub(in crate::locks) struct Candidate {
    lock: LockInternals,
    listeners: Arc<dyn Listeners>,
    state: Mutex<CandidateState>,
    /// Locked by the thread of one candidacy from the first thing that it tells to its end: that of the next candidacy has
    /// nothing to tell before. The thread that tells, and runs the listeners, is another one.
    telling: Mutex<()>,
}

#[derive(Default)]
struct CandidateState {
    is_closed: bool,
    /// `None`: it does not want the lock.
    candidacy: Option<Candidacy>,
    /// The path of its znode, once it has one.
    node: Option<ServerPath>,
    /// What is true of the current hold. It begins with the grant, and again when a doubt has passed of which the
    /// listeners were told.
    term: Option<Leadership>,
    /// The path of the znode with which it led last.
    last_path: Option<String>,
    /// The listeners were told of a beginning, and not yet of its end.
    is_told: bool,
}

/// From the moment when the lock is wanted until it is given up: what its object has of it.
struct Candidacy {
    /// Cancelled when it is given up.
    left: CancelToken,
    /// Holds to release once the listeners know of their end. Closes with the thread.
    returned: Receiver<Arc<HeldNode>>,
}

/// The thread that waits until the place in the queue is known, or there will be none.
type Caller = Sender<Result<()>>;

impl Candidate {
    /// The owner must [`abandon`](Candidate::abandon) it in the end.
    pub(in crate::locks) fn new(lock: LockInternals, listeners: Arc<dyn Listeners>) -> Arc<Candidate> {
        Arc::new(Candidate { lock, listeners, state: Mutex::default(), telling: Mutex::default() })
    }

    pub(in crate::locks) fn internals(&self) -> &LockInternals {
        &self.lock
    }

    /// Queues, unless it does already, and waits until its place in the queue is known, or the servers are away. `true` if
    /// the lock is its own.
    pub(in crate::locks) fn lock(self: &Arc<Self>) -> Result<bool> {
        let core = &self.lock.client().core;
        core.check_open()?;
        let (caller, news) = bounded(1);
        self.begin(Some(caller))?;
        select! {
            // The sender is gone where there is none to come.
            recv(news) -> result => result.unwrap_or(Ok(()))?,
            recv(core.closed.signal()) -> _ => {
                drop(self.leave());
                return Err(Error::ClientClosed);
            }
        }
        Ok(self.is_owner())
    }

    /// Queues, unless it does already or is closed. Without a caller it waits for a connection as long as it takes. An
    /// error: there is no thread to be had, and nothing was begun.
    pub(in crate::locks) fn begin(self: &Arc<Self>, caller: Option<Caller>) -> Result<()> {
        let mut state = self.state.lock();
        // Whoever queued first waits for the news.
        if state.is_closed || state.candidacy.is_some() {
            return Ok(());
        }
        let (left, (returns, returned)) = (CancelToken::new(), bounded(0));
        let (candidate, caller) = (self.clone(), RefCell::new(caller));
        let task = CandidateTask { candidate, left: left.clone(), caller, returns };
        // Under the lock, so that nobody finds a candidacy that has no thread.
        spawn("curator-leader", move || task.run())?;
        state.candidacy = Some(Candidacy { left, returned });
        Ok(())
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again. Listeners that were told of the lock
    /// are told first.
    pub(in crate::locks) fn unlock(&self) -> Result<()> {
        // A listener cannot wait for itself.
        let Some(candidacy) = self.leave().filter(|_| !is_listener()) else { return Ok(()) };
        select! {
            // The sender is gone where there was nothing to release.
            recv(candidacy.returned) -> held => held.map_or(Ok(()), |held| self.lock.release(&held).0),
            default(LONGEST_TELLING) => {
                Err(Error::Timeout { what: "telling the listener".into(), after: LONGEST_TELLING })
            }
        }
    }

    pub(in crate::locks) fn close(&self) -> Result<()> {
        self.state.lock().is_closed = true;
        self.unlock()
    }

    /// The object is gone: leaves without waiting.
    pub(in crate::locks) fn abandon(&self) {
        self.state.lock().is_closed = true;
        drop(self.leave());
    }

    /// Stops to want the lock. Its thread wakes up, and releases what nobody else does.
    fn leave(&self) -> Option<Candidacy> {
        let (candidacy, term) = {
            let mut state = self.state.lock();
            let candidacy = state.candidacy.take();
            if let Some(candidacy) = &candidacy {
                candidacy.left.cancel();
            }
            state.node = None;
            (candidacy, state.term.take())
        };
        if let Some(term) = term {
            term.end();
        }
        candidacy
    }

    /// Ends the current term; another one begins when that was told, if the hold is certain then.
    pub(in crate::locks) fn end_term(&self) {
        let term = self.state.lock().term.clone();
        if let Some(term) = term {
            term.end();
        }
    }

    pub(in crate::locks) fn is_owner(&self) -> bool {
        self.leadership().is_some()
    }

    /// The current term.
    pub(in crate::locks) fn leadership(&self) -> Option<Leadership> {
        let term = self.state.lock().term.clone()?;
        // Whoever has seen that it does not lead must not see it lead again in the same term.
        if !self.listeners.may_lead() {
            term.end();
        }
        Some(term).filter(Leadership::has_leadership)
    }

    /// The path of its znode, as the caller sees it.
    pub(in crate::locks) fn id(&self) -> Option<String> {
        let path = self.state.lock().node.clone();
        Some(self.lock.client().prefix.to_client(path?.as_str()))
    }

    /// The path of the znode with which it led last.
    pub(in crate::locks) fn last_path(&self) -> Option<String> {
        self.state.lock().last_path.clone()
    }

    /// Tells the listeners on the dispatch thread, and waits until they have returned. Without listeners, and after the
    /// client's end, no other thread is needed.
    fn tell(self: &Arc<Self>, tell: impl FnOnce(&Candidate, Telling) + Clone + Send + 'static) {
        let (telling, told) = bounded(0);
        let this = self.clone();
        let task = move || tell(&this, telling);
        if !self.listeners.is_any() || !self.lock.client().core.dispatcher.run(task.clone()) {
            task();
        } else {
            drop(task);
        }
        // Nothing is ever sent: the channel ends when all have been told.
        let _ = told.recv();
    }

    fn tell_of_begin(&self, term: &Leadership, left: &CancelToken, telling: Telling) {
        // The dispatch thread may come to this late, when others lead. A term that was given up by its own object is told
        // all the same, since its lock is not given back before that.
        let is_meant = term.has_leadership() || left.is_cancelled();
        if is_meant && Instant::now() < term.valid_until() && self.listeners.may_lead() {
            self.state.lock().is_told = true;
            self.listeners.acquired(term, telling);
        } else {
            term.end();
        }
    }

    fn tell_of_end(&self, telling: Telling) {
        if mem::take(&mut self.state.lock().is_told) {
            self.listeners.released(telling);
        }
    }
}

/// What the thread of one candidacy does.
struct CandidateTask {
    candidate: Arc<Candidate>,
    left: CancelToken,
    /// Until it was told.
    caller: RefCell<Option<Caller>>,
    /// Hands the hold to who waits to release it; nobody does once the other end is dropped.
    returns: Sender<Arc<HeldNode>>,
}

impl Campaign for CandidateTask {
    fn left(&self) -> &CancelToken {
        &self.left
    }

    fn lead(&mut self) -> Result<bool> {
        let Some(held) = self.acquire()? else { return Ok(false) };
        let candidate = self.candidate.clone();
        let mut telling = None;
        while let Some(term) = self.next_term(&held) {
            telling.get_or_insert_with(|| candidate.telling.lock());
            self.serve(&term);
        }
        if !self.left.is_cancelled() {
            // It was lost.
            forget_once_told(&held, candidate.lock.client());
            self.write(|state| state.node = None);
        } else if let Err(refused) = self.returns.send(held) {
            candidate.lock.release_in_background(&refused.into_inner());
        }
        Ok(true)
    }

    fn goes_on(&mut self, has_led: &Result<bool>) -> bool {
        if self.left.is_cancelled() {
            return false;
        }
        let Err(error) = has_led else { return true };
        let caller = self.caller.take();
        // Where nobody waits it tries again: what the server refuses now it may allow later.
        let goes_on = caller.is_none() && !error.is_final();
        if !goes_on {
            self.write(|state| (state.candidacy, state.node) = (None, None));
        }
        if let Some(caller) = caller {
            let _ = caller.send(Err(error.clone()));
        } else if !is_passing(error) {
            let fate = if goes_on { "cannot queue for now" } else { "the lock is given up" };
            log::error!("{}: {fate}: {error}", self.candidate.lock.base_path());
            self.candidate.listeners.failed(error);
        }
        goes_on
    }
}

/// Holds that outlive the loss of a candidate's are told why it was lost, and that takes an answer of the servers.
fn forget_once_told(held: &Arc<HeldNode>, client: &CuratorFramework) {
    let (core, of) = (Arc::downgrade(&client.core), Arc::downgrade(held));
    held.listen(Arc::new(move |state| {
        if let (HoldState::Lost(_), Some(core), Some(held)) = (state, core.upgrade(), of.upgrade()) {
            core.held.remove(&held);
        }
    }));
}

/// Whether an attempt came to this because the connection or somebody's delete was in the way, or the client was closed,
/// which is no refusal.
fn is_passing(error: &Error) -> bool {
    let is_lost = matches!(error, Error::ConnectionLoss { .. } | Error::SessionExpired { .. });
    is_lost || error.is_no_node() || matches!(error, Error::ClientClosed)
}

impl CandidateTask {
    /// Writes down what is so, unless it was given up: another candidacy may have begun since.
    fn write(&self, write: impl FnOnce(&mut CandidateState)) {
        let mut state = self.candidate.state.lock();
        // Asked under the lock under which it is given up.
        if !self.left.is_cancelled() {
            write(&mut state);
        }
    }

    fn stop(&self) -> WaitBound<'_> {
        WaitBound { deadline: None, cancel: Some(&self.left) }
    }

    /// Queues and waits for the lock. `None`: it was given up.
    fn acquire(&self) -> Result<Option<Arc<HeldNode>>> {
        let lock = &self.candidate.lock;
        if self.caller.borrow().is_none() && !await_connection(lock.client(), &self.left)? {
            return Ok(None);
        }
        let options = AcquireOptions::new().cancel_token(&self.left);
        let wait = Wait::of(&options);
        let on_step = |contender: &Contender, next: &Do<Error>| self.has_stepped(contender, next);
        let acquire = Acquire { on_step: Some(&on_step), ..Acquire::new(lock, lock.spec(wait), wait) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(None) };
        let Some(held) = held.into_iter().next() else { return Ok(None) };
        lock.client().core.counters.acquires.told.count();
        held.trace(lock.base_path());
        Ok(Some(held))
    }

    fn has_stepped(&self, contender: &Contender, next: &Do<Error>) {
        let node = contender.nodes.last().map(|node| self.candidate.lock.child(&node.name));
        self.write(|state| state.node = node);
        // It has queued: the caller need not wait for others, nor for servers that are away or refuse to answer.
        if contender.stands() && matches!(next, Do::Sleep | Do::Doze | Do::Connect) {
            self.tell_caller();
        }
    }

    fn tell_caller(&self) {
        if let Some(caller) = self.caller.take() {
            let _ = caller.send(Ok(()));
        }
    }

    /// Waits until the hold is certain and its object may lead. `None`: it was given up, or is lost.
    fn next_term(&self, held: &Arc<HeldNode>) -> Option<Leadership> {
        let core = &self.candidate.lock.client().core;
        loop {
            let term = self.begin_term(held);
            if term.is_some() {
                self.candidate.listeners.granted();
            }
            self.tell_caller();
            if term.is_some() || self.left.is_cancelled() || held.lost().is_some() || core.check_open().is_err() {
                return term;
            }
            // Nothing becomes certain without a connection. Whatever comes of the wait, the next round looks at it.
            let _ = core.connected_session(Some(held.session()), self.stop());
            pause(held.session().timeout(), self.stop());
        }
    }

    fn begin_term(&self, held: &Arc<HeldNode>) -> Option<Leadership> {
        let candidate = &self.candidate;
        let mut term = None;
        self.write(|state| {
            // Asked under the lock: news of the connection that came before show here, and later ones find the term.
            if held.is_certain() && candidate.listeners.may_lead() {
                let begun = Leadership::new(candidate.lock.hold(held.clone()));
                state.last_path = Some(begun.path().to_owned());
                state.term = Some(begun.clone());
                term = Some(begun);
            }
        });
        term
    }

    /// Tells of a term, and when it is over of its end.
    fn serve(&self, term: &Leadership) {
        let (begun, left) = (term.clone(), self.left.clone());
        self.candidate.tell(move |candidate, telling| candidate.tell_of_begin(&begun, &left, telling));
        term.await_end(&self.candidate.lock.client().core.closed);
        self.candidate.tell(Candidate::tell_of_end);
    }
}
