//! What operators hear of a held znode: log and numbers.

use std::{sync::Arc, time::Instant};

use crate::{
    base::{paths::ServerPath, telemetry::counters::Counters},
    error::LostReason,
    framework::held::changes::HoldState,
};

/// Whom a held znode reports to.
#[derive(Clone)]
pub(in crate::framework::held) enum Reports {
    /// It counts as a lock.
    Counted(Arc<Counters>),
    /// It is a place in a queue, and counts as none.
    Uncounted,
    /// One of many holds that a znode serves: what happens to them the znode reports.
    OfGrant,
}

impl Reports {
    /// Its state has changed.
    pub(super) fn changed(&self, path: &ServerPath, since: Instant, state: HoldState) {
        match state {
            // The holder's own doing.
            HoldState::Lost(LostReason::ClientClosed) => log::debug!("{path}: the client was closed"),
            HoldState::Lost(reason) if !matches!(self, Reports::OfGrant) => {
                log::warn!("{path}: the lock is lost: {reason}");
            }
            HoldState::Held | HoldState::InDoubt | HoldState::Lost(_) | HoldState::Released => {
                log::debug!("{path}: {state:?}");
            }
        }
        let Some(counters) = self.counters() else { return };
        match state {
            HoldState::Held => {}
            HoldState::InDoubt => counters.doubts.count(),
            HoldState::Released => counters.holds.record(since.elapsed()),
            HoldState::Lost(reason) => {
                counters.holds.record(since.elapsed());
                counters.lost(reason);
            }
        }
    }

    /// Its release has found that it was deleted before.
    pub(super) fn was_gone(&self, path: &ServerPath) {
        let reason = LostReason::NodeDeleted;
        log::warn!("{path}: the lock was lost before it was released: {reason}");
        if let Some(counters) = self.counters() {
            counters.lost(reason);
        }
    }

    pub(in crate::framework::held) fn counters(&self) -> Option<&Arc<Counters>> {
        match self {
            Reports::Counted(counters) => Some(counters),
            Reports::Uncounted | Reports::OfGrant => None,
        }
    }
}
