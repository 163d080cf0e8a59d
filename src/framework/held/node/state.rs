//! What the client knows of a held znode.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{HeldNode, Inner};
use crate::{error::LostReason, framework::held::changes::HoldState};

impl HeldNode {
    /// Why it is not held any more, for who wants to release it or to enter again. While it is not known yet who deleted
    /// the znode, that is the reason.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_in(&self.inner.lock())
    }

    pub(super) fn lost_in(&self, inner: &Inner) -> Option<LostReason> {
        match inner.lost {
            None if inner.released => None,
            None if self.grant.is_some() => self.root().lost(),
            // The background thread has yet to say why.
            None if self.has_session_ended() => Some(LostReason::SessionExpired),
            None => inner.deletion.as_ref().map(|_| LostReason::NodeDeleted),
            lost => lost,
        }
    }

    pub(super) fn has_session_ended(&self) -> bool {
        self.common.session.is_ended() && !self.common.znode.outlives_session
    }

    /// Up to here the lock is held, if nobody deletes the znode; in the past once the lock is lost or released.
    pub(crate) fn valid_until(&self) -> Instant {
        self.valid_until_in(&self.inner.lock())
    }

    fn valid_until_in(&self, inner: &Inner) -> Instant {
        if inner.released || self.lost_in(inner).is_some() {
            return self.since;
        }
        self.certain_until(inner).unwrap_or(self.since)
    }

    /// Up to here the lock is held for certain, if its znode is there.
    pub(super) fn certain_until(&self, inner: &Inner) -> Option<Instant> {
        let valid_until = self.common.session.valid_until()?;
        Some(inner.limits.end().map_or(valid_until, |end| end.min(valid_until)))
    }

    /// For how long the hold is certain, from now on.
    pub(super) fn left_in(&self, inner: &Inner, now: Instant) -> Duration {
        if self.state_in(inner, now) != HoldState::Held {
            return Duration::ZERO;
        }
        self.certain_until(inner).map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Whether the hold is certain for no longer than this.
    pub(crate) fn is_near(&self, margin: Duration) -> bool {
        self.left_in(&self.inner.lock(), Instant::now()) <= margin
    }

    /// Whether `valid_until` has passed.
    pub(super) fn may_be_anothers(&self, inner: &Inner, now: Instant) -> bool {
        self.valid_until_in(inner) <= now
    }

    pub(crate) fn state(&self, now: Instant) -> HoldState {
        self.state_in(&self.inner.lock(), now)
    }

    pub(super) fn state_in(&self, inner: &Inner, now: Instant) -> HoldState {
        match inner.lost {
            Some(reason) => HoldState::Lost(reason),
            None if inner.released => HoldState::Released,
            None if self.grant.is_some() => self.root().state(now),
            None if self.has_session_ended() => HoldState::Lost(LostReason::SessionExpired),
            None if self.is_there(inner, now) => HoldState::Held,
            None => HoldState::InDoubt,
        }
    }

    /// Whether the znode is there for certain, unless its loss is known.
    fn is_there(&self, inner: &Inner, now: Instant) -> bool {
        let connection = self.common.session.connection();
        let unseen = connection != 0 && connection != self.seen_over.load(Ordering::Acquire);
        inner.deletion.is_none() && !unseen && self.certain_until(inner).is_some_and(|at| now < at)
    }

    /// Whether the znode is there for certain, unless somebody deletes it right now; also while it is given back.
    pub(crate) fn is_certain(&self) -> bool {
        if self.grant.is_some() {
            return self.root().is_certain();
        }
        let inner = self.inner.lock();
        inner.lost.is_none() && !self.has_session_ended() && self.is_there(&inner, Instant::now())
    }

    /// The znode was seen over this connection, after the hold began. A later one may be known already, over which nobody
    /// asks again.
    pub(crate) fn seen_again(&self, connection: u64) {
        self.root().seen_over.fetch_max(connection, Ordering::AcqRel);
    }
}
