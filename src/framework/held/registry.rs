//! All znodes held by one client, and when to look at them again.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    limits::WATCH_AFTER,
    node::{Common, HeldNode, Inner, RevocableNode, WatchState, Znode},
};
use crate::{
    base::telemetry::counters::Counters,
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

struct Registry {
    nodes: HashMap<u64, Arc<HeldNode>>,
    /// When the background thread looks again by itself.
    next_look: Option<Instant>,
    /// A look is under way, and comes back for znodes that are added meanwhile.
    is_looking: bool,
    /// The last look found nothing to come back for. The thread stops looking when that happens twice in a row, because
    /// short holds one after the other must not wake it each time.
    was_idle: bool,
    /// The client is closed. What is granted while that is under way is lost at once: nobody looks at it any more.
    is_closed: bool,
}

impl HeldNodes {
    pub(crate) fn new(
        max_hold_time: Option<Duration>,
        events: EventSender,
        dispatcher: Arc<Dispatcher>,
        counters: Arc<Counters>,
    ) -> Self {
        let registry =
            Registry { nodes: HashMap::new(), next_look: None, is_looking: false, was_idle: false, is_closed: false };
        HeldNodes {
            nodes: Mutex::new(registry),
            next_id: AtomicU64::new(1),
            max_hold_time,
            events,
            dispatcher,
            counters,
        }
    }

    /// Begins to look after a znode that was seen to exist over `connection`.
    #[cfg(test)]
    pub(crate) fn add(
        &self,
        path: crate::base::paths::ServerPath,
        session: Arc<dyn Session>,
        czxid: i64,
        connection: u64,
        watch: Option<Watch>,
    ) -> Arc<HeldNode> {
        let znode =
            Znode { path, czxid, token: czxid, grant: 0, has_waited: false, outlives_session: false, is_place: false };
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
        let counters = (!znode.is_place).then(|| self.counters.clone());
        if let Some(counters) = &counters {
            counters.held.add(1);
        }
        let is_watched = watch.is_some();
        let watch = watch.map_or(WatchState::Absent, WatchState::Present);
        let inner = Inner { is_watched, watch, ..Inner::default() };
        let node = Arc::new(HeldNode {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            common: Arc::new(Common {
                znode,
                session,
                events: self.events.clone(),
                dispatcher: self.dispatcher.clone(),
            }),
            since: Instant::now(),
            seen_over: AtomicU64::new(connection),
            asked_over: AtomicU64::new(connection),
            revocable,
            grant: None,
            keeper: OnceLock::new(),
            counters,
            out: AtomicUsize::new(0),
            inner: Mutex::new(inner),
        });
        if let Some(revocable) = &node.revocable {
            revocable.holds(&node);
        }
        let needed = node.next_look(self.max_hold_time, node.since);
        let mut registry = self.nodes.lock();
        registry.nodes.insert(node.id, node.clone());
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
            node.mark_lost(LostReason::ClientClosed);
        }
        if asks || node.revocable.is_some() {
            self.events.send(Event::Look);
        }
        node
    }

    pub(crate) fn remove(&self, node: &HeldNode) {
        let was_there = self.nodes.lock().nodes.remove(&node.id).is_some();
        if let Some(counters) = node.counters().filter(|_| was_there) {
            counters.held.add(-1);
        }
    }

    /// Marks every znode that ends with the session (`None`: with the client) as lost. Listeners hear of it at the next
    /// look, which is the caller's to see to.
    pub(crate) fn lose_all(&self, session: Option<&Arc<dyn Session>>, reason: LostReason) {
        let nodes: Vec<_> = {
            let mut registry = self.nodes.lock();
            registry.is_closed |= session.is_none();
            registry.nodes.values().cloned().collect()
        };
        for node in nodes {
            if session
                .is_none_or(|session| Arc::ptr_eq(session, &node.common.session) && !node.common.znode.outlives_session)
            {
                node.mark_lost(reason);
            }
        }
    }

    /// Tells listeners what has changed, arms watches that are due, and checks znodes after a reconnect. Returns when
    /// to look again, `None` if there is nothing to look for before something happens.
    pub(crate) fn look(&self, now: Instant) -> Option<Instant> {
        let nodes: Vec<_> = {
            let mut registry = self.nodes.lock();
            // Each znode is either among these, or its adding finds no look planned and plans one.
            registry.next_look = None;
            registry.is_looking = true;
            registry.nodes.values().flat_map(HeldNode::with_grants).collect()
        };
        let looking = Looking(self);
        for node in &nodes {
            node.end_if_over(now);
            node.tell(now);
            node.check(now);
            if let Some(limit) = self.max_hold_time {
                node.warn_if_held_for_long(limit, now);
            }
        }
        let needed = nodes.iter().filter_map(|node| node.next_look(self.max_hold_time, now)).min();
        let mut registry = looking.end();
        let mut next = [needed, registry.next_look].into_iter().flatten().min();
        let was_idle = std::mem::replace(&mut registry.was_idle, next.is_none());
        if next.is_none() && !was_idle {
            next = Some(now + WATCH_AFTER);
        }
        registry.next_look = next;
        next
    }

    fn end_of_look(&self) -> MutexGuard<'_, Registry> {
        let mut registry = self.nodes.lock();
        registry.is_looking = false;
        registry
    }

    #[cfg(test)]
    pub(super) fn planned_look(&self) -> Option<Instant> {
        self.nodes.lock().next_look
    }
}

/// A look that is under way.
struct Looking<'a>(&'a HeldNodes);

impl<'a> Looking<'a> {
    fn end(self) -> MutexGuard<'a, Registry> {
        let held = self.0;
        std::mem::forget(self);
        held.end_of_look()
    }
}

impl Drop for Looking<'_> {
    /// The look has panicked, and does not come back for what was added meanwhile.
    fn drop(&mut self) {
        let was_added = self.0.end_of_look().next_look.take().is_some();
        if was_added {
            self.0.events.send(Event::Look);
        }
    }
}
