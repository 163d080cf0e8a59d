//! The simulator itself: what it runs, and that it does so again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::world::{Report, World, WorldConfig};
use crate::{InterProcessMutex, base::sim::thread::sleep};

fn locks(seed: u64, processes: usize, rounds: usize) -> (Report, u64) {
    let grants = Arc::new(AtomicU64::new(0));
    let count = grants.clone();
    let report = World::run(seed, WorldConfig::default(), move |world| {
        let inside = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..processes)
            .map(|number| {
                let process = world.process(&format!("client {number}"));
                let (world, inside, count, its) = (world.clone(), inside.clone(), count.clone(), process.clone());
                process.spawn("worker", move || {
                    let client = its.client(|builder| builder);
                    let mutex = InterProcessMutex::new(&client, "/locks/one").unwrap();
                    for _ in 0..rounds {
                        mutex.acquire().unwrap();
                        if inside.fetch_add(1, Relaxed) != 0 {
                            world.fail("two holders".into());
                        }
                        sleep(Duration::from_millis(1));
                        inside.fetch_sub(1, Relaxed);
                        mutex.release().unwrap();
                        count.fetch_add(1, Relaxed);
                    }
                    client.close();
                })
            })
            .collect();
        for task in tasks {
            task.join();
        }
    });
    (report, grants.load(Relaxed))
}

#[test]
fn processes_take_turns_in_virtual_time() {
    let (report, grants) = locks(1, 3, 20);
    println!("{report}");
    report.assert_ok();
    assert_eq!(grants, 60);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let begin = crate::base::clock::now();
    let (mut grants, mut steps, mut switches, mut time) = (0, 0, 0, Duration::ZERO);
    for seed in 0..50 {
        let ((one, count), (other, _)) = (locks(seed, 3, 20), locks(seed, 3, 20));
        one.assert_ok();
        assert_eq!(one.hash, other.hash, "{one}\n---\n{other}");
        grants += 2 * count;
        steps += 2 * one.steps;
        switches += 2 * one.switches;
        time += 2 * one.time;
    }
    let took = crate::base::clock::since(begin);
    println!("{grants} grants, {steps} steps, {switches} switches, {time:?} in {took:?}");
}
