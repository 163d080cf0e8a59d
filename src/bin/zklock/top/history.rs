//! The changes from look to look: who was granted a lock, and how often.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use curator_locks::{EntryMode, LockQueue, NameStyle, QueueEntry};
use jiff::{Timestamp, Zoned};

use crate::show;

/// How many grants are remembered.
pub(super) const GRANTS: usize = 10;

/// For how long a hand-over counts.
const WINDOW: Duration = Duration::from_secs(30);

/// A path may serve several kinds of locks.
pub(super) type LockId = (String, String);

pub(super) fn id_of(lock: &LockQueue) -> LockId {
    (lock.path.clone(), lock.kind.to_string())
}

/// A grant that a look has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// The time of day of that look.
    pub(super) at: String,
    pub(super) path: String,
    pub(super) name: String,
    /// For how long it had waited, as far as can be told.
    pub(super) waited: String,
}

/// A contender, as far as it matters here.
#[derive(Debug, Clone)]
struct Contender {
    holds: bool,
    token: i64,
    session: i64,
    /// A semaphore's waiter gets another znode, and so another token, for its lease.
    is_lease: bool,
    /// A contender for an unfair lock has no znode before it is granted.
    is_unfair: bool,
    since_millis: i64,
    name: String,
}

impl From<&QueueEntry> for Contender {
    fn from(entry: &QueueEntry) -> Contender {
        Contender {
            holds: entry.holds(),
            token: entry.fencing_token.value(),
            session: entry.session,
            is_lease: entry.mode == EntryMode::Lease,
            is_unfair: entry.names == NameStyle::Unfair,
            since_millis: entry.since_millis,
            name: show::name(entry),
        }
    }
}

/// The looks so far.
#[derive(Default)]
pub(super) struct History {
    begun: Option<Instant>,
    /// The contenders of each lock at the last look.
    known: BTreeMap<LockId, Vec<Contender>>,
    /// When a look saw new holders, and how many.
    hand_overs: VecDeque<(Instant, LockId, usize)>,
    /// The last one first.
    grants: VecDeque<Grant>,
}

impl History {
    /// Notes what a look saw.
    pub(super) fn look(&mut self, locks: &[LockQueue], at: Instant) {
        let contenders = |lock: &LockQueue| lock.entries.iter().map(Contender::from).collect();
        let seen = locks.iter().map(|lock| (id_of(lock), contenders(lock))).collect();
        self.note(seen, at, &clock_time(), Timestamp::now().as_millisecond());
    }

    fn note(&mut self, seen: BTreeMap<LockId, Vec<Contender>>, at: Instant, clock: &str, millis: i64) {
        self.hand_overs.retain(|(then, ..)| at.saturating_duration_since(*then) < WINDOW);
        // Those that the first look finds may have held for long.
        if self.begun.is_some() {
            for (lock, contenders) in &seen {
                self.note_grants(lock, contenders, at, clock, millis);
            }
        }
        self.begun.get_or_insert(at);
        self.known = seen;
    }

    fn note_grants(&mut self, lock: &LockId, contenders: &[Contender], at: Instant, clock: &str, millis: i64) {
        let before = self.known.get(lock).map(Vec::as_slice).unwrap_or_default();
        let held: BTreeSet<i64> = before.iter().filter(|one| one.holds).map(|one| one.token).collect();
        let new: Vec<&Contender> = contenders.iter().filter(|one| one.holds && !held.contains(&one.token)).collect();
        for holder in &new {
            let is_same = |one: &&Contender| {
                !one.holds && (one.token == holder.token || holder.is_lease && one.session == holder.session)
            };
            let since = |one: &Contender| {
                Duration::from_millis(u64::try_from(millis.saturating_sub(one.since_millis)).unwrap_or_default())
            };
            let waited = match before.iter().find(is_same) {
                Some(waiter) => format!("waited {}", show::brief(since(waiter))),
                None if holder.is_lease || holder.is_unfair => "not seen to wait".to_owned(),
                // It came after the look before, with the znode by which it holds: the age is a bound.
                None => format!("waited < {}", show::brief(Duration::from_secs(since(holder).as_secs() + 1))),
            };
            let (path, name) = (lock.0.clone(), holder.name.clone());
            self.grants.push_front(Grant { at: clock.to_owned(), path, name, waited });
        }
        self.grants.truncate(GRANTS);
        if !new.is_empty() {
            self.hand_overs.push_back((at, lock.clone(), new.len()));
        }
    }

    /// The last grants, the latest one first.
    pub(super) fn grants(&self) -> impl ExactSizeIterator<Item = &Grant> {
        self.grants.iter()
    }

    /// How often a second each lock that does so changes hands, as far as the looks show it.
    pub(super) fn rates(&self, now: Instant) -> BTreeMap<LockId, f64> {
        let looked = self.begun.map_or(WINDOW, |begun| now.saturating_duration_since(begun).min(WINDOW));
        let mut rates = BTreeMap::new();
        for (_, lock, count) in &self.hand_overs {
            *rates.entry(lock.clone()).or_default() += *count as f64 / looked.as_secs_f64();
        }
        rates
    }
}

/// The time of day, for people.
pub(super) fn clock_time() -> String {
    Zoned::now().strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn one(holds: bool, token: i64, name: &str) -> Contender {
        Contender {
            holds,
            token,
            session: token,
            is_lease: false,
            is_unfair: false,
            since_millis: token * 1000,
            name: name.to_owned(),
        }
    }

    fn id(path: &str) -> LockId {
        (path.to_owned(), "mutex".to_owned())
    }

    fn look(history: &mut History, at: Instant, millis: i64, contenders: &[Contender]) {
        history.note(BTreeMap::from([(id("/a"), contenders.to_vec())]), at, "12:00:00", millis);
    }

    fn rate(history: &History, now: Instant) -> Option<f64> {
        history.rates(now).get(&id("/a")).copied()
    }

    fn names(history: &History) -> Vec<(&str, &str)> {
        history.grants().map(|grant| (grant.name.as_str(), grant.waited.as_str())).collect()
    }

    #[test]
    fn a_new_holder_is_a_grant_and_one_that_was_there_is_none() {
        let (mut history, begin) = (History::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        look(&mut history, at(0), 10_000, &[one(true, 1, "one"), one(false, 2, "two")]);
        assert_eq!((names(&history), rate(&history, at(0))), (vec![], None), "the first look grants nothing");
        look(&mut history, at(2), 12_000, &[one(true, 1, "one"), one(false, 2, "two")]);
        assert_eq!((names(&history), rate(&history, at(2))), (vec![], None));
        look(&mut history, at(4), 14_000, &[one(true, 2, "two")]);
        look(&mut history, at(8), 18_000, &[one(true, 17, "new")]);
        assert_eq!(names(&history), [("new", "waited < 2s"), ("two", "waited 12s")]);
        assert_eq!(rate(&history, at(8)), Some(0.25));
        look(&mut history, at(300), 310_000, &[one(true, 17, "new")]);
        assert_eq!(rate(&history, at(300)), None, "long ago");
    }

    #[test]
    fn a_lease_is_known_by_its_session_and_only_the_last_grants_are_kept() {
        let (mut history, begin) = (History::default(), Instant::now());
        look(&mut history, begin, 10_000, &[Contender { is_lease: true, ..one(false, 2, "two") }]);
        let lease = Contender { is_lease: true, session: 2, ..one(true, 9, "two") };
        look(&mut history, begin + Duration::from_secs(1), 11_000, &[lease]);
        assert_eq!(names(&history), [("two", "waited 9s")]);
        let lease = Contender { is_lease: true, ..one(true, 10, "three") };
        let new = [lease, Contender { is_unfair: true, ..one(true, 11, "four") }];
        look(&mut history, begin + Duration::from_secs(2), 12_000, &new);
        assert!(names(&history).iter().take(2).all(|(_, waited)| *waited == "not seen to wait"));
        for token in 20..40 {
            look(&mut history, begin + Duration::from_secs(2), 12_000, &[one(true, token, "next")]);
        }
        assert_eq!(history.grants().len(), GRANTS);
    }
}
