//! One hold of a znode: its length, its limits, its release.

use std::{
    fmt, io, mem, ptr,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{HeldNode, HeldZnode, HoldParts, Life, RevocableNode, ZnodeCache};
use crate::{
    base::{clock, paths::ServerPath, sync::Mutex, telemetry::counters::Counters},
    error::LostReason,
    framework::{
        events::event::Event,
        held::{
            FAR,
            certainty::Evidence,
            changes::HoldState,
            fence::{self, FenceId},
            subscribers::is_within,
            waited_for::WaitedFor,
        },
    },
    session::api::Session,
};

impl HeldNode {
    /// The first hold of a znode.
    pub(crate) fn first(znode: Arc<HeldZnode>) -> Arc<HeldNode> {
        let (number, since, revocable) = (znode.znode.grant, znode.since, znode.revocable.clone());
        HeldNode::begin(znode, None, number, since, revocable)
    }

    /// From here on this cache hands the znode on from hold to hold. This hold is the cache's own, and ends with the
    /// znode.
    pub(crate) fn serve(&self, cache: Weak<dyn ZnodeCache>) {
        let _ = self.znode.cache.set(cache);
        // No holder has held it for long.
        self.inner.lock().warns_after = None;
    }

    /// Begins one more hold of this znode, now. It checks nothing.
    pub(crate) fn grant(&self, tenure: u64, number: u64, revocable: Option<Arc<RevocableNode>>) -> Arc<HeldNode> {
        let znode = self.znode.clone();
        znode.out.fetch_add(1, Ordering::AcqRel);
        let is_timed = znode.max_hold_time.is_some();
        // If its length does not matter, any moment of the past will do.
        let since = if is_timed { clock::now() } else { self.since };
        let hold = HeldNode::begin(znode, Some(tenure), number, since, revocable);
        if is_timed {
            self.znode.events.send(Event::Look);
        }
        hold
    }

    fn begin(
        znode: Arc<HeldZnode>,
        tenure: Option<u64>,
        number: u64,
        since: Instant,
        revocable: Option<Arc<RevocableNode>>,
    ) -> Arc<HeldNode> {
        let warns_after = znode.max_hold_time;
        let inner = Mutex::new(HoldParts { warns_after, ..HoldParts::default() });
        let hold = Arc::new(HeldNode { znode, tenure, number, since, revocable, inner });
        if let Some(revocable) = &hold.revocable {
            revocable.holds(&hold);
        }
        if warns_after.is_some() {
            hold.is_attended(&mut hold.inner.lock());
        }
        hold
    }

    /// This hold is looked after from here on.
    pub(super) fn is_attended(self: &Arc<Self>, inner: &mut HoldParts) {
        if !mem::replace(&mut inner.is_attended, true) {
            self.znode.attend(self.clone());
        }
    }

    pub(crate) fn path(&self) -> &ServerPath {
        &self.znode.znode.path
    }

    /// Whether this hold waited at the servers.
    pub(crate) fn has_waited(&self) -> bool {
        self.znode.znode.has_waited && self.has_queued()
    }

    /// The contender that was in front at the servers.
    pub(crate) fn waited_for(&self) -> Option<&WaitedFor> {
        self.znode.znode.waited_for.as_deref().filter(|_| self.has_queued())
    }

    /// Whether this hold queued at the servers. If holds share a znode only the first one did.
    fn has_queued(&self) -> bool {
        self.tenure.is_none() || self.number <= 1
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.znode.session
    }

    pub(crate) fn revocable(&self) -> Option<&RevocableNode> {
        self.revocable.as_deref()
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.znode.znode.czxid
    }

    /// The fencing token: it grows with every grant of a lock.
    pub(crate) fn token(&self) -> i64 {
        self.znode.znode.token
    }

    /// The znode that it holds.
    pub(crate) fn znode(&self) -> &Arc<HeldZnode> {
        &self.znode
    }

    /// Whether a cache has handed the znode to it.
    pub(crate) fn is_handed_out(&self) -> bool {
        self.tenure.is_some()
    }

    /// Whether it is a holder's hold, and not that of its znode's cache.
    fn is_its_holders(&self) -> bool {
        self.tenure.is_some() || self.znode.cache.get().is_none()
    }

    /// The number of this grant of its znode; 0 for the only one.
    pub(crate) fn grant_number(&self) -> u64 {
        self.number
    }

    /// The cache that ends this hold while the znode stays, and its number for the tenure.
    pub(crate) fn cache(&self) -> Option<(Arc<dyn ZnodeCache>, u64)> {
        let tenure = self.tenure?;
        Some((self.znode.cache.get()?.upgrade()?, tenure))
    }

    /// `None`: the znode does not count as a lock.
    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.znode.counters.as_deref()
    }

    /// Returns the reason of its loss, for a release or a re-entry. While it is unknown who deleted the znode, the reason
    /// is `NodeDeleted`.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_in(&self.inner.lock())
    }

    pub(super) fn lost_in(&self, inner: &HoldParts) -> Option<LostReason> {
        match inner.life {
            Life::Lost(reason) => Some(reason),
            Life::Released(lost) => lost,
            Life::Lasting => self.znode.lost(),
        }
    }

    /// The moment up to which the lock is held if nobody deletes the znode; it lies in the past once the lock is lost or
    /// released.
    pub(crate) fn valid_until(&self) -> Instant {
        self.valid_until_in(&self.inner.lock())
    }

    pub(super) fn valid_until_in(&self, inner: &HoldParts) -> Instant {
        if inner.life.is_over() || self.lost_in(inner).is_some() {
            return self.since;
        }
        self.certain_until(inner).unwrap_or(self.since)
    }

    /// The moment at which its holder's own limit ends it.
    #[cfg(test)]
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.inner.lock().ends_at
    }

    /// The client's knowledge of this hold and its znode.
    pub(crate) fn evidence(&self) -> Evidence {
        let of_znode = self.znode.evidence();
        if !self.is_its_holders() {
            // The hold of a cache has no length of its own, and ends with its znode.
            return of_znode;
        }
        let inner = self.inner.lock();
        let is_gone = of_znode.is_gone || inner.life.is_over();
        let valid_until = of_znode.valid_until.map(|at| inner.ends_at.map_or(at, |end| end.min(at)));
        Evidence { is_gone, valid_until, ..of_znode }
    }

    /// The moment up to which the lock is held for certain if its znode is there.
    pub(super) fn certain_until(&self, inner: &HoldParts) -> Option<Instant> {
        let valid_until = self.znode.session.valid_until()?;
        Some(inner.ends_at.map_or(valid_until, |end| end.min(valid_until)))
    }

    /// Arms a fence that ends the process this margin before the hold may be another's, unless it is released before. `None`: the hold is
    /// certain for no longer than that.
    pub(crate) fn arm_fence(self: &Arc<Self>, margin: Duration) -> io::Result<Option<FenceId>> {
        fence::begin()?;
        let mut inner = self.inner.lock();
        let (now, state, until) = (clock::now(), self.state_in(&inner, clock::now()), self.valid_until_in(&inner));
        if is_within(margin, state, until.saturating_duration_since(now)) {
            return Ok(None);
        }
        inner.is_fenced = true;
        // The lock's object may go before its hold does, or forget one that is lost: the holder works on all the same.
        let hold = self.clone();
        let prove = move || {
            // A closed client is the holder's own doing.
            let lasts = hold.lost() != Some(LostReason::ClientClosed);
            lasts.then(|| (hold.proved_until(), hold.session().timeout()))
        };
        let client = self.counters().map_or(0, |counters| ptr::from_ref(counters).addr());
        let address = Arc::as_ptr(self).addr();
        let (id, is_set) = fence::arm((client, address), Arc::new(prove), margin, until, self.session().timeout());
        drop(inner);
        fence::wait(is_set, until).inspect_err(|_| fence::disarm(&[id]))?;
        Ok(Some(id))
    }

    /// Takes its fences away.
    pub(crate) fn disarm(&self) {
        if mem::take(&mut self.inner.lock().is_fenced) {
            fence::disarm_all(ptr::from_ref(self).addr());
        }
    }

    pub(crate) fn fences(&self) -> usize {
        fence::count(ptr::from_ref(self).addr())
    }

    /// Whether a fence that lasts as long as the hold has at least this margin.
    pub(crate) fn is_fenced_by(&self, margin: Duration) -> bool {
        self.inner.lock().fenced_by.is_some_and(|by| by >= margin)
    }

    /// A fence of this margin lasts as long as the hold.
    pub(crate) fn keeps_fence(&self, margin: Duration) {
        self.inner.lock().fenced_by = Some(margin);
    }

    /// The moment up to which heartbeats have proved it, for its fence. `None`: nothing has proved it again.
    fn proved_until(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        if self.lost_in(&inner).is_some() { None } else { self.certain_until(&inner) }
    }

    pub(crate) fn state(&self, now: Instant) -> HoldState {
        self.state_in(&self.inner.lock(), now)
    }

    pub(super) fn state_in(&self, inner: &HoldParts, now: Instant) -> HoldState {
        let has_lasted = || inner.ends_at.is_some_and(|end| end <= now);
        match inner.life.end().unwrap_or_else(|| self.znode.state(now)) {
            HoldState::Held if has_lasted() => HoldState::InDoubt,
            state => state,
        }
    }

    /// Marks the znode as lost, and has its holders told now. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.znode.lose(reason);
    }

    /// Whether it was released while the znode had other holds. The znode goes with the last of them.
    pub(crate) fn has_left_others(&self) -> bool {
        self.inner.lock().has_left_others
    }

    /// From now on the znode stays for `least`, even if the holder releases it sooner, and the hold ends after `most`:
    /// then `give_back` is called once, on the client's own thread, after the hold was lost for its length.
    pub(crate) fn limit(
        self: &Arc<Self>,
        least: Option<Duration>,
        most: Option<Duration>,
        give_back: impl FnOnce() + Send + 'static,
    ) {
        let now = clock::now();
        let mut inner = self.inner.lock();
        inner.stays_until = least.map(|least| now.checked_add(least).unwrap_or(now + FAR));
        inner.ends_at = most.and_then(|most| now.checked_add(most));
        if inner.ends_at.is_some() && !inner.life.is_released() {
            inner.give_back = Some(Box::new(give_back));
            self.is_attended(&mut inner);
            self.znode.events.send(Event::Look);
        }
    }

    /// How long its znode still has to stay after the holder has released it.
    pub(crate) fn has_to_stay(&self) -> Option<Duration> {
        let rest = self.inner.lock().stays_until?.saturating_duration_since(clock::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Ends a hold for its holder, if it has not ended before.
    pub(crate) fn lose_unless_over(&self, reason: LostReason) -> bool {
        let inner = self.inner.lock();
        if inner.life.is_over() || !self.znode.is_lasting() {
            return false;
        }
        // Under the hold's own lock: a release in between would hand the znode on to another one.
        let on_loss = self.znode.mark(reason);
        drop(inner);
        let is_lost = self.znode.tell_of_loss(on_loss);
        if is_lost {
            self.znode.events.send(Event::Look);
        }
        is_lost
    }

    /// Ends a hold that has lasted for too long: first for its holder, then for others.
    pub(crate) fn end_if_over(&self, now: Instant) {
        let give_back = {
            let mut inner = self.inner.lock();
            if inner.life.is_over() || inner.ends_at.is_none_or(|end| now < end) {
                return;
            }
            // The end stays: without it the hold would be certain again up to the loss.
            inner.give_back.take()
        };
        if let Some(give_back) = give_back
            && self.znode.mark_lost(LostReason::HeldTooLong)
        {
            give_back();
        }
    }
}

impl fmt::Debug for HeldNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNode").field("path", self.path()).field("czxid", &self.czxid()).finish_non_exhaustive()
    }
}
