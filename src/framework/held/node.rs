//! One held znode: what is known of it, and who is told.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Sender, unbounded};
use parking_lot::Mutex;

use super::{
    changes::{HoldState, StateChanges},
    deadlines::Deadlines,
    limits::Limits,
    revocation::RevocableNode,
};
use crate::{
    error::{LostReason, Result},
    framework::events::{
        dispatch::Dispatcher,
        event::{Event, EventSender},
    },
    paths::ServerPath,
    session::{
        api::Session,
        wait::{cancel::CancelToken, pending::Watch},
    },
    unlocked::drop_unlocked,
};

/// A hold shorter than this is not watched, so that an uncontended cycle needs no packets besides create and delete.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(100);

/// A callback for [`HoldState`]; runs on the dispatch thread.
pub(crate) type HoldListener = Arc<dyn Fn(HoldState) + Send + Sync>;

/// The znode that is a hold.
pub(crate) struct Znode {
    pub(crate) path: ServerPath,
    pub(crate) czxid: i64,
    /// What the holder shows to storage: the czxid, unless the lock was made from another one that was held before.
    pub(crate) token: i64,
    /// The grant that it shows beside that; 0 unless the other lock was cached.
    pub(crate) grant: u64,
    /// Others were in front of it.
    pub(crate) has_waited: bool,
    /// No session owns it, as the driver says. Then it is held until somebody deletes it; after the end of the session
    /// that made it, nobody looks any more whether it is there.
    pub(crate) outlives_session: bool,
}

/// Who hands a held znode on from hold to hold.
pub(crate) trait Keeper: Send + Sync {
    /// The znode, or its session, is gone. Runs on a thread that reads for a session or on the client's own, under no lock;
    /// must not block.
    fn gone(&self, tenure: &HeldNode);

    /// Ends one of its holds, without waiting for a server.
    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()>;
}

/// What one hold of many knows.
pub(super) struct Grant {
    pub(super) tenure: Arc<HeldNode>,
    /// The keeper's name for the tenure.
    pub(super) tenure_number: u64,
    /// Counted from 1 in each tenure.
    pub(super) number: u64,
    pub(super) keeper: Weak<dyn Keeper>,
}

/// A znode of a session, held until released or lost.
pub(crate) struct HeldNode {
    pub(super) id: u64,
    pub(super) znode: Arc<Znode>,
    pub(super) session: Arc<dyn Session>,
    pub(super) since: Instant,
    /// The connection over which the znode was last seen to exist. Over a later one that has to be checked first.
    pub(super) seen_over: AtomicU64,
    /// The connection over which that was asked for last.
    pub(super) asked_over: AtomicU64,
    /// Its data are looked at for requests to give the lock back.
    pub(super) revocable: Option<Arc<RevocableNode>>,
    pub(super) events: EventSender,
    pub(super) dispatcher: Arc<Dispatcher>,
    /// It is one of many holds that one held znode serves.
    pub(super) grant: Option<Grant>,
    /// It is such a znode.
    pub(super) keeper: OnceLock<Weak<dyn Keeper>>,
    /// So many of its holds were not given back yet.
    pub(super) out: AtomicUsize,
    pub(super) inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) lost: Option<LostReason>,
    pub(super) released: bool,
    /// The znode is gone, and it is not known yet whether the session is, too.
    pub(super) deletion: Option<Deletion>,
    /// A watch, or a check after a reconnect, is on its way or in place.
    pub(super) watch: WatchState,
    /// The server has confirmed the watch, and it has not been used up.
    pub(super) is_watched: bool,
    /// The connection over which a question came to nothing, and until when it is not asked again there.
    pub(super) failed: Option<(u64, Instant)>,
    /// The server has refused the data, so it is asked only whether the znode is there.
    pub(super) may_not_read: bool,
    /// When to ask that again: servers may send no event to those who may not read the znode (CVE-2024-23944).
    pub(super) asks_again: Option<Instant>,
    /// What was told last, for the log.
    pub(super) told: HoldState,
    /// Cancelled when the znode is lost: whoever holds it waits for something else, in vain then.
    pub(super) interrupts: Vec<Weak<CancelToken>>,
    pub(super) audience: Audience,
    pub(super) limits: Limits,
    /// How often it was said that the lock is held for long.
    pub(super) warnings: u32,
    /// The holds that this znode serves and that are looked after: somebody listens, or they may last too long.
    pub(super) grants: Vec<Arc<HeldNode>>,
    /// It is among those of its znode.
    pub(super) is_attended: bool,
    /// It was given back while other holds of its znode were not.
    pub(super) has_left_others: bool,
}

pub(super) enum WatchState {
    Absent,
    Requested,
    Present(#[allow(dead_code, reason = "dropping it gives the watch up")] Watch),
}

/// The end of a znode, as long as it is not known whether the session has ended, too.
pub(super) struct Deletion {
    /// The connection that reported it.
    pub(super) connection: u64,
    /// The session was asked for a sign of life after that.
    pub(super) is_asked: bool,
}

/// Who is told of each change. Each with what it was told last; the state in which a hold begins counts as told.
#[derive(Default)]
pub(super) struct Audience {
    pub(super) channels: BTreeMap<u64, (HoldState, Sender<HoldState>)>,
    pub(super) listeners: Vec<(HoldState, HoldListener)>,
    /// Cancelled, in this order, as soon as the lock may be another's.
    tokens: Vec<CancelToken>,
    /// Somebody has asked to be told at some time. Looks are planned from then on, so that who asks again and again
    /// need not wake the client's thread each time.
    pub(super) was_asked: bool,
    pub(super) next_channel: u64,
    /// Those who are told some time before it stops being certain.
    pub(super) deadlines: Deadlines,
}

impl Audience {
    fn awaits(&self, state: HoldState) -> bool {
        let mut told = self.channels.values().map(|(told, _)| told).chain(self.listeners.iter().map(|(told, _)| told));
        told.any(|told| *told != state)
    }

    /// Hands the state over to all that have not been told. Not to be called but under the lock: the order of the calls is
    /// the order in which all are told.
    pub(super) fn tell(&mut self, state: HoldState, dispatcher: &Dispatcher) {
        for (told, channel) in self.channels.values_mut() {
            if mem::replace(told, state) != state {
                // Whoever has dropped the other end is about to sign off.
                let _ = channel.send(state);
            }
        }
        for (told, listener) in &mut self.listeners {
            if mem::replace(told, state) != state {
                let listener = listener.clone();
                dispatcher.run(move || listener(state));
            }
        }
    }
}

impl Inner {
    pub(super) fn new(watch: Option<Watch>) -> Inner {
        Inner {
            lost: None,
            released: false,
            deletion: None,
            is_watched: watch.is_some(),
            watch: watch.map_or(WatchState::Absent, WatchState::Present),
            failed: None,
            may_not_read: false,
            asks_again: None,
            told: HoldState::Held,
            interrupts: Vec::new(),
            audience: Audience::default(),
            limits: Limits::default(),
            warnings: 0,
            grants: Vec::new(),
            is_attended: false,
            has_left_others: false,
        }
    }

    /// Nothing changes any more.
    pub(super) fn is_final(&self) -> bool {
        self.lost.is_some() || self.released
    }

    pub(super) fn may_ask_over(&self, connection: u64, now: Instant) -> bool {
        self.failed.is_none_or(|(over, until)| over != connection || now >= until)
    }

    /// After how long a hold the next warning is due.
    fn next_warning(&self, limit: Duration) -> Duration {
        limit.saturating_mul(1 << self.warnings.min(30))
    }
}

impl HeldNode {
    pub(crate) fn path(&self) -> &ServerPath {
        &self.znode.path
    }

    pub(crate) fn outlives_session(&self) -> bool {
        self.znode.outlives_session
    }

    /// Of many holds only the first one has waited at the servers.
    pub(crate) fn has_waited(&self) -> bool {
        self.znode.has_waited && self.grant.as_ref().is_none_or(|grant| grant.number <= 1)
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.session
    }

    pub(crate) fn revocable(&self) -> Option<&RevocableNode> {
        self.revocable.as_deref()
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.znode.czxid
    }

    /// What storage has to be shown: grows with every grant of a lock.
    pub(crate) fn token(&self) -> i64 {
        self.znode.token
    }

    /// Why it is not held any more, for who wants to release it or to enter again. While it is not known yet who deleted
    /// the znode, that is the reason.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_in(&self.inner.lock())
    }

    fn lost_in(&self, inner: &Inner) -> Option<LostReason> {
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
        self.session.is_ended() && !self.znode.outlives_session
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
        let connection = self.session.connection();
        let unseen = connection != 0 && connection != self.seen_over.load(Ordering::Acquire);
        inner.deletion.is_none() && !unseen && self.certain_until(inner).is_some_and(|at| now < at)
    }

    /// When the background thread has to look at it; `None`: not before something happens. A state that nobody listens to
    /// is worked out when somebody asks for it.
    pub(super) fn next_look(&self, max_hold_time: Option<Duration>, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        if inner.released {
            return None;
        }
        let state = self.state_in(&inner, now);
        if inner.audience.awaits(state) || !inner.audience.tokens.is_empty() && self.may_be_anothers(&inner, now) {
            // It has changed since they were told.
            return Some(now);
        }
        let of_deadlines = inner.audience.deadlines.next_look(self.left_in(&inner, now), now);
        let (of_doubt, of_question) = match state {
            HoldState::Lost(_) | HoldState::Released => return None,
            HoldState::Held => {
                let is_watched = self.grant.is_some() || matches!(inner.watch, WatchState::Present(_));
                let of_doubt = self.certain_until(&inner).filter(|_| inner.audience.was_asked);
                let asks_again = || inner.asks_again.map(|at| if at <= now { now + WATCH_AFTER } else { at });
                (of_doubt, if is_watched { asks_again() } else { Some(now + WATCH_AFTER) })
            }
            // Nothing tells when the doubt ends.
            HoldState::InDoubt => {
                let of_end = self.session.valid_until().filter(|_| !inner.audience.tokens.is_empty());
                (of_end, Some(now + WATCH_AFTER))
            }
        };
        // Not sooner than that: a limit so short that it is always over would keep the thread busy.
        let of_warning = max_hold_time
            .filter(|_| self.keeper.get().is_none())
            .and_then(|limit| self.since.checked_add(inner.next_warning(limit)))
            .map(|at| at.max(now + WATCH_AFTER));
        [of_doubt, of_question, of_deadlines, of_warning, inner.limits.end()].into_iter().flatten().min()
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

    /// Listeners hear of it now. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        // The end of a znode that its holder has released must not wake the client's thread at each release.
        if self.mark_lost(reason) {
            self.events.send(Event::Look);
        }
    }

    /// `false`: it was released before.
    pub(super) fn mark_lost(&self, reason: LostReason) -> bool {
        if self.grant.is_some() {
            return self.root().mark_lost(reason);
        }
        let mut inner = self.inner.lock();
        if inner.released {
            return false;
        }
        inner.lost.get_or_insert(reason);
        let interrupts = std::mem::take(&mut inner.interrupts);
        drop(inner);
        for token in interrupts.iter().filter_map(Weak::upgrade) {
            token.cancel();
        }
        self.tell_keeper();
        true
    }

    /// Cancels the token when the znode is lost, unless the token has gone by then.
    pub(crate) fn interrupt_on_loss(&self, token: &Arc<CancelToken>) {
        if self.grant.is_some() {
            return self.root().interrupt_on_loss(token);
        }
        let mut inner = self.inner.lock();
        inner.interrupts.retain(|other| other.strong_count() > 0);
        inner.interrupts.push(Arc::downgrade(token));
        let is_lost = self.lost_in(&inner).is_some();
        drop(inner);
        if is_lost {
            token.cancel();
        }
    }

    /// From here on the znode's end is the holder's own doing. Whoever listens is told for the last time, on the calling
    /// thread and the dispatch thread: the client's own thread must not be woken by each release.
    pub(crate) fn released(&self) {
        let mut inner = self.inner.lock();
        if inner.released {
            return;
        }
        inner.lost = self.lost_in(&inner);
        inner.released = true;
        inner.has_left_others = self.leaves_others();
        // What time it is does not matter any more.
        let audience = self.tell_in(&mut inner, self.since);
        let is_attended = mem::take(&mut inner.is_attended);
        let over = inner.limits.ended();
        drop_unlocked(inner, (audience, over));
        if is_attended {
            self.leave_tenure();
        }
    }

    /// Tells of the state if it is not that in which a hold begins, and of every change. What happened between the grant
    /// and this call would be missed otherwise.
    pub(crate) fn channel(self: &Arc<Self>) -> StateChanges {
        let (sender, receiver) = unbounded();
        let mut inner = self.inner.lock();
        let state = self.state_in(&inner, Instant::now());
        if state != HoldState::Held {
            // The receiver is right here.
            let _ = sender.send(state);
        }
        if inner.is_final() {
            return StateChanges::ended(receiver);
        }
        let id = inner.audience.next_channel;
        inner.audience.next_channel += 1;
        inner.audience.channels.insert(id, (state, sender));
        self.is_asked(&mut inner);
        drop(inner);
        let node = Arc::downgrade(self);
        StateChanges::new(receiver, move || {
            if let Some(node) = node.upgrade() {
                node.inner.lock().audience.channels.remove(&id);
            }
        })
    }

    /// As [`channel`](Self::channel), on the dispatch thread.
    pub(crate) fn listen(self: &Arc<Self>, listener: HoldListener) {
        let mut inner = self.inner.lock();
        inner.audience.listeners.push((HoldState::Held, listener));
        if !inner.is_final() {
            return self.is_asked(&mut inner);
        }
        let audience = self.tell_in(&mut inner, Instant::now());
        drop_unlocked(inner, audience);
    }

    /// Cancels the tokens, in this order, at [`valid_until`](Self::valid_until) at the latest. No listener delays that.
    pub(crate) fn cancel_at_the_end(self: &Arc<Self>, tokens: &[&CancelToken]) {
        let mut inner = self.inner.lock();
        if !self.may_be_anothers(&inner, Instant::now()) {
            inner.audience.tokens.extend(tokens.iter().map(|token| (*token).clone()));
            return self.is_asked(&mut inner);
        }
        drop(inner);
        tokens.iter().for_each(|token| token.cancel());
    }

    /// Whether `valid_until` has passed.
    fn may_be_anothers(&self, inner: &Inner, now: Instant) -> bool {
        self.valid_until_in(inner) <= now
    }

    /// Somebody wants to be told, for which looks have to be planned.
    fn is_asked(self: &Arc<Self>, inner: &mut Inner) {
        if !mem::replace(&mut inner.audience.was_asked, true) {
            self.join_tenure(inner);
            self.events.send(Event::Look);
        }
    }

    pub(super) fn tell(&self, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.released {
            return;
        }
        let audience = self.tell_in(&mut inner, now);
        drop_unlocked(inner, audience);
    }

    /// Tells of the state. Hands out who need not be told anything any more.
    fn tell_in(&self, inner: &mut Inner, now: Instant) -> Audience {
        let state = self.state_in(inner, now);
        if let HoldState::Lost(reason) = state {
            inner.lost.get_or_insert(reason);
        }
        if mem::replace(&mut inner.told, state) != state {
            self.log_state(state);
        }
        inner.audience.tell(state, &self.dispatcher);
        if self.may_be_anothers(inner, now) {
            inner.audience.tokens.drain(..).for_each(|token| token.cancel());
        }
        // Who has given it back has nothing to stop.
        if state != HoldState::Released {
            let left = self.left_in(inner, now);
            inner.audience.deadlines.tell(left, &self.dispatcher);
        }
        if inner.is_final() { mem::take(&mut inner.audience) } else { Audience::default() }
    }

    fn log_state(&self, state: HoldState) {
        match state {
            // The holder's own doing.
            HoldState::Lost(LostReason::ClientClosed) => log::debug!("{}: the client was closed", self.znode.path),
            HoldState::Lost(reason) => log::warn!("{}: the lock is lost: {reason}", self.znode.path),
            HoldState::Held | HoldState::InDoubt | HoldState::Released => {
                log::debug!("{}: {state:?}", self.znode.path);
            }
        }
    }

    /// At the limit, and each time the hold has lasted twice as long as at the last warning.
    pub(super) fn warn_if_held_for_long(&self, limit: Duration, now: Instant) {
        if self.keeper.get().is_some() {
            // Nobody holds it, but by one of its grants.
            return;
        }
        let held_for = now.saturating_duration_since(self.since);
        let mut inner = self.inner.lock();
        if inner.released || held_for < inner.next_warning(limit) {
            return;
        }
        inner.warnings += 1;
        drop(inner);
        log::warn!("{}: held for {held_for:?}, longer than the maximum hold time of {limit:?}", self.path());
    }
}

impl fmt::Debug for HeldNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNode")
            .field("path", &self.znode.path)
            .field("czxid", &self.znode.czxid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
