//! The clock by which the command is ended, and when that is.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// How many hundredths of the session timeout are left when the command gets TERM, and when KILL. With a healthy session
/// 34 are left in the worst moment, between two heartbeats; see `Liveness`.
const TERM_AT: u32 = 15;
const KILL_AT: u32 = 5;

/// How much of the hold is left when the command is ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) term: Duration,
    pub(super) kill: Duration,
}

impl Limits {
    pub(super) fn of(session_timeout: Duration) -> Limits {
        Limits { term: session_timeout * TERM_AT / 100, kill: session_timeout * KILL_AT / 100 }
    }

    /// For how long a hold has to be certain before the command runs, or it might get TERM at once.
    pub(super) fn least(session_timeout: Duration) -> Duration {
        session_timeout * (TERM_AT + KILL_AT) / 100
    }
}

/// What the machine's sleep does to a hold: it ends meanwhile, but the clock that it is told by stands.
#[derive(Debug)]
pub(super) struct Sleeps {
    session_timeout: Duration,
    /// What both clocks showed last.
    seen: (Duration, Instant),
    /// An end of the hold up to here may have been proved before the last sleep.
    doubted: Option<Instant>,
}

impl Sleeps {
    pub(super) fn new(session_timeout: Duration) -> Sleeps {
        Sleeps { session_timeout, seen: (now(), Instant::now()), doubted: None }
    }

    /// Whether the hold lasts until then for certain, by what both clocks show now.
    pub(super) fn is_certain(&mut self, until: Instant, now: Duration, instant: Instant) -> bool {
        let gone = (now.saturating_sub(self.seen.0), instant.saturating_duration_since(self.seen.1));
        self.seen = (now, instant);
        // A shorter one does no harm, and one clock is read a moment after the other.
        if gone.0 > gone.1 + self.session_timeout * KILL_AT / 100 {
            // A proof is good for less than a session timeout.
            self.doubted = Some(instant + self.session_timeout);
        }
        self.doubted.is_none_or(|doubted| until > doubted)
    }
}

/// Time since the machine started, its sleep included where that is to be had.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::CLOCK_MONOTONIC;
    clock_gettime(id).map(Duration::from).unwrap_or_default()
}

/// A moment of the other clock, which stands while the machine sleeps. What lies in the past is now.
pub(super) fn at(instant: Instant) -> Duration {
    now() + instant.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_proved_before_a_sleep_is_not_certain_after_it() {
        let second = Duration::from_secs(1);
        let (boot, start) = (now(), Instant::now());
        let mut sleeps = Sleeps { session_timeout: second * 20, seen: (boot, start), doubted: None };
        let mut certain = |until, boot_time, instant| {
            sleeps.is_certain(start + second * until, boot + second * boot_time, start + second * instant)
        };
        assert!(certain(19, 0, 0) && certain(25, 6, 6), "it was awake");
        assert!(!certain(26, 107, 7), "it slept for 100 s");
        assert!(!certain(26, 108, 8) && certain(28, 109, 9), "a heartbeat after the sleep proves more");
    }
}
