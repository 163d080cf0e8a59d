//! An acquire as operators see it: how it ended, and a span of it and of the hold that follows.

use std::{slice, sync::Arc};

use crate::{
    base::telemetry::spans::AcquireSpan, error::Result, framework::held::node::HeldNode,
    locks::contender::internals::LockInternals,
};

impl LockInternals {
    /// Counts and traces one acquire, all of it: what it consists of is not counted. Where a kept znode serves, that costs one
    /// atomic add.
    pub(in crate::locks) fn observed<T: AsNodes>(
        &self,
        kind: &'static str,
        acquire: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let span = AcquireSpan::begin(self.base_path(), kind);
        let acquired = span.run(acquire);
        let counters = &self.client().core.counters;
        let outcome = match &acquired {
            Ok(Some(held)) => {
                let nodes = held.as_nodes();
                nodes.iter().for_each(|node| node.trace(self.base_path()));
                counters.granted(nodes.iter().any(|node| node.tenure().is_some() && node.grant_number() > 1))
            }
            Ok(None) => counters.not_granted(None),
            Err(error) => counters.not_granted(Some(error)),
        };
        span.ended(outcome);
        acquired
    }
}

/// What an acquire brings.
pub(in crate::locks) trait AsNodes {
    fn as_nodes(&self) -> &[Arc<HeldNode>];
}

impl AsNodes for Arc<HeldNode> {
    fn as_nodes(&self) -> &[Arc<HeldNode>] {
        slice::from_ref(self)
    }
}

impl AsNodes for Vec<Arc<HeldNode>> {
    fn as_nodes(&self) -> &[Arc<HeldNode>] {
        self
    }
}
