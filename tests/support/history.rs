//! Who held a lock when, on a clock that processes share.

/// Nanoseconds on the clock that all processes of this machine share.
pub fn shared_clock() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// One hold of a lock.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    pub token: i64,
    pub sequence: u64,
    /// On the shared clock: after the acquire returned, and before the release was called.
    pub from: u64,
    pub to: u64,
}

/// Never two holders, and grants in the order of the queue.
#[track_caller]
pub fn check_history(mut holds: Vec<Hold>) {
    holds.sort_by_key(|hold| hold.from);
    for pair in holds.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two holders: {pair:?}");
        assert!(pair[0].sequence < pair[1].sequence, "out of order: {pair:?}");
        assert!(pair[0].token < pair[1].token, "fencing tokens do not grow: {pair:?}");
    }
}
