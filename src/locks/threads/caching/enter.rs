//! One acquire of one thread: it waits for its turn, queues at the servers if it is the first, and looks before it
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
        held::{
            certainty::Certainty,
            node::{HeldNode, RevocableNode},
        },
    },
    locks::{
        acquire::{
            Outcome,
            contention::{Acquire, Contention, Delegate},
            internals::LockInternals,
            last_look::last_look,
            next_recheck,
            owners::Owners,
        },
        options::wait::Wait,
        threads::caching::{
            cache::{Cache, State, Woken},
            local_queue::{Mode, Turn, Waiter},
        },
    },
    session::wait::{
        deadline::WaitEnd,
        reply_slot::{ReplySlot, reply_slot},
    },
};

impl Cache {
    /// Waits for the turn among the threads of this process, and if need be at the servers. `None`: the time was up
    /// first, or it would have had to wait.
    pub(crate) fn acquire(&self, mode: Mode, wait: Wait<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        match self.enter(mode, wait, owners)? {
            None if wait.options.timeout_is_error => Err(self.lock(mode).still_taken(None)),
            held => Ok(held),
        }
    }

    fn enter(&self, mode: Mode, wait: Wait<'_>, owners: &Owners) -> Result<Option<Arc<HeldNode>>> {
        let (mut enter, mut woken) = Entering::begin(self, mode, wait, owners)?;
        loop {
            let next = match woken.turn {
                Turn::No => return Ok(None),
                Turn::Wait => enter.wait()?,
                Turn::Queue => enter.queue_at_servers()?,
                Turn::Hold { tenure, grant } => match enter.take(&woken, tenure, grant)? {
                    ControlFlow::Break(held) => return Ok(held),
                    ControlFlow::Continue(next) => Some(next),
                },
            };
            match next {
                Some(next) => woken = next,
                None => return Ok(None),
            }
        }
    }
}

/// One acquire of one thread. Dropping it gives the turn up.
struct Entering<'a> {
    cache: &'a Cache,
    lock: &'a LockInternals,
    mode: Mode,
    who: Waiter,
    wait: Wait<'a>,
    owners: &'a Owners,
    /// The hold by which the thread counts as a holder, while it looks.
    entered: Option<Arc<HeldNode>>,
    /// The slot of its wake-up, from when it begins to wait until it has taken that.
    wake_ups: Option<ReplySlot<Woken>>,
    has_waited: bool,
    /// Its turn in the local queue. `No`: it has nothing to give up.
    turn: Turn,
}

impl<'a> Entering<'a> {
    fn begin(cache: &'a Cache, mode: Mode, wait: Wait<'a>, owners: &'a Owners) -> Result<(Entering<'a>, Woken)> {
        let lock = cache.lock(mode);
        let mut state = cache.state.lock();
        let ahead = state.local_queue.ahead(mode);
        if wait.options.max_ahead.is_some_and(|most| ahead > most) {
            drop(state);
            return Err(Error::Busy { path: lock.base_path().to_owned(), ahead });
        }
        state.last_waiter += 1;
        let who = state.last_waiter;
        let (turn, next) = state.local_queue.enter(who, mode, wait.only_try);
        let effects = state.effects(next);
        let (entered, wake_ups, has_waited) = (None, None, false);
        let mut enter = Entering { cache, lock, mode, who, wait, owners, entered, wake_ups, has_waited, turn };
        let woken = enter.received(&mut state, turn);
        drop(state);
        cache.carry_out(effects);
        Ok((enter, woken))
    }

    /// Registers the wake-up slot under the lock that put us in the queue: no wake-up can come before the slot exists.
    fn received(&mut self, state: &mut State, turn: Turn) -> Woken {
        self.turn = turn;
        if turn == Turn::Wait {
            let (sender, wake_ups) = reply_slot();
            state.waiters.insert(self.who, sender);
            (self.wake_ups, self.has_waited) = (Some(wake_ups), true);
        }
        Woken { turn, tenure: state.node(turn) }
    }

    fn call(&self) -> Call<'a> {
        self.lock.client().call("acquire", self.lock.base_path(), self.wait.bound)
    }

    /// Sleeps until it is its turn. A sender dropped without a wake-up would look like the end of the time. None is: it
    /// stays among the waiters, which outlive this acquire, until the acquire leaves, or until it is taken out with its
    /// wake-up, which `Wake` sends in any case.
    fn wait(&mut self) -> Result<Option<Woken>> {
        let Some(wake_ups) = &self.wake_ups else { return Ok(None) };
        // Not before: a cycle without a wait should read the clock as seldom as can be.
        let (bound, since) = (self.wait.bound, *self.wait.since.get_or_insert_with(Instant::now));
        loop {
            let until = next_recheck(self.lock.client()).map_or(bound, |at| bound.by(at));
            let end = match wake_ups.wait(until) {
                Ok(woken) => {
                    (self.wake_ups, self.turn) = (None, woken.turn);
                    if matches!(woken.turn, Turn::Hold { .. }) {
                        self.lock.client().core.counters.waits.record(since.elapsed());
                    }
                    return Ok(Some(woken));
                }
                Err(end) => bound.is_over().or((until.deadline == bound.deadline).then_some(end)),
            };
            match end {
                Some(WaitEnd::Cancelled) => return Err(self.call().cancelled()),
                Some(WaitEnd::Deadline) => return Ok(None),
                None => self.cache.look_after(),
            }
        }
    }

    /// Queues at the servers.
    fn queue_at_servers(&mut self) -> Result<Option<Woken>> {
        let (lock, wait) = (self.lock, self.wait);
        let mut spec = lock.spec(wait);
        if self.has_waited {
            // A thread that has queued stays.
            (spec.max_ahead, spec.looks_first) = (None, wait.only_try);
        }
        let acquire = Acquire { delegate: Some(self), ..Acquire::new(lock, spec, wait) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(None) };
        Ok(held.into_iter().next().and_then(|node| self.begin_tenure(node)))
    }

    /// Begins a tenure. `None`: the local queue knows of no such delegate.
    fn begin_tenure(&mut self, node: Arc<HeldNode>) -> Option<Woken> {
        let cache = self.cache;
        cache.begin(self.who, self.mode, node, |state, turn| self.received(state, turn))
    }

    /// Takes the lock on its turn, unless a last look shows that it is not certain. `Break(None)`: the time was up;
    /// `Continue`: the next turn.
    fn take(&mut self, woken: &Woken, number: u64, grant: u64) -> Result<ControlFlow<Option<Arc<HeldNode>>, Woken>> {
        let (cache, lock) = (self.cache, self.lock);
        let Some(tenure) = &woken.tenure else { return Ok(ControlFlow::Continue(self.again(number, grant))) };
        let revocable = lock.revocable_node();
        if let Some(listener) = &revocable {
            cache.listen(number, grant, tenure, listener);
        }
        let is_attended = lock.client().core.config.max_hold_time.is_some();
        let held = tenure.grant(number, grant, revocable, is_attended);
        self.entered = Some(held.clone());
        self.owners.entered(lock, held);
        let bound = if self.wait.only_try {
            self.wait.io(lock.client().core.config.connection_timeout)
        } else {
            self.wait.bound
        };
        // A mere try has no time that could be up: it ends with its requests.
        let end = bound.is_over().filter(|end| !self.wait.only_try || *end == WaitEnd::Cancelled);
        let looked = match end {
            Some(end) => Err(end),
            None => last_look(std::slice::from_ref(tenure), Duration::ZERO, bound, woken.turn.is_first()),
        };
        match looked {
            Ok(Certainty::Certain) => {
                self.turn = Turn::No;
                Ok(ControlFlow::Break(self.entered.take()))
            }
            Err(WaitEnd::Cancelled) => Err(self.call().cancelled()),
            Err(WaitEnd::Deadline) if self.wait.only_try || !lock.client().is_connected() => {
                Err(self.call().connection_loss())
            }
            Err(WaitEnd::Deadline) => Ok(ControlFlow::Break(None)),
            Ok(Certainty::Gone) => Ok(ControlFlow::Continue(self.again(number, grant))),
            Ok(Certainty::InDoubt) => {
                // The znode goes with the last hold by it: others wait for it at the servers.
                cache.step(|local_queue| local_queue.gone(number));
                Err(lock.uncertain(Duration::ZERO))
            }
        }
    }

    /// Makes the thread count as a holder no more.
    fn step_back(&mut self) {
        if let Some(held) = self.entered.take() {
            drop(self.owners.leave(self.lock, &held));
            held.released();
        }
    }

    /// The znode is gone: enters the local queue again, in the old place.
    fn again(&mut self, number: u64, grant: u64) -> Woken {
        self.step_back();
        let cache = self.cache;
        cache.listens_no_more(number, grant);
        let mut state = cache.state.lock();
        let (turn, next) = state.local_queue.enter_again(self.who, self.mode, (number, grant), self.wait.only_try);
        let effects = state.effects(next);
        let woken = self.received(&mut state, turn);
        drop(state);
        cache.carry_out(effects);
        woken
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.step_back();
        match self.turn {
            Turn::No => {}
            Turn::Hold { tenure, grant } => {
                self.cache.listens_no_more(tenure, grant);
                self.cache.end_turn(tenure, grant);
            }
            Turn::Queue | Turn::Wait => self.cache.leave(self.who, self.wake_ups.as_ref()),
        }
    }
}

impl Delegate for Entering<'_> {
    fn stays_idle(&self) -> bool {
        self.cache.stays_idle()
    }

    fn created(&self) {
        self.cache.step(|local_queue| local_queue.created(self.who));
    }

    /// A request to the znode goes to the threads that hold by it then.
    fn revocable_node(&self) -> Arc<RevocableNode> {
        self.cache.revocable_node(self.mode)
    }

    fn take_over(&self) -> Option<Contention> {
        let queued = self.cache.state.lock().queued.take();
        queued.map(|(_, contender)| contender)
    }

    fn hand_over(&self, contender: Contention) -> Option<Contention> {
        let mut state = self.cache.state.lock();
        let Some(next) = state.local_queue.hand_over(self.who) else { return Some(contender) };
        state.queued = Some((self.mode, contender));
        let effects = state.effects(next);
        drop(state);
        self.cache.carry_out(effects);
        None
    }
}
