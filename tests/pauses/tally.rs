//! What is counted, and how it is shown.

use std::{collections::BTreeMap, time::Duration};

use crate::SESSION;

/// What a process saw when an acquire had returned.
#[derive(Debug, Clone)]
pub struct Return {
    pub at: u64,
    /// How long after that it saw the state at the latest.
    pub took: u64,
    /// Which thread it was.
    pub thread: u64,
    pub state: String,
    /// The last pause of the process before that.
    pub pause: Option<Pause>,
}

#[derive(Debug, Clone)]
pub struct Pause {
    pub from: u64,
    pub to: u64,
    /// The threads that were stopped outside of any system call.
    pub in_own_code: Vec<u64>,
}

impl Return {
    fn is_in_doubt(&self) -> bool {
        !self.state.trim_matches(['[', ']']).split(", ").all(|state| state == "Held")
    }

    /// Whether the thread may have been paused when the acquire had looked for the last time, before the clock was read
    /// or before the state was seen. There is no system call in between.
    fn is_excused(&self) -> bool {
        let may_have_returned =
            |pause: &Pause| pause.in_own_code.contains(&self.thread) && nanos(self.at - pause.to) <= SESSION / 20;
        nanos(self.took) > SESSION / 20 || self.pause.as_ref().is_some_and(may_have_returned)
    }
}

/// One unbroken time in which a process believed that it holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Belief {
    pub from: u64,
    pub to: u64,
}

/// A hold that was not to be had, or that did not end well.
#[derive(Debug)]
pub struct Failure {
    pub error: String,
    /// How long the server left somebody else without an answer meanwhile, who was never paused.
    pub server_late: Duration,
}

impl Failure {
    /// Whether an acquire gave up although a pause is no time in which the servers could be asked. Answers that take a third of
    /// the session timeout make none certain, and an answer waits for each thread on its way, of which the witness has two.
    fn is_giving_up(&self) -> bool {
        self.error.contains("no heartbeat has made the session certain") && self.server_late < SESSION / 8
    }
}

/// Of one kind of lock.
#[derive(Debug)]
pub struct Tally {
    pub kind: &'static str,
    pub pauses: usize,
    pub returns: usize,
    /// And whether the other process believed at that moment that it holds the lock.
    pub in_doubt: Vec<(Return, bool)>,
    pub excused: usize,
    pub overlaps: Vec<(Belief, Belief)>,
    pub failures: Vec<Failure>,
}

impl Tally {
    pub fn new(kind: &'static str) -> Tally {
        let (in_doubt, overlaps, failures) = (Vec::new(), Vec::new(), Vec::new());
        Tally { kind, pauses: 0, returns: 0, in_doubt, excused: 0, overlaps, failures }
    }

    pub fn and(mut self, other: Tally) -> Tally {
        self.pauses += other.pauses;
        self.returns += other.returns;
        self.in_doubt.extend(other.in_doubt);
        self.excused += other.excused;
        self.overlaps.extend(other.overlaps);
        self.failures.extend(other.failures);
        self
    }

    pub fn gave_up(&self) -> usize {
        self.failures.iter().filter(|failure| failure.is_giving_up()).count()
    }

    /// Of one who may not hold the lock together with the other.
    pub fn count_returns(&mut self, returns: &[Return], others: &[Belief]) {
        self.returns += returns.len();
        let (excused, in_doubt): (Vec<_>, Vec<_>) =
            returns.iter().filter(|returned| returned.is_in_doubt()).partition(|returned| returned.is_excused());
        self.excused += excused.len();
        for returned in in_doubt {
            let is_beside = others.iter().any(|other| (other.from..=other.to).contains(&returned.at));
            self.in_doubt.push((returned.clone(), is_beside));
        }
    }

    /// Of two who may not hold the lock together.
    pub fn count_overlaps(&mut self, ones: &[Belief], others: &[Belief]) {
        for one in ones {
            let overlapping = others.iter().filter(|other| one.from <= other.to && other.from <= one.to);
            self.overlaps.extend(overlapping.map(|other| (*one, *other)));
        }
    }
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub fn print(tallies: &[Tally], took: Duration) {
    println!("\n| kind | pauses | grants | returns in doubt | of these beside a holder | overlaps |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for Tally { kind, pauses, returns, in_doubt, overlaps, .. } in tallies {
        let beside = in_doubt.iter().filter(|(_, is_beside)| *is_beside).count();
        println!("| {kind} | {pauses} | {returns} | {} | {beside} | {} |", in_doubt.len(), overlaps.len());
    }
    println!("\nSessions of {SESSION:?}, {took:.0?} in all.");
    for tally in tallies {
        if tally.excused > 0 {
            println!("{}: {} in doubt that may have been paused while they returned", tally.kind, tally.excused);
        }
        for (Return { at, state, pause, .. }, is_beside) in &tally.in_doubt {
            let after = pause.as_ref().map_or(String::new(), |Pause { from, to, .. }| {
                format!(" {:.1?} after a pause of {:.1?}", nanos(at - to), nanos(to - from))
            });
            let beside = if *is_beside { ", beside a holder" } else { "" };
            println!("{}: {state}{after}{beside}", tally.kind);
        }
        for (one, other) in &tally.overlaps {
            let common = one.to.min(other.to) - one.from.max(other.from);
            println!("{}: two holders for {:?}: {one:?} {other:?}", tally.kind, nanos(common));
        }
        let mut failures: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for Failure { error, server_late } in &tally.failures {
            failures.entry(error).or_default().push(*server_late);
        }
        for (error, late) in failures {
            let (times, most) = (late.len(), late.into_iter().max().unwrap_or_default());
            println!("{}: {times} times, the server late by {most:.1?} at most: {error}", tally.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_beliefs_at_one_moment_are_found_and_one_after_the_other_are_none() {
        let overlaps = |one: (u64, u64), other: (u64, u64)| {
            let mut tally = Tally::new("");
            let [one, other] = [one, other].map(|(from, to)| Belief { from, to });
            tally.count_overlaps(&[one], &[other]);
            tally.overlaps.len()
        };
        assert_eq!([overlaps((1, 3), (4, 5)), overlaps((4, 5), (1, 3))], [0, 0]);
        assert_eq!([overlaps((1, 4), (4, 5)), overlaps((1, 9), (4, 5)), overlaps((4, 5), (1, 9))], [1, 1, 1]);
        assert_eq!(overlaps((4, 4), (1, 9)), 1, "one look is enough");
    }

    #[test]
    fn an_acquire_may_give_up_where_the_server_answers_nobody() {
        let gave_up = |error: &str, server_late| Failure { error: error.into(), server_late }.is_giving_up();
        let uncertain = "/a: no heartbeat has made the session certain within 2s";
        assert!(gave_up(uncertain, SESSION / 16) && !gave_up(uncertain, SESSION / 2));
        assert!(!gave_up("the connection was lost", Duration::ZERO));
    }

    #[test]
    fn a_return_is_in_doubt_unless_all_is_held_and_excused_if_it_was_paused_meanwhile() {
        let returned = |state: &str, took: Duration, pause| Return {
            at: 1_000,
            thread: 7,
            took: took.as_nanos() as u64,
            state: state.into(),
            pause,
        };
        let is_in_doubt = |state| returned(state, Duration::ZERO, None).is_in_doubt();
        assert!(!is_in_doubt("[Held]") && !is_in_doubt("[Held, Held]"));
        assert!(is_in_doubt("[InDoubt]") && is_in_doubt("[Held, Lost(NodeDeleted)]"));
        let is_excused = |took, pause| returned("[InDoubt]", took, pause).is_excused();
        let pause = |thread| Some(Pause { from: 0, to: 900, in_own_code: vec![thread] });
        assert!(!is_excused(Duration::ZERO, None) && is_excused(SESSION / 10, None));
        assert!(!is_excused(Duration::ZERO, pause(8)) && is_excused(Duration::ZERO, pause(7)));
    }
}
