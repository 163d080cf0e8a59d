//! What is written down in one run. All moments are true time: how long the run has lasted.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::Violation;

/// A moment of true time.
pub(crate) type At = Duration;

/// A thread of a process, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Actor {
    pub(crate) process: usize,
    pub(crate) thread: usize,
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}/t{}", self.process, self.thread)
    }
}

/// Beside whom a claim may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Beside nobody.
    Alone,
    /// Beside other readers.
    Readers,
    /// Beside as many others as there are leases.
    Leases,
}

/// What a holder was promised at a moment: nobody else has the lock until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) at: At,
    /// True time, too: when the clock of the holder's process shows [`Hold::valid_until`](crate::Hold::valid_until).
    pub(crate) until: At,
    /// The session timeout as its client knew it.
    pub(crate) timeout: Duration,
}

/// A lock as its careful user has it, who asks before each step whether it is valid.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The directory that it is about.
    pub(crate) place: usize,
    pub(crate) by: Actor,
    pub(crate) share: Share,
    /// The path of its znode.
    pub(crate) znode: String,
    /// The session that owns it.
    pub(crate) session: i64,
    /// The fencing token, its two parts.
    pub(crate) token: (i64, u64),
    /// When the acquire returned.
    pub(crate) begun: At,
    pub(crate) promises: Vec<Promise>,
    /// When its user gave it back, or was told of its loss.
    pub(crate) ended: Option<At>,
    /// Whether its client's heartbeats need a majority.
    pub(crate) needs_quorum: bool,
    /// The znode of the writer that became this reader.
    pub(crate) writer: Option<String>,
    /// For how long it was to be certain at least when its acquire returned.
    pub(crate) valid_for: Duration,
    /// For how long its znode was to stay at least.
    pub(crate) stays: Duration,
    /// What the hold's listener was told, and when.
    pub(crate) told: Vec<(At, Word)>,
    /// Whether somebody listens.
    pub(crate) listens: bool,
    /// The tokens of the holders of whose unclean deaths it was told, where its lock listens for them.
    pub(crate) heard: Option<Vec<i64>>,
    /// It may end without a release: its thread panics, a listener gives it back under its user, or its time is up.
    pub(crate) is_left: bool,
}

/// A state that a holder was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Held,
    InDoubt,
    Lost,
    Released,
}

impl Claim {
    /// The times for which it was promised, as they were known then, up to its end.
    pub(crate) fn spans(&self) -> Vec<(At, At)> {
        let mut spans: Vec<(At, At)> = Vec::new();
        for promise in &self.promises {
            let until = self.ended.map_or(promise.until, |ended| ended.min(promise.until));
            match spans.last_mut() {
                // A later promise takes the place of the one before, also where it is the shorter one.
                Some((_, end)) if promise.at <= *end => *end = until.max(promise.at),
                _ if until > promise.at => spans.push((promise.at, until)),
                _ => {}
            }
        }
        spans
    }

    /// The promise that its client knew at this moment.
    fn promise_at(&self, at: At) -> Option<Promise> {
        self.promises.iter().rev().find(|promise| promise.at <= at).or(self.promises.first()).copied()
    }

    /// Whether it was valid when its acquire returned.
    pub(crate) fn is_valid_at_first(&self) -> bool {
        self.promises.first().is_some_and(|first| first.until > self.begun) && !self.is_given_back_at_first()
    }

    /// Whether a listener gave it back before its user had it.
    pub(super) fn is_given_back_at_first(&self) -> bool {
        self.is_left && self.ended.is_some_and(|ended| ended <= self.begun)
    }

    /// Whether one of the two may not stand beside the other.
    pub(crate) fn excludes(&self, other: &Claim) -> bool {
        self.place == other.place
            && match (self.share, other.share) {
                (Share::Readers, Share::Readers) | (Share::Leases, Share::Leases) => false,
                // A writer that goes on as a reader has both for a moment.
                _ => self.by != other.by,
            }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begun, spans) = (self.begun.as_secs_f64(), self.spans());
        let until = spans.last().map_or(begun, |(_, end)| end.as_secs_f64());
        let end = if self.ended.is_some() { "" } else { ", not given back" };
        let (by, share, znode, token) = (self.by, self.share, &self.znode, self.token);
        write!(f, "{by:?} {share:?} {znode} token {token:?} from {begun:.6} s to {until:.6} s{end}")
    }
}

/// How long a call may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Untimed,
    /// For so long by the clock of its process.
    Timed(Duration),
}

/// One acquire.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "a report shows all of it")]
pub(crate) struct Call {
    pub(crate) place: usize,
    pub(crate) by: Actor,
    pub(crate) what: String,
    pub(crate) began: At,
    pub(crate) limit: Limit,
    pub(crate) cancelled: Option<At>,
    pub(crate) returned: Option<At>,
    /// How long its client goes on without a server, until it gives an untimed call up.
    pub(crate) gives_up: Duration,
    /// The error of an untimed call that got nothing.
    pub(crate) refused: Option<String>,
}

/// A write that the servers were to refuse once the lock is gone.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "a report shows all of it")]
pub(crate) struct Write {
    pub(crate) place: usize,
    pub(crate) by: Actor,
    pub(crate) token: (i64, u64),
    /// The path of the lock's znode.
    pub(crate) znode: String,
    /// The transaction by which the servers carried it out.
    pub(crate) zxid: i64,
    pub(crate) at: At,
}

/// A term of a leader as its listener was told of it.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub(crate) place: usize,
    pub(crate) by: Actor,
    pub(crate) begun: At,
    /// When the listener was told of its end.
    pub(crate) ended: Option<At>,
    /// The number of its claim, if it was certain as it began.
    pub(crate) claim: Option<usize>,
}

/// Why a promise does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Excuse {
    /// An administrator has deleted the znode, or closed its session from outside.
    Deleted,
    /// A leader was cut off from the other servers, and heard its clients.
    Isolated,
    /// The servers granted a shorter session timeout than before, and the client could not know.
    Lowered,
}

/// An end that was brought about from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) at: At,
    /// Nothing else was wrong: whoever is concerned hears of it at once.
    pub(crate) is_calm: bool,
}

/// What is known about the run beside what its users did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// When administrators have asked to delete znodes. Some names are used again.
    pub(crate) deleted: BTreeMap<String, Vec<Ending>>,
    /// The sessions that were closed from outside, or by their own process under its threads.
    pub(crate) closed: BTreeMap<i64, Vec<Ending>>,
    /// When sessions ended, in whatever way.
    pub(crate) ended: BTreeMap<i64, At>,
    /// When sessions expired.
    pub(crate) expired: Vec<(At, i64)>,
    /// When znodes were made.
    pub(crate) made: BTreeMap<String, At>,
    /// When znodes went, for whatever reason, and by which transaction.
    pub(crate) gone: BTreeMap<String, (At, i64)>,
    /// Processes that stood still, or whose machine slept.
    pub(crate) paused: Vec<(usize, At, At)>,
    /// The tokens of holders whose marks there are in the end.
    pub(crate) marks: Vec<i64>,
    /// Processes that were killed.
    pub(crate) dead: BTreeMap<usize, At>,
    /// Times in which a leader was cut off from the other servers.
    pub(crate) isolated: Vec<(At, At)>,
    /// Times in which servers granted at most this timeout.
    pub(crate) lowered: Vec<(At, At, Duration)>,
    /// Times in which a process could reach no server.
    pub(crate) away: Vec<(usize, At, At)>,
    /// After this no fault was left.
    pub(crate) healed: Option<At>,
    /// The longest session timeout.
    pub(crate) timeout: Duration,
    /// How long a waiter may take once everything has healed, beside what others hold.
    pub(crate) grace: Duration,
    /// The longest time for which a single thread is kept from running.
    pub(crate) stall: Duration,
    /// The longest way from a process to a server without faults.
    pub(crate) slowest: Duration,
}

/// Promises are noted ten times in a session timeout, so that an eighth of it is enough to see one.
pub(super) const SAMPLED: u32 = 8;

/// How long a process takes to hear of what becomes of its znode, beside some round trips: a young hold has no watch yet.
const TO_HEAR: Duration = Duration::from_millis(300);

impl Facts {
    /// Why the promise to this claim does not count at this moment.
    pub(crate) fn excuse(&self, claim: &Claim, at: At) -> Option<Excuse> {
        let known = claim.promise_at(at);
        // A server that stood still may hand a shorter timeout to the leader later.
        let within = |from: At, to: At| from <= at && at <= to + self.timeout;
        let is_shorter = |most: Duration| known.is_some_and(|known| known.timeout > most);
        // Whoever was told by healthy servers may rely on it.
        let was_told = |to: At| known.is_none_or(|promise| promise.at <= to + self.timeout / SAMPLED);
        let deleted = self.deleted.get(&claim.znode).into_iter().flatten();
        let closed = self.closed.get(&claim.session).into_iter().flatten();
        if deleted.chain(closed).any(|end| self.is_unheard(claim, *end, at)) {
            Some(Excuse::Deleted)
        } else if !claim.needs_quorum && self.isolated.iter().any(|(from, to)| within(*from, *to) && was_told(*to)) {
            Some(Excuse::Isolated)
        } else if self.lowered.iter().any(|(from, to, most)| within(*from, *to) && is_shorter(*most)) {
            Some(Excuse::Lowered)
        } else {
            None
        }
    }

    /// Whether a holder may not have heard of the end of its znode. One that has a connection hears of it, and one that
    /// has none believes for no longer than a session timeout, and takes no lock by it later.
    fn is_unheard(&self, claim: &Claim, end: Ending, at: At) -> bool {
        let Ending { at: end, is_calm } = end;
        let timeout = claim.promise_at(at).map_or(self.timeout, |known| known.timeout);
        let (begins, lasts) = if is_calm { (TO_HEAR + self.slowest * 20, Duration::ZERO) } else { (timeout, timeout) };
        // It was asked for then. Servers without a leader may carry it out later.
        let gone = self.gone.get(&claim.znode).map_or(end, |(gone, _)| (*gone).clamp(end, end + self.timeout * 3));
        let by = |moment: At| gone + begins + self.stall * 2 + self.stood(claim.by.process, end, moment);
        end <= at && claim.begun <= by(claim.begun) && at <= by(at) + lasts
    }

    /// Whether single threads stand still for as long as it takes to be told.
    pub(crate) fn stalls(&self) -> bool {
        self.stall > Duration::from_millis(50)
    }

    /// For how long a process stood still between two moments.
    pub(crate) fn stood(&self, process: usize, from: At, to: At) -> Duration {
        let stops = self.paused.iter().filter(|(other, ..)| *other == process);
        stops.map(|(_, begin, end)| end.min(&to).saturating_sub(*begin.max(&from))).sum()
    }
}

/// What happened in one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// How many may have each place at a time.
    pub(crate) places: Vec<usize>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) calls: Vec<Call>,
    pub(crate) writes: Vec<Write>,
    pub(crate) terms: Vec<Term>,
    pub(crate) facts: Facts,
    /// What was seen to be wrong when it happened.
    pub(crate) reported: Vec<Violation>,
    /// When the run ended.
    pub(crate) end: At,
}
