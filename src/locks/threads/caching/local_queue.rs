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
    /// The waiters for a turn, first come, first served. Each acquire of a thread has a number, a later one a greater
    /// number: the smallest is in front. Empty while the current tenure is shared: a thread that cannot have a turn in
    /// it ends it, and queues at the servers before its znode goes.
    queue: VecDeque<(u64, Mode)>,
    /// The turns, each by its tenure and its grant, in tenures that have ended. No thread gets another turn there, and
    /// the znode goes with the last turn.
    ended: Vec<(u64, u64)>,
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
        delegate: u64,
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
    /// Since when other contenders are known to wait for the lock, and the number of grants up to then.
    rivals: Option<(Instant, u64)>,
    idle_since: Option<Instant>,
    /// When its directory was listed last.
    looked: Instant,
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
    pub(crate) wake: Vec<(u64, Turn)>,
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

    /// Whether the input has no effect, as most grants and releases have none where no thread waits.
    pub(crate) fn is_nothing(&self) -> bool {
        self.releases.is_empty() && self.wake.is_empty() && self.tick.is_none() && self.look.is_none()
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
    pub(crate) fn enter(&mut self, who: u64, mode: Mode, only_tries: bool) -> (Turn, Next) {
        let ends_tenure = match &mut self.stage {
            Stage::Vacant => true,
            Stage::Granted(tenure) if tenure.lets_in(mode) => return (tenure.give(), Next::default()),
            // The tenure is idle, and of the other mode. Or a writer comes: no reader gets in from here on.
            Stage::Granted(tenure) => tenure.inside.is_empty() || tenure.mode == Mode::Shared && !only_tries,
            Stage::Queueing { .. } => false,
        };
        if ends_tenure {
            self.queue_at_servers(who, mode)
        } else if only_tries {
            (Turn::No, Next::default())
        } else {
            self.wait(who, mode);
            (Turn::Wait, Next::default())
        }
    }

    /// Ends the tenure for a thread that cannot have a turn in it. The znode of an idle lock goes first: nobody has waited
    /// behind it.
    fn queue_at_servers(&mut self, delegate: u64, mode: Mode) -> (Turn, Next) {
        let next = Next::releasing(self.close());
        self.stage = Stage::Queueing { delegate, mode, before: None };
        (Turn::Queue, next)
    }

    /// The thread with this turn found that the znode is gone: it enters again, and keeps its place.
    pub(crate) fn enter_again(
        &mut self,
        who: u64,
        mode: Mode,
        (number, grant): (u64, u64),
        only_tries: bool,
    ) -> (Turn, Next) {
        if let Some(tenure) = self.tenure(number) {
            tenure.leave(grant);
            return self.queue_at_servers(who, mode);
        }
        let next = self.leave_ended(number, grant);
        let (turn, then) = self.enter(who, mode, only_tries);
        (turn, next.and(then))
    }

    /// Puts a waiter into the queue, in front of those that came later.
    fn wait(&mut self, who: u64, mode: Mode) {
        let place = self.queue.partition_point(|(other, _)| *other < who);
        self.queue.insert(place, (who, mode));
    }

    /// The delegate's create is on its way.
    pub(crate) fn created(&mut self, who: u64) -> Next {
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
    pub(crate) fn granted(&mut self, who: u64, may_last: bool, now: Instant) -> Option<(Turn, u64, Next)> {
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
            self.wait(who, mode);
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
    pub(crate) fn hand_over(&mut self, who: u64) -> Option<Next> {
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
    pub(crate) fn leave(&mut self, who: u64) -> Next {
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
        let tenure = match &mut self.stage {
            Stage::Granted(tenure) if tenure.number == number => tenure,
            _ => return self.leave_ended(number, grant),
        };
        tenure.leave(grant);
        let look = tenure.look_if_due(limits, now);
        let next = if !tenure.inside.is_empty() {
            Next::default()
        } else if tenure.is_over(limits, now) {
            self.end()
        } else {
            match self.queue.front().copied() {
                // No thread of this process wants the lock.
                None if tenure.rivals.is_some() || limits.keep_idle.is_zero() => self.end(),
                None => {
                    tenure.idle_since = Some(now);
                    let tick = if self.is_timed { None } else { tenure.next_tick(limits) };
                    self.is_timed |= tick.is_some();
                    Next { tick, ..Next::default() }
                }
                Some((next, wanted)) if wanted == tenure.mode => {
                    self.queue.pop_front();
                    Next { wake: vec![(next, tenure.give())], ..Next::default() }
                }
                Some(_) if tenure.rivals.is_some() => self.end(),
                // As no other contender waits, there is no place to lose, and the new znode finds itself alone.
                Some(_) => Next::releasing(self.close()).and(self.pass_on(None)),
            }
        };
        Next { look, ..next }
    }

    /// The znode, or its session, is gone, or was in doubt for too long. The waiters keep their order.
    pub(crate) fn gone(&mut self, number: u64) -> Next {
        // A thread that has the lock, or looks, finds that it is gone, and sees to the rest.
        if self.tenure(number).is_some() { self.end() } else { Next::default() }
    }

    /// Another contender stands in the directory, or may, that cannot hold beside this tenure.
    pub(crate) fn rivals_came(&mut self, number: u64, now: Instant) -> Next {
        self.ends_soon(number, |tenure| {
            tenure.rivals.get_or_insert((now, tenure.grants));
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
        let mode = self.mode_without_rivals(number);
        mode.is_some_and(|mode| mode == Mode::Shared || self.inside(number) > 0)
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

    /// The mode of this tenure, if it is the current one and no other contender is known to wait.
    pub(crate) fn mode_without_rivals(&self, number: u64) -> Option<Mode> {
        let tenure = self.now().filter(|tenure| tenure.number == number && tenure.rivals.is_none());
        tenure.map(|tenure| tenure.mode)
    }

    /// The rules of fairness.
    #[cfg(test)]
    pub(super) fn check(&self, limits: &Caching) -> Result<(), String> {
        let Stage::Granted(tenure) = &self.stage else { return Ok(()) };
        if !self.queue.is_empty() && (tenure.inside.is_empty() || tenure.mode == Mode::Shared) {
            return Err(format!("{:?} waits behind {tenure:?}", self.queue));
        }
        let Some((_, before)) = tenure.rivals else { return Ok(()) };
        if tenure.inside.is_empty() {
            return Err(format!("{tenure:?} is idle while others wait"));
        }
        let more = tenure.grants - before;
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
        let now = self.now().filter(|tenure| tenure.number == number);
        let ended = self.ended.iter().filter(|(tenure, _)| *tenure == number);
        now.map_or(0, |tenure| tenure.inside.len()) + ended.count()
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
        self.ended.extend(tenure.inside.iter().map(|grant| (tenure.number, *grant)));
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
        let had_turn = self.ended.extract_if(.., |turn| *turn == (number, grant)).next().is_some();
        let is_left = had_turn && self.inside(number) == 0;
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
        let is_used_up = |(since, grants): (Instant, u64)| {
            self.grants - grants >= limits.max_grants || now.saturating_duration_since(since) >= limits.max_tenure
        };
        !self.may_last || self.rivals.is_some_and(is_used_up)
    }
}

#[cfg(test)]
mod tests;
