//! A thread that would wait for itself gets an error instead.

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    framework::held::{holds::HoldKind, node::HeldNode},
    locks::{acquire::internals::LockInternals, options::wait::Wait},
};

impl LockInternals {
    /// Attempts to get a lock that belongs to a thread. Fails with [`Error::WouldDeadlock`] if the calling thread would
    /// wait for ever for a hold of its own, through another object or the other half of a read/write lock.
    ///
    /// A call with a deadline fails as well, as it could only time out. A mere try waits for no holder.
    pub(crate) fn by_thread<'p>(
        &self,
        wait: Wait<'p>,
        attempt: impl Fn(Wait<'p>) -> Result<Option<Arc<HeldNode>>>,
    ) -> Result<Option<Arc<HeldNode>>> {
        match self.obstacle().filter(|_| !wait.only_try) {
            Some((true, hold)) => {
                let waiting_for = format!("{} of {}", self.recipe.kind, self.base_path());
                Err(Error::WouldDeadlock { waiting_for, held: self.name_of(&hold) })
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

    fn warn(&self, hold: &(HoldKind, Arc<HeldNode>)) {
        let (wanted, held) = (self.recipe.kind, self.name_of(hold));
        log::warn!("waits for {wanted} of {}, for ever unless others give way: holds {held}", self.base_path());
    }

    /// Returns the worst of the calling thread's holds that this lock would wait for, and whether it would wait for ever.
    /// Does no I/O.
    fn obstacle(&self) -> Option<(bool, (HoldKind, Arc<HeldNode>))> {
        let mut holds = self.thread_holds.of_current_thread();
        holds.retain(|(kind, _)| (*kind == HoldKind::Unfair) == (self.recipe.kind == HoldKind::Unfair));
        let obstacles = holds.into_iter().map(|hold| (is_for_ever(self.recipe.kind, hold.0), hold));
        obstacles.max_by_key(|(is_for_ever, _)| *is_for_ever)
    }

    fn name_of(&self, (kind, held): &(HoldKind, Arc<HeldNode>)) -> String {
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
