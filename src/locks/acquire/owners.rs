//! Which threads of this process hold a lock through one object, and a thread that would wait for itself.

use std::{
    ops::ControlFlow::{Break, Continue},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, ThreadId},
    time::Instant,
};

use crate::{
    base::{
        channel::{Receiver, TryRecvError},
        clock, log,
        sync::Mutex,
        threads::thread_id,
        unlocked::drop_unlocked,
    },
    error::{Error, Result},
    framework::held::{
        certainty::{Certainty, Needs},
        holds::{HoldKind, Obstacle},
        node::HeldNode,
    },
    locks::{
        acquire::{
            internals::LockInternals,
            last_look::last_look,
            release::{Released, release_together},
        },
        holds::hold::Hold,
        options::acquire::Wait,
    },
    session::wait::deadline::WaitEnd,
};

/// How many lost holds of a lock that any thread may release are kept for their threads to release. Some threads never come
/// back.
const MAX_ENDED: usize = 32;

/// One acquire.
#[derive(Debug)]
struct Owner {
    /// The thread that acquired it, or that tried to release it last.
    thread: ThreadId,
    held: Arc<HeldNode>,
    state: OwnerState,
}

#[derive(Debug)]
enum OwnerState {
    /// It holds: the thread has acquired it this many times.
    Holds(usize),
    /// It is being given back right now.
    Leaving,
    /// It was given back, but the server has not confirmed that. The channel is disconnected when the znode is gone.
    Unconfirmed(Receiver<()>),
}

impl Owner {
    /// Whether it was not given back: it holds, or has lost the lock.
    fn is_holder(&self) -> bool {
        matches!(self.state, OwnerState::Holds(_))
    }

    /// Whether it has lost the lock, and was not given back.
    fn is_lost(&self) -> bool {
        self.is_holder() && self.held.lost().is_some()
    }

    fn is_over(&self) -> bool {
        matches!(&self.state, OwnerState::Unconfirmed(done) if done.try_recv() == Err(TryRecvError::Disconnected))
    }
}

/// The acquires of a lock that are not released yet: at most one of each thread, or any number where any thread may
/// release, of which at most one is held. The others were lost, and stay here until their own release has been told:
/// without them that release would end somebody else's hold.
#[derive(Debug, Default)]
#[allow(unreachable_pub, reason = "a hidden trait names it")]
pub struct Owners {
    /// The lock, if any thread may release it.
    of_any_thread: Option<Arc<LockInternals>>,
    owners: Mutex<Vec<Owner>>,
    /// Each guard that stands for a hold by itself has a clone.
    guards: Arc<()>,
}

impl Owners {
    /// Makes the owners of a lock that is not re-entrant, and that any thread may release.
    pub(crate) fn of_any_thread(lock: &Arc<LockInternals>) -> Arc<Owners> {
        Arc::new(Owners { of_any_thread: Some(lock.clone()), owners: Mutex::default(), guards: Arc::default() })
    }

    /// Finds the candidate that the calling thread means: its own before others', then one that is held before one that was
    /// given back, and a lost one last.
    fn meant(&self, owners: &[Owner], is_candidate: impl Fn(&Owner) -> bool) -> Option<usize> {
        let me = thread_id();
        if self.of_any_thread.is_none() {
            // A thread has one acquire at most.
            return owners.iter().rposition(|owner| owner.thread == me && is_candidate(owner));
        }
        let candidates = owners.iter().enumerate().filter(|(_, owner)| is_candidate(owner));
        let meant =
            candidates.max_by_key(|(index, owner)| (owner.thread == me, !owner.is_lost(), owner.is_holder(), *index));
        meant.map(|(index, _)| index)
    }

    /// Counts one more hold of the calling thread. `None`: it holds nothing yet. One that may not hold the lock twice is refused,
    /// but for a mere try, which waits for no holder.
    pub(crate) fn enter_again(&self, lock: &LockInternals, wait: Wait<'_>) -> Result<Option<Arc<HeldNode>>> {
        let mut owners = self.owners.lock();
        let own = self.meant(&owners, Owner::is_holder).and_then(|index| owners.get_mut(index));
        let Some(Owner { held, state: OwnerState::Holds(count), .. }) = own else { return Ok(None) };
        if let Some(reason) = held.lost() {
            return Err(lock.lost(reason));
        }
        if lock.is_reentrant {
            *count += 1;
            Ok(Some(held.clone()))
        } else if wait.only_try {
            Ok(None)
        } else {
            let waiting_for = format!("{} of {}", lock.recipe.kind, lock.base_path());
            Err(Error::WouldDeadlock { waiting_for, held: lock.name_of(lock.recipe.kind, held) })
        }
    }

    pub(crate) fn entered(&self, lock: &LockInternals, held: Arc<HeldNode>) {
        lock.thread_holds.add(lock.recipe.kind, &held);
        let thread = thread_id();
        let mut owners = self.owners.lock();
        // The outcome of this thread's earlier release is of no use any more.
        let is_obsolete =
            |owner: &mut Owner| owner.thread == thread && matches!(owner.state, OwnerState::Unconfirmed(_));
        let mut forgotten: Vec<Owner> = owners.extract_if(.., is_obsolete).collect();
        owners.push(Owner { thread, held, state: OwnerState::Holds(1) });
        if self.of_any_thread.is_some() {
            // A fenced one is kept: to release it is what takes its fence away, or else the process soon ends.
            let is_ended = |owner: &Owner| !owner.is_holder() || owner.is_lost() && owner.held.fences() == 0;
            let mut ended = owners.iter().enumerate().filter(|(_, owner)| is_ended(owner));
            let oldest = ended.next().map(|(index, _)| index);
            forgotten.extend(oldest.filter(|_| ended.count() >= MAX_ENDED).map(|index| owners.remove(index)));
        }
        drop(owners);
        // Under no lock: dropping a watch may send a request.
        for Owner { held, .. } in forgotten.iter().filter(|owner| owner.is_lost()) {
            lock.thread_holds.remove(held);
            lock.client().core.held.remove_relied_on(held);
        }
    }

    /// Counts one hold less, and releases the lock with the last. A caller that names its holds, as a guard does,
    /// releases no later one. If an earlier release was left to the background, this call waits for that.
    pub(crate) fn release(&self, lock: &LockInternals, named: &[Hold]) -> Result<()> {
        match self.leaves(lock, named) {
            Leaves::Over(result) => result,
            Leaves::Last(held) => self.left(&held, lock.release(&held)),
            Leaves::Again(held, done) => self.left(&held, lock.await_release(done, deadline_of(lock))),
        }
    }

    /// Does what [`release`](Self::release) does for each of these locks, which are of one client: in one round trip for those
    /// of which this thread gives the last hold back, and with one deadline. A panic keeps no other from being released.
    pub(crate) fn release_together(
        locks: &[(&LockInternals, &Owners)],
        named: &[Hold],
    ) -> Vec<thread::Result<Result<()>>> {
        let leaves =
            |(lock, owners): &(&LockInternals, &Owners)| catch_unwind(AssertUnwindSafe(|| owners.leaves(lock, named)));
        let leaving: Vec<_> = locks.iter().map(leaves).collect();
        let is_last = |leaving: &thread::Result<Leaves>| match leaving {
            Ok(Leaves::Last(held)) => Some(held.clone()),
            _ => None,
        };
        let again = locks.iter().zip(&leaving).find(|(_, leaving)| matches!(leaving, Ok(Leaves::Again(..))));
        let deadline = again.map(|((lock, _), _)| deadline_of(lock));
        let last = locks.iter().zip(&leaving).filter_map(|((lock, _), leaving)| Some((*lock, is_last(leaving)?)));
        let mut released = release_together(&last.collect::<Vec<_>>()).into_iter();
        // All of these before the first wait.
        let settle = |((_, owners), leaving): (&(&LockInternals, &Owners), thread::Result<_>)| match leaving? {
            Leaves::Last(held) => match released.next() {
                Some(Err(panic)) => {
                    drop(owners.left(&held, (Ok(()), None)));
                    Err(panic)
                }
                Some(Ok(released)) => Ok(Break(owners.left(&held, released))),
                None => Ok(Break(Ok(()))),
            },
            Leaves::Over(result) => Ok(Break(result)),
            Leaves::Again(held, done) => Ok(Continue((held, done))),
        };
        let settled: Vec<thread::Result<_>> = locks.iter().zip(leaving).map(settle).collect();
        let wait = |((lock, owners), settled): (&(&LockInternals, &Owners), thread::Result<_>)| match settled? {
            Break(result) => Ok(result),
            Continue((held, done)) => {
                let deadline = deadline.unwrap_or_else(|| deadline_of(lock));
                Ok(owners.left(&held, lock.await_release(done, deadline)))
            }
        };
        locks.iter().zip(settled).map(wait).collect()
    }

    /// Counts one hold less.
    fn leaves(&self, lock: &LockInternals, named: &[Hold]) -> Leaves {
        let mut owners = self.owners.lock();
        let is_candidate = |owner: &Owner| is_meant(&owner.held, named) && !matches!(owner.state, OwnerState::Leaving);
        let meant = self.meant(&owners, is_candidate);
        let Some((index, owner)) = meant.and_then(|index| Some((index, owners.get_mut(index)?))) else {
            return Leaves::Over(Err(self.not_owner(lock, &owners, named)));
        };
        if let OwnerState::Holds(count @ 2..) = &mut owner.state {
            *count -= 1;
            return Leaves::Over(owner.held.lost().map_or(Ok(()), |reason| Err(lock.lost(reason))));
        }
        if let Some((cache, tenure)) = owner.held.cache() {
            // A cached release waits for nothing, and the thread that it wakes comes here next.
            let held = owners.remove(index).held;
            drop(owners);
            return Leaves::Over(cache.release(&held, tenure));
        }
        let (held, before) = (owner.held.clone(), std::mem::replace(&mut owner.state, OwnerState::Leaving));
        match before {
            OwnerState::Unconfirmed(done) => Leaves::Again(held, done),
            OwnerState::Holds(_) | OwnerState::Leaving => Leaves::Last(held),
        }
    }

    /// Notes how a release went.
    fn left(&self, held: &Arc<HeldNode>, (result, left): Released) -> Result<()> {
        let mut owners = self.owners.lock();
        if let Some(index) = index_of(&owners, held) {
            match (left, owners.get_mut(index)) {
                (Some(done), Some(owner)) => {
                    (owner.thread, owner.state) = (thread_id(), OwnerState::Unconfirmed(done));
                }
                _ => drop(owners.remove(index)),
            }
        }
        result
    }

    /// Forgets an acquire of the calling thread that came to nothing.
    pub(crate) fn leave(&self, lock: &LockInternals, held: &Arc<HeldNode>) -> Option<Arc<HeldNode>> {
        lock.thread_holds.remove(held);
        let mut owners = self.owners.lock();
        index_of(&owners, held).map(|index| owners.remove(index).held)
    }

    /// Like [`release`](Self::release), without waiting and without a result. `false`: there was nothing to give back.
    pub(crate) fn abandon(&self, lock: &LockInternals, named: &[Hold]) -> bool {
        let mut owners = self.owners.lock();
        let is_candidate = |owner: &Owner| owner.is_holder() && is_meant(&owner.held, named);
        let Some(index) = self.meant(&owners, is_candidate) else { return false };
        if let Some(Owner { state: OwnerState::Holds(count @ 2..), .. }) = owners.get_mut(index) {
            *count -= 1;
            return true;
        }
        let held = owners.remove(index).held;
        drop(owners);
        lock.release_in_background(&held);
        true
    }

    fn not_owner(&self, lock: &LockInternals, owners: &[Owner], named: &[Hold]) -> Error {
        let detail = if owners.iter().any(|owner| owner.is_holder() && is_meant(&owner.held, named)) {
            "another thread of this process holds it; the thread that acquires has to release"
        } else if !named.is_empty() {
            "that hold was released before"
        } else if self.are_guards() {
            "a guard holds it: release that, or drop it"
        } else {
            "nobody holds it through this object"
        };
        Error::NotOwner { path: lock.base_path().to_owned(), detail: detail.to_owned() }
    }

    /// Counts a guard that stands for a hold by itself, as long as the result lives.
    pub(crate) fn guard(&self) -> Arc<()> {
        self.guards.clone()
    }

    fn are_guards(&self) -> bool {
        Arc::strong_count(&self.guards) > 1
    }

    /// Whether anybody holds the lock, or released it without the server's confirmation. A thread that has lost the
    /// lock counts as a holder until it releases it.
    pub(crate) fn is_any(&self) -> bool {
        let mut owners = self.owners.lock();
        let over: Vec<_> = owners.extract_if(.., |owner| owner.is_over()).collect();
        let counts = |owner: &Owner| self.of_any_thread.is_none() || !owner.is_lost();
        let is_any = owners.iter().any(counts);
        drop_unlocked(owners, over);
        is_any || self.are_guards()
    }

    /// Returns the hold that the calling thread would release.
    pub(crate) fn current(&self) -> Option<Arc<HeldNode>> {
        let owners = self.owners.lock();
        let meant = self.meant(&owners, Owner::is_holder).and_then(|index| owners.get(index));
        meant.map(|owner| owner.held.clone())
    }
}

impl Drop for Owners {
    /// Releases the holds that were acquired without a guard: no caller could any more.
    fn drop(&mut self) {
        if let Some(lock) = self.of_any_thread.clone() {
            while self.abandon(&lock, &[]) {}
        }
    }
}

/// How a hold ends.
enum Leaves {
    /// Nothing is left to do.
    Over(Result<()>),
    /// The lock is to be released.
    Last(Arc<HeldNode>),
    /// An earlier release was left to the background.
    Again(Arc<HeldNode>, Receiver<()>),
}

fn deadline_of(lock: &LockInternals) -> Instant {
    clock::now() + lock.client().session_timeout()
}

/// Whether a call is about this hold: it names this one, or names none.
fn is_meant(held: &Arc<HeldNode>, named: &[Hold]) -> bool {
    named.is_empty() || named.iter().any(|hold| Arc::ptr_eq(hold.node(), held))
}

fn index_of(owners: &[Owner], held: &Arc<HeldNode>) -> Option<usize> {
    owners.iter().position(|owner| Arc::ptr_eq(&owner.held, held))
}

impl LockInternals {
    /// Waits until the hold is certain for as long as wanted, where the thread may hold the lock already. `false`: the time
    /// was up first. [`Owners::enter_again`] reports a hold that was lost.
    pub(in crate::locks) fn may_enter_again(&self, owners: &Owners, wait: Wait<'_>) -> Result<bool> {
        let wanted = wait.options.min_validity;
        if wanted.is_zero() || !self.is_reentrant {
            return Ok(true);
        }
        let Some(held) = owners.current() else { return Ok(true) };
        wait.options.check_validity(self.client().session_timeout())?;
        let bound = wait.io(self.client().core.config.connection_timeout);
        match last_look(&[held], wanted, bound, Needs::Nothing) {
            Ok(Certainty::Certain | Certainty::Gone) => Ok(true),
            Ok(Certainty::InDoubt) => Err(self.uncertain(wanted)),
            Err(WaitEnd::Cancelled) => Err(Error::Cancelled { path: self.base_path().to_owned() }),
            Err(WaitEnd::Deadline) if wait.options.timeout_is_error => Err(self.still_taken(None)),
            Err(WaitEnd::Deadline) => Ok(false),
        }
    }

    /// Attempts to get a lock that belongs to a thread. Fails with [`Error::WouldDeadlock`] if the calling thread would
    /// wait for ever for a hold of its own, through another object or the other half of a read/write lock.
    ///
    /// A call with a deadline fails as well, as it could only time out. A mere try waits for no holder.
    pub(crate) fn by_thread<'p>(
        &self,
        wait: Wait<'p>,
        attempt: impl Fn(Wait<'p>) -> Result<Option<Arc<HeldNode>>>,
    ) -> Result<Option<Arc<HeldNode>>> {
        let obstacle = if wait.only_try { None } else { self.obstacle() };
        match obstacle {
            Some((true, Obstacle { kind, node, .. })) => {
                let waiting_for = format!("{} of {}", self.recipe.kind, self.base_path());
                Err(Error::WouldDeadlock { waiting_for, held: self.name_of(kind, &node) })
            }
            Some((false, hold)) if wait.bound.deadline.is_none() => {
                // A try first: two readers side by side need no warning.
                match attempt(Wait { only_try: true, ..wait }) {
                    Ok(None) | Err(Error::StillTaken { .. }) => self.warn(&hold),
                    Err(error) if error.is_retryable() => {}
                    result => return result,
                }
                attempt(wait)
            }
            _ => attempt(wait),
        }
    }

    /// Warns a thread that waits for itself, for a lock that any thread may release: another thread may help it.
    pub(crate) fn warn_of_itself(&self) {
        if let Some((_, hold)) = self.obstacle() {
            self.warn(&hold);
        }
    }

    fn warn(&self, hold: &Obstacle) {
        let (wanted, held) = (self.recipe.kind, self.name_of(hold.kind, &hold.node));
        log::warn!("waits for {wanted} of {}, for ever unless others give way: holds {held}", self.base_path());
    }

    /// Returns the worst of the calling thread's holds that this lock would wait for, and whether it would wait for ever.
    /// Does no I/O.
    fn obstacle(&self) -> Option<(bool, Obstacle)> {
        let mut obstacles = self.thread_holds.obstacles();
        obstacles.retain(|hold| (hold.kind == HoldKind::Unfair) == (self.recipe.kind == HoldKind::Unfair));
        let is_for_ever = |hold: &Obstacle| is_for_ever(self.recipe.kind, hold.kind);
        for hold in obstacles.extract_if(.., |hold| hold.has_ended).filter(is_for_ever) {
            // No error: a thread that is ending right now may release it in the destructor of another thread-local value.
            let (wanted, held) = (self.recipe.kind, self.name_of(hold.kind, &hold.node));
            log::warn!(
                "waits for {wanted} of {}: a thread that has ended holds {held}, up to the session's end",
                self.base_path()
            );
        }
        obstacles.into_iter().map(|hold| (is_for_ever(&hold), hold)).max_by_key(|(is_for_ever, _)| *is_for_ever)
    }

    fn name_of(&self, kind: HoldKind, held: &Arc<HeldNode>) -> String {
        format!("{kind} of {} ({})", self.base_path(), self.client_path(held))
    }
}

/// Whether only this thread can release the hold that it would wait for. Otherwise it gets the lock at once, or when
/// others give way: a contender in between, or a thread that releases the hold of this one.
fn is_for_ever(wanted: HoldKind, held: HoldKind) -> bool {
    use HoldKind::{AnyThread, Custom, Mutex, Read, Unfair, Write};
    match (wanted, held) {
        // Any thread may release the former; only the latter's driver knows which znode it waits for.
        (AnyThread | Custom, _) | (_, AnyThread | Custom) => false,
        // Both can hold, unless a writer queues in between. It waits for the first, but it may give up.
        (Read, Read) => false,
        (Mutex | Write, Mutex | Read | Write) | (Read, Mutex | Write) | (Unfair, _) | (_, Unfair) => true,
    }
}
