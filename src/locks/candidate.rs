//! What contends for a lock until it is given up, and tells a listener when it has it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{bounded, select};
use parking_lot::Mutex;

use super::{
    LockInternals, LockListener,
    contender::{
        callbacks::{AFTER_REFUSAL, Attempt, Caller},
        effects::moment,
        spec::Spec,
    },
};
use crate::{
    Error, HoldState, Result,
    framework::{HeldNode, caught},
};

/// One object that wants the lock: it queues, is told, and queues again after a loss. Needs no thread.
pub(crate) struct Candidate {
    lock: Arc<LockInternals>,
    spec: Arc<Spec>,
    state: Mutex<State>,
}

struct State {
    is_closed: bool,
    stand: Stand,
    listener: Option<Arc<dyn LockListener>>,
    /// The hold of which the listener was told.
    told: Option<Arc<HeldNode>>,
}

enum Stand {
    /// It does not want the lock.
    Out,
    Queued(Arc<Attempt>),
    Owner(Arc<HeldNode>),
}

impl Candidate {
    /// Whoever has it has to [`abandon`](Candidate::abandon) it in the end.
    pub(crate) fn new(lock: LockInternals, mut spec: Spec, listener: Option<Arc<dyn LockListener>>) -> Arc<Candidate> {
        spec.waits.get_or_insert_default();
        let state = State { is_closed: false, stand: Stand::Out, listener, told: None };
        Arc::new(Candidate { lock: Arc::new(lock), spec: Arc::new(spec), state: Mutex::new(state) })
    }

    pub(crate) fn internals(&self) -> &LockInternals {
        &self.lock
    }

    pub(crate) fn set_listener(&self, listener: Option<Arc<dyn LockListener>>) {
        let before = std::mem::replace(&mut self.state.lock().listener, listener);
        // The caller's code: not under the lock.
        drop(before);
    }

    /// Queues, unless it does already, and waits until its place in the queue is known. `true` if the lock is its own.
    pub(crate) fn lock(self: &Arc<Self>) -> Result<bool> {
        let core = &self.lock.client().core;
        core.check_open()?;
        let (caller, news) = bounded(1);
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return Ok(false);
            }
            if matches!(state.stand, Stand::Out) {
                state.stand = self.queue(Duration::ZERO, Some(caller));
            } else {
                // Whoever queued first waits for the news.
                drop(caller);
            }
        }
        select! {
            // The sender is gone where there is none to come.
            recv(news) -> result => result.unwrap_or(Ok(()))?,
            recv(core.closed.signal()) -> _ => {
                drop(self.leave());
                return Err(Error::ClientClosed);
            }
        }
        Ok(self.is_owner())
    }

    fn queue(self: &Arc<Self>, delay: Duration, caller: Option<Caller>) -> Stand {
        let this = self.clone();
        let on_end = Box::new(move |attempt: &Arc<Attempt>, result, caller| this.ended(attempt, result, caller));
        Stand::Queued(Attempt::begin(&self.lock, &self.spec, delay, caller, on_end))
    }

    fn ended(self: &Arc<Self>, attempt: &Arc<Attempt>, result: Result<Arc<HeldNode>>, caller: Option<Caller>) {
        let mut state = self.state.lock();
        if !matches!(&state.stand, Stand::Queued(now) if Arc::ptr_eq(now, attempt)) {
            // It has left meanwhile.
            drop(state);
            return result.map_or((), |held| self.lock.release_in_background(&held));
        }
        let news = match result {
            Ok(held) => {
                state.stand = Stand::Owner(held.clone());
                drop(state);
                self.follow(&held);
                Ok(())
            }
            Err(error) => {
                // What an attempt for which nobody waits is refused may be allowed again.
                let tries_again = caller.is_none() && !is_final(&error);
                state.stand = if tries_again { self.queue(AFTER_REFUSAL, None) } else { Stand::Out };
                drop(state);
                if caller.is_none() {
                    let fate = if tries_again { "cannot queue for now" } else { "the lock is given up" };
                    log::error!("{}: {fate}: {error}", self.lock.base_path());
                }
                Err(error)
            }
        };
        if let Some(caller) = caller {
            let _ = caller.send(news);
        }
    }

    /// From the grant on.
    fn follow(self: &Arc<Self>, held: &Arc<HeldNode>) {
        let (this, of_node) = (Arc::downgrade(self), Arc::downgrade(held));
        // On the dispatch thread already, which takes nothing new when the client is being closed.
        held.listen(Arc::new(move |state| {
            let (Some(this), Some(held)) = (this.upgrade(), of_node.upgrade()) else { return };
            if matches!(state, HoldState::Lost(_)) {
                this.lost(&held);
            }
            this.tell_now();
        }));
        self.tell();
    }

    /// The owner has lost the lock; it queues again.
    fn lost(self: &Arc<Self>, held: &Arc<HeldNode>) {
        let mut state = self.state.lock();
        if matches!(&state.stand, Stand::Owner(now) if Arc::ptr_eq(now, held)) {
            state.stand = self.queue(Duration::ZERO, None);
            drop(state);
            self.lock.client().core.held.remove(held);
        }
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again.
    pub(crate) fn unlock(self: &Arc<Self>) -> Result<()> {
        let Some(held) = self.leave() else { return Ok(()) };
        self.tell();
        self.lock.release(&held).0
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.state.lock().is_closed = true;
        self.unlock()
    }

    /// The object is gone: leaves without waiting.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.state.lock().is_closed = true;
        if let Some(held) = self.leave() {
            self.tell();
            self.lock.release_in_background(&held);
        }
    }

    /// Not wanted any more. The hold is handed out, to be released.
    fn leave(&self) -> Option<Arc<HeldNode>> {
        let before = std::mem::replace(&mut self.state.lock().stand, Stand::Out);
        match before {
            Stand::Out => None,
            Stand::Queued(attempt) => {
                attempt.give_up();
                None
            }
            Stand::Owner(held) => Some(held),
        }
    }

    /// Has the listener told of what has changed, on the dispatch thread.
    fn tell(self: &Arc<Self>) {
        let this = self.clone();
        self.lock.client().core.dispatcher.run(move || this.tell_now());
    }

    /// Tells what is true right now. An owner stays one up to `valid_until`, over a reconnect too, after which the client
    /// looks whether the znode is there; beyond it another one may be told.
    fn tell_now(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let (before, held) = (state.told.take(), state.owned());
        let was_told = |held: &Arc<HeldNode>| before.as_ref().is_some_and(|before| Arc::ptr_eq(before, held));
        let in_doubt = held.as_ref().filter(|held| !held.is_certain() && held.lost().is_none());
        let stays = in_doubt.filter(|held| was_told(held) && now < held.valid_until());
        // A doubt that begins and ends between two looks of the client changes nothing that would be told.
        let look_again = in_doubt.map(|_| stays.map_or(now + moment(self.lock.client()), |held| held.valid_until()));
        state.told = held.clone().filter(|held| held.is_certain() || stays.is_some());
        let is_released = before.is_some() && !state.told.as_ref().is_some_and(was_told);
        let is_acquired = state.told.as_ref().is_some_and(|held| !was_told(held));
        let listener = state.listener.clone();
        drop(state);
        if let Some(at) = look_again {
            self.tell_at(at);
        }
        let Some(listener) = listener else { return };
        // Whatever the first call throws, the second one is due.
        if is_released {
            let _ = caught("a lock listener", || listener.lock_released());
        }
        if is_acquired {
            listener.lock_acquired();
        }
    }

    fn tell_at(self: &Arc<Self>, at: Instant) {
        let this = self.clone();
        let delay = at.saturating_duration_since(Instant::now());
        self.lock.client().core.run_later(delay, move || this.tell());
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.held().is_some_and(|held| held.is_certain())
    }

    pub(crate) fn held(&self) -> Option<Arc<HeldNode>> {
        self.state.lock().owned()
    }

    /// The path of its znode, as the caller sees it.
    pub(crate) fn id(&self) -> Option<String> {
        let path = match &self.state.lock().stand {
            Stand::Out => None,
            Stand::Queued(attempt) => attempt.node(),
            Stand::Owner(held) => Some(held.path().clone()),
        };
        Some(self.lock.client().prefix.to_client(path?.as_str()))
    }
}

impl State {
    fn owned(&self) -> Option<Arc<HeldNode>> {
        match &self.stand {
            Stand::Owner(held) => Some(held.clone()),
            Stand::Out | Stand::Queued(_) => None,
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("dir", &self.lock.base_path()).finish_non_exhaustive()
    }
}

/// Whether no other attempt would end otherwise.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::FrameTooLarge { .. } | Error::SequenceExhausted { .. } | Error::ClientClosed | Error::AuthFailed { .. }
    )
}
