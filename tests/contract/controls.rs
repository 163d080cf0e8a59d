//! What the check of holds finds.

use std::{sync::Barrier, thread, time::Duration};

use curator_locks::{InterProcessLock, Result};

use crate::{
    history::{Interval, contend, two_holders},
    subject::{Guard, Lock},
};

fn interval(is_shared: bool, from: u64, to: u64) -> Interval {
    Interval { is_shared, from, to }
}

#[test]
fn two_holders_are_found_and_two_readers_are_none() {
    let holds = |kinds: [bool; 3], times: [(u64, u64); 3]| {
        let mut holds: Vec<_> = (0..3).map(|k| interval(kinds[k], times[k].0, times[k].1)).collect();
        two_holders(&mut holds).is_some()
    };
    let (apart, around) = ([(0, 2), (2, 4), (4, 6)], [(0, 9), (2, 4), (5, 6)]);
    assert!(!holds([false; 3], apart) && !holds([true; 3], apart));
    assert!(holds([false; 3], around) && !holds([true; 3], around));
    assert!(holds([true, true, false], around), "a writer beside the first reader, not beside the second");
    assert!(holds([false, true, true], around) && holds([true, false, true], around));
    assert!(!holds([true, false, true], apart));
}

/// Lets all in at the same time.
struct NoLock(Barrier);

impl InterProcessLock for NoLock {
    fn acquire(&self) -> Result<()> {
        self.0.wait();
        Ok(())
    }

    fn acquire_timeout(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}

impl Lock for NoLock {
    fn guard(&self) -> Result<Box<dyn Guard + '_>> {
        unreachable!()
    }
}

#[test]
fn contenders_without_a_lock_are_found() {
    let lock = NoLock(Barrier::new(4));
    let mut holds: Vec<Interval> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| contend(&lock, false))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(two_holders(&mut holds).is_some());
}
