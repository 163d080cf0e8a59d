//! The clock by which the command is ended, and when that is.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// How many hundredths of the session timeout are left when the command gets TERM, and when KILL. With a healthy session
/// 34 are left in the worst moment, between two heartbeats; see `Liveness`.
const TERM_AT: u32 = 15;
const KILL_AT: u32 = 5;

/// For how many hundredths of it the lock is held after a proof; see `Liveness`.
const PROOF: u32 = 95;

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

/// Translates from the clock that tells of a hold, which stands while the machine sleeps, to one that runs: a hold does
/// not last any longer for a sleep.
#[derive(Debug)]
pub(super) struct Clocks {
    session_timeout: Duration,
    start: Instant,
    /// The running clock at the start of the other one, by the sleeps before the last proof.
    first: Duration,
    /// This offset after each later sleep, and when that was seen.
    later: Vec<(Instant, Duration)>,
}

/// One clock is read a moment after the other.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

impl Clocks {
    pub(super) fn new(session_timeout: Duration) -> Clocks {
        let (first, start) = (now(), Instant::now());
        Clocks { session_timeout, start, first, later: Vec::new() }
    }

    /// When the hold ends on the running clock, assuming the oldest heartbeat that can have proved it.
    pub(super) fn end(&mut self, until: Instant) -> Duration {
        self.end_at(until, now(), Instant::now())
    }

    fn end_at(&mut self, until: Instant, now: Duration, instant: Instant) -> Duration {
        let offset = now.saturating_sub(instant.saturating_duration_since(self.start));
        if offset > self.later.last().map_or(self.first, |(_, last)| *last) + LEAST_SLEEP {
            self.later.push((instant, offset));
        }
        let proof = self.session_timeout * PROOF / 100;
        let proved = self.later.iter().rposition(|(seen, _)| until.saturating_duration_since(*seen) >= proof);
        if let Some((_, offset)) = proved.and_then(|last| self.later.drain(..=last).next_back()) {
            self.first = offset;
        }
        // The clocks of other systems do not go at one rate.
        let offset = if cfg!(target_os = "linux") { self.first } else { self.first.min(offset) };
        offset + until.saturating_duration_since(self.start)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_that_was_proved_before_a_sleep_ends_as_if_the_clock_had_run() {
        let second = Duration::from_secs(1);
        let mut clocks = Clocks::new(second * 20);
        let (start, boot) = (clocks.start, clocks.first);
        let mut end = |until, boot_time, instant| {
            clocks.end_at(start + second * until, boot + second * boot_time, start + second * instant) - boot
        };
        assert_eq!((end(19, 0, 0), end(25, 6, 6)), (second * 19, second * 25), "it was awake");
        assert_eq!(end(25, 9, 7), second * 25, "it slept for 2 s: those are gone");
        assert_eq!(end(25, 10, 8), second * 25, "an answer that had come before");
        assert_eq!(end(27, 12, 10), second * 29, "what was proved after the sleep");
        assert_eq!(end(27, 112, 10), second * 29, "it slept again");
        assert_eq!((end(28, 113, 11), end(31, 114, 12)), (second * 30, second * 133), "as long as it takes");
    }
}
