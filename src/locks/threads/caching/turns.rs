//! Whose turn it is among the threads of this process: (state, input) -> (state, what follows), and no more.

use std::{collections::VecDeque, time::Instant};

use crate::locks::threads::caching::options::Caching;

/// Names one acquire of one thread. Who comes later has a greater number.
pub(crate) type Waiter = u64;

/// One lock object as its process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Turns {
    stage: Stage,
    /// Who waits for a turn, first come, first served: the smallest number is in front.
    queue: VecDeque<Waiter>,
    tenures: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    /// No znode of ours, and nobody wants one.
    Vacant,
    /// This one queues at the servers, for itself and those behind it. The znode of the tenure before goes as soon as its
    /// own create is on its way, so that those who wait lose no place.
    Seeking {
        seeker: Waiter,
        before: Option<u64>,
    },
    Granted(Tenure),
}

/// The time for which one znode of ours is granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tenure {
    number: u64,
    grants: u64,
    /// Who has the lock, or looks whether it may take it. While it is nobody, nobody waits either.
    turn: Option<Waiter>,
    /// It may outlast its first hold: what happens to the znode and in the directory is told in time.
    may_last: bool,
    rivals: Option<Rivals>,
    idle_since: Option<Instant>,
    /// A [`Turns::tick`] is to come.
    is_timed: bool,
}

/// Others who want the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rivals {
    since: Instant,
    /// The grants up to then.
    grants: u64,
}

/// What a waiter gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// The lock, if a last look shows that the znode still stands for certain.
    Hold { tenure: u64, grant: u64 },
    /// It has to queue at the servers.
    Seek,
    /// It has to wait until it is woken.
    Wait,
    /// It would have to wait.
    No,
}

/// What follows from an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[must_use = "waiters sleep and znodes stay otherwise"]
pub(crate) struct Next {
    /// Who is woken, with what.
    pub(crate) wake: Option<(Waiter, Turn)>,
    /// The tenure whose znode goes.
    pub(crate) farewell: Option<u64>,
    /// When [`Turns::tick`] is due, for which tenure.
    pub(crate) tick: Option<(u64, Instant)>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { stage: Stage::Vacant, queue: VecDeque::new(), tenures: 0 }
    }
}

impl Turns {
    /// Somebody wants the lock. Who only tries never waits.
    pub(crate) fn come(&mut self, who: Waiter, only_tries: bool) -> Turn {
        match &mut self.stage {
            Stage::Vacant => {
                self.stage = Stage::Seeking { seeker: who, before: None };
                Turn::Seek
            }
            Stage::Granted(tenure) if tenure.turn.is_none() => tenure.give(who),
            Stage::Seeking { .. } | Stage::Granted(_) if only_tries => Turn::No,
            Stage::Seeking { .. } | Stage::Granted(_) => {
                self.queue.push_back(who);
                Turn::Wait
            }
        }
    }

    /// The one that has the turn in this tenure could not make sure of the znode, or found that it is gone: it comes again,
    /// and keeps its place.
    pub(crate) fn come_again(&mut self, who: Waiter, number: u64, is_gone: bool) -> (Turn, Next) {
        let farewell = Next { farewell: Some(number), ..Next::default() };
        if self.tenure(number).is_some() {
            self.stage = Stage::Seeking { seeker: who, before: (!is_gone).then_some(number) };
            return (Turn::Seek, if is_gone { farewell } else { Next::default() });
        }
        let is_taken = match &self.stage {
            Stage::Vacant => false,
            Stage::Seeking { .. } => true,
            Stage::Granted(tenure) => tenure.turn.is_some(),
        };
        if is_taken {
            self.wait_again(who);
            return (Turn::Wait, farewell);
        }
        (self.come(who, false), farewell)
    }

    /// Back into the queue, in front of those that came later.
    fn wait_again(&mut self, who: Waiter) {
        let place = self.queue.partition_point(|other| *other < who);
        self.queue.insert(place, who);
    }

    /// The seeker's create is on its way.
    pub(crate) fn created(&mut self, who: Waiter) -> Next {
        match &mut self.stage {
            Stage::Seeking { seeker, before } if *seeker == who => Next { farewell: before.take(), ..Next::default() },
            _ => Next::default(),
        }
    }

    /// The seeker's znode is granted. A tenure begins; `None`: nobody knows of such a seeker.
    ///
    /// The first turn is the seeker's, unless one that came before it came again meanwhile. The first grant counts as the
    /// seeker's in any case: nobody else has just seen the znode.
    pub(crate) fn granted(&mut self, who: Waiter, may_last: bool) -> Option<(Turn, u64, Next)> {
        let Stage::Seeking { seeker, before } = self.stage else { return None };
        if seeker != who {
            return None;
        }
        self.tenures += 1;
        let mut tenure = Tenure {
            number: self.tenures,
            grants: 0,
            turn: None,
            may_last,
            rivals: None,
            idle_since: None,
            is_timed: false,
        };
        let mut turn = tenure.give(who);
        let mut next = Next { farewell: before, ..Next::default() };
        if self.queue.front().is_some_and(|first| *first < who)
            && let Some(first) = self.queue.pop_front()
        {
            next.wake = Some((first, tenure.give(first)));
            turn = Turn::Wait;
            self.wait_again(who);
        }
        self.stage = Stage::Granted(tenure);
        Some((turn, self.tenures, next))
    }

    /// The seeker gives up, and the next one that waits goes on with its contender: the process keeps its place at the
    /// servers. `None`: nobody waits.
    pub(crate) fn bequeath(&mut self, who: Waiter) -> Option<Next> {
        match &mut self.stage {
            Stage::Seeking { seeker, .. } if *seeker == who => {
                *seeker = self.queue.pop_front()?;
                Some(Next { wake: Some((*seeker, Turn::Seek)), ..Next::default() })
            }
            Stage::Vacant | Stage::Seeking { .. } | Stage::Granted(_) => None,
        }
    }

    /// It does not want the lock any more, and has not begun to look whether it may take it.
    pub(crate) fn leave(&mut self, who: Waiter, limits: &Caching, now: Instant) -> Next {
        match &self.stage {
            Stage::Seeking { seeker, before } if *seeker == who => {
                let before = *before;
                self.pass_on(before)
            }
            Stage::Granted(tenure) if tenure.turn == Some(who) => {
                let number = tenure.number;
                self.release(number, limits, now)
            }
            Stage::Vacant | Stage::Seeking { .. } | Stage::Granted(_) => {
                self.queue.retain(|other| *other != who);
                Next::default()
            }
        }
    }

    /// The one that has the turn in this tenure gives it back, whether it took the lock or only looked.
    pub(crate) fn release(&mut self, number: u64, limits: &Caching, now: Instant) -> Next {
        // What is left of a tenure that has ended goes with its last holder.
        let Some(tenure) = self.tenure(number) else { return Next { farewell: Some(number), ..Next::default() } };
        tenure.turn = None;
        if tenure.is_over(limits, now) {
            return self.pass_on(Some(number));
        }
        let Some(next) = self.queue.pop_front() else { return self.rest(number, limits, now) };
        let turn = self.tenure(number).map(|tenure| tenure.give(next));
        Next { wake: turn.map(|turn| (next, turn)), ..Next::default() }
    }

    /// Nobody here wants the lock.
    fn rest(&mut self, number: u64, limits: &Caching, now: Instant) -> Next {
        let Some(tenure) = self.tenure(number) else { return Next::default() };
        if tenure.rivals.is_some() || limits.keep_idle.is_zero() {
            return self.pass_on(Some(number));
        }
        tenure.idle_since = Some(now);
        let is_timed = std::mem::replace(&mut tenure.is_timed, true);
        let at = now.checked_add(limits.keep_idle).filter(|_| !is_timed);
        Next { tick: at.map(|at| (number, at)), ..Next::default() }
    }

    /// The znode, or its session, is gone. Those who wait keep their order.
    pub(crate) fn gone(&mut self, number: u64) -> Next {
        let Some(tenure) = self.tenure(number) else { return Next::default() };
        // Whoever has the lock, or looks, finds that it is gone, and sees to the rest.
        let farewell = tenure.turn.is_none().then_some(number);
        Next { farewell, ..self.pass_on(None) }
    }

    /// Somebody else stands in the directory, or may.
    pub(crate) fn rivals_came(&mut self, number: u64, now: Instant) -> Next {
        let Some(tenure) = self.tenure(number) else { return Next::default() };
        if tenure.turn.is_none() {
            return self.pass_on(Some(number));
        }
        tenure.rivals.get_or_insert(Rivals { since: now, grants: tenure.grants });
        Next::default()
    }

    /// Whether somebody has the turn in this tenure, and nobody is known to wait elsewhere.
    pub(crate) fn looks_for_rivals(&self, number: u64) -> bool {
        match &self.stage {
            Stage::Granted(tenure) => tenure.number == number && tenure.turn.is_some() && tenure.rivals.is_none(),
            Stage::Vacant | Stage::Seeking { .. } => false,
        }
    }

    /// It is time to look whether the lock has been idle for long.
    pub(crate) fn tick(&mut self, number: u64, limits: &Caching, now: Instant) -> Next {
        let Some(tenure) = self.tenure(number) else { return Next::default() };
        tenure.is_timed = false;
        let idle_since = tenure.idle_since.filter(|_| tenure.turn.is_none());
        let Some(end) = idle_since.and_then(|since| since.checked_add(limits.keep_idle)) else {
            return Next::default();
        };
        if now >= end {
            return self.pass_on(Some(number));
        }
        tenure.is_timed = true;
        Next { tick: Some((number, end)), ..Next::default() }
    }

    /// The lock object goes. The tenure whose znode goes with it, unless a thread has the lock.
    pub(crate) fn close(&mut self) -> Option<u64> {
        match std::mem::replace(&mut self.stage, Stage::Vacant) {
            Stage::Seeking { before, .. } => before,
            Stage::Granted(Tenure { number, turn: None, .. }) => Some(number),
            Stage::Vacant | Stage::Granted(_) => None,
        }
    }

    /// The tenure of now.
    pub(crate) fn number(&self) -> Option<u64> {
        match &self.stage {
            Stage::Granted(tenure) => Some(tenure.number),
            Stage::Vacant | Stage::Seeking { .. } => None,
        }
    }

    /// Whether there is no znode of ours, and nobody wants one.
    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self.stage, Stage::Vacant)
    }

    /// Whether this is the tenure of now, and nobody is known to wait elsewhere.
    pub(crate) fn is_of_now(&self, number: u64) -> bool {
        matches!(&self.stage, Stage::Granted(tenure) if tenure.number == number && tenure.rivals.is_none())
    }

    /// The rule of fairness.
    #[cfg(test)]
    pub(super) fn check(&self, limits: &Caching) -> Result<(), String> {
        let Stage::Granted(tenure) = &self.stage else { return Ok(()) };
        let Some(rivals) = &tenure.rivals else { return Ok(()) };
        let more = tenure.grants - rivals.grants;
        if more > limits.max_grants { Err(format!("{more} grants while others wait")) } else { Ok(()) }
    }

    /// How many of this process somebody who comes now would wait for.
    pub(crate) fn ahead(&self) -> usize {
        let has_turn = match &self.stage {
            Stage::Vacant => false,
            Stage::Seeking { .. } => true,
            Stage::Granted(tenure) => tenure.turn.is_some(),
        };
        self.queue.len() + usize::from(has_turn)
    }

    /// How many wait in this process for the turn.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next one that waits queues at the servers, and the znode of the tenure before goes after that; at once if nobody
    /// waits.
    fn pass_on(&mut self, before: Option<u64>) -> Next {
        let Some(seeker) = self.queue.pop_front() else {
            self.stage = Stage::Vacant;
            return Next { farewell: before, ..Next::default() };
        };
        self.stage = Stage::Seeking { seeker, before };
        Next { wake: Some((seeker, Turn::Seek)), ..Next::default() }
    }

    fn tenure(&mut self, number: u64) -> Option<&mut Tenure> {
        match &mut self.stage {
            Stage::Granted(tenure) if tenure.number == number => Some(tenure),
            Stage::Vacant | Stage::Seeking { .. } | Stage::Granted(_) => None,
        }
    }
}

impl Tenure {
    fn give(&mut self, who: Waiter) -> Turn {
        self.grants += 1;
        self.turn = Some(who);
        self.idle_since = None;
        Turn::Hold { tenure: self.number, grant: self.grants }
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
