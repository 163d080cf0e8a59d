//! The leader's view of the sessions: when each expires.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::code;

/// The session of which requests come that no client has sent.
pub(super) const ADMINISTRATOR: i64 = 0;

#[derive(Debug)]
struct Tracked {
    /// The end of the tick in which it expires.
    expires: Duration,
    is_closing: bool,
    /// The server that its client was last connected with.
    owner: Option<usize>,
}

/// Keeps sessions in buckets of a tick.
#[derive(Debug)]
pub(super) struct Tracker {
    tick: Duration,
    /// How far the servers' clock is from the begin of the run, within a tick.
    phase: Duration,
    sessions: BTreeMap<i64, Tracked>,
    /// The end of the tick that is looked at next.
    next: Duration,
    /// Sessions that were taken from their bucket: nothing keeps them any more, but they are closed one by one.
    expiring: VecDeque<i64>,
}

impl Tracker {
    /// All sessions begin anew.
    pub(super) fn new(
        tick: Duration,
        phase: Duration,
        sessions: impl IntoIterator<Item = (i64, i32)>,
        now: Duration,
    ) -> Tracker {
        let mut tracker =
            Tracker { tick, phase, sessions: BTreeMap::new(), next: Duration::ZERO, expiring: VecDeque::new() };
        tracker.next = tracker.end_of_tick(now);
        for (session, timeout_ms) in sessions {
            tracker.track(session, timeout_ms, now);
        }
        tracker
    }

    /// The end of the tick in which `time` lies.
    fn end_of_tick(&self, time: Duration) -> Duration {
        let ticks = (time + self.phase).as_nanos() / self.tick.as_nanos() + 1;
        self.tick * u32::try_from(ticks).unwrap() - self.phase
    }

    /// Begins to track a session. One that is tracked already is touched.
    pub(super) fn track(&mut self, session: i64, timeout_ms: i32, now: Duration) {
        let expires = self.end_of_tick(now + millis(timeout_ms));
        let new = Tracked { expires, is_closing: false, owner: None };
        self.sessions.entry(session).or_insert(new).expires = expires;
    }

    /// `false`: there is no such session, or it is about to be closed.
    pub(super) fn touch(&mut self, session: i64, timeout_ms: i32, now: Duration) -> bool {
        let expires = self.end_of_tick(now + millis(timeout_ms));
        let Some(tracked) = self.sessions.get_mut(&session).filter(|tracked| !tracked.is_closing) else { return false };
        tracked.expires = expires;
        true
    }

    /// Whether this server may speak for the session. The first that does is its owner.
    pub(super) fn check(&mut self, session: i64, server: usize) -> Result<(), i32> {
        if session == ADMINISTRATOR {
            return Ok(());
        }
        let tracked = self.sessions.get_mut(&session).ok_or(code::SESSION_EXPIRED)?;
        if tracked.is_closing {
            return Err(code::SESSION_EXPIRED);
        }
        if *tracked.owner.get_or_insert(server) == server { Ok(()) } else { Err(code::SESSION_MOVED) }
    }

    pub(super) fn set_owner(&mut self, session: i64, server: usize) {
        if let Some(tracked) = self.sessions.get_mut(&session).filter(|tracked| !tracked.is_closing) {
            tracked.owner = Some(server);
        }
    }

    pub(super) fn set_closing(&mut self, session: i64) {
        if let Some(tracked) = self.sessions.get_mut(&session) {
            tracked.is_closing = true;
        }
    }

    pub(super) fn remove(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// When to [`poll`](Self::poll) next.
    pub(super) fn next_tick(&self) -> Duration {
        self.next
    }

    /// Takes the sessions of the tick that has ended. `false`: nothing is to be closed.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        if now >= self.next {
            let due = self.sessions.iter().filter(|(_, tracked)| tracked.expires == self.next);
            self.expiring.extend(due.map(|(session, _)| *session));
            self.next += self.tick;
        }
        self.is_expiring()
    }

    /// Whether sessions wait for their turn to be closed.
    pub(super) fn is_expiring(&self) -> bool {
        !self.expiring.is_empty()
    }

    /// The next session to close, which is marked so.
    pub(super) fn expire_one(&mut self) -> Option<i64> {
        let session = self.expiring.pop_front()?;
        self.set_closing(session);
        Some(session)
    }

    /// When the session is taken from its bucket, and whether it is being closed.
    pub(super) fn look(&self, session: i64) -> Option<(Duration, bool)> {
        self.sessions.get(&session).map(|tracked| (tracked.expires, tracked.is_closing))
    }
}

fn millis(timeout_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
}
