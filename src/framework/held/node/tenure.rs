//! One held znode that serves many holds, one after the other or side by side.

use std::{
    iter,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use super::{Grant, HeldNode, Inner, Keeper, RevocableNode};
use crate::{base::unlocked::drop_unlocked, framework::events::event::Event};

/// What the client knows of a held znode without asking a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footing {
    /// The znode is gone, or its session is, or the keeper has given it back.
    pub(crate) is_gone: bool,
    /// The live connection, 0 if there is none.
    pub(crate) connection: u64,
    /// The connection over which a server last said that the znode is there.
    pub(crate) seen_over: u64,
    /// A watch on the znode is in place and has not fired.
    pub(crate) is_watched: bool,
    /// The servers cannot have expired the session yet.
    pub(crate) is_valid: bool,
}

impl HeldNode {
    /// From here on it serves the holds that this keeper hands out.
    pub(crate) fn serve(&self, keeper: Weak<dyn Keeper>) {
        let _ = self.keeper.set(keeper);
    }

    pub(super) fn tell_keeper(&self) {
        if let Some(keeper) = self.keeper.get().and_then(Weak::upgrade) {
            keeper.gone(self);
        }
    }

    /// Begins one hold of this znode, now. It checks nothing.
    pub(crate) fn grant(
        self: &Arc<Self>,
        tenure_number: u64,
        number: u64,
        revocable: Option<Arc<RevocableNode>>,
        is_attended: bool,
    ) -> Arc<HeldNode> {
        self.out.fetch_add(1, Ordering::AcqRel);
        let grant = Arc::new(HeldNode {
            id: 0,
            common: self.common.clone(),
            // Where nobody asks how long it has lasted, any moment of the past will do.
            since: if is_attended { Instant::now() } else { self.since },
            seen_over: AtomicU64::new(0),
            asked_over: AtomicU64::new(0),
            revocable,
            grant: Some(Grant { tenure: self.clone(), tenure_number, number }),
            keeper: OnceLock::new(),
            counters: None,
            out: AtomicUsize::new(0),
            inner: Mutex::default(),
        });
        if let Some(revocable) = &grant.revocable {
            revocable.holds(&grant);
        }
        if is_attended {
            grant.join_tenure(&mut grant.inner.lock());
            grant.common.events.send(Event::Look);
        }
        grant
    }

    /// Its end: whether other holds of its znode last.
    pub(super) fn leaves_others(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.tenure.out.fetch_sub(1, Ordering::AcqRel) > 1)
    }

    /// Whether it was given back while others held by the same znode, which goes with the last of them.
    pub(crate) fn has_left_others(&self) -> bool {
        self.inner.lock().has_left_others
    }

    pub(crate) fn footing(&self) -> Footing {
        let (is_gone, is_watched) = {
            let inner = self.inner.lock();
            let is_gone = inner.is_final() || inner.deletion.is_some() || self.has_session_ended();
            (is_gone, inner.is_watched)
        };
        let (connection, seen_over) = (self.common.session.connection(), self.seen_over.load(Ordering::Acquire));
        // The clock comes last: what it is compared with can only be older.
        let is_valid = self.common.session.valid_until().is_some_and(|until| Instant::now() < until);
        Footing { is_gone, connection, seen_over, is_watched, is_valid }
    }

    /// Itself, and the holds of this znode that are looked after.
    pub(crate) fn with_grants(self: &Arc<Self>) -> impl Iterator<Item = Arc<HeldNode>> + use<> {
        let grants = self.inner.lock().grants.clone();
        iter::once(self.clone()).chain(grants)
    }

    /// This hold is looked after from here on.
    pub(super) fn join_tenure(self: &Arc<Self>, inner: &mut Inner) {
        if let Some(grant) = &self.grant
            && !std::mem::replace(&mut inner.is_attended, true)
        {
            grant.tenure.inner.lock().grants.push(self.clone());
        }
    }

    pub(super) fn leave_tenure(&self) {
        let mut inner = self.root().inner.lock();
        let left: Vec<_> = inner.grants.extract_if(.., |other| std::ptr::eq(&raw const **other, self)).collect();
        drop_unlocked(inner, left);
    }
}
