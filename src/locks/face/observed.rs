//! An acquire as operators see it: how it ended, and a span of it and of the hold that follows.

use std::sync::Arc;

use crate::{
    base::telemetry::spans::AcquireSpan, error::Result, framework::held::node::HeldNode,
    locks::acquire::internals::LockInternals,
};

impl LockInternals {
    /// Counts and traces one acquire as a whole: its parts are not counted. If a cached znode serves, that costs one
    /// atomic add.
    /// `nodes`: the held znodes of a result.
    pub(in crate::locks) fn observed<T>(
        &self,
        kind: &'static str,
        nodes: fn(&T) -> &[Arc<HeldNode>],
        acquire: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let span = AcquireSpan::begin(self.base_path(), kind);
        let acquired = span.run(acquire);
        let counters = &self.client().core.counters;
        let outcome = match &acquired {
            Ok(Some(held)) => {
                let nodes = nodes(held);
                nodes.iter().for_each(|node| node.trace(self.base_path()));
                counters.granted(nodes.iter().any(|node| node.is_handed_out() && node.grant_number() > 1))
            }
            Ok(None) => counters.not_granted(None),
            Err(error) => counters.not_granted(Some(error)),
        };
        span.ended(outcome);
        acquired
    }
}
