//! One acquire of one thread: it waits for its turn, queues at the servers if it is the first, and looks before it
//! returns.

use std::{ops::ControlFlow, slice, sync::Arc, time::Duration};

use crate::{
    base::clock,
    error::{Error, Result},
    framework::{
        client::call::Call,
        held::{
            certainty::{Certainty, Needs},
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
        options::acquire::Wait,
        threads::caching::{
            cache::{Cache, State, Woken},
            local_queue::{Mode, Next, Turn},
        },
    },
    session::wait::{
        deadline::{WaitBound, WaitEnd},
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
        let mut enter = Entering::begin(self, mode, wait, owners)?;
        loop {
            let has_turn = match enter.turn {
                Turn::No => false,
                Turn::Wait => enter.wait()?,
                Turn::Queue => enter.queue_at_servers()?,
                Turn::Hold { tenure, grant } => match enter.take(tenure, grant)? {
                    ControlFlow::Break(held) => return Ok(held),
                    ControlFlow::Continue(()) => true,
                },
            };
            if !has_turn {
                return Ok(None);
            }
        }
    }
}

/// One acquire of one thread. Dropping it gives the turn up.
struct Entering<'a> {
    cache: &'a Cache,
    lock: &'a LockInternals,
    mode: Mode,
    /// Names this acquire in the local queue.
    who: u64,
    wait: Wait<'a>,
    owners: &'a Owners,
    /// The hold by which the thread counts as a holder, while it looks.
    entered: Option<Arc<HeldNode>>,
    /// The slot of its wake-up, from when it begins to wait until it has taken that.
    wake_ups: Option<ReplySlot<Woken>>,
    has_waited: bool,
    /// Its turn in the local queue. `No`: it has nothing to give up.
    turn: Turn,
    /// The znode of the tenure in which it has its turn.
    tenure: Option<Arc<HeldNode>>,
}

impl<'a> Entering<'a> {
    fn begin(cache: &'a Cache, mode: Mode, wait: Wait<'a>, owners: &'a Owners) -> Result<Entering<'a>> {
        let lock = cache.lock(mode);
        cache.step_with(|state| {
            let ahead = state.local_queue.ahead(mode);
            if wait.options.max_ahead.is_some_and(|most| ahead > most) {
                return (Err(Error::Busy { path: lock.base_path().to_owned(), ahead }), Next::default());
            }
            state.last_waiter += 1;
            let who = state.last_waiter;
            let (turn, next) = state.local_queue.enter(who, mode, wait.only_try);
            let (entered, wake_ups, has_waited, tenure) = (None, None, false, None);
            let mut enter =
                Entering { cache, lock, mode, who, wait, owners, entered, wake_ups, has_waited, turn, tenure };
            enter.has_turn(state, turn);
            (Ok(enter), next)
        })
    }

    /// Registers the wake-up slot under the lock that put us in the queue: no wake-up can come before the slot exists.
    fn has_turn(&mut self, state: &mut State, turn: Turn) {
        (self.turn, self.tenure) = (turn, state.tenure(turn));
        if turn == Turn::Wait {
            let (sender, wake_ups) = reply_slot();
            state.waiters.insert(self.who, sender);
            (self.wake_ups, self.has_waited) = (Some(wake_ups), true);
        }
    }

    fn call(&self) -> Call<'a> {
        self.lock.client().call("acquire", self.lock.base_path(), self.wait.bound)
    }

    /// Sleeps until it is its turn. `false`: the time was up first.
    ///
    /// A sender dropped without a wake-up would look like the end of the time. None is: it stays among the waiters,
    /// which outlive this acquire, until the acquire leaves, or until it is taken out with its wake-up, which `Wake`
    /// sends in any case.
    fn wait(&mut self) -> Result<bool> {
        let Some(wake_ups) = &self.wake_ups else { return Ok(false) };
        // Not before: a cycle without a wait should read the clock as seldom as can be.
        let (bound, since) = (self.wait.bound, *self.wait.since.get_or_insert_with(clock::now));
        loop {
            let until = next_recheck(self.lock.client()).map_or(bound, |at| bound.by(at));
            let end = match wake_ups.wait(until) {
                Ok((turn, tenure)) => {
                    (self.wake_ups, self.turn, self.tenure) = (None, turn, tenure);
                    if matches!(turn, Turn::Hold { .. }) {
                        self.lock.client().core.counters.waits.record(clock::since(since));
                    }
                    return Ok(true);
                }
                Err(end) => bound.is_over().or((until.deadline == bound.deadline).then_some(end)),
            };
            match end {
                Some(WaitEnd::Cancelled) => return Err(self.call().cancelled()),
                Some(WaitEnd::Deadline) => return Ok(false),
                None => self.cache.look_after(),
            }
        }
    }

    /// Queues at the servers, and begins a tenure there. `false`: the time was up first, or the local queue knows of no
    /// such delegate.
    fn queue_at_servers(&mut self) -> Result<bool> {
        let (lock, wait) = (self.lock, self.wait);
        let mut spec = lock.spec(wait);
        if self.has_waited {
            // A thread that has queued stays.
            (spec.max_ahead, spec.looks_first) = (None, wait.only_try);
        }
        let acquire = Acquire { delegate: Some(self), ..Acquire::new(lock, spec, wait) };
        let Outcome::Granted { held, .. } = acquire.run()? else { return Ok(false) };
        let Some(node) = held.into_iter().next() else { return Ok(false) };
        node.serve(self.cache.this.clone());
        // Only events in the order of time come before another contender can be granted the lock.
        let may_last = node.session().tells_in_order();
        let begun = self.cache.step_with(|state| {
            let Some((turn, number, next)) = state.local_queue.granted(self.who, may_last, clock::now()) else {
                return (None, Next::default());
            };
            state.tenures.insert(number, node.clone());
            self.has_turn(state, turn);
            (Some(number), next)
        });
        let Some(number) = begun else {
            lock.release_in_background(&node);
            return Ok(false);
        };
        // A request to give it back came while this thread queued, or while it was granted the lock.
        if node.revocable().is_some_and(|revocable| revocable.last().is_some()) {
            self.cache.rivals_came(number);
        }
        Ok(true)
    }

    /// Takes the lock on its turn, unless a last look shows that it is not certain. `Break(None)`: the time was up;
    /// `Continue`: the next turn.
    fn take(&mut self, number: u64, grant: u64) -> Result<ControlFlow<Option<Arc<HeldNode>>>> {
        let (cache, lock) = (self.cache, self.lock);
        let Some(tenure) = self.tenure.take() else { return Ok(self.again(number, grant)) };
        let held = tenure.grant(number, grant, lock.revocable_node());
        if held.revocable().is_some() {
            cache.listening.lock().push(Arc::downgrade(&held));
        }
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
            None => {
                let needs = if self.turn.is_first() { Needs::Connection } else { Needs::Watch };
                last_look(slice::from_ref(&tenure), Duration::ZERO, bound, needs)
            }
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
            Ok(Certainty::Gone) => Ok(self.again(number, grant)),
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
            if held.revocable().is_some() {
                self.cache.listens_no_more(&held);
            }
        }
    }

    /// The znode is gone: enters the local queue again, in the old place.
    fn again(&mut self, number: u64, grant: u64) -> ControlFlow<Option<Arc<HeldNode>>> {
        self.step_back();
        self.cache.step_with(|state| {
            let (turn, next) = state.local_queue.enter_again(self.who, self.mode, (number, grant), self.wait.only_try);
            self.has_turn(state, turn);
            ((), next)
        });
        ControlFlow::Continue(())
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.step_back();
        let cache = self.cache;
        if let Some(wake_ups) = &self.wake_ups {
            let was_woken = cache.step_with(|state| match state.waiters.remove(&self.who) {
                Some(_) => (false, state.local_queue.leave(self.who)),
                None => (true, Next::default()),
            });
            if !was_woken {
                return;
            }
            // The wake-up is there by now, or comes at once.
            self.turn = wake_ups.wait(WaitBound::default()).map_or(Turn::Wait, |(turn, _)| turn);
        }
        match self.turn {
            Turn::No => {}
            // If the tenure has ended since, its znode goes with the last turn in it.
            Turn::Hold { tenure, grant } => cache.end_turn(tenure, grant),
            Turn::Queue | Turn::Wait => cache.step(|local_queue| local_queue.leave(self.who)),
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
        self.cache.step_with(|state| match state.local_queue.hand_over(self.who) {
            Some(next) => {
                state.queued = Some((self.mode, contender));
                (None, next)
            }
            None => (Some(contender), Next::default()),
        })
    }
}
