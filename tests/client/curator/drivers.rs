//! Drivers from outside, and what an acquire does when theirs fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use curator_locks::{Decision, InterProcessMutex, LockInternalsDriver, RetryNTimes, testing::TestingServer};

use crate::support::{await_queue, builder, connect, eventually, namespace, quick_server, server};

const PATH: &str = "/locks/m";

/// Never sees its own znode.
struct Blind(Arc<dyn Fn() + Send + Sync>);

impl LockInternalsDriver for Blind {
    fn decide(&self, _children: &[String], _own: &str, _max_leases: usize) -> Decision {
        (self.0)();
        Decision::Missing
    }

    fn lock_name(&self) -> &str {
        "lock-"
    }
}

#[test]
fn an_acquire_that_never_sees_its_node_ends_with_no_node_and_leaves_none() {
    let retries = |count| {
        connect(builder(server(), &namespace()).retry_policy(RetryNTimes::new(count, Duration::from_millis(1))))
    };
    for count in [0, 3] {
        let client = retries(count);
        let blind = InterProcessMutex::with_driver(&client, PATH, Blind(Arc::new(|| {}))).unwrap();
        let error = blind.acquire().unwrap_err();
        assert!(error.is_no_node(), "{error:?}");
        assert!(!blind.is_acquired_in_this_process());
        await_queue(&client, PATH, 0);
    }
}

#[test]
fn the_error_of_an_acquire_survives_a_clean_up_that_fails() {
    let server = Arc::new(quick_server().start().unwrap());
    let client = connect(builder(&server, "fails").retry_policy(RetryNTimes::new(0, Duration::from_millis(1))));
    // The first time that the znode is not to be seen, the server is asked whether it is there.
    let (looks, goes_away) = (AtomicUsize::new(0), server.clone());
    let goes_away = move || {
        if looks.fetch_add(1, Ordering::Relaxed) == 1 {
            TestingServer::stop(&goes_away).unwrap();
        }
    };
    let blind = InterProcessMutex::with_driver(&client, PATH, Blind(Arc::new(goes_away))).unwrap();
    let error = blind.acquire().unwrap_err();
    assert!(error.is_no_node(), "{error:?}");
    assert!(!server.is_running());
    server.restart().unwrap();
    eventually("connected again", || client.is_connected());
    await_queue(&client, PATH, 0);
}
