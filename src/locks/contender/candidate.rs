//! What contends for a lock until it is given up, and tells an audience when it has it.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    framework::{
        events::dispatch::is_listener,
        held::{changes::HoldState, node::HeldNode},
    },
    locks::{
        contender::{
            callbacks::{AFTER_REFUSAL, Attempt, Caller},
            internals::LockInternals,
            last_look::moment,
        },
        leader::leadership::Leadership,
    },
};

/// How long a release waits until the audience has been told. A listener that itself waits for the caller thus makes a
/// delay, and no deadlock.
const LONGEST_TELLING: Duration = Duration::from_secs(1);

/// Who is told, on the dispatch thread and one call at a time. Nothing else is told, and nothing given back, before all
/// handles of `telling` are dropped.
pub(crate) trait Audience: Send + Sync {
    /// The lock was granted, of which nobody was told yet. It must not block.
    fn granted(&self) {}

    /// A term begins.
    fn acquired(&self, term: &Leadership, telling: Arc<Telling>);

    /// The term that was told last is over.
    fn released(&self, telling: Arc<Telling>);

    /// Whether anybody is to be told. Without, nothing waits for that.
    fn is_any(&self) -> bool;

    /// Whether somebody may lead right now. Asked often; it must not block.
    fn may_lead(&self) -> bool {
        true
    }

    /// An attempt for which nobody waits has failed. On the client's own thread; it must not block.
    fn failed(&self, error: &Error) {
        let _ = error;
    }
}

/// One object that wants the lock: it queues, is told, and queues again after a loss. Needs no thread.
pub(crate) struct Candidate {
    lock: Arc<LockInternals>,
    audience: Arc<dyn Audience>,
    state: Mutex<CandidateState>,
}

#[derive(Default)]
struct CandidateState {
    is_closed: bool,
    stand: Stand,
    /// What is true of the current hold. It begins with the grant, and again when a doubt has passed of which the
    /// audience was told.
    term: Option<Leadership>,
    /// The term that the audience knows of: it was told of its beginning and not of its end.
    told: Option<Leadership>,
    is_telling: bool,
    /// What is given back when the audience has been told.
    leaving: Option<Leaving>,
}

#[derive(Default)]
enum Stand {
    /// It does not want the lock.
    #[default]
    Out,
    Queued(Arc<Attempt>),
    Owner(Arc<HeldNode>),
}

/// A hold whose end has to be told before it comes.
struct Leaving {
    held: Arc<HeldNode>,
    /// Who releases it then; `None`: the client does, in the background.
    caller: Option<Sender<()>>,
}

/// A call of the audience's that is under way.
pub(crate) struct Telling(Arc<Candidate>);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.has_told();
    }
}

impl Candidate {
    /// Whoever has it has to [`abandon`](Candidate::abandon) it in the end.
    pub(crate) fn new(mut lock: LockInternals, audience: Arc<dyn Audience>) -> Arc<Candidate> {
        lock.goes_by_numbers = false;
        Arc::new(Candidate { lock: Arc::new(lock), audience, state: Mutex::default() })
    }

    pub(crate) fn internals(&self) -> &LockInternals {
        &self.lock
    }

    /// What its znodes carry, from the next one on.
    pub(crate) fn set_data(&self, data: Vec<u8>) {
        self.lock.set_data(data);
    }

    /// Queues, unless it does already, and waits until its place in the queue is known, or the servers are away. `true` if
    /// the lock is its own.
    pub(crate) fn lock(self: &Arc<Self>) -> Result<bool> {
        let core = &self.lock.client().core;
        core.check_open()?;
        let (caller, news) = bounded(1);
        if !self.begin(Some(caller)) {
            return Ok(false);
        }
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

    /// Queues, unless it does already. Without a caller it waits for a connection as long as it takes. `false`: it is
    /// closed.
    pub(crate) fn begin(self: &Arc<Self>, caller: Option<Caller>) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        if matches!(state.stand, Stand::Out) {
            state.stand = self.queue(Duration::ZERO, caller);
        }
        // Whoever queued first waits for the news.
        true
    }

    fn queue(self: &Arc<Self>, delay: Duration, caller: Option<Caller>) -> Stand {
        let this = self.clone();
        let on_end = Box::new(move |attempt: &Arc<Attempt>, result, caller| this.ended(attempt, result, caller));
        Stand::Queued(Attempt::begin(&self.lock, delay, caller, on_end))
    }

    fn ended(self: &Arc<Self>, attempt: &Arc<Attempt>, result: Result<Arc<HeldNode>>, caller: Option<Caller>) {
        let mut state = self.state.lock();
        if !matches!(&state.stand, Stand::Queued(now) if Arc::ptr_eq(now, attempt)) {
            // It has left meanwhile.
            drop(state);
            return result.map_or((), |held| self.lock.release_in_background(&held));
        }
        let news = match result {
            Ok(held) => {
                state.stand = Stand::Owner(held.clone());
                state.term = Some(self.term_of(&held));
                drop(state);
                self.audience.granted();
                self.follow(&held);
                Ok(())
            }
            Err(error) => {
                // Nobody waits for this attempt, and what the server refuses now it may allow later.
                let tries_again = caller.is_none() && !error.is_final();
                state.stand = if tries_again { self.queue(AFTER_REFUSAL, None) } else { Stand::Out };
                drop(state);
                if caller.is_none() {
                    let fate = if tries_again { "cannot queue for now" } else { "the lock is given up" };
                    log::error!("{}: {fate}: {error}", self.lock.base_path());
                    self.audience.failed(&error);
                }
                Err(error)
            }
        };
        if let Some(caller) = caller {
            let _ = caller.send(news);
        }
    }

    fn term_of(self: &Arc<Self>, held: &Arc<HeldNode>) -> Leadership {
        let this = Arc::downgrade(self);
        Leadership::new(self.lock.hold(held.clone()), move || {
            if let Some(this) = this.upgrade() {
                this.tell();
            }
        })
    }

    /// From the grant on.
    fn follow(self: &Arc<Self>, held: &Arc<HeldNode>) {
        let (this, of_node) = (Arc::downgrade(self), Arc::downgrade(held));
        // This listener runs on the dispatch thread, which takes no new task while the client is being closed: so it
        // tells at once.
        held.listen(Arc::new(move |state| {
            let (Some(this), Some(held)) = (this.upgrade(), of_node.upgrade()) else { return };
            if matches!(state, HoldState::Lost(_)) {
                this.lost(&held);
            }
            this.tell_now();
        }));
        self.tell();
    }

    /// The owner has lost the lock; it queues again.
    fn lost(self: &Arc<Self>, held: &Arc<HeldNode>) {
        let mut state = self.state.lock();
        if matches!(&state.stand, Stand::Owner(now) if Arc::ptr_eq(now, held)) {
            state.stand = self.queue(Duration::ZERO, None);
            drop(state);
            self.lock.client().core.held.remove(held);
        }
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again. An audience that was told of the
    /// lock is told first.
    pub(crate) fn unlock(self: &Arc<Self>) -> Result<()> {
        let Some(held) = self.leave() else { return Ok(()) };
        // A listener cannot wait for itself.
        let (caller, told) = if is_listener() { (None, None) } else { Some(bounded(1)).unzip() };
        if self.tells_first(&held, caller) {
            let Some(told) = told else { return Ok(()) };
            self.await_telling(&held, &told)?;
        }
        self.lock.release(&held).0
    }

    /// The audience is told that the lock is going; it is given back when that is done.
    fn tells_first(self: &Arc<Self>, held: &Arc<HeldNode>, caller: Option<Sender<()>>) -> bool {
        let mut state = self.state.lock();
        if !state.is_telling && (state.told.is_none() || !self.audience.is_any()) {
            drop(state);
            self.tell();
            return false;
        }
        // A hold that leaves before this one was lost: its znode would stand in front of this one's.
        let before = state.leaving.replace(Leaving { held: held.clone(), caller });
        drop(state);
        if let Some(Leaving { held, caller: None }) = before {
            self.lock.release_in_background(&held);
        }
        self.tell();
        true
    }

    /// Waits until the audience was told. After an error the client releases the lock in the background.
    fn await_telling(&self, held: &Arc<HeldNode>, told: &Receiver<()>) -> Result<()> {
        let core = &self.lock.client().core;
        select! {
            recv(told) -> _ => return Ok(()),
            // A closed client tells nobody anything new.
            recv(core.closed.signal()) -> _ => {}
            default(LONGEST_TELLING) => {}
        }
        let mut state = self.state.lock();
        let is_leaving = state.leaving.as_ref().is_some_and(|leaving| Arc::ptr_eq(&leaving.held, held));
        if !is_leaving || core.check_open().is_err() {
            state.leaving.take_if(|leaving| Arc::ptr_eq(&leaving.held, held));
            return Ok(());
        }
        if let Some(leaving) = &mut state.leaving {
            leaving.caller = None;
        }
        Err(Error::Timeout { what: "telling the listener".into(), after: LONGEST_TELLING })
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.state.lock().is_closed = true;
        self.unlock()
    }

    /// The object is gone: leaves without waiting.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.state.lock().is_closed = true;
        if let Some(held) = self.leave().filter(|held| !self.tells_first(held, None)) {
            self.lock.release_in_background(&held);
        }
    }

    /// Stops to want the lock. A hold is handed out, to be released.
    fn leave(&self) -> Option<Arc<HeldNode>> {
        let (before, term) = {
            let mut state = self.state.lock();
            (mem::replace(&mut state.stand, Stand::Out), state.term.take())
        };
        if let Some(term) = term {
            term.end();
        }
        match before {
            Stand::Out => None,
            Stand::Queued(attempt) => {
                attempt.give_up();
                None
            }
            Stand::Owner(held) => Some(held),
        }
    }

    /// Ends the current term; another one begins when that was told, if the hold is certain then.
    pub(crate) fn end_term(&self) {
        let term = self.state.lock().term.clone();
        if let Some(term) = term {
            term.end();
        }
    }

    /// Has the audience told of what has changed, on the dispatch thread.
    pub(crate) fn tell(self: &Arc<Self>) {
        let this = self.clone();
        self.lock.client().core.dispatcher.run(move || this.tell_now());
    }

    /// Tells what is true right now: one thing, and when that is done the next one. An owner stays one up to
    /// `valid_until`, over a reconnect too, after which the client looks whether the znode is there; beyond it another
    /// one may be told.
    pub(crate) fn tell_now(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.is_telling {
            return;
        }
        let may_lead = self.audience.may_lead();
        if let Some(told) = &state.told {
            let is_current = state.term.as_ref().is_some_and(|term| term.is_same(told));
            if is_current && may_lead && told.has_leadership() {
                let look_again = (!told.is_valid()).then(|| told.valid_until());
                drop(state);
                return self.tell_at(look_again);
            }
            told.end();
            state.told = None;
            state.is_telling = true;
            drop(state);
            return self.audience.released(Arc::new(Telling(self.clone())));
        }
        let held = state.owned().filter(|held| held.lost().is_none());
        let Some(held) = held.filter(|_| may_lead) else { return };
        // A doubt that begins and ends between two looks is told to nobody.
        if state.term.as_ref().is_none_or(|term| !term.has_leadership()) {
            state.term = held.is_certain().then(|| self.term_of(&held));
        }
        let Some(term) = state.term.clone() else {
            drop(state);
            return self.tell_at(Some(Instant::now() + moment(self.lock.client().session_timeout())));
        };
        state.told = Some(term.clone());
        state.is_telling = true;
        drop(state);
        self.audience.acquired(&term, Arc::new(Telling(self.clone())));
    }

    fn tell_at(self: &Arc<Self>, at: Option<Instant>) {
        if let Some(at) = at {
            let this = self.clone();
            let delay = at.saturating_duration_since(Instant::now());
            self.lock.client().core.run_later(delay, move || this.tell());
        }
    }

    /// All of the audience has been told. What waits for that may go on.
    fn has_told(self: &Arc<Self>) {
        let leaving = {
            let mut state = self.state.lock();
            state.is_telling = false;
            if state.told.is_none() { state.leaving.take() } else { None }
        };
        if let Some(Leaving { held, caller }) = leaving {
            match caller {
                Some(caller) => drop(caller.send(())),
                None => self.lock.release_in_background(&held),
            }
        }
        let this = self.clone();
        if !self.lock.client().core.dispatcher.run(move || this.tell_now()) {
            // The client was closed meanwhile, and the end of this term may be due.
            self.tell_now();
        }
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.leadership().is_some()
    }

    /// The current term.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        let term = self.state.lock().term.clone()?;
        // Whoever has seen that it does not lead must not see it lead again in the same term.
        if !self.audience.may_lead() {
            term.end();
        }
        Some(term).filter(Leadership::has_leadership)
    }

    /// The path of its znode, as the caller sees it.
    pub(crate) fn id(&self) -> Option<String> {
        let path = match &self.state.lock().stand {
            Stand::Out => None,
            Stand::Queued(attempt) => attempt.node(),
            Stand::Owner(held) => Some(held.path().clone()),
        };
        Some(self.lock.client().prefix.to_client(path?.as_str()))
    }
}

impl CandidateState {
    fn owned(&self) -> Option<Arc<HeldNode>> {
        match &self.stand {
            Stand::Owner(held) => Some(held.clone()),
            Stand::Out | Stand::Queued(_) => None,
        }
    }
}
