//! The threads around [`Turns`]: those that wait for a turn, the one that queues at the servers, and what is told of others.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::Mutex;

use crate::{
    error::Result,
    framework::held::{
        node::{HeldNode, Keeper, RevocableNode, Revocation},
        revocation::RevokeWord,
    },
    locks::{
        contender::{blocking::Queued, driver::sorted_contenders, internals::LockInternals},
        threads::caching::{
            options::Caching,
            turns::{Next, Turn, Turns, Waiter},
        },
    },
    proto::{request::Request, response::Response, types::EventType},
    session::{
        api::{Reply, Submission, Ticket, WatchEvent, Watcher},
        wait::{
            deadline::Stop,
            pending::Watch,
            reply_slot::{ReplySender, ReplySlot},
        },
    },
};

/// One lock object with what its process keeps of it.
pub(crate) struct Cache {
    this: Weak<Cache>,
    pub(super) lock: Arc<LockInternals>,
    limits: Caching,
    /// What is asked of the znode is asked of whoever holds it.
    pub(super) revocation: Arc<Revocation>,
    /// Under it nobody is woken and nothing is sent.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) turns: Turns,
    pub(super) waiters: HashMap<Waiter, ReplySender<Word>>,
    pub(super) last_waiter: Waiter,
    tenures: Vec<Tenure>,
    /// The contender of a seeker that has given up, until the next one goes on with it.
    pub(super) queued: Option<Queued>,
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
pub(super) struct Word {
    pub(super) turn: Turn,
    /// The znode, where it has the lock.
    pub(super) tenure: Option<Arc<HeldNode>>,
}

/// What is to be done under no lock.
#[must_use]
pub(super) struct Effects {
    wake: Option<(ReplySender<Word>, Word)>,
    farewell: Option<Arc<HeldNode>>,
    tick: Option<(u64, Instant)>,
}

impl State {
    pub(super) fn node(&self, turn: Turn) -> Option<Arc<HeldNode>> {
        let Turn::Hold { tenure: number, .. } = turn else { return None };
        self.tenures.iter().find(|tenure| tenure.number == number).map(|tenure| tenure.node.clone())
    }

    pub(super) fn effects(&mut self, next: Next) -> Effects {
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

    /// How many threads of this process wait behind the one that has the lock or queues for it.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().turns.waiting()
    }

    /// One step of the turns, and what follows from it.
    pub(super) fn step(&self, step: impl FnOnce(&mut Turns) -> Next) {
        let effects = {
            let mut state = self.state.lock();
            let next = step(&mut state.turns);
            state.effects(next)
        };
        self.carry_out(effects);
    }

    /// No wake-up can be lost. A waiter's slot is there before the waiter stands in the queue, both under one lock; one
    /// word is put into it, which stays there until it is taken; and a waiter that gives up says so under the same lock,
    /// where it has its turn already or never gets one. In the first case it passes the turn on.
    pub(super) fn carry_out(&self, effects: Effects) {
        let Effects { wake, farewell, tick } = effects;
        if let Some(node) = farewell {
            self.give_back(node);
        }
        if let Some((number, at)) = tick {
            let this = self.this.clone();
            let delay = at.saturating_duration_since(Instant::now());
            self.lock.client().core.run_later(delay, move || {
                if let Some(cache) = this.upgrade() {
                    cache.step(|turns| turns.tick(number, &cache.limits, Instant::now()));
                }
            });
        }
        // Last: who is woken meets nobody here, and may get this thread's processor.
        if let Some((waiter, word)) = wake {
            // One that gives up at this moment passes its turn on.
            waiter.send(word);
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

    /// `words`: where it may have been told of its turn, if it has not taken that yet.
    pub(super) fn leave(&self, who: Waiter, words: Option<&ReplySlot<Word>>) {
        let mut state = self.state.lock();
        let was_woken = state.waiters.remove(&who).is_none();
        if let Some(words) = words.filter(|_| was_woken) {
            drop(state);
            // Put there by now, or at once. What is left of a tenure that has ended since goes with whoever had the turn in it.
            if let Ok(Word { turn: Turn::Hold { tenure, .. }, .. }) = words.wait(Stop::default()) {
                return self.end_turn(tenure);
            }
            state = self.state.lock();
        }
        let next = state.turns.leave(who, &self.limits, Instant::now());
        let effects = state.effects(next);
        let queued = if state.turns.is_vacant() { state.queued.take() } else { None };
        drop(state);
        if let Some(queued) = queued {
            queued.withdraw(&self.lock);
        }
        self.carry_out(effects);
    }

    /// The turn in this tenure ends.
    pub(super) fn end_turn(&self, tenure: u64) {
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

    /// A tenure begins, and the seeker receives its turn. `None`: nobody knows of such a seeker.
    pub(super) fn begin(
        &self,
        who: Waiter,
        node: Arc<HeldNode>,
        receive: impl FnOnce(&mut State, Turn) -> Word,
    ) -> Option<Word> {
        node.serve(self.this.clone());
        // Only where events come in the order of time they come before somebody else can be granted the lock.
        let may_last = node.session().tells_in_order();
        let begun = {
            let mut state = self.state.lock();
            state.turns.granted(who, may_last).map(|(turn, number, next)| {
                state.tenures.push(Tenure { number, node: node.clone() });
                let effects = state.effects(next);
                (receive(&mut state, turn), number, effects)
            })
        };
        let Some((word, number, effects)) = begun else {
            self.lock.release_in_background(&node);
            return None;
        };
        self.carry_out(effects);
        if may_last {
            self.in_background(move |cache| cache.watch_directory(number));
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
        self.step(|turns| turns.rivals_came(number, Instant::now()));
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

    /// Nothing has happened for long: what nobody thought of becomes a delay.
    pub(super) fn look_after(&self) {
        let node = {
            let state = self.state.lock();
            let number = state.turns.number();
            state.tenures.iter().find(|tenure| Some(tenure.number) == number).map(|tenure| tenure.node.clone())
        };
        if let Some(node) = node.filter(|node| node.footing().is_gone) {
            self.gone(&node);
        }
    }

    pub(super) fn listen(&self, listener: &Arc<RevocableNode>) {
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
        let released = grant.lost().map_or(Ok(()), |reason| Err(self.lock.lost(reason)));
        self.end_turn(tenure);
        released
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
