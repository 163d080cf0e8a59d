//! A thread that would wait for itself gets an error instead.

use std::sync::Arc;

use super::internals::{LockInternals, Patience};
use crate::{
    Error, Result,
    framework::{HeldNode, HoldKind, ThreadHold},
};

/// Whether a thread that holds one lock of a directory can get another one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outlook {
    /// Another thread may release what this one holds.
    Unknown,
    /// It depends on who else queues. If it has to wait, it waits for itself.
    NowOrNever,
    Never,
}

impl LockInternals {
    /// An attempt to get a lock that belongs to a thread: fails with [`Error::WouldDeadlock`] where the calling thread would wait for ever for what it holds through another object,
    /// or through the other half of a read/write lock.
    ///
    /// A call with a deadline ends by itself, so it is left alone.
    pub(crate) fn by_thread<'p>(
        &self,
        patience: Patience<'p>,
        attempt: impl Fn(Patience<'p>) -> Result<Option<Arc<HeldNode>>>,
    ) -> Result<Option<Arc<HeldNode>>> {
        if patience.stop.deadline.is_some() {
            return attempt(patience);
        }
        match self.obstacle() {
            None => attempt(patience),
            Some((Outlook::Never, hold)) => Err(self.would_deadlock(&hold)),
            Some((Outlook::NowOrNever, hold)) => match attempt(Patience { only_try: true, ..patience })? {
                None => Err(self.would_deadlock(&hold)),
                held => Ok(held),
            },
            Some((Outlook::Unknown, hold)) => {
                log::warn!("{}: waits until another thread releases it", self.would_deadlock(&hold));
                attempt(patience)
            }
        }
    }

    /// For a lock that any thread may release: a thread that waits for itself is worth a warning, and may be helped.
    pub(crate) fn warn_of_itself(&self) {
        if let Some((_, hold)) = self.obstacle() {
            log::warn!("{}: waits until another thread releases it", self.would_deadlock(&hold));
        }
    }

    /// What the calling thread holds and this lock would wait for, the worst of it. No I/O.
    fn obstacle(&self) -> Option<(Outlook, ThreadHold)> {
        let mut holds = self.client().core.holds.of_current_thread(self.directory());
        holds.retain(|hold| (hold.kind == HoldKind::Unfair) == (self.kind() == HoldKind::Unfair));
        let obstacles = holds.into_iter().map(|hold| (outlook(self.kind(), hold.kind), hold));
        obstacles.max_by_key(|(outlook, _)| *outlook)
    }

    fn would_deadlock(&self, hold: &ThreadHold) -> Error {
        Error::WouldDeadlock {
            waiting_for: format!("{} of {}", self.kind(), self.base_path()),
            held: format!("{} of {} ({})", hold.kind, self.base_path(), self.client_path(&hold.node)),
        }
    }

    /// The calling thread holds this znode now.
    pub(crate) fn register(&self, held: &Arc<HeldNode>) {
        self.client().core.holds.add(self.directory(), self.kind(), held);
    }

    /// It does not any more.
    pub(crate) fn unregister(&self, held: &HeldNode) {
        self.client().core.holds.remove(self.directory(), held);
    }
}

fn outlook(wanted: HoldKind, held: HoldKind) -> Outlook {
    use HoldKind::{AnyThread, Custom, Mutex, Read, Unfair, Write};
    match (wanted, held) {
        (AnyThread, _) | (_, AnyThread) => Outlook::Unknown,
        // Beside one's own read lock there is room for another one, unless a writer queues in between: it waits for the
        // first and the second waits for it.
        (Read, Read) | (Custom, _) | (_, Custom) => Outlook::NowOrNever,
        (Mutex | Write, Mutex | Read | Write) | (Read, Mutex | Write) | (Unfair, _) | (_, Unfair) => Outlook::Never,
    }
}
