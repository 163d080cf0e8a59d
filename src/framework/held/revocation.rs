//! A holder that can be asked to give its lock back, by what others write into its znode.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use crate::proto::types::Stat;

/// What a request writes, the same in all languages.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Whom to tell about requests.
pub(crate) struct Revocation {
    /// Runs on a thread that reads for a session, so it only hands over.
    request: Box<dyn Fn() + Send + Sync>,
}

impl Revocation {
    pub(crate) fn new(request: impl Fn() + Send + Sync + 'static) -> Revocation {
        Revocation { request: Box::new(request) }
    }
}

/// One znode that can be revoked, from the first look at its data on.
pub(crate) struct RevocableNode {
    revocation: Arc<Revocation>,
    /// The transaction of the last request that was told, so that reading it twice does not tell it twice.
    told: AtomicI64,
}

impl RevocableNode {
    pub(crate) fn new(revocation: Arc<Revocation>) -> Arc<RevocableNode> {
        Arc::new(RevocableNode { revocation, told: AtomicI64::new(0) })
    }

    pub(crate) fn revocation(&self) -> &Arc<Revocation> {
        &self.revocation
    }

    /// The znode's data was read. A request that was written before the watch is seen here, too.
    pub(crate) fn read(&self, data: &[u8], stat: &Stat) {
        if data == REVOKE_MESSAGE && self.told.fetch_max(stat.mzxid, Ordering::AcqRel) < stat.mzxid {
            (self.revocation.request)();
        }
    }
}

impl fmt::Debug for RevocableNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocableNode").field("told", &self.told).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn each_request_is_told_once_and_other_data_never() {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let node = RevocableNode::new(Arc::new(Revocation::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })));
        let at = |mzxid| Stat { mzxid, ..Stat::default() };
        let rows: [(&[u8], i64, usize); 7] = [
            (b"mine", 3, 0),
            (b"__REVOKE__", 4, 1),
            (b"__REVOKE__", 4, 1),
            (b"__REVOKE__\n", 5, 1),
            (b"", 6, 1),
            (b"__REVOKE__", 7, 2),
            (b"__REVOKE__", 5, 2),
        ];
        for (data, mzxid, expected) in rows {
            node.read(data, &at(mzxid));
            assert_eq!(told.load(Ordering::Relaxed), expected, "{data:?} at {mzxid}");
        }
    }
}
