//! All znodes held by one client, and when to look at them again.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    WATCH_AFTER, fence,
    node::{HeldNode, HeldZnode, RevocableNode, Znode},
};
use crate::{
    base::{
        clock, collections::HashMap, paths::ServerPath, sync::Mutex, telemetry::counters::Counters,
        unlocked::drop_unlocked,
    },
    error::LostReason,
    framework::events::{
        dispatch::Dispatcher,
        event::{Event, EventSender},
    },
    session::{api::Session, wait::pending::Watch},
};

/// All znodes held by one client.
pub(crate) struct HeldNodes {
    nodes: Mutex<Registry>,
    next_id: AtomicU64,
    /// A hold that lasts longer is worth a warning.
    max_hold_time: Option<Duration>,
    events: EventSender,
    dispatcher: Arc<Dispatcher>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Registry {
    /// The first hold of each znode: requests to give it back are about that one, also once its cache has gone.
    nodes: HashMap<u64, Arc<HeldNode>>,
    /// When the background thread looks again by itself.
    next_look: Option<Instant>,
    /// A look is under way, and comes back for znodes that are added meanwhile.
    is_looking: bool,
    /// The last look found nothing to come back for. The thread stops looking when that happens twice in a row, because
    /// short holds one after the other must not wake it each time.
    was_idle: bool,
    /// Sessions in which somebody may rely on a lost hold that is here no more.
    relied_on: Vec<Weak<dyn Session>>,
    /// The session that was given up last, as the connection was gone for too long.
    given_up: Option<Weak<dyn Session>>,
    /// Whether the client is closed. A lock that is granted during the close is lost at once: no look follows.
    is_closed: bool,
}

fn let_go(first: &Arc<HeldNode>) {
    if let Some(counters) = first.counters() {
        counters.held.add(-1);
    }
    // Otherwise the znode and its first hold would keep each other alive.
    first.znode().attend_no_more(first);
}

impl HeldNodes {
    pub(crate) fn new(
        max_hold_time: Option<Duration>,
        events: EventSender,
        dispatcher: Arc<Dispatcher>,
        counters: Arc<Counters>,
    ) -> Self {
        HeldNodes { nodes: Mutex::default(), next_id: AtomicU64::new(1), max_hold_time, events, dispatcher, counters }
    }

    /// Begins to look after a znode that was seen to exist over `connection`.
    #[cfg(test)]
    pub(crate) fn add(
        &self,
        path: ServerPath,
        session: Arc<dyn Session>,
        czxid: i64,
        connection: u64,
        watch: Option<Watch>,
    ) -> Arc<HeldNode> {
        let (has_waited, waited_for, is_queue, named) = (false, None, false, None);
        let znode = Znode { path, czxid, token: czxid, grant: 0, has_waited, waited_for, is_queue, named };
        self.add_znode(znode, session, connection, watch, None)
    }

    /// [`HeldNodes::add`] for any znode, also one that may carry a request to give it back: its watch is armed at once
    /// then.
    pub(crate) fn add_znode(
        &self,
        znode: Znode,
        session: Arc<dyn Session>,
        connection: u64,
        watch: Option<Watch>,
        revocable: Option<Arc<RevocableNode>>,
    ) -> Arc<HeldNode> {
        let counters = (!znode.is_queue).then(|| self.counters.clone());
        if let Some(counters) = &counters {
            counters.held.add(1);
        }
        let (id, tell) = (self.next_id.fetch_add(1, Ordering::Relaxed), (self.events.clone(), self.dispatcher.clone()));
        let max_hold_time = self.max_hold_time;
        let znode = HeldZnode::new(id, znode, session, connection, watch, revocable, tell, counters, max_hold_time);
        let hold = HeldNode::first(znode.clone());
        let needed = [znode.next_look(hold.since), hold.next_look(hold.since)].into_iter().flatten().min();
        let mut registry = self.nodes.lock();
        registry.nodes.insert(id, hold.clone());
        let comes_late = needed.is_some_and(|at| registry.next_look.is_none_or(|planned| planned > at));
        if comes_late {
            registry.next_look = needed;
            // The look that follows may find it released already, and must not give up looking because of that.
            registry.was_idle = false;
        }
        // Not during a look: where many are held and short holds come all the time, each look would ask for the next one.
        let asks = comes_late && !registry.is_looking;
        let is_closed = registry.is_closed;
        drop(registry);
        if is_closed {
            znode.mark_lost(LostReason::ClientClosed);
        }
        if asks || hold.revocable().is_some() {
            self.events.send(Event::Look);
        }
        hold
    }

    /// Looks no more after the znode of this hold.
    pub(crate) fn remove(&self, hold: &HeldNode) {
        let Some(first) = self.nodes.lock().nodes.remove(&hold.znode().id) else { return };
        let_go(&first);
        if first.session().is_ended() {
            self.end_unless_held(first.session());
        }
    }

    /// Looks after nothing any more, once a closed client has told all that are left: some have nobody who would remove them.
    pub(crate) fn remove_all(&self) {
        let nodes = mem::take(&mut self.nodes.lock().nodes);
        nodes.values().for_each(let_go);
        drop_unlocked((), nodes.into_values());
    }

    /// [`remove`](Self::remove) of a lost hold whose holder may not have heard, and works on what it was told before: its session
    /// is not closed any sooner.
    pub(crate) fn remove_relied_on(&self, hold: &HeldNode) {
        {
            let relied_on = &mut self.nodes.lock().relied_on;
            let session = Arc::downgrade(hold.session());
            relied_on.retain(|other| other.strong_count() > 0 && !Weak::ptr_eq(other, &session));
            relied_on.push(session);
        }
        self.remove(hold);
    }

    /// Lets a session that has ended be closed if nothing is held in it. Asked after the end, and with each hold that goes after
    /// it: so it is asked once the last one is gone.
    pub(crate) fn end_unless_held(&self, session: &Arc<dyn Session>) {
        let registry = self.nodes.lock();
        let is_held = registry.nodes.values().any(|hold| Arc::ptr_eq(session, hold.session()))
            || registry.relied_on.iter().any(|other| ptr::addr_eq(other.as_ptr(), Arc::as_ptr(session)));
        drop(registry);
        if !is_held {
            session.nobody_holds();
        }
    }

    /// Marks every znode of the session (`None`: of the client) as lost. Listeners are told at the next look, which the
    /// caller has to see to.
    pub(crate) fn lose_all(&self, session: Option<&Arc<dyn Session>>, reason: LostReason) {
        let nodes: Vec<_> = {
            let mut registry = self.nodes.lock();
            registry.is_closed |= session.is_none();
            if reason == LostReason::SuspendedTooLong {
                registry.given_up = session.map(Arc::downgrade);
            }
            registry.nodes.values().cloned().collect()
        };
        for hold in nodes {
            if session.is_none_or(|session| Arc::ptr_eq(session, hold.session())) {
                hold.znode().mark_lost(reason);
            }
        }
    }

    /// Why a session is over that has ended by itself.
    pub(crate) fn why_over(&self, session: &Arc<dyn Session>) -> LostReason {
        let given_up = self.nodes.lock().given_up.clone();
        match given_up.is_some_and(|of| Weak::ptr_eq(&of, &Arc::downgrade(session))) {
            true => LostReason::SuspendedTooLong,
            false => LostReason::SessionExpired,
        }
    }

    /// Takes the fences of all holds away.
    pub(crate) fn disarm_fences(&self) {
        fence::disarm_client(Arc::as_ptr(&self.counters).addr());
    }

    /// The znodes that a session has left behind, each with the moment up to which its holder may take it for held, or it has
    /// to stay for.
    pub(crate) fn left_behind(&self, session: &Arc<dyn Session>) -> Vec<(ServerPath, Instant)> {
        let Some(valid_until) = session.left_behind() else { return Vec::new() };
        let now = clock::now();
        let holds: Vec<_> = self.nodes.lock().nodes.values().cloned().collect();
        let left = holds.iter().filter(|hold| Arc::ptr_eq(session, hold.session()));
        left.map(|hold| {
            let stays_until = hold.has_to_stay().map_or(now, |rest| now + rest);
            (hold.path().clone(), valid_until.max(stays_until))
        })
        .collect()
    }

    /// Tells listeners what has changed, arms watches that are due, and checks znodes after a reconnect. Returns when
    /// to look again, `None` if there is nothing to look for before something happens.
    pub(crate) fn look(&self, now: Instant) -> Option<Instant> {
        let nodes: Vec<_> = {
            let mut registry = self.nodes.lock();
            // Each znode is either among these, or its adding finds no look planned and plans one.
            registry.next_look = None;
            registry.is_looking = true;
            registry.nodes.values().cloned().collect()
        };
        let look = || {
            let attended: Vec<_> = nodes.iter().map(|hold| (hold.znode(), hold.znode().attended())).collect();
            // All are told before any line goes to the log: a logger that blocks delays no news of a loss.
            for hold in attended.iter().flat_map(|(_, holds)| holds) {
                hold.end_if_over(now);
                hold.tell(now);
            }
            attended.iter().filter_map(|(znode, holds)| self.look_at(znode, holds, now)).min()
        };
        let looked = catch_unwind(AssertUnwindSafe(look));
        let mut registry = self.nodes.lock();
        registry.is_looking = false;
        let needed = match looked {
            Ok(needed) => needed,
            Err(panic) => {
                // This look does not come back for znodes that were added meanwhile.
                let was_added = registry.next_look.take().is_some();
                drop(registry);
                if was_added {
                    self.events.send(Event::Look);
                }
                resume_unwind(panic);
            }
        };
        let mut next = [needed, registry.next_look].into_iter().flatten().min();
        let was_idle = mem::replace(&mut registry.was_idle, next.is_none());
        if next.is_none() && !was_idle {
            next = Some(now + WATCH_AFTER);
        }
        registry.next_look = next;
        next
    }

    fn look_at(&self, znode: &Arc<HeldZnode>, holds: &[Arc<HeldNode>], now: Instant) -> Option<Instant> {
        znode.report(now);
        znode.check(now);
        if let Some(limit) = self.max_hold_time {
            holds.iter().for_each(|hold| hold.warn_if_held_for_long(limit, now));
        }
        let of_holds = holds.iter().filter_map(|hold| hold.next_look(now));
        of_holds.chain(znode.next_look(now)).min()
    }

    #[cfg(test)]
    pub(super) fn planned_look(&self) -> Option<Instant> {
        self.nodes.lock().next_look
    }
}
