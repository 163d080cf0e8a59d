//! An acquire as operators see it: how it ended, and a span of it and of the hold that follows.

use std::sync::Arc;

use crate::{
    base::telemetry::spans::in_acquire_span,
    error::{Error, Result},
    framework::held::node::HeldNode,
    locks::acquire::internals::LockInternals,
};

impl LockInternals {
    /// Counts and traces one acquire as a whole: its parts are not counted. If a cached znode serves, that costs one
    /// atomic add. `nodes` takes the held znodes out of a result.
    pub(in crate::locks) fn observed<T>(
        &self,
        kind: &'static str,
        nodes: fn(&T) -> &[Arc<HeldNode>],
        acquire: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        in_acquire_span(self.base_path(), kind, acquire, |acquired| {
            let acquires = &self.client().core.counters.acquires;
            let (counter, outcome) = match acquired {
                Ok(Some(held)) => {
                    let nodes = nodes(held);
                    nodes.iter().for_each(|node| node.trace(self.base_path()));
                    let is_cached = nodes.iter().any(|node| node.is_handed_out() && node.grant_number() > 1);
                    if is_cached { (&acquires.cached, "cached") } else { (&acquires.granted, "granted") }
                }
                Ok(None) | Err(Error::StillTaken { .. }) => (&acquires.timed_out, "timed_out"),
                Err(Error::Cancelled { .. }) => (&acquires.cancelled, "cancelled"),
                Err(_) => (&acquires.failed, "failed"),
            };
            counter.count();
            outcome
        })
    }
}
