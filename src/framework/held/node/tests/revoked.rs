//! Requests to give a lock back.

use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn each_request_is_told_once_and_other_data_never() {
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let node = RevocableNode::new(Arc::new(Revocation::new(false, move |_, _| {
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

/// A hold may come to nothing before it is the caller's: its contender queues again.
#[test]
fn a_request_is_about_the_hold_that_the_contender_got_last() {
    let about = Arc::new(Mutex::new(None));
    let is_about = about.clone();
    let node = RevocableNode::new(Arc::new(Revocation::new(true, move |_, held| *is_about.lock() = held)));
    let rig = Rig::new(None);
    let (first, second) = (rig.hold(), rig.hold());
    node.holds(&first);
    drop(first);
    node.holds(&second);
    node.read(b"__REVOKE__", &Stat { mzxid: 4, ..Stat::default() });
    assert!(about.lock().take().is_some_and(|held| Arc::ptr_eq(&held, &second)));
}
