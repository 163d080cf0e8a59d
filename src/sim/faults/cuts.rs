//! Connections that end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::testbed::*;
use crate::RetryNTimes;

mod slow {
    use super::*;

    #[test]
    fn a_hundred_cuts_under_load_lose_no_session_no_lock_and_double_no_node() {
        let testbed = testbed_with(10 * Duration::from_secs(1));
        let client = testbed
            .builder(10 * Duration::from_secs(1))
            .connection_timeout(3000 * MS)
            .retry_policy(RetryNTimes::new(100, 50 * MS))
            .build()
            .unwrap();
        start(&client);
        let session = client.session_id();
        let done = AtomicBool::new(false);
        let (inside, cycles) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let most = AtomicUsize::new(0);
        scope(|scope| {
            for _ in 0..8 {
                scope.start(|| {
                    let mutex = mutex(&client);
                    while !done.load(Ordering::Relaxed) {
                        let held = mutex.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        assert!(!held.is_lost());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        held.release().unwrap();
                        cycles.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..100 {
                sleep(Duration::from_millis(fastrand::u64(0..100)));
                eventually("connected", || client.is_connected());
                let before = cycles.load(Ordering::Relaxed);
                testbed.proxy.cut();
                eventually("work goes on", || cycles.load(Ordering::Relaxed) > before + 1);
                most.fetch_max(nodes(&testbed.observer).len(), Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
        });
        figure("cuts: cycles, and znodes at the most", (cycles.load(Ordering::Relaxed), most.load(Ordering::Relaxed)));
        assert_eq!(client.session_id(), session);
        assert!(most.load(Ordering::Relaxed) <= 8, "{most:?} znodes of 8 threads");
        wait_for_nodes(&testbed.observer, 0);
    }
}
