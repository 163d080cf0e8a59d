//! A holder that can be asked to give its lock back, by what others write into its znode.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::Mutex;

use super::node::HeldNode;
use crate::proto::types::Stat;

/// What a request writes, the same in all languages.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Stands between the data of a znode and who asks for its lock, and why. Curator knows the bare message alone, so it takes
/// no notice.
const REQUEST_MARK: &[u8] = b"\n__REVOKE_BY__\n";

/// Who asks, and why, as far as they say so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RevokeWord {
    pub(crate) who: Option<String>,
    pub(crate) why: Option<String>,
}

/// Data with a request behind them, in the place of an earlier one.
pub(crate) fn with_request(data: &[u8], who: &str, why: &str) -> Vec<u8> {
    let who = who.replace('\n', " ");
    [without_request(data), REQUEST_MARK, who.as_bytes(), b"\n", why.as_bytes()].concat()
}

/// What the znode carried before somebody asked for its lock.
pub(crate) fn without_request(data: &[u8]) -> &[u8] {
    mark_in(data).and_then(|at| data.get(..at)).unwrap_or(data)
}

fn mark_in(data: &[u8]) -> Option<usize> {
    data.windows(REQUEST_MARK.len()).rposition(|window| window == REQUEST_MARK)
}

fn request_in(data: &[u8]) -> Option<RevokeWord> {
    if data == REVOKE_MESSAGE {
        return Some(RevokeWord::default());
    }
    let text = data.get(mark_in(data)? + REQUEST_MARK.len()..)?;
    let text = String::from_utf8_lossy(text);
    let (who, why) = text.split_once('\n').unwrap_or((&text, ""));
    Some(RevokeWord { who: Some(who.to_owned()), why: Some(why.to_owned()) })
}

type Request = Box<dyn Fn(&RevokeWord, Option<Arc<HeldNode>>) + Send + Sync>;

/// Whom to tell about requests.
pub(crate) struct Revocation {
    /// Runs on a thread that reads for a session, so it only hands over.
    request: Request,
    is_lasting: bool,
}

impl Revocation {
    /// Up to the next release.
    pub(crate) fn new(request: impl Fn() + Send + Sync + 'static) -> Revocation {
        Revocation { request: Box::new(move |_, _| request()), is_lasting: false }
    }

    /// Over releases.
    pub(crate) fn lasting(request: impl Fn(&RevokeWord, Option<Arc<HeldNode>>) + Send + Sync + 'static) -> Revocation {
        Revocation { request: Box::new(request), is_lasting: true }
    }

    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

/// One znode that can be revoked, from the first look at its data on.
pub(crate) struct RevocableNode {
    revocation: Arc<Revocation>,
    /// The transaction of the last request that was told, so that reading it twice does not tell it twice.
    told: AtomicI64,
    last: Mutex<Option<RevokeWord>>,
    /// Once it holds the lock.
    held: OnceLock<Weak<HeldNode>>,
}

impl RevocableNode {
    pub(crate) fn new(revocation: Arc<Revocation>) -> Arc<RevocableNode> {
        let (told, last, held) = (AtomicI64::new(0), Mutex::default(), OnceLock::new());
        Arc::new(RevocableNode { revocation, told, last, held })
    }

    pub(crate) fn revocation(&self) -> &Arc<Revocation> {
        &self.revocation
    }

    /// Its contender holds the lock.
    pub(super) fn holds(&self, held: &Arc<HeldNode>) {
        let _ = self.held.set(Arc::downgrade(held));
    }

    /// What was asked last.
    pub(crate) fn last(&self) -> Option<RevokeWord> {
        self.last.lock().clone()
    }

    /// The znode's data was read. A request that was written before the watch is seen here, too.
    pub(crate) fn read(&self, data: &[u8], stat: &Stat) {
        let Some(word) = request_in(data) else { return };
        if self.told.fetch_max(stat.mzxid, Ordering::AcqRel) < stat.mzxid {
            self.tell(&word);
        }
    }

    /// A request was read, here or by whoever looks after the znode.
    pub(crate) fn tell(&self, word: &RevokeWord) {
        *self.last.lock() = Some(word.clone());
        (self.revocation.request)(word, self.held.get().and_then(Weak::upgrade));
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

    #[test]
    fn a_request_stands_behind_the_data_and_is_read_back() {
        for data in [&b""[..], b"host-7", b"__REVOKE__", b"a\n__REVOKE_BY__\nearlier\nreason"] {
            let asked = with_request(data, "the\noperator", "at noon\nfor an hour");
            let word = request_in(&asked).unwrap_or_default();
            assert_eq!(word.who.as_deref(), Some("the operator"));
            assert_eq!(word.why.as_deref(), Some("at noon\nfor an hour"));
            assert_eq!(without_request(&asked), without_request(data));
            assert_ne!(asked, REVOKE_MESSAGE);
        }
        assert_eq!(request_in(b"__REVOKE__"), Some(RevokeWord::default()));
        assert_eq!(request_in(b"host-7"), None);
        assert_eq!(without_request(b"host-7"), b"host-7");
    }
}
