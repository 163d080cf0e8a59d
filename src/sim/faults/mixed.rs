//! Cuts and expiries at random moments, while several clients want the same locks.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use super::testbed::*;
use crate::{
    Caching, CuratorFramework, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessUnfairMutex, RetryNTimes,
};

const FAULTS: usize = 250;

/// One of each kind.
fn locks(client: &CuratorFramework) -> Vec<Box<dyn InterProcessLock>> {
    let shared = InterProcessReadWriteLock::new(client, "/locks/shared").unwrap();
    vec![
        Box::new(InterProcessMutex::new(client, "/locks/fair").unwrap()),
        Box::new(InterProcessMutex::new(client, "/locks/cached").unwrap().with_caching(Caching::new())),
        Box::new(InterProcessUnfairMutex::new(client, "/locks/unfair").unwrap()),
        Box::new(InterProcessSemaphoreMutex::new(client, "/locks/semaphore").unwrap()),
        Box::new(shared.read_lock().clone()),
        Box::new(shared.write_lock().clone()),
        Box::new(InterProcessMultiLock::new(client, ["/locks/a", "/locks/b"]).unwrap()),
    ]
}

/// How often acquires ended how.
type Ends = BTreeMap<String, usize>;

fn contend(client: &CuratorFramework, done: &AtomicBool) -> Ends {
    let (locks, mut ends) = (locks(client), Ends::new());
    while !done.load(Ordering::Relaxed) {
        let lock = &locks[fastrand::usize(..locks.len())];
        let timeout = fastrand::choice([Some(Duration::ZERO), Some(50 * MS), Some(1000 * MS), None]).unwrap();
        let result = timeout.map_or_else(|| lock.acquire().map(|()| true), |timeout| lock.acquire_timeout(timeout));
        let end = match &result {
            Ok(is_granted) => is_granted.to_string(),
            Err(Error::ConnectionLoss { .. }) => "connection loss".into(),
            Err(Error::SessionExpired { .. }) => "session expired".into(),
            Err(error) => format!("{error:?}"),
        };
        *ends.entry(end).or_default() += 1;
        if result.is_ok_and(|is_granted| is_granted) {
            // It may have been lost.
            let _ = lock.release();
        }
    }
    ends
}

#[test]
fn under_cuts_and_expiries_an_acquire_fails_with_nothing_else() {
    let testbed = testbed_with(LONG);
    let open = || {
        let proxy = FaultProxy::start(&testbed.world);
        // Patient, because the servers remove the directories, which are containers, whenever an expiry has emptied them.
        let builder =
            builder_of(&testbed.world, &proxy.connect_string(), LONG).retry_policy(RetryNTimes::new(200, 20 * MS));
        let client = builder.namespace("mixed").build().unwrap();
        start(&client);
        (proxy, client)
    };
    let contenders = [open(), open(), open(), open()];
    let done = AtomicBool::new(false);
    let mut ends = Ends::new();
    scope(|scope| {
        let running: Vec<_> = contenders.iter().map(|(_, client)| scope.start(|| contend(client, &done))).collect();
        for _ in 0..FAULTS {
            sleep(fastrand::u32(..200) * MS);
            let mut connected = Vec::new();
            eventually("one is connected", || {
                connected = contenders.iter().filter(|(_, client)| client.is_connected()).collect();
                !connected.is_empty()
            });
            let (proxy, client) = connected[fastrand::usize(..connected.len())];
            if fastrand::bool() {
                proxy.cut();
            } else {
                let session = client.session_id();
                testbed.world.ensemble(|ensemble, now, out| ensemble.expire(session, now, out));
            }
        }
        done.store(true, Ordering::Relaxed);
        for (end, count) in running.into_iter().flat_map(|ended| ended.join().unwrap()) {
            *ends.entry(end).or_default() += count;
        }
    });
    figure("cuts and expiries: acquires", &ends);
    let known = ["true", "false", "connection loss", "session expired"];
    assert!(ends.keys().all(|end| known.contains(&end.as_str())), "{ends:?}");
    let has_owner =
        || testbed.world.ensemble(|ensemble, _, _| ensemble.tree(0).nodes().any(|(_, node)| node.owner() != 0));
    eventually("no znode is left", || !has_owner());
}
