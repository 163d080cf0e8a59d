//! The threads around [`Turns`]: those that wait for a turn, the one that queues at the servers, and what is told of others.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    framework::{
        client::call::Call,
        held::{
            node::{HeldNode, Keeper, RevocableNode, Revocation},
            revocation::RevokeWord,
        },
    },
    locks::{
        api::options::patience::Patience,
        contender::{
            blocking::{Outcome, Seeker, Wish, next_recheck},
            driver::sorted_contenders,
            internals::LockInternals,
        },
        threads::{
            caching::{
                look::{Look, look},
                options::Caching,
                turns::{Next, Turn, Turns, Waiter},
            },
            owners::Owners,
        },
    },
    proto::{request::Request, response::Response, types::EventType},
    session::{
        api::{Reply, Submission, Ticket, WatchEvent, Watcher},
        wait::{deadline::WaitEnd, pending::Watch},
    },
};

/// One lock object with what its process keeps of it.
pub(crate) struct Cache {
    this: Weak<Cache>,
    lock: Arc<LockInternals>,
    limits: Caching,
    /// What is asked of the znode is asked of whoever holds it.
    revocation: Arc<Revocation>,
    /// Under it nobody is woken and nothing is sent.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    turns: Turns,
    waiters: HashMap<Waiter, Sender<Word>>,
    last_waiter: Waiter,
    tenures: Vec<Tenure>,
    /// The watch on the directory's children.
    watch: Option<Watch>,
    /// The znode given back last. The watch on it is used up by its own end, so that nothing has to be sent for that.
    given_back: Option<Arc<HeldNode>>,
    /// Whom the holder wants to be told about requests to give the lock back.
    listener: Option<Arc<RevocableNode>>,
}

/// A znode that was granted, until it is given back.
struct Tenure {
    number: u64,
    node: Arc<HeldNode>,
}

/// What a thread is woken with.
struct Word {
    turn: Turn,
    /// The znode, where it has the lock.
    tenure: Option<Arc<HeldNode>>,
}

/// What is to be done under no lock.
#[must_use]
struct Effects {
    wake: Option<(Sender<Word>, Word)>,
    farewell: Option<Arc<HeldNode>>,
    tick: Option<(u64, Instant)>,
}

impl State {
    fn node(&self, turn: Turn) -> Option<Arc<HeldNode>> {
        let Turn::Hold { tenure: number, .. } = turn else { return None };
        self.tenures.iter().find(|tenure| tenure.number == number).map(|tenure| tenure.node.clone())
    }

    fn effects(&mut self, next: Next) -> Effects {
        let wake = next.wake.and_then(|(who, turn)| {
            let word = Word { turn, tenure: self.node(turn) };
            Some((self.waiters.remove(&who)?, word))
        });
        let farewell = next.farewell.and_then(|number| {
            let index = self.tenures.iter().position(|tenure| tenure.number == number)?;
            Some(self.tenures.swap_remove(index).node)
        });
        Effects { wake, farewell, tick: next.tick }
    }
}

impl Cache {
    pub(crate) fn new(lock: Arc<LockInternals>, limits: Caching) -> Arc<Cache> {
        Arc::new_cyclic(|this: &Weak<Cache>| {
            let of_revocation = this.clone();
            let revocation = Arc::new(Revocation::lasting(move |word, _| {
                let Some(cache) = of_revocation.upgrade() else { return };
                let word = word.clone();
                cache.lock.client().core.clone().run_in_background(move || cache.revoked(&word));
            }));
            Cache { this: this.clone(), lock, limits, revocation, state: Mutex::default() }
        })
    }

    /// Waits for the turn among the threads of this process, and where need be at the servers. `None`: the time was up
    /// first, or it would have had to wait.
    pub(crate) fn acquire(&self, patience: Patience<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        match self.visit(patience, owners)? {
            None if patience.terms.has_to_say => Err(self.lock.still_taken(None)),
            held => Ok(held),
        }
    }

    fn visit(&self, patience: Patience<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        let (mut visit, mut word) = Visit::begin(self, patience)?;
        loop {
            let next = match word.turn {
                Turn::No => return Ok(None),
                Turn::Wait => visit.wait()?,
                Turn::Seek => visit.seek()?,
                Turn::Hold { tenure, grant } => match visit.take(&word, tenure, grant, owners)? {
                    Taken::Held(held) => return Ok(Some(held)),
                    Taken::Not(next) => next,
                },
            };
            match next {
                Some(next) => word = next,
                None => return Ok(None),
            }
        }
    }

    /// How many threads of this process wait behind the one that has the lock or queues for it.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().turns.waiting()
    }

    /// One step of the turns, and what follows from it.
    fn step<T>(&self, step: impl FnOnce(&mut Turns) -> (T, Next)) -> T {
        let (result, effects) = {
            let mut state = self.state.lock();
            let (result, next) = step(&mut state.turns);
            (result, state.effects(next))
        };
        self.carry_out(effects);
        result
    }

    /// No wake-up can be lost. A waiter's channel is there before the waiter stands in the queue, both under one lock; one
    /// word is sent to it, which stays in the channel until it is taken; and a waiter that gives up says so under the same
    /// lock, where it has its turn already or never gets one. In the first case it passes the turn on.
    fn carry_out(&self, effects: Effects) {
        let Effects { wake, farewell, tick } = effects;
        if let Some((waiter, word)) = wake {
            // One that gives up at this moment passes its turn on.
            let _ = waiter.send(word);
        }
        if let Some(node) = farewell {
            self.give_back(node);
        }
        if let Some((number, at)) = tick {
            let this = self.this.clone();
            let delay = at.saturating_duration_since(Instant::now());
            self.lock.client().core.run_later(delay, move || {
                if let Some(cache) = this.upgrade() {
                    cache.step(|turns| ((), turns.tick(number, &cache.limits, Instant::now())));
                }
            });
        }
    }

    /// The znode goes, in the background until it is known to be gone or its session has ended.
    fn give_back(&self, node: Arc<HeldNode>) {
        self.lock.release_in_background(&node);
        let has_ended = node.session().is_ended();
        let before = std::mem::replace(&mut self.state.lock().given_back, Some(node).filter(|_| !has_ended));
        // Not under the lock: it may be the last to know of a watch.
        drop(before);
    }

    /// `words`: where a turn that it has not begun may have been told.
    fn leave(&self, who: Waiter, words: Option<&Receiver<Word>>) {
        let mut state = self.state.lock();
        let was_woken = state.waiters.remove(&who).is_none();
        if let Some(words) = words.filter(|_| was_woken) {
            drop(state);
            // Sent by now, or at once. What is left of a tenure that has ended since goes with whoever had the turn in it.
            if let Ok(Word { turn: Turn::Hold { tenure, .. }, .. }) = words.recv() {
                return self.end_turn(tenure);
            }
            state = self.state.lock();
        }
        let next = state.turns.leave(who, &self.limits, Instant::now());
        let effects = state.effects(next);
        drop(state);
        self.carry_out(effects);
    }

    /// The turn in this tenure ends.
    fn end_turn(&self, tenure: u64) {
        let now = Instant::now();
        let (effects, listener) = {
            let mut state = self.state.lock();
            // After the end of a tenure it may be the next holder's.
            let is_of_now = state.turns.number().is_none_or(|number| number == tenure);
            let listener = if is_of_now { state.listener.take() } else { None };
            let next = state.turns.release(tenure, &self.limits, now);
            (state.effects(next), listener)
        };
        // The caller's: not under the lock.
        drop(listener);
        self.carry_out(effects);
    }

    /// A tenure begins.
    fn begin(&self, who: Waiter, node: Arc<HeldNode>) -> Option<Word> {
        node.serve(self.this.clone());
        // Only where events come in the order of time they come before somebody else can be granted the lock.
        let may_last = node.session().tells_in_order();
        let begun = {
            let mut state = self.state.lock();
            state.turns.granted(who, may_last).map(|(turn, tenure, next)| {
                let effects = state.effects(next);
                state.tenures.push(Tenure { number: tenure, node: node.clone() });
                (turn, tenure, effects)
            })
        };
        let Some((turn, tenure, effects)) = begun else {
            self.lock.release_in_background(&node);
            return None;
        };
        let word = Word { turn, tenure: Some(node) };
        self.carry_out(effects);
        if may_last {
            self.in_background(move |cache| cache.watch_directory(tenure));
        }
        Some(word)
    }

    /// Runs on the client's own thread: there the replies and events of one watch are handled one after the other.
    fn in_background(&self, task: impl FnOnce(&Arc<Cache>) + Send + 'static) {
        let this = self.this.clone();
        self.lock.client().core.run_in_background(move || {
            if let Some(cache) = this.upgrade() {
                task(&cache);
            }
        });
    }

    /// Asks who stands in the directory, and to be told when that changes.
    fn watch_directory(&self, number: u64) {
        let node = {
            let state = self.state.lock();
            if !state.turns.is_of_now(number) {
                return;
            }
            state.node(Turn::Hold { tenure: number, grant: 0 })
        };
        let Some(node) = node else { return };
        let this = self.this.clone();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            if let (
                WatchEvent::Node { event: EventType::NodeChildrenChanged | EventType::NodeDeleted, .. },
                Some(cache),
            ) = (event, this.upgrade())
            {
                cache.in_background(move |cache| cache.directory_changed(number));
            }
        });
        let (this, own) = (self.this.clone(), node.path().name().to_owned());
        let on_reply = Box::new(move |reply: Reply| {
            let Some(cache) = this.upgrade() else { return };
            if !is_alone(&reply, &own) {
                cache.in_background(move |cache| cache.rivals_came(number));
            }
        });
        let request =
            Request::GetChildren { path: self.lock.directory().as_str().to_owned(), watch: true, with_stat: false };
        let tickets = node.session().submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
        let watch = Watch::new(node.session().clone(), tickets.first().copied().unwrap_or(Ticket(0)));
        let before = self.state.lock().watch.replace(watch);
        // It may have to tell the server.
        drop(before);
    }

    /// While a thread holds the lock there is time to look who came. An idle lock goes at once.
    fn directory_changed(&self, number: u64) {
        let has_time = self.state.lock().turns.looks_for_rivals(number);
        if has_time { self.watch_directory(number) } else { self.rivals_came(number) }
    }

    fn rivals_came(&self, number: u64) {
        self.step(|turns| ((), turns.rivals_came(number, Instant::now())));
    }

    /// Somebody asks for the lock by what it has written into the znode: that is for the holder to decide, and an idle lock
    /// goes at once.
    fn revoked(&self, word: &RevokeWord) {
        let (listener, number) = {
            let state = self.state.lock();
            (state.listener.clone(), state.turns.number())
        };
        if let Some(listener) = listener.or_else(|| self.lock.revocable_node()) {
            listener.tell(word);
        }
        if let Some(number) = number {
            self.rivals_came(number);
        }
    }

    fn listen(&self, listener: &Arc<RevocableNode>) {
        let before = self.state.lock().listener.replace(listener.clone());
        // The caller's: not under the lock.
        drop(before);
    }
}

/// Whether nobody else stands in the directory. Where that is not known, somebody may.
fn is_alone(reply: &Reply, own: &str) -> bool {
    match reply {
        Ok(Response::Children { names, .. }) => sorted_contenders(names).iter().all(|name| *name == own),
        _ => false,
    }
}

impl Keeper for Cache {
    fn gone(&self, tenure: &HeldNode) {
        let effects = {
            let mut state = self.state.lock();
            let number = state.tenures.iter().find(|of| std::ptr::eq(&raw const *of.node, tenure)).map(|of| of.number);
            let Some(number) = number else { return };
            let next = state.turns.gone(number);
            state.effects(next)
        };
        self.carry_out(effects);
    }

    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()> {
        grant.released();
        self.lock.unregister(grant);
        self.lock.forget_revocation(grant);
        self.end_turn(tenure);
        grant.lost().map_or(Ok(()), |reason| Err(self.lock.lost(reason)))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let number = state.turns.close();
        let tenures = std::mem::take(&mut state.tenures);
        for tenure in tenures.into_iter().filter(|tenure| Some(tenure.number) == number) {
            self.lock.release_in_background(&tenure.node);
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("path", &self.lock.base_path()).finish_non_exhaustive()
    }
}

/// One acquire of one thread. Dropping it gives the turn up.
struct Visit<'a> {
    cache: &'a Cache,
    who: Waiter,
    patience: Patience<'a>,
    words: Option<Receiver<Word>>,
    /// It has the turn there, and looks.
    looks_in: Option<u64>,
    is_over: bool,
}

/// How a turn was used.
enum Taken {
    Held(Arc<HeldNode>),
    /// It was not, and this comes next; `None`: the time was up.
    Not(Option<Word>),
}

impl<'a> Visit<'a> {
    fn begin(cache: &'a Cache, patience: Patience<'a>) -> Result<(Visit<'a>, Word)> {
        let mut state = cache.state.lock();
        let ahead = state.turns.ahead();
        if patience.terms.max_ahead.is_some_and(|most| ahead > most) {
            drop(state);
            return Err(Error::Busy { path: cache.lock.base_path().to_owned(), ahead });
        }
        state.last_waiter += 1;
        let who = state.last_waiter;
        let turn = state.turns.come(who, patience.only_try);
        let (word, words) = Visit::received(&mut state, who, turn);
        drop(state);
        Ok((Visit { cache, who, patience, words, looks_in: None, is_over: turn == Turn::No }, word))
    }

    fn received(state: &mut State, who: Waiter, turn: Turn) -> (Word, Option<Receiver<Word>>) {
        let words = (turn == Turn::Wait).then(|| {
            let (sender, words) = bounded(1);
            state.waiters.insert(who, sender);
            words
        });
        (Word { turn, tenure: state.node(turn) }, words)
    }

    fn call(&self) -> Call<'a> {
        self.cache.lock.client().call("acquire", self.cache.lock.base_path(), self.patience.stop)
    }

    /// Sleeps until it is its turn.
    fn wait(&mut self) -> Result<Option<Word>> {
        let Some(words) = &self.words else { return Ok(None) };
        let stop = self.patience.stop;
        loop {
            let bound = next_recheck(self.cache.lock.client()).map_or(stop, |at| stop.by(at));
            let end = match bound.recv(words) {
                Ok(word) => return Ok(Some(word)),
                Err(end) => stop.is_over().or((bound.deadline == stop.deadline).then_some(end)),
            };
            match end {
                Some(WaitEnd::Cancelled) => return Err(self.call().cancelled()),
                Some(WaitEnd::Deadline) => return Ok(None),
                None => self.cache.look_after(),
            }
        }
    }

    /// Queues at the servers.
    fn seek(&mut self) -> Result<Option<Word>> {
        let (lock, patience) = (&*self.cache.lock, self.patience);
        let seeker = Visitor { cache: self.cache, who: self.who };
        let mut spec = lock.spec(patience);
        if self.words.is_some() {
            // Who has queued stays.
            (spec.max_ahead, spec.looks_first) = (None, patience.only_try);
        }
        let wish = Wish { seeker: Some(&seeker), ..Wish::new(lock, spec, patience) };
        let Outcome::Granted { held, .. } = wish.acquire()? else { return Ok(None) };
        Ok(held.into_iter().next().and_then(|node| self.cache.begin(self.who, node)))
    }

    /// It is its turn: takes the lock, unless a last look shows that it cannot be had like this.
    fn take(&mut self, word: &Word, number: u64, grant: u64, owners: &Owners) -> Result<Taken> {
        let (cache, lock) = (self.cache, &*self.cache.lock);
        self.looks_in = Some(number);
        let Some(tenure) = &word.tenure else { return Ok(Taken::Not(Some(self.again(number, true)))) };
        let revocable = lock.revocable_node();
        if let Some(listener) = &revocable {
            cache.listen(listener);
        }
        let is_attended = lock.client().core.config.max_hold_time.is_some();
        let held = tenure.grant(number, grant, revocable, is_attended);
        owners.entered(lock, held.clone());
        let entered = Entered { lock, owners, held: &held, stays: false };
        let stop = if self.patience.only_try {
            self.patience.io(lock.client().core.config.connection_timeout)
        } else {
            self.patience.stop
        };
        // A mere try has no time that could be up: it ends with its requests.
        let end = stop.is_over().filter(|end| !self.patience.only_try || *end == WaitEnd::Cancelled);
        let looked = match end {
            Some(end) => Look::Stopped(end),
            None => look(lock.client(), tenure, grant == 1, stop)?,
        };
        match looked {
            Look::Certain => {
                entered.stays();
                self.is_over = true;
                Ok(Taken::Held(held))
            }
            Look::Stopped(WaitEnd::Cancelled) => Err(self.call().cancelled()),
            Look::Stopped(WaitEnd::Deadline) if self.patience.only_try || !lock.client().is_connected() => {
                Err(self.call().connection_loss())
            }
            Look::Stopped(WaitEnd::Deadline) => Ok(Taken::Not(None)),
            Look::Gone => {
                drop(entered);
                Ok(Taken::Not(Some(self.again(number, true))))
            }
            Look::InDoubt => {
                drop(entered);
                Ok(Taken::Not(Some(self.again(number, false))))
            }
        }
    }

    /// The znode is gone, or nobody can make sure of it: it comes again, and keeps its place.
    fn again(&mut self, number: u64, is_gone: bool) -> Word {
        self.looks_in = None;
        let mut state = self.cache.state.lock();
        let (turn, next) = state.turns.come_again(self.who, number, is_gone);
        let effects = state.effects(next);
        let (word, words) = Visit::received(&mut state, self.who, turn);
        drop(state);
        self.words = words;
        self.cache.carry_out(effects);
        word
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        match self.looks_in {
            _ if self.is_over => {}
            Some(tenure) => self.cache.end_turn(tenure),
            None => self.cache.leave(self.who, self.words.as_ref()),
        }
    }
}

/// The thread counts as a holder, until this is dropped.
struct Entered<'a> {
    lock: &'a LockInternals,
    owners: &'a Owners,
    held: &'a Arc<HeldNode>,
    stays: bool,
}

impl Entered<'_> {
    fn stays(mut self) {
        self.stays = true;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if !self.stays {
            drop(self.owners.leave(self.lock, self.held));
            self.held.released();
        }
    }
}

/// The one that queues at the servers for its process.
struct Visitor<'a> {
    cache: &'a Cache,
    who: Waiter,
}

impl Seeker for Visitor<'_> {
    fn created(&self) {
        self.cache.step(|turns| ((), turns.created(self.who)));
    }

    fn revocable_node(&self) -> Arc<RevocableNode> {
        RevocableNode::new(self.cache.revocation.clone())
    }
}

impl Cache {
    /// Nothing has happened for long: what nobody thought of becomes a delay.
    fn look_after(&self) {
        let node = {
            let state = self.state.lock();
            let number = state.turns.number();
            state.tenures.iter().find(|tenure| Some(tenure.number) == number).map(|tenure| tenure.node.clone())
        };
        if let Some(node) = node.filter(|node| node.footing().is_gone) {
            self.gone(&node);
        }
    }
}
