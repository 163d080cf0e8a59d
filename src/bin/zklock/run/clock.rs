//! The clock by which the command is ended, and when that is.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// How many hundredths of the session timeout are left when the command's processes are sought, when they get TERM, and when KILL.
/// With a healthy session 34 are left in the worst moment, between two heartbeats; see `Liveness`.
const PREPARE_AT: u32 = 30;
const TERM_AT: u32 = 15;
const KILL_AT: u32 = 5;

/// How much of the hold is left when the command is ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) prepare: Duration,
    pub(super) term: Duration,
    pub(super) kill: Duration,
}

impl Limits {
    pub(super) fn of(session_timeout: Duration) -> Limits {
        let [prepare, term, kill] = [PREPARE_AT, TERM_AT, KILL_AT].map(|share| session_timeout * share / 100);
        Limits { prepare, term, kill }
    }

    /// How many of them are reached if this is left.
    pub(super) fn passed(self, left: Duration) -> usize {
        [self.prepare, self.term, self.kill].into_iter().filter(|limit| left <= *limit).count()
    }

    /// For how long a hold has to be certain before the command runs, or it might get TERM at once.
    pub(super) fn least(session_timeout: Duration) -> Duration {
        session_timeout * (TERM_AT + KILL_AT) / 100
    }
}

/// Time since the machine started, its sleep included where the system tells it.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::CLOCK_MONOTONIC;
    clock_gettime(id).map(Duration::from).unwrap_or_default()
}
