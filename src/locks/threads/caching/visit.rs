//! One acquire of one thread: it waits for its turn, queues at the servers where it is the first, and looks before it
//! returns.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    framework::{
        client::call::Call,
        held::node::{HeldNode, RevocableNode},
    },
    locks::{
        acquire::{Acquire, Outcome, Queued, Seeker, internals::LockInternals, next_recheck, owners::Owners},
        options::patience::Patience,
        threads::caching::{
            cache::{Cache, State, Word},
            look::{Look, look},
            turns::{Mode, Turn, Waiter},
        },
    },
    session::wait::{
        deadline::WaitEnd,
        reply_slot::{ReplySlot, reply_slot},
    },
};

impl Cache {
    /// Waits for the turn among the threads of this process, and where need be at the servers. `None`: the time was up
    /// first, or it would have had to wait.
    pub(crate) fn acquire(&self, mode: Mode, patience: Patience<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        match self.visit(mode, patience, owners)? {
            None if patience.terms.has_to_say => Err(self.lock(mode).still_taken(None)),
            held => Ok(held),
        }
    }

    fn visit(&self, mode: Mode, patience: Patience<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        let (mut visit, mut word) = Visit::begin(self, mode, patience, owners)?;
        loop {
            let next = match word.turn {
                Turn::No => return Ok(None),
                Turn::Wait => visit.wait()?,
                Turn::Seek => visit.seek()?,
                Turn::Hold { tenure, grant } => match visit.take(&word, tenure, grant)? {
                    ControlFlow::Break(held) => return Ok(held),
                    ControlFlow::Continue(next) => Some(next),
                },
            };
            match next {
                Some(next) => word = next,
                None => return Ok(None),
            }
        }
    }
}

/// One acquire of one thread. Dropping it gives the turn up.
struct Visit<'a> {
    cache: &'a Cache,
    lock: &'a LockInternals,
    mode: Mode,
    who: Waiter,
    patience: Patience<'a>,
    owners: &'a Owners,
    /// The thread counts as a holder by this, while it looks.
    entered: Option<Arc<HeldNode>>,
    /// Where it is told that it is its turn, from when it begins to wait to when it has taken that.
    words: Option<ReplySlot<Word>>,
    has_waited: bool,
    /// Where it stands among the others. `No`: it has nothing to give up.
    turn: Turn,
}

impl<'a> Visit<'a> {
    fn begin(cache: &'a Cache, mode: Mode, patience: Patience<'a>, owners: &'a Owners) -> Result<(Visit<'a>, Word)> {
        let lock = cache.lock(mode);
        let mut state = cache.state.lock();
        let ahead = state.turns.ahead(mode);
        if patience.terms.max_ahead.is_some_and(|most| ahead > most) {
            drop(state);
            return Err(Error::Busy { path: lock.base_path().to_owned(), ahead });
        }
        state.last_waiter += 1;
        let who = state.last_waiter;
        let (turn, next) = state.turns.come(who, mode, patience.only_try);
        let effects = state.effects(next);
        let (entered, words, has_waited) = (None, None, false);
        let mut visit = Visit { cache, lock, mode, who, patience, owners, entered, words, has_waited, turn };
        let word = visit.received(&mut state, turn);
        drop(state);
        cache.carry_out(effects);
        Ok((visit, word))
    }

    /// Its place is there before it sleeps, under the lock under which it has come into the queue.
    fn received(&mut self, state: &mut State, turn: Turn) -> Word {
        self.turn = turn;
        if turn == Turn::Wait {
            let (sender, words) = reply_slot();
            state.waiters.insert(self.who, sender);
            (self.words, self.has_waited) = (Some(words), true);
        }
        Word { turn, tenure: state.node(turn) }
    }

    fn call(&self) -> Call<'a> {
        self.lock.client().call("acquire", self.lock.base_path(), self.patience.stop)
    }

    /// Sleeps until it is its turn. A sender that goes without a word would look like the end of the time. None does:
    /// it stands among the waiters, which outlive this visit, until this visit leaves, or until it is taken out with
    /// its word, which `Wake` sends in any case.
    fn wait(&mut self) -> Result<Option<Word>> {
        let Some(words) = &self.words else { return Ok(None) };
        // Not before: a cycle in which nobody waits is to read the clock as seldom as can be.
        let (stop, since) = (self.patience.stop, *self.patience.since.get_or_insert_with(Instant::now));
        loop {
            let bound = next_recheck(self.lock.client()).map_or(stop, |at| stop.by(at));
            let end = match words.wait(bound) {
                Ok(word) => {
                    (self.words, self.turn) = (None, word.turn);
                    if matches!(word.turn, Turn::Hold { .. }) {
                        self.lock.client().core.counters.waits.record(since.elapsed());
                    }
                    return Ok(Some(word));
                }
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
        let (lock, patience) = (self.lock, self.patience);
        let mut spec = lock.spec(patience);
        if self.has_waited {
            // Who has queued stays.
            (spec.max_ahead, spec.looks_first) = (None, patience.only_try);
        }
        let acquire = Acquire { seeker: Some(self), ..Acquire::new(lock, spec, patience) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(None) };
        Ok(held.into_iter().next().and_then(|node| self.begin_tenure(node)))
    }

    /// A tenure begins. `None`: nobody knows of such a seeker.
    fn begin_tenure(&mut self, node: Arc<HeldNode>) -> Option<Word> {
        let cache = self.cache;
        cache.begin(self.who, self.mode, node, |state, turn| self.received(state, turn))
    }

    /// It is its turn: takes the lock, unless a last look shows that it cannot be had like this. `Break(None)`: the time was
    /// up; `Continue`: what comes next.
    fn take(&mut self, word: &Word, number: u64, grant: u64) -> Result<ControlFlow<Option<Arc<HeldNode>>, Word>> {
        let (cache, lock) = (self.cache, self.lock);
        let Some(tenure) = &word.tenure else { return Ok(ControlFlow::Continue(self.again(number, grant))) };
        let revocable = lock.revocable_node();
        if let Some(listener) = &revocable {
            cache.listen(number, grant, tenure, listener);
        }
        let is_attended = lock.client().core.config.max_hold_time.is_some();
        let held = tenure.grant(number, grant, revocable, is_attended);
        self.entered = Some(held.clone());
        self.owners.entered(lock, held);
        let stop = if self.patience.only_try {
            self.patience.io(lock.client().core.config.connection_timeout)
        } else {
            self.patience.stop
        };
        // A mere try has no time that could be up: it ends with its requests.
        let end = stop.is_over().filter(|end| !self.patience.only_try || *end == WaitEnd::Cancelled);
        let looked = match end {
            Some(end) => Look::Stopped(end),
            None => look(lock.client(), tenure, word.turn.is_first(), stop)?,
        };
        match looked {
            Look::Certain => {
                self.turn = Turn::No;
                Ok(ControlFlow::Break(self.entered.take()))
            }
            Look::Stopped(WaitEnd::Cancelled) => Err(self.call().cancelled()),
            Look::Stopped(WaitEnd::Deadline) if self.patience.only_try || !lock.client().is_connected() => {
                Err(self.call().connection_loss())
            }
            Look::Stopped(WaitEnd::Deadline) => Ok(ControlFlow::Break(None)),
            Look::Gone => Ok(ControlFlow::Continue(self.again(number, grant))),
            Look::InDoubt => {
                // The znode goes as soon as nobody holds by it: others wait for it at the servers.
                cache.step(|turns| turns.gone(number));
                Err(lock.uncertain(Duration::ZERO))
            }
        }
    }

    /// It does not count as a holder any more.
    fn step_back(&mut self) {
        if let Some(held) = self.entered.take() {
            drop(self.owners.leave(self.lock, &held));
            held.released();
        }
    }

    /// The znode is gone: it comes again, and keeps its place.
    fn again(&mut self, number: u64, grant: u64) -> Word {
        self.step_back();
        let cache = self.cache;
        cache.listens_no_more(number, grant);
        let mut state = cache.state.lock();
        let (turn, next) = state.turns.come_again(self.who, self.mode, (number, grant), self.patience.only_try);
        let effects = state.effects(next);
        let word = self.received(&mut state, turn);
        drop(state);
        cache.carry_out(effects);
        word
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.step_back();
        match self.turn {
            Turn::No => {}
            Turn::Hold { tenure, grant } => {
                self.cache.listens_no_more(tenure, grant);
                self.cache.end_turn(tenure, grant);
            }
            Turn::Seek | Turn::Wait => self.cache.leave(self.who, self.words.as_ref()),
        }
    }
}

impl Seeker for Visit<'_> {
    fn stays_idle(&self) -> bool {
        self.cache.stays_idle()
    }

    fn created(&self) {
        self.cache.step(|turns| turns.created(self.who));
    }

    /// What is asked of the znode goes to whoever holds it then.
    fn revocable_node(&self) -> Arc<RevocableNode> {
        self.cache.revocable_node(self.mode)
    }

    fn inherit(&self) -> Option<Queued> {
        let queued = self.cache.state.lock().queued.take();
        queued.map(|(_, contender)| contender)
    }

    fn bequeath(&self, contender: Queued) -> Option<Queued> {
        let mut state = self.cache.state.lock();
        let Some(next) = state.turns.bequeath(self.who) else { return Some(contender) };
        state.queued = Some((self.mode, contender));
        let effects = state.effects(next);
        drop(state);
        self.cache.carry_out(effects);
        None
    }
}
