//! Faults and pauses for several kinds of locks at once, in lanes beside each other: they spend their time in waits.

use std::{
    env,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Expiry is exact to a tick.
pub const TICK: Duration = Duration::from_millis(200);
pub const SESSION: Duration = Duration::from_secs(2);

const TRIES_OF_A_LANE: usize = 4;

/// How many tries each kind gets, where the environment does not say otherwise.
pub fn tries(variable: &str, tries: usize) -> usize {
    env::var(variable).map_or(tries, |tries| tries.parse().unwrap())
}

/// Whether the environment's `KINDS` names this one, or nothing at all.
pub fn is_chosen(kind: &str) -> bool {
    env::var("KINDS").map_or(true, |names| names.split(',').any(|name| name == kind))
}

/// Runs all kinds beside each other, each in `most` lanes at most, until these have begun so many tries together. `run`
/// gets the lane's number and what asks for another try.
pub fn run<K: Sync, T: Send>(
    kinds: &[K],
    tries: usize,
    most: usize,
    run: impl Fn(&K, usize, &dyn Fn() -> bool) -> T + Sync,
) -> Vec<Vec<T>> {
    let of_kind = |kind| {
        let left = AtomicUsize::new(tries);
        let is_another = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let (run, is_another) = (&run, &is_another);
        thread::scope(|scope| {
            let lanes = 0..tries.div_ceil(TRIES_OF_A_LANE).min(most);
            let lanes: Vec<_> = lanes.map(|lane| scope.spawn(move || run(kind, lane, is_another))).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
        })
    };
    thread::scope(|scope| {
        let of_kind = &of_kind;
        let running: Vec<_> = kinds.iter().map(|kind| scope.spawn(move || of_kind(kind))).collect();
        running.into_iter().map(|kind| kind.join().unwrap()).collect()
    })
}
