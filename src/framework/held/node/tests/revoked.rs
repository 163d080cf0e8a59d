//! Requests to give a lock back.

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
