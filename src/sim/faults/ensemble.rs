//! A leader that is paused, and a server that is away.

use super::testbed::*;
use crate::{
    HoldState, InterProcessMutex,
    sim::ensemble::{EnsembleConfig, faults::Tail},
};

/// A follower answers by itself what a paused leader never hears of, and the leader expires the session when it goes on.
///
/// Ten times in each of several ensembles.
#[test]
fn no_node_vanishes_before_its_holders_valid_until() {
    let results: Vec<_> = (0..5).map(pause_the_leader).collect();
    let vanished: u32 = results.iter().map(|(vanished, _)| vanished).sum();
    figure("leader paused: znodes that vanished in 50 rounds", vanished);
    let shortest = results.iter().map(|(_, shortest)| shortest).min();
    figure("leader paused: at the closest, after valid_until by", shortest);
    assert!(vanished > 0);
}

/// How many znodes vanished, and how long at the least after their holders' `valid_until`.
fn pause_the_leader(seed: u64) -> (u32, Duration) {
    let (tick, session) = (Duration::from_secs(1), Duration::from_secs(3));
    let (world, _end) = begin(seed, EnsembleConfig { servers: 3, tick, sync_limit: 10, ..EnsembleConfig::default() });
    let leader = world.ensemble(|ensemble, _, _| ensemble.leader().unwrap());
    let [follower, other] = [1, 2].map(|step| format!("zk{}:2181", (leader + step) % 3 + 1));
    let client = builder_of(&world, &follower, session).build().unwrap();
    start(&client);
    let observer = builder_of(&world, &other, LONG).build().unwrap();
    start(&observer);
    let (mut vanished, mut shortest) = (0, Duration::MAX);
    for round in 0..10 {
        let mutex = InterProcessMutex::new(&client, LOCK).unwrap();
        let held = loop {
            // The session may still be on its way after the round before.
            match mutex.lock() {
                Ok(held) => break held,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        // The observer's server may hear of the commit later than the holder's: not that it has yet to hear of it when the
        // leader is paused.
        eventually("the observer sees the znode", || {
            held.is_lost() || matches!(observer.check_exists().for_path(held.path()), Ok(Some(_)))
        });
        // So that the pause falls on every phase of the heartbeat.
        sleep(session / 20 * (round % 7));
        let until = now() + session * 3 / 2;
        world.ensemble(|ensemble, now, _| ensemble.pause(leader, now));
        let (mut valid_until, mut resumed) = (held.valid_until(), None);
        loop {
            if resumed.is_none() && now() >= until {
                world.ensemble(|ensemble, now, out| ensemble.resume(leader, now, out));
                resumed = Some(now());
            }
            if !held.is_lost() {
                valid_until = valid_until.max(held.valid_until());
            }
            // A follower answers reads by itself, also while the leader is paused.
            let is_gone = matches!(observer.check_exists().for_path(held.path()), Ok(None));
            if is_gone {
                let at = now();
                vanished += 1;
                shortest = shortest.min(at.saturating_duration_since(valid_until));
                assert!(at >= valid_until, "vanished {:?} too early", valid_until - at);
                break;
            }
            if resumed.is_some_and(|at| elapsed(at) > session) && held.state() == HoldState::Held {
                break;
            }
            sleep(5 * MS);
        }
        drop(held);
    }
    (vanished, shortest)
}

/// A connection that comes while the server starts may get no answer. The session must not wait for one until it is over.
#[test]
fn a_lone_server_that_is_back_within_the_session_has_kept_it() {
    let session = 4 * T;
    for seed in 0..20 {
        let (world, _end) = begin(seed, EnsembleConfig { servers: 1, ..EnsembleConfig::default() });
        let client = builder_of(&world, &world.connect_string(), session).connection_timeout(session).build().unwrap();
        start(&client);
        let mutex = InterProcessMutex::new(&client, LOCK).unwrap();
        let held = mutex.lock().unwrap();
        world.ensemble(|ensemble, now, out| ensemble.crash(0, Tail::Kept, now, out));
        sleep(session / 2);
        world.ensemble(|ensemble, now, _| ensemble.restart(0, now));
        held.release().unwrap();
    }
}
