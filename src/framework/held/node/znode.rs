//! One held znode, as the servers know it: whether it is there, until when for certain, and the report of its end.

use std::{
    mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{HeldNode, HeldZnode, Life, RevocableNode, WatchState, Znode, ZnodeState};
use crate::{
    base::{clock, log, sync::Mutex, telemetry::counters::Counters, unlocked::drop_unlocked},
    error::LostReason,
    framework::{
        events::{
            dispatch::Dispatcher,
            event::{Event, EventSender},
            reactions::WakeUp,
        },
        held::{
            WATCH_AFTER,
            certainty::{Certainty, Evidence},
            changes::HoldState,
        },
    },
    session::{api::Session, wait::pending::Watch},
};

impl Life {
    pub(crate) fn is_over(self) -> bool {
        !matches!(self, Life::Lasting)
    }

    pub(crate) fn is_released(self) -> bool {
        matches!(self, Life::Released(_))
    }

    /// `None` while it lasts.
    pub(crate) fn end(self) -> Option<HoldState> {
        match self {
            Life::Lasting => None,
            Life::Lost(reason) | Life::Released(Some(reason)) => Some(HoldState::Lost(reason)),
            Life::Released(None) => Some(HoldState::Released),
        }
    }

    /// The first reason stays.
    pub(crate) fn lose(&mut self, reason: LostReason) {
        if let Life::Lasting = self {
            *self = Life::Lost(reason);
        }
    }
}

impl ZnodeState {
    pub(super) fn may_ask_over(&self, connection: u64, now: Instant) -> bool {
        self.failed.is_none_or(|(over, until)| over != connection || now >= until)
    }
}

impl HeldZnode {
    #[expect(clippy::too_many_arguments, reason = "the registry's parts, and what it was granted with")]
    pub(crate) fn new(
        id: u64,
        znode: Znode,
        session: Arc<dyn Session>,
        connection: u64,
        watch: Option<Watch>,
        revocable: Option<Arc<RevocableNode>>,
        (events, dispatcher): (EventSender, Arc<Dispatcher>),
        counters: Option<Arc<Counters>>,
        max_hold_time: Option<Duration>,
    ) -> Arc<HeldZnode> {
        let is_watched = watch.is_some();
        let watch = watch.map_or(WatchState::Absent, WatchState::Present);
        Arc::new(HeldZnode {
            id,
            znode,
            session,
            events,
            dispatcher,
            since: clock::now(),
            max_hold_time,
            seen_over: AtomicU64::new(connection),
            asked_over: AtomicU64::new(connection),
            revocable,
            cache: OnceLock::new(),
            counters,
            out: AtomicUsize::new(0),
            inner: Mutex::new(ZnodeState { is_watched, watch, ..ZnodeState::default() }),
        })
    }

    /// Returns the reason of its loss. While it is unknown who deleted the znode, the reason is `NodeDeleted`.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_in(&self.inner.lock())
    }

    fn lost_in(&self, inner: &ZnodeState) -> Option<LostReason> {
        match inner.life {
            Life::Lost(reason) => Some(reason),
            Life::Released(lost) => lost,
            // The background thread has yet to say why.
            Life::Lasting if self.session.is_ended() => Some(LostReason::SessionExpired),
            Life::Lasting => inner.deleted_over.map(|_| LostReason::NodeDeleted),
        }
    }

    pub(crate) fn state(&self, now: Instant) -> HoldState {
        self.state_in(&self.inner.lock(), now)
    }

    fn state_in(&self, inner: &ZnodeState, now: Instant) -> HoldState {
        match inner.life.end() {
            Some(end) => end,
            None if self.session.is_ended() => HoldState::Lost(LostReason::SessionExpired),
            None => match self.evidence_in(inner).certainty(now) {
                Certainty::Certain => HoldState::Held,
                // If only the reason of its end is open, that is still to be reported.
                Certainty::InDoubt | Certainty::Gone => HoldState::InDoubt,
            },
        }
    }

    pub(crate) fn evidence(&self) -> Evidence {
        self.evidence_in(&self.inner.lock())
    }

    fn evidence_in(&self, inner: &ZnodeState) -> Evidence {
        let is_gone = inner.life.is_over() || inner.deleted_over.is_some() || self.session.is_ended();
        let (connection, seen_over) = (self.session.connection(), self.seen_over.load(Ordering::Acquire));
        Evidence {
            is_gone,
            is_connected: connection != 0,
            is_seen: connection == 0 || connection == seen_over,
            is_watched: inner.is_watched,
            valid_until: self.session.valid_until(),
        }
    }

    /// Notes that the znode was seen over this connection, after the hold began. A later one may be known already, over
    /// which the server is not asked again.
    pub(crate) fn seen_again(&self, connection: u64) {
        self.seen_over.fetch_max(connection, Ordering::AcqRel);
    }

    /// When the background thread has to look at the znode; `None`: not before something happens.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        let later = Some(now + WATCH_AFTER);
        match self.state_in(&inner, now) {
            HoldState::Lost(_) | HoldState::Released => None,
            HoldState::Held if matches!(inner.watch, WatchState::Present(_)) => {
                inner.asks_again.map(|at| if at <= now { now + WATCH_AFTER } else { at })
            }
            // The watch has yet to be set; or nothing tells when the doubt ends.
            HoldState::Held | HoldState::InDoubt => later,
        }
    }

    /// Marks the znode as lost, and has its holders told now. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        // The end of a znode that its holder has released must not wake the client's thread at each release.
        if self.mark_lost(reason) {
            self.events.send(Event::Look);
        }
    }

    /// Marks the znode as lost. `false`: the holder has released it before.
    pub(crate) fn mark_lost(&self, reason: LostReason) -> bool {
        let on_loss = self.mark(reason);
        self.tell_of_loss(on_loss)
    }

    /// Returns the waiters to wake, or `None` if the holder released it before. The first reason stays.
    pub(super) fn mark(&self, reason: LostReason) -> Option<Vec<Weak<WakeUp>>> {
        let mut inner = self.inner.lock();
        if inner.life.is_released() {
            return None;
        }
        inner.life.lose(reason);
        Some(mem::take(&mut inner.on_loss))
    }

    pub(super) fn tell_of_loss(&self, on_loss: Option<Vec<Weak<WakeUp>>>) -> bool {
        let Some(on_loss) = on_loss else { return false };
        for wake in on_loss.iter().filter_map(Weak::upgrade) {
            wake();
        }
        self.tell_cache();
        true
    }

    /// Whether neither a loss nor a release was recorded.
    pub(crate) fn is_lasting(&self) -> bool {
        !self.inner.lock().life.is_over()
    }

    pub(super) fn tell_cache(&self) {
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            cache.gone(self);
        }
    }

    /// Calls `wake` when the znode is lost, or is so already, as long as the caller keeps it. Not through a listener,
    /// as the caller's own listeners may never return.
    pub(crate) fn wake_on_loss(&self, wake: &Arc<WakeUp>) {
        let mut inner = self.inner.lock();
        inner.on_loss.retain(|other| other.strong_count() > 0);
        inner.on_loss.push(Arc::downgrade(wake));
        let is_lost = self.lost_in(&inner).is_some();
        drop(inner);
        if is_lost {
            wake();
        }
    }

    /// Marks the znode as released: from here on its end is the holder's own doing. Returns why it was lost before.
    pub(crate) fn released(&self) -> Option<LostReason> {
        let mut inner = self.inner.lock();
        let lost = self.lost_in(&inner);
        if !inner.life.is_released() {
            inner.life = Life::Released(lost);
            let change = self.unreported(&mut inner, self.since);
            drop(inner);
            self.say(change);
        }
        lost
    }

    /// The holds of the znode that need looks.
    pub(crate) fn attended(&self) -> Vec<Arc<HeldNode>> {
        self.inner.lock().holds.clone()
    }

    pub(crate) fn attend(&self, hold: Arc<HeldNode>) {
        self.inner.lock().holds.push(hold);
    }

    pub(crate) fn attend_no_more(&self, hold: &HeldNode) {
        let mut inner = self.inner.lock();
        let left: Vec<_> = inner.holds.extract_if(.., |other| std::ptr::eq(&raw const **other, hold)).collect();
        drop_unlocked(inner, left);
    }

    /// Reports the state if it has changed.
    pub(crate) fn report(&self, now: Instant) {
        let change = self.unreported(&mut self.inner.lock(), now);
        self.say(change);
    }

    /// The state if it is to be reported, to be passed to [`say`](Self::say).
    fn unreported(&self, inner: &mut ZnodeState, now: Instant) -> Option<HoldState> {
        let state = self.state_in(inner, now);
        (inner.reported.replace(state).unwrap_or(HoldState::Held) != state).then_some(state)
    }

    /// Tells the log and the counters. Not under the lock: a logger or a recorder may take its time, or ask for this state.
    fn say(&self, change: Option<HoldState>) {
        let Some(state) = change else { return };
        let path = &self.znode.path;
        match state {
            // The holder's own doing.
            HoldState::Lost(LostReason::ClientClosed) => log::debug!("{path}: the client was closed"),
            HoldState::Lost(reason) => log::warn!("{path}: the lock is lost: {reason}"),
            HoldState::Held | HoldState::InDoubt | HoldState::Released => log::debug!("{path}: {state:?}"),
        }
        let Some(counters) = &self.counters else { return };
        match state {
            HoldState::Held => {}
            HoldState::InDoubt => counters.doubts.count(),
            HoldState::Released => self.hold_ended(counters, "released"),
            HoldState::Lost(reason) => {
                self.hold_ended(counters, "lost");
                counters.lost(reason);
            }
        }
    }

    fn hold_ended(&self, counters: &Counters, end: &'static str) {
        let lasted = clock::since(self.since);
        counters.holds.record(lasted);
        if let Some(named) = &self.znode.named {
            named.ended(end, lasted);
        }
    }

    /// Returns a function to call when the release finds that the lock was lost before.
    pub(crate) fn was_lost(&self) -> impl FnOnce(LostReason) + Send + use<> {
        // Without the session: the function may wait in it for a reply, and the session is closed when it has no owner.
        let (counters, path) = (self.counters.clone(), self.znode.path.clone());
        move |reason| {
            log::warn!("{path}: the lock was lost before it was released: {reason}");
            if let Some(counters) = counters {
                counters.lost(reason);
            }
        }
    }
}
