//! What is explored.

use super::rules::{ALL_FAULTS, Lock, Op, Rules};

/// Each thread in a client of its own.
fn alike(threads: usize, locks: Vec<Lock>, program: &[Op]) -> Rules {
    Rules {
        locks,
        threads: (0..threads).map(|client| (client, program.to_vec())).collect(),
        kinds: ALL_FAULTS.to_vec(),
        faults: 0,
        omitted: None,
        is_symmetric: true,
        has_delays: false,
        retries: 3,
    }
}

const ONCE: [Op; 2] = [Op::Acquire(0), Op::Release(0)];

pub fn mutex(threads: usize) -> Rules {
    alike(threads, vec![Lock::mutex()], &ONCE)
}
