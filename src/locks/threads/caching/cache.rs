//! The threads around [`LocalQueue`]: the waiters for a turn, the one that queues at the servers, and the watch on
//! other contenders.

use std::{
    collections::HashMap,
    iter,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    base::unlocked::drop_unlocked,
    error::Result,
    framework::held::{
        node::{HeldNode, HeldZnode, RevocableNode, Revocation, Usage, ZnodeCache},
        revocation::RevokeWord,
    },
    locks::{
        acquire::{contention::Contention, internals::LockInternals},
        recipe::driver::stands_in_the_way,
        threads::caching::{
            local_queue::{LocalQueue, Mode, Next, Turn, Waiter},
            options::Caching,
        },
    },
    proto::{request::Request, response::Response, types::EventType},
    session::{
        api::{Reply, Submission, Ticket, WatchEvent, Watcher},
        wait::{
            deadline::WaitBound,
            pending::Watch,
            reply_slot::{ReplySender, ReplySlot},
        },
    },
};

/// A lock object that is dropped leaves its timer for no longer than this.
const LONGEST_TICK: Duration = Duration::from_secs(10);

/// The znodes that a process keeps for one lock object.
pub(crate) struct Cache {
    this: Weak<Cache>,
    /// The lock that holds exclusively.
    lock: Arc<LockInternals>,
    /// The lock that readers share, in the same directory.
    shared: Option<Arc<LockInternals>>,
    pub(in crate::locks) limits: Caching,
    /// While it is locked, no thread is woken and nothing is sent.
    pub(super) state: Mutex<State>,
    /// The holders' listeners of requests to give the lock back. Guards may outlive the lock object, so this lives as
    /// long as a znode.
    listeners: Arc<Mutex<Vec<Listener>>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) local_queue: LocalQueue,
    pub(super) waiters: HashMap<Waiter, ReplySender<Woken>>,
    pub(super) last_waiter: Waiter,
    tenures: Vec<Tenure>,
    /// The contender of a delegate that has given up, until the next one takes it over.
    pub(super) queued: Option<(Mode, Contention)>,
    /// The watch on the directory's children.
    watch: Option<Watch>,
    /// The znode given back last. The watch on it is used up by its own end, so that nothing has to be sent for that.
    given_back: Option<Arc<HeldNode>>,
}

/// A znode that was granted, until it is given back.
struct Tenure {
    number: u64,
    mode: Mode,
    node: Arc<HeldNode>,
}

/// The listener of one hold.
struct Listener {
    tenure: u64,
    grant: u64,
    /// The znode of the tenure.
    znode: Weak<HeldNode>,
    node: Arc<RevocableNode>,
}

/// The wake-up of a thread.
pub(super) struct Woken {
    pub(super) turn: Turn,
    /// The znode, if the turn is to hold.
    pub(super) tenure: Option<Arc<HeldNode>>,
}

/// The effects of a step, to be done under no lock.
#[must_use]
pub(super) struct Effects {
    releases: Vec<Tenure>,
    wake: Wake,
    tick: Option<Instant>,
    /// The tenure whose directory is to be listed.
    look: Option<u64>,
}

/// Waiters to wake on drop, so that they wake even if a [`Session`](crate::session::api::Session) panics while a znode
/// is deleted.
struct Wake(Vec<(ReplySender<Woken>, Woken)>);

impl Drop for Wake {
    fn drop(&mut self) {
        for (waiter, woken) in self.0.drain(..) {
            // A waiter that gives up at this moment passes its turn on.
            waiter.send(woken);
        }
    }
}

impl State {
    fn tenure(&self, number: u64) -> Option<&Tenure> {
        self.tenures.iter().find(|tenure| tenure.number == number)
    }

    pub(super) fn node(&self, turn: Turn) -> Option<Arc<HeldNode>> {
        let Turn::Hold { tenure: number, .. } = turn else { return None };
        self.tenure(number).map(|tenure| tenure.node.clone())
    }

    fn number(&self, node: &HeldZnode) -> Option<u64> {
        self.tenures.iter().find(|of| std::ptr::eq(&raw const **of.node.znode(), node)).map(|of| of.number)
    }

    pub(super) fn effects(&mut self, next: Next) -> Effects {
        let woken = |(who, turn)| Some((self.waiters.remove(&who)?, Woken { turn, tenure: None }));
        let mut wake: Vec<_> = next.wake.into_iter().filter_map(woken).collect();
        for (_, woken) in &mut wake {
            woken.tenure = self.node(woken.turn);
        }
        let tenure = |number| {
            let index = self.tenures.iter().position(|tenure| tenure.number == number)?;
            Some(self.tenures.swap_remove(index))
        };
        let releases = next.releases.into_iter().filter_map(tenure).collect();
        Effects { releases, wake: Wake(wake), tick: next.tick, look: next.look }
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
            listeners: Arc::default(),
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
        let effects = {
            let mut state = self.state.lock();
            let next = step(&mut state.local_queue);
            state.effects(next)
        };
        self.carry_out(effects);
    }

    /// No wake-up can be lost. A waiter's slot is there before the waiter stands in the queue, both under one lock; one
    /// wake-up is put into it, which stays there until it is taken; and a waiter that gives up says so under the same
    /// lock, where it has its turn already or never gets one. In the first case it passes the turn on.
    pub(super) fn carry_out(&self, effects: Effects) {
        let Effects { releases, wake, tick, look } = effects;
        // Before the requests of the threads that are woken.
        for tenure in releases {
            self.give_back(tenure);
        }
        if let Some(at) = tick {
            let this = self.this.clone();
            let delay = at.saturating_duration_since(Instant::now()).min(LONGEST_TICK);
            self.lock.client().core.run_later(delay, move || {
                if let Some(cache) = this.upgrade() {
                    cache.step(|local_queue| local_queue.tick(&cache.limits, Instant::now()));
                }
            });
        }
        if let Some(number) = look {
            self.in_background(move |cache| cache.watch_directory(number));
        }
        // Last: a woken thread then finds no lock taken here, and may get this thread's processor.
        drop(wake);
    }

    /// Deletes the znode, in the background until it is known to be gone or its session has ended.
    fn give_back(&self, Tenure { node, mode, .. }: Tenure) {
        self.lock(mode).release_in_background(&node);
        let has_ended = node.session().is_ended();
        let before = std::mem::replace(&mut self.state.lock().given_back, Some(node).filter(|_| !has_ended));
        // Not under the lock: this may drop the last handle of a watch.
        drop(before);
    }

    /// `wake_ups`: the slot of its wake-up, if it has not taken that yet.
    pub(super) fn leave(&self, who: Waiter, wake_ups: Option<&ReplySlot<Woken>>) {
        let mut state = self.state.lock();
        let was_woken = state.waiters.remove(&who).is_none();
        if let Some(wake_ups) = wake_ups.filter(|_| was_woken) {
            drop(state);
            // The wake-up is there by now, or comes at once. If the tenure has ended since, its znode goes with the
            // last turn in it.
            if let Ok(Woken { turn: Turn::Hold { tenure, grant }, .. }) = wake_ups.wait(WaitBound::default()) {
                return self.end_turn(tenure, grant);
            }
            state = self.state.lock();
        }
        let next = state.local_queue.leave(who);
        let effects = state.effects(next);
        // No delegate will take it over.
        let queues = |mode| state.local_queue.queues(mode);
        let is_left = state.queued.as_ref().is_some_and(|(mode, _)| !queues(*mode));
        let queued = if is_left { state.queued.take() } else { None };
        drop(state);
        if let Some((mode, queued)) = queued {
            queued.withdraw(self.lock(mode));
        }
        self.carry_out(effects);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&self, tenure: u64, grant: u64) {
        let now = Instant::now();
        self.step(|local_queue| local_queue.release(tenure, grant, &self.limits, now));
    }

    /// Begins a tenure, and gives the delegate its turn. `None`: the local queue knows of no such delegate.
    pub(super) fn begin(
        &self,
        who: Waiter,
        mode: Mode,
        node: Arc<HeldNode>,
        receive: impl FnOnce(&mut State, Turn) -> Woken,
    ) -> Option<Woken> {
        node.serve(self.this.clone());
        // Only events in the order of time come before another contender can be granted the lock.
        let may_last = node.session().tells_in_order();
        let begun = {
            let mut state = self.state.lock();
            state.local_queue.granted(who, may_last, Instant::now()).map(|(turn, number, next)| {
                state.tenures.push(Tenure { number, mode, node: node.clone() });
                let effects = state.effects(next);
                (receive(&mut state, turn), effects)
            })
        };
        let Some((woken, effects)) = begun else {
            self.lock(mode).release_in_background(&node);
            return None;
        };
        self.carry_out(effects);
        Some(woken)
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
            let tenure = state.tenure(number).filter(|_| state.local_queue.is_of_now(number));
            let Some(Tenure { node, mode, .. }) = tenure else { return };
            (node.clone(), *mode)
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
        let on_reply = Box::new(move |reply: Reply| {
            let Some(cache) = this.upgrade() else { return };
            match others(&reply, &own, mode) {
                Others::Nobody => {}
                Others::Rivals => cache.in_background(move |cache| cache.rivals_came(number)),
                Others::Unseen => {
                    cache.in_background(move |cache| cache.step(|local_queue| local_queue.ends_with_turn(number)));
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

    fn rivals_came(&self, number: u64) {
        self.step(|local_queue| local_queue.rivals_came(number, Instant::now()));
    }

    /// A request to a znode goes to all threads that hold by it.
    pub(super) fn revocable_node(&self, mode: Mode) -> Arc<RevocableNode> {
        let (this, listeners) = (self.this.clone(), self.listeners.clone());
        RevocableNode::new(Arc::new(Revocation::lasting(move |woken, held| {
            let is_held = |listener: &&Listener| held.as_ref().is_some_and(|held| is_same(&listener.znode, held));
            let told: Vec<_> = listeners.lock().iter().filter(is_held).map(|listener| listener.node.clone()).collect();
            told.iter().for_each(|node| node.tell(woken));
            let Some(cache) = this.upgrade() else { return };
            let unheard = told.is_empty().then(|| woken.clone());
            cache.in_background(move |cache| cache.revoked(unheard.as_ref(), held.as_deref(), mode));
        })))
    }

    /// A request to give the lock back was written into the znode: the holders decide about it, and an idle lock goes
    /// at once. `unheard`: the request, if no holder was told.
    fn revoked(&self, unheard: Option<&RevokeWord>, held: Option<&HeldNode>, mode: Mode) {
        let (number, is_idle) = {
            let state = self.state.lock();
            let number = held.and_then(|held| state.number(held.znode()));
            // A thread with a turn may not listen yet. Later threads have nothing to do with this request.
            (number, held.is_some() && number.is_none_or(|number| state.local_queue.inside(number) == 0))
        };
        if let Some((woken, listener)) = unheard.zip(self.lock(mode).revocable_node()).filter(|_| !is_idle) {
            listener.tell(woken);
        }
        if let Some(number) = number {
            self.rivals_came(number);
        }
    }

    /// Nothing has happened for long: with this check, a wake-up that a bug has lost is only a delay.
    pub(super) fn look_after(&self) {
        let node = {
            let state = self.state.lock();
            let number = state.local_queue.number();
            state.tenures.iter().find(|tenure| Some(tenure.number) == number).map(|tenure| tenure.node.clone())
        };
        if let Some(node) = node.filter(|node| node.znode().evidence().is_gone) {
            self.gone(node.znode());
        }
    }

    /// Adds the listener of a hold.
    pub(super) fn listen(&self, tenure: u64, grant: u64, znode: &Arc<HeldNode>, node: &Arc<RevocableNode>) {
        let (znode, node) = (Arc::downgrade(znode), node.clone());
        self.listeners.lock().push(Listener { tenure, grant, znode, node });
    }

    pub(super) fn listens_no_more(&self, tenure: u64, grant: u64) {
        let mut listeners = self.listeners.lock();
        let place = listeners.iter().position(|of| (of.tenure, of.grant) == (tenure, grant));
        let listener = place.map(|place| listeners.swap_remove(place));
        drop_unlocked(listeners, listener);
    }
}

fn is_same(one: &Weak<HeldNode>, other: &Arc<HeldNode>) -> bool {
    std::ptr::eq(one.as_ptr(), Arc::as_ptr(other))
}

/// The contenders that a look at the directory shows beside the own znode.
enum Others {
    Nobody,
    /// Some cannot hold beside it.
    Rivals,
    /// The look failed, or does not even show the own znode: another contender may wait.
    Unseen,
}

fn others(reply: &Reply, own: &str, mode: Mode) -> Others {
    match reply {
        Ok(Response::Children { names, .. }) if names.iter().any(|name| name == own) => {
            if stands_in_the_way(names, own, mode == Mode::Shared) { Others::Rivals } else { Others::Nobody }
        }
        _ => Others::Unseen,
    }
}

impl ZnodeCache for Cache {
    fn gone(&self, tenure: &HeldZnode) {
        let effects = {
            let mut state = self.state.lock();
            let Some(number) = state.number(tenure) else { return };
            let next = state.local_queue.gone(number);
            state.effects(next)
        };
        self.carry_out(effects);
    }

    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()> {
        let lost = grant.released();
        self.lock.thread_holds.remove(grant);
        for lock in iter::once(&self.lock).chain(&self.shared) {
            lock.forget_revocation(grant);
        }
        if grant.revocable().is_some() {
            self.listens_no_more(tenure, grant.grant_number());
        }
        self.end_turn(tenure, grant.grant_number());
        lost.map_or(Ok(()), |reason| Err(self.lock.lost(reason)))
    }

    fn ends_with_turn(&self, tenure: u64) {
        self.step(|local_queue| local_queue.ends_with_turn(tenure));
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let inside = |tenure: &Tenure| (tenure.node.path().clone(), state.local_queue.inside(tenure.number));
        Usage { inside: state.tenures.iter().map(inside).collect(), waiting: state.local_queue.waiting() }
    }
}

impl Drop for Cache {
    /// Gives the idle znodes back. No acquire is under way: it would borrow this.
    fn drop(&mut self) {
        let State { local_queue, tenures, .. } = self.state.get_mut();
        let kept: Vec<Tenure> = tenures.extract_if(.., |tenure| local_queue.inside(tenure.number) == 0).collect();
        for Tenure { mode, node, .. } in kept {
            self.lock(mode).release_in_background(&node);
        }
    }
}
