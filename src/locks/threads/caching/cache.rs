//! The threads around [`LocalQueue`]: the waiters for a turn, the one that queues at the servers, and the watch on
//! other contenders.

use std::{
    collections::BTreeMap,
    iter,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{
    base::{clock, collections::HashMap, paths::ServerPath, sync::Mutex},
    error::Result,
    framework::held::node::{HeldNode, HeldZnode, RevocableNode, Revocation, ZnodeCache},
    locks::{
        acquire::{contention::Contention, internals::LockInternals},
        recipe::driver::stands_in_the_way,
        threads::caching::{
            local_queue::{LocalQueue, Mode, Next, Turn},
            options::Caching,
        },
    },
    proto::{
        request::Request,
        response::Response,
        types::{ErrorCode, EventType},
    },
    session::{
        api::{Reply, SessionError, Submission, Ticket, WatchEvent, Watcher},
        wait::{pending::Watch, reply_slot::ReplySender},
    },
};

/// A lock object that is dropped leaves its timer for no longer than this.
const LONGEST_TICK: Duration = Duration::from_secs(10);

/// The znodes that a process keeps for one lock object.
pub(crate) struct Cache {
    pub(super) this: Weak<Cache>,
    /// The lock that holds exclusively.
    lock: Arc<LockInternals>,
    /// The lock that readers share, in the same directory.
    shared: Option<Arc<LockInternals>>,
    pub(in crate::locks) limits: Caching,
    /// While it is locked, no thread is woken and nothing is sent.
    pub(super) state: Mutex<State>,
    /// The holds whose holders listen for requests to give the lock back. Guards may outlive the lock object, so this
    /// lives as long as a znode.
    pub(super) listening: Arc<Mutex<Vec<Weak<HeldNode>>>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) local_queue: LocalQueue,
    /// The slots for the wake-ups of the acquires that wait, by their numbers, and the number of the last acquire.
    pub(super) waiters: HashMap<u64, ReplySender<Woken>>,
    pub(super) last_waiter: u64,
    /// The znodes that were granted and not given back, by the numbers of their tenures.
    pub(super) tenures: BTreeMap<u64, Arc<HeldNode>>,
    /// The contender of a delegate that has given up, until the next one takes it over.
    pub(super) queued: Option<(Mode, Contention)>,
    /// The watch on the directory's children.
    watch: Option<Watch>,
    /// The znode given back last. The watch on it is used up by its own end, so that nothing has to be sent for that.
    given_back: Option<Arc<HeldNode>>,
}

/// The turn of a waiter, and the znode of its tenure if that is granted.
pub(super) type Woken = (Turn, Option<Arc<HeldNode>>);

/// Waiters to wake on drop, so that they wake even if a [`Session`](crate::session::api::Session) panics while a znode
/// is deleted.
struct Wake(Vec<(ReplySender<Woken>, Woken)>);

impl Drop for Wake {
    fn drop(&mut self) {
        for (waiter, wake_up) in self.0.drain(..) {
            // A waiter that gives up at this moment passes its turn on.
            waiter.send(wake_up);
        }
    }
}

impl State {
    /// The znode by which a thread holds on this turn.
    pub(super) fn tenure(&self, turn: Turn) -> Option<Arc<HeldNode>> {
        let Turn::Hold { tenure, .. } = turn else { return None };
        self.tenures.get(&tenure).cloned()
    }

    fn number(&self, znode: &HeldZnode) -> Option<u64> {
        self.tenures.iter().find(|(_, node)| std::ptr::eq(&raw const **node.znode(), znode)).map(|(number, _)| *number)
    }
}

impl Cache {
    /// `shared`: the lock that readers share, in the same directory.
    pub(crate) fn new(lock: Arc<LockInternals>, shared: Option<Arc<LockInternals>>, limits: Caching) -> Arc<Cache> {
        let cache = Arc::new_cyclic(|this: &Weak<Cache>| Cache {
            this: this.clone(),
            lock,
            shared,
            limits,
            state: Mutex::default(),
            listening: Arc::default(),
        });
        cache.lock.thread_holds.add_cache(cache.this.clone());
        cache
    }

    /// Whether a znode may stay while nobody holds it.
    pub(super) fn stays_idle(&self) -> bool {
        !self.limits.keep_idle.is_zero()
    }

    pub(super) fn lock(&self, mode: Mode) -> &LockInternals {
        match (&self.shared, mode) {
            (Some(shared), Mode::Shared) => shared,
            _ => &self.lock,
        }
    }

    /// How many threads of this process wait behind the one that has the lock or queues for it.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().local_queue.waiting()
    }

    /// Takes one step of the local queue, and carries out its effects.
    pub(super) fn step(&self, step: impl FnOnce(&mut LocalQueue) -> Next) {
        self.step_with(|state| ((), step(&mut state.local_queue)));
    }

    /// Takes one step of the local queue and of what goes with it, under one lock, and carries out the effects under
    /// none.
    ///
    /// No wake-up can be lost. A waiter's slot is there before the waiter stands in the queue, both under one lock; one
    /// wake-up is put into it, which stays there until it is taken; and a waiter that gives up says so under the same
    /// lock, where it has its turn already or never gets one. In the first case it passes the turn on.
    pub(super) fn step_with<R>(&self, step: impl FnOnce(&mut State) -> (R, Next)) -> R {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (result, next) = step(state);
        if next.is_nothing() && state.queued.is_none() {
            return result;
        }
        let Next { releases, wake, tick, look } = next;
        let waiter = |(who, turn)| Some((state.waiters.remove(&who)?, (turn, state.tenure(turn))));
        let wake = Wake(wake.into_iter().filter_map(waiter).collect());
        let releases: Vec<_> = releases.iter().filter_map(|number| state.tenures.remove(number)).collect();
        // No delegate will take it over.
        let left = state.queued.take_if(|(mode, _)| !state.local_queue.queues(*mode));
        drop(guard);
        // Before the requests of the threads that are woken.
        if let Some((mode, queued)) = left {
            queued.withdraw(self.lock(mode));
        }
        for node in releases {
            self.give_back(node);
        }
        if let Some(at) = tick {
            self.tick_at(at);
        }
        if let Some(number) = look {
            self.in_background(move |cache| cache.watch_directory(number));
        }
        // Last: a woken thread then finds no lock taken here, and may get this thread's processor.
        drop(wake);
        result
    }

    fn tick_at(&self, at: Instant) {
        let this = self.this.clone();
        let delay = at.saturating_duration_since(clock::now()).min(LONGEST_TICK);
        self.lock.client().core.run_later(delay, move || {
            if let Some(cache) = this.upgrade() {
                cache.step(|local_queue| local_queue.tick(&cache.limits, clock::now()));
            }
        });
    }

    /// Deletes the znode, in the background until it is known to be gone or its session has ended.
    fn give_back(&self, node: Arc<HeldNode>) {
        self.lock.release_in_background(&node);
        let has_ended = node.session().is_ended();
        let before = std::mem::replace(&mut self.state.lock().given_back, Some(node).filter(|_| !has_ended));
        // Not under the lock: this may drop the last handle of a watch.
        drop(before);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&self, tenure: u64, grant: u64) {
        let now = clock::now();
        self.step(|local_queue| local_queue.release(tenure, grant, &self.limits, now));
    }

    /// Runs on the client's own thread: there the replies and events of one watch are handled one after the other.
    fn in_background(&self, task: impl FnOnce(&Arc<Cache>) + Send + 'static) {
        let this = self.this.clone();
        self.lock.client().core.run_later(Duration::ZERO, move || {
            if let Some(cache) = this.upgrade() {
                task(&cache);
            }
        });
    }

    /// Lists the directory, and watches its children. If the answer is an error, the connection's end included, it is
    /// unknown who waits, and the tenure ends with the current turn.
    fn watch_directory(&self, number: u64) {
        let (node, mode) = {
            let state = self.state.lock();
            let Some((node, mode)) = state.tenures.get(&number).zip(state.local_queue.mode_without_rivals(number))
            else {
                return;
            };
            (node.clone(), mode)
        };
        let this = self.this.clone();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            if let (
                WatchEvent::Node { event: EventType::NodeChildrenChanged | EventType::NodeDeleted, .. },
                Some(cache),
            ) = (event, this.upgrade())
            {
                cache.in_background(move |cache| cache.directory_changed(number));
            }
        });
        let (this, own) = (self.this.clone(), node.path().name().to_owned());
        let (connection, znode) = (node.session().connection(), Arc::downgrade(node.znode()));
        let on_reply = Box::new(move |reply: Reply| {
            let Some(cache) = this.upgrade() else { return };
            match &reply {
                Ok(Response::Children { names, .. }) if names.contains(&own) => {
                    if stands_in_the_way(names, &own, mode == Mode::Shared) {
                        cache.in_background(move |cache| cache.rivals_came(number));
                    }
                }
                // The look failed, or does not even show the own znode: another contender may wait.
                _ => {
                    cache.in_background(move |cache| cache.ends_with_turn(number));
                    if let (Ok(Response::Children { .. }), Some(znode)) = (&reply, znode.upgrade()) {
                        // The list is newer than the znode. Servers may withhold the event of its end: CVE-2024-23944.
                        znode.seen(connection, Err(SessionError::Server(ErrorCode::NoNode)));
                    }
                }
            }
        });
        let request =
            Request::GetChildren { path: self.lock.directory().as_str().to_owned(), watch: true, with_stat: false };
        let tickets = node.session().submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
        let watch = Watch::new(node.session().clone(), tickets.first().copied().unwrap_or(Ticket(0)));
        let before = self.state.lock().watch.replace(watch);
        // Dropping a watch may send a request.
        drop(before);
    }

    /// While a thread holds the lock there is time to look which contender came. An idle lock goes at once, unless
    /// readers may have come to readers.
    fn directory_changed(&self, number: u64) {
        let has_time = self.state.lock().local_queue.looks_for_rivals(number);
        if has_time { self.watch_directory(number) } else { self.rivals_came(number) }
    }

    pub(super) fn rivals_came(&self, number: u64) {
        self.step(|local_queue| local_queue.rivals_came(number, clock::now()));
    }

    /// A request to a znode goes to all threads that hold by it.
    pub(super) fn revocable_node(&self, mode: Mode) -> Arc<RevocableNode> {
        let (this, listening) = (self.this.clone(), self.listening.clone());
        RevocableNode::new(Arc::new(Revocation::new(true, move |request, held| {
            let holds_by_it =
                |hold: &&Arc<HeldNode>| held.as_ref().is_some_and(|of| Arc::ptr_eq(of.znode(), hold.znode()));
            let holds: Vec<_> = listening.lock().iter().filter_map(Weak::upgrade).collect();
            let told: Vec<_> = holds.iter().filter(holds_by_it).filter_map(|hold| hold.revocable()).collect();
            told.iter().for_each(|node| node.tell(request));
            let Some(cache) = this.upgrade() else { return };
            let unheard = told.is_empty().then(|| request.clone());
            cache.in_background(move |cache| cache.revoked(unheard.as_ref(), held.as_deref(), mode));
        })))
    }

    /// A request to give the lock back was written into the znode: the holders decide about it, and an idle lock goes
    /// at once. `unheard`: the request, if no holder was told.
    fn revoked(&self, unheard: Option<&(String, String)>, held: Option<&HeldNode>, mode: Mode) {
        let (number, is_idle) = {
            let state = self.state.lock();
            let number = held.and_then(|held| state.number(held.znode()));
            // A thread with a turn may not listen yet. Later threads have nothing to do with this request.
            let is_idle = |held: &HeldNode| match number {
                Some(number) => state.local_queue.inside(number) == 0,
                // Given back, or granted right now.
                None => !held.znode().is_lasting(),
            };
            (number, held.is_some_and(is_idle))
        };
        if let Some((request, listener)) = unheard.zip(self.lock(mode).revocable_node()).filter(|_| !is_idle) {
            listener.tell(request);
        }
        if let Some(number) = number {
            self.rivals_came(number);
        }
    }

    /// Nothing has happened for long: with this check, a wake-up that a bug has lost is only a delay.
    pub(super) fn look_after(&self) {
        let node = {
            let state = self.state.lock();
            state.local_queue.number().and_then(|number| state.tenures.get(&number).cloned())
        };
        if let Some(node) = node.filter(|node| node.znode().evidence().is_gone) {
            self.gone(node.znode());
        }
    }

    pub(super) fn listens_no_more(&self, hold: &HeldNode) {
        self.listening.lock().retain(|listening| !std::ptr::eq(listening.as_ptr(), hold));
    }
}

impl ZnodeCache for Cache {
    fn gone(&self, tenure: &HeldZnode) {
        self.step_with(|state| {
            let number = state.number(tenure);
            ((), number.map(|number| state.local_queue.gone(number)).unwrap_or_default())
        });
    }

    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()> {
        let lost = grant.released();
        self.lock.thread_holds.remove(grant);
        if grant.revocable().is_some() {
            for lock in iter::once(&self.lock).chain(&self.shared) {
                lock.forget_revocation(grant);
            }
            self.listens_no_more(grant);
        }
        self.end_turn(tenure, grant.grant_number());
        lost.map_or(Ok(()), |reason| Err(self.lock.lost(reason)))
    }

    fn ends_with_turn(&self, tenure: u64) {
        self.step(|local_queue| local_queue.ends_with_turn(tenure));
    }

    fn usage(&self) -> (Vec<(ServerPath, usize)>, usize) {
        let state = self.state.lock();
        let inside = |(number, node): (&u64, &Arc<HeldNode>)| (node.path().clone(), state.local_queue.inside(*number));
        (state.tenures.iter().map(inside).collect(), state.local_queue.waiting())
    }
}

impl Drop for Cache {
    /// Gives the idle znodes back. No acquire is under way: it would borrow this.
    fn drop(&mut self) {
        let State { local_queue, tenures, .. } = self.state.get_mut();
        tenures.retain(|number, _| local_queue.inside(*number) == 0);
        for node in tenures.values() {
            self.lock.release_in_background(node);
        }
    }
}
