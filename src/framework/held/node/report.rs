//! What operators hear of a held znode: log and numbers.

use super::HeldNode;
use crate::{base::telemetry::counters::Counters, error::LostReason, framework::held::changes::HoldState};

impl HeldNode {
    /// `None`: it does not count as a lock.
    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.counters.as_deref()
    }

    /// Its state has changed. What happens to one of many holds that a znode serves the znode reports.
    pub(super) fn report(&self, state: HoldState) {
        let path = self.path();
        match state {
            // The holder's own doing.
            HoldState::Lost(LostReason::ClientClosed) => log::debug!("{path}: the client was closed"),
            HoldState::Lost(reason) if self.grant.is_none() => log::warn!("{path}: the lock is lost: {reason}"),
            HoldState::Held | HoldState::InDoubt | HoldState::Lost(_) | HoldState::Released => {
                log::debug!("{path}: {state:?}");
            }
        }
        let Some(counters) = self.counters() else { return };
        match state {
            HoldState::Held => {}
            HoldState::InDoubt => counters.doubts.count(),
            HoldState::Released => counters.holds.record(self.since.elapsed()),
            HoldState::Lost(reason) => {
                counters.holds.record(self.since.elapsed());
                counters.lost(reason);
            }
        }
    }

    /// What to call when its release has found that it was deleted before.
    pub(crate) fn was_gone(&self) -> impl FnOnce() + Send + use<> {
        // Not what holds the session: it may wait there for a reply, and the session is closed when nobody has it.
        let (counters, path) = (self.counters.clone(), self.path().clone());
        move || {
            let reason = LostReason::NodeDeleted;
            log::warn!("{path}: the lock was lost before it was released: {reason}");
            if let Some(counters) = counters {
                counters.lost(reason);
            }
        }
    }
}
