//! The clock of a process: it may run at another rate than true time. That by which waits end stands still while the machine sleeps.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// No time: later than all others.
pub(crate) const NEVER: u64 = u64::MAX;

const MILLION: i128 = 1_000_000;

/// A real instant, from which all those of simulations are counted. No behaviour depends on it: only differences are looked at.
fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// The instant at which a clock shows this many nanoseconds.
pub(crate) fn instant(local: u64) -> Instant {
    base() + Duration::from_nanos(local)
}

/// How many nanoseconds a clock shows at that instant.
pub(crate) fn nanos(at: Instant) -> u64 {
    duration(at.saturating_duration_since(base()))
}

/// A duration as nanoseconds; [`NEVER`] for what is too long.
pub(crate) fn duration(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

/// The clock of one process.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// It showed `local` at the true time `begin`, and has kept its rate since.
    begin: u64,
    local: u64,
    /// How much faster than true time it is, in millionths.
    ppm: i64,
    stands: bool,
}

impl Clock {
    pub(crate) fn new(now: u64, local: u64) -> Clock {
        Clock { begin: now, local, ppm: 0, stands: false }
    }

    pub(crate) fn shows(&self, now: u64) -> u64 {
        if self.stands {
            return self.local;
        }
        let past = i128::from(now.saturating_sub(self.begin));
        saturated(i128::from(self.local) + past * (MILLION + i128::from(self.ppm)) / MILLION)
    }

    /// The true time at which it will show this: [`NEVER`] while it stands still.
    pub(crate) fn when(&self, local: u64) -> u64 {
        if self.stands || local == NEVER {
            return NEVER;
        }
        let rest = i128::from(local) - i128::from(self.local);
        let rate = MILLION + i128::from(self.ppm);
        // Rounded up: at that time the clock shows it indeed.
        saturated(
            i128::from(self.begin)
                + (rest * MILLION).div_euclid(rate)
                + i128::from((rest * MILLION).rem_euclid(rate) > 0),
        )
    }

    pub(crate) fn set_rate(&mut self, now: u64, ppm: i64) {
        *self = Clock { begin: now, local: self.shows(now), ppm: ppm.max(-900_000), ..*self };
    }

    pub(crate) fn stand(&mut self, now: u64) {
        *self = Clock { begin: now, local: self.shows(now), stands: true, ..*self };
    }

    pub(crate) fn go_on(&mut self, now: u64) {
        *self = Clock { begin: now, local: self.shows(now), stands: false, ..*self };
    }
}

fn saturated(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_a_time_when_it_says_that_it_will() {
        for ppm in [0, 10_000, -10_000, 1, -1, 333_333] {
            let mut clock = Clock::new(1_000, 5_000_000);
            clock.set_rate(2_000, ppm);
            for local in [5_001_001, 5_001_007, 9_999_999, 1 << 50] {
                let at = clock.when(local);
                assert!(clock.shows(at) >= local, "{ppm}: {local}");
                assert!(clock.shows(at - 1) < local, "{ppm}: {local}, and no sooner");
            }
        }
    }

    #[test]
    fn a_clock_that_stood_still_goes_on_where_it_was() {
        let mut clock = Clock::new(0, 100);
        clock.stand(50);
        assert_eq!((clock.shows(1_000), clock.when(151)), (150, NEVER));
        clock.go_on(2_000);
        assert_eq!((clock.shows(2_001), clock.when(151)), (151, 2_001));
    }
}
