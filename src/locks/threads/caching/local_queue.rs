//! Decides whose turn it is among the threads of this process: (state, input) -> (state, effects), and no more.

use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use crate::locks::threads::caching::options::Caching;

/// How soon, and how late, the directory of an idle lock is listed again.
const SHORTEST_IDLE_LOOK: Duration = Duration::from_secs(1);
const LONGEST_IDLE_LOOK: Duration = Duration::from_secs(10);

/// Names one acquire of one thread. A later one has a greater number.
pub(crate) type Waiter = u64;

/// Whether other threads, or znodes, may hold beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// None.
    Exclusive,
    /// Any number of shared ones.
    Shared,
}

/// One lock object as its process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct LocalQueue {
    stage: Stage,
    /// The waiters for a turn, first come, first served: the smallest number is in front. Empty while the current tenure is
    /// shared: a thread that cannot have a turn in it ends it, and queues at the servers before its znode goes.
    queue: VecDeque<(Waiter, Mode)>,
    /// The tenures that have ended while a thread had a turn in them. No thread gets another turn there, and the znode
    /// goes with the last turn.
    ended: Vec<Tenure>,
    tenures: u64,
    /// Whether a [`LocalQueue::tick`] is to come: one for all tenures, however short they are.
    is_timed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum Stage {
    /// No znode, and no thread wants one.
    #[default]
    Vacant,
    /// The delegate queues at the servers, for itself and those behind it. The znode of the tenure before goes as soon
    /// as the delegate's create is on its way, so that the waiters lose no place.
    Queueing {
        delegate: Waiter,
        mode: Mode,
        before: Option<u64>,
    },
    Granted(Tenure),
}

/// The time for which one znode of this process is granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tenure {
    number: u64,
    mode: Mode,
    grants: u64,
    /// The grants of the threads that have the lock, or look whether to take it. If empty, no thread waits either.
    inside: Vec<u64>,
    /// Whether it may outlast its first hold: events of the znode and of the directory come in time.
    may_last: bool,
    rivals: Option<Rivals>,
    idle_since: Option<Instant>,
    /// When its directory was listed last.
    looked: Instant,
}

/// Other contenders for the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rivals {
    since: Instant,
    /// The number of grants up to then.
    grants: u64,
}

/// The turn of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// The lock, if a last look shows that the znode still stands for certain.
    Hold { tenure: u64, grant: u64 },
    /// The waiter has to queue at the servers.
    Queue,
    /// The waiter has to wait until it is woken.
    Wait,
    /// A mere try would have to wait.
    No,
}

/// The effects of an input, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[must_use = "waiters sleep and znodes stay otherwise"]
pub(crate) struct Next {
    /// The tenures whose znodes go.
    pub(crate) releases: Vec<u64>,
    /// The waiters to wake, with their turns.
    pub(crate) wake: Vec<(Waiter, Turn)>,
    /// When [`LocalQueue::tick`] is due.
    pub(crate) tick: Option<Instant>,
    /// The tenure whose directory is to be listed.
    pub(crate) look: Option<u64>,
}

impl Turn {
    /// Whether it is the turn of a thread whose contender has just been granted the znode.
    pub(crate) fn is_first(self) -> bool {
        matches!(self, Turn::Hold { grant: 1, .. })
    }
}

impl Next {
    fn releasing(number: Option<u64>) -> Next {
        Next { releases: number.into_iter().collect(), ..Next::default() }
    }

    fn and(mut self, then: Next) -> Next {
        self.releases.extend(then.releases);
        self.wake.extend(then.wake);
        self.tick = self.tick.or(then.tick);
        self.look = self.look.or(then.look);
        self
    }
}

impl LocalQueue {
    /// A thread wants the lock. A mere try never waits, and keeps no other thread from a turn.
    pub(crate) fn enter(&mut self, who: Waiter, mode: Mode, only_tries: bool) -> (Turn, Next) {
        let ends_tenure = match &mut self.stage {
            Stage::Vacant => true,
            Stage::Granted(tenure) if tenure.lets_in(mode) => return (tenure.give(), Next::default()),
            // The tenure is idle, and of the other mode. Or a writer comes: no reader gets in from here on.
            Stage::Granted(tenure) => tenure.inside.is_empty() || tenure.mode == Mode::Shared && !only_tries,
            Stage::Queueing { .. } => false,
        };
        if ends_tenure {
            // The znode of an idle lock goes first: nobody has waited behind it.
            let next = Next::releasing(self.close());
            self.stage = Stage::Queueing { delegate: who, mode, before: None };
            (Turn::Queue, next)
        } else if only_tries {
            (Turn::No, Next::default())
        } else {
            self.queue.push_back((who, mode));
            (Turn::Wait, Next::default())
        }
    }

    /// The thread with this turn found that the znode is gone: it enters again, and keeps its place.
    pub(crate) fn enter_again(
        &mut self,
        who: Waiter,
        mode: Mode,
        (number, grant): (u64, u64),
        only_tries: bool,
    ) -> (Turn, Next) {
        if let Some(tenure) = self.tenure(number) {
            tenure.leave(grant);
            let next = Next::releasing(self.close());
            self.stage = Stage::Queueing { delegate: who, mode, before: None };
            return (Turn::Queue, next);
        }
        let next = self.leave_ended(number, grant);
        let (turn, then) = self.enter(who, mode, only_tries);
        if turn == Turn::Wait {
            self.queue.pop_back();
            self.wait_again(who, mode);
        }
        (turn, next.and(then))
    }

    /// Puts a waiter back into the queue, in front of those that came later.
    fn wait_again(&mut self, who: Waiter, mode: Mode) {
        let place = self.queue.partition_point(|(other, _)| *other < who);
        self.queue.insert(place, (who, mode));
    }

    /// The delegate's create is on its way.
    pub(crate) fn created(&mut self, who: Waiter) -> Next {
        match &mut self.stage {
            Stage::Queueing { delegate, before, .. } if *delegate == who => Next::releasing(before.take()),
            _ => Next::default(),
        }
    }

    /// The delegate's znode is granted. A tenure begins, of readers with all of them that wait at the head of the
    /// queue; `None`: there is no such delegate.
    ///
    /// A writer's first turn is the delegate's, unless an earlier thread has entered again meanwhile. The first grant
    /// counts as the delegate's in any case: no other thread has just seen the znode.
    pub(crate) fn granted(&mut self, who: Waiter, may_last: bool, now: Instant) -> Option<(Turn, u64, Next)> {
        let Stage::Queueing { delegate, mode, before } = self.stage else { return None };
        if delegate != who {
            return None;
        }
        self.tenures += 1;
        let mut tenure = Tenure {
            number: self.tenures,
            mode,
            grants: 0,
            inside: Vec::new(),
            may_last,
            rivals: None,
            idle_since: None,
            looked: now,
        };
        let mut turn = tenure.give();
        let mut next = Next { look: may_last.then_some(tenure.number), ..Next::releasing(before) };
        let is_shared = mode == Mode::Shared;
        if let Some((first, Mode::Exclusive)) = self.queue.front().copied()
            && !is_shared
            && first < who
        {
            self.queue.pop_front();
            tenure.inside.clear();
            next.wake.push((first, tenure.give()));
            turn = Turn::Wait;
            self.wait_again(who, mode);
        }
        while is_shared
            && may_last
            && let Some((reader, Mode::Shared)) = self.queue.front().copied()
        {
            self.queue.pop_front();
            next.wake.push((reader, tenure.give()));
        }
        self.stage = Stage::Granted(tenure);
        if is_shared && !(may_last && self.queue.is_empty()) {
            next = next.and(self.end());
        }
        Some((turn, self.tenures, next))
    }

    /// The delegate gives up, and the next waiter takes over its contender: the process keeps its place at the servers.
    /// `None`: there is no waiter, or it waits for another kind of znode.
    pub(crate) fn hand_over(&mut self, who: Waiter) -> Option<Next> {
        let Stage::Queueing { delegate, mode, .. } = &mut self.stage else { return None };
        let (successor, _) = *self.queue.front().filter(|(_, wanted)| *delegate == who && wanted == mode)?;
        *delegate = successor;
        self.queue.pop_front();
        Some(Next { wake: vec![(successor, Turn::Queue)], ..Next::default() })
    }

    /// Whether a delegate queues at the servers, for this kind of znode.
    pub(crate) fn queues(&self, wanted: Mode) -> bool {
        matches!(self.stage, Stage::Queueing { mode, .. } if mode == wanted)
    }

    /// A thread without a turn does not want the lock any more.
    pub(crate) fn leave(&mut self, who: Waiter) -> Next {
        if let Stage::Queueing { delegate, before, .. } = self.stage
            && delegate == who
        {
            return self.pass_on(before);
        }
        self.queue.retain(|(other, _)| *other != who);
        Next::default()
    }

    /// The thread with this turn gives it back, whether it took the lock or only looked.
    pub(crate) fn release(&mut self, number: u64, grant: u64, limits: &Caching, now: Instant) -> Next {
        let Some(tenure) = self.tenure(number) else { return self.leave_ended(number, grant) };
        tenure.leave(grant);
        let look = tenure.look_if_due(limits, now);
        Next { look, ..self.pass(number, limits, now) }
    }

    /// A turn in the current tenure has ended.
    fn pass(&mut self, number: u64, limits: &Caching, now: Instant) -> Next {
        let Some(tenure) = self.tenure(number).filter(|tenure| tenure.inside.is_empty()) else {
            return Next::default();
        };
        if tenure.is_over(limits, now) {
            return self.end();
        }
        let (mode, has_rivals) = (tenure.mode, tenure.rivals.is_some());
        match self.queue.front().copied() {
            None => self.idle(limits, now),
            Some((next, wanted)) if wanted == mode => {
                self.queue.pop_front();
                let turn = self.tenure(number).map(|tenure| (next, tenure.give()));
                Next { wake: turn.into_iter().collect(), ..Next::default() }
            }
            Some(_) if has_rivals => self.end(),
            // As no other contender waits, there is no place to lose, and the new znode finds itself alone.
            Some(_) => Next::releasing(self.close()).and(self.pass_on(None)),
        }
    }

    /// No thread of this process wants the lock.
    fn idle(&mut self, limits: &Caching, now: Instant) -> Next {
        let Stage::Granted(tenure) = &mut self.stage else { return Next::default() };
        if tenure.rivals.is_some() || limits.keep_idle.is_zero() {
            return self.end();
        }
        tenure.idle_since = Some(now);
        let tick = tenure.next_tick(limits).filter(|_| !self.is_timed);
        self.is_timed |= tick.is_some();
        Next { tick, ..Next::default() }
    }

    /// The znode, or its session, is gone, or was in doubt for too long. The waiters keep their order.
    pub(crate) fn gone(&mut self, number: u64) -> Next {
        // A thread that has the lock, or looks, finds that it is gone, and sees to the rest.
        if self.tenure(number).is_some() { self.end() } else { Next::default() }
    }

    /// Another contender stands in the directory, or may, that cannot hold beside this tenure.
    pub(crate) fn rivals_came(&mut self, number: u64, now: Instant) -> Next {
        self.ends_soon(number, |tenure| {
            tenure.rivals.get_or_insert(Rivals { since: now, grants: tenure.grants });
        })
    }

    /// Ends the tenure with its writer's turn: the writer leaves a reader's znode behind that others have to queue for,
    /// or other contenders cannot be seen.
    pub(crate) fn ends_with_turn(&mut self, number: u64) -> Next {
        self.ends_soon(number, |tenure| tenure.may_last = false)
    }

    /// An idle tenure, and one of readers, ends at once; a writer may end its turn first.
    fn ends_soon(&mut self, number: u64, limit: impl FnOnce(&mut Tenure)) -> Next {
        let Some(tenure) = self.tenure(number) else { return Next::default() };
        if tenure.inside.is_empty() || tenure.mode == Mode::Shared {
            return self.end();
        }
        limit(tenure);
        Next::default()
    }

    /// Whether there is time to look which contender came into the directory, and it matters.
    pub(crate) fn looks_for_rivals(&self, number: u64) -> bool {
        let has_time = |tenure: &Tenure| tenure.mode == Mode::Shared || !tenure.inside.is_empty();
        self.now().is_some_and(|tenure| tenure.number == number && has_time(tenure) && tenure.rivals.is_none())
    }

    /// Time to look whether the lock has been idle for long, or other contenders wait for it.
    pub(crate) fn tick(&mut self, limits: &Caching, now: Instant) -> Next {
        self.is_timed = false;
        let Stage::Granted(tenure) = &mut self.stage else { return Next::default() };
        if tenure.idle_since.is_none() {
            return Next::default();
        }
        if tenure.idle_end(limits).is_some_and(|end| now >= end) {
            return self.end();
        }
        let look = tenure.look_if_due(limits, now);
        let tick = tenure.next_tick(limits);
        self.is_timed = tick.is_some();
        Next { tick, look, ..Next::default() }
    }

    /// The number of the current tenure.
    pub(crate) fn number(&self) -> Option<u64> {
        self.now().map(|tenure| tenure.number)
    }

    fn now(&self) -> Option<&Tenure> {
        match &self.stage {
            Stage::Granted(tenure) => Some(tenure),
            Stage::Vacant | Stage::Queueing { .. } => None,
        }
    }

    /// Whether this is the current tenure, and no other contender is known to wait.
    pub(crate) fn is_of_now(&self, number: u64) -> bool {
        self.now().is_some_and(|tenure| tenure.number == number && tenure.rivals.is_none())
    }

    /// The rules of fairness.
    #[cfg(test)]
    pub(super) fn check(&self, limits: &Caching) -> Result<(), String> {
        if let Some(tenure) = self.ended.iter().find(|tenure| tenure.inside.is_empty()) {
            return Err(format!("tenure {} has ended, and its znode stays", tenure.number));
        }
        let Stage::Granted(tenure) = &self.stage else { return Ok(()) };
        if !self.queue.is_empty() && (tenure.inside.is_empty() || tenure.mode == Mode::Shared) {
            return Err(format!("{:?} waits behind {tenure:?}", self.queue));
        }
        let Some(rivals) = &tenure.rivals else { return Ok(()) };
        if tenure.inside.is_empty() {
            return Err(format!("{tenure:?} is idle while others wait"));
        }
        let more = tenure.grants - rivals.grants;
        if more > limits.max_grants { Err(format!("{more} grants while others wait")) } else { Ok(()) }
    }

    /// How many threads of this process a thread that comes now would wait for.
    pub(crate) fn ahead(&self, mode: Mode) -> usize {
        let has_turn = match &self.stage {
            Stage::Vacant => false,
            Stage::Queueing { .. } => true,
            Stage::Granted(tenure) => !tenure.inside.is_empty() && !tenure.lets_in(mode),
        };
        self.queue.len() + usize::from(has_turn)
    }

    /// How many threads have a turn in this tenure, or look whether they may take it.
    pub(crate) fn inside(&self, number: u64) -> usize {
        let mut tenures = self.now().into_iter().chain(&self.ended);
        tenures.find(|tenure| tenure.number == number).map_or(0, |tenure| tenure.inside.len())
    }

    /// How many threads of this process wait for a turn.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Ends the current tenure.
    fn end(&mut self) -> Next {
        let left = self.close();
        self.pass_on(left)
    }

    /// Closes the current tenure. Returns its number if it has no holder, so that the caller deletes its znode.
    fn close(&mut self) -> Option<u64> {
        let Stage::Granted(tenure) = mem::take(&mut self.stage) else { return None };
        if tenure.inside.is_empty() {
            return Some(tenure.number);
        }
        self.ended.push(tenure);
        None
    }

    /// Makes the next waiter queue at the servers, before the znode of the tenure before goes; that goes at once if
    /// there is no waiter.
    fn pass_on(&mut self, before: Option<u64>) -> Next {
        let Some((delegate, mode)) = self.queue.pop_front() else {
            self.stage = Stage::Vacant;
            return Next::releasing(before);
        };
        self.stage = Stage::Queueing { delegate, mode, before };
        Next { wake: vec![(delegate, Turn::Queue)], ..Next::default() }
    }

    /// Ends a turn of a closed tenure, whose znode goes with the last one.
    fn leave_ended(&mut self, number: u64, grant: u64) -> Next {
        let Some(place) = self.ended.iter().position(|tenure| tenure.number == number) else { return Next::default() };
        let Some(tenure) = self.ended.get_mut(place) else { return Next::default() };
        tenure.leave(grant);
        let is_left = tenure.inside.is_empty();
        if is_left {
            self.ended.swap_remove(place);
        }
        Next::releasing(is_left.then_some(number))
    }

    fn tenure(&mut self, number: u64) -> Option<&mut Tenure> {
        match &mut self.stage {
            Stage::Granted(tenure) if tenure.number == number => Some(tenure),
            Stage::Vacant | Stage::Queueing { .. } | Stage::Granted(_) => None,
        }
    }
}

impl Tenure {
    /// Whether a thread that comes now has a turn at once.
    fn lets_in(&self, mode: Mode) -> bool {
        self.mode == mode && (mode == Mode::Shared || self.inside.is_empty())
    }

    fn give(&mut self) -> Turn {
        self.grants += 1;
        self.inside.push(self.grants);
        self.idle_since = None;
        Turn::Hold { tenure: self.number, grant: self.grants }
    }

    fn leave(&mut self, grant: u64) {
        self.inside.retain(|inside| *inside != grant);
    }

    /// A watch tells nothing if its event is lost, or the server keeps it back because the directory may not be read
    /// any more. So the directory is also listed by the clock.
    fn look_if_due(&mut self, limits: &Caching, now: Instant) -> Option<u64> {
        self.next_look(limits).filter(|at| now >= *at)?;
        self.looked = now;
        Some(self.number)
    }

    /// An idle lock is looked at when it has been idle for twice as long, so that many of them cost little.
    fn next_look(&self, limits: &Caching) -> Option<Instant> {
        let Some(since) = self.idle_since else { return self.looked.checked_add(limits.look_interval()) };
        let idle = self.looked.saturating_duration_since(since);
        self.looked.max(since).checked_add(idle.clamp(SHORTEST_IDLE_LOOK, LONGEST_IDLE_LOOK))
    }

    fn idle_end(&self, limits: &Caching) -> Option<Instant> {
        self.idle_since?.checked_add(limits.keep_idle)
    }

    fn next_tick(&self, limits: &Caching) -> Option<Instant> {
        [self.idle_end(limits), self.next_look(limits)].into_iter().flatten().min()
    }

    /// Whether the lock moves on although threads of this process want it.
    fn is_over(&self, limits: &Caching, now: Instant) -> bool {
        let is_used_up = |rivals: &Rivals| {
            self.grants - rivals.grants >= limits.max_grants
                || now.saturating_duration_since(rivals.since) >= limits.max_tenure
        };
        !self.may_last || self.rivals.as_ref().is_some_and(is_used_up)
    }
}

#[cfg(test)]
mod tests;
