//! The clock of sessions and holds. It goes on while the system sleeps, as those of the servers do.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time now; on a simulated thread, what the clock of its process shows. An [`Instant`] of this clock is compared with
/// its own alone: [`on_the_standard_clock`] translates.
#[inline(always)]
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = super::sim::now() {
        return now;
    }
    system::now()
}

/// How long ago that was; zero for what is still to come.
#[inline(always)]
pub(crate) fn since(begin: Instant) -> Duration {
    now().saturating_duration_since(begin)
}

/// How long it is until then; zero for what is past. Threads sleep for a time and never until an [`Instant`] of this clock:
/// they do so by the standard one.
#[inline(always)]
pub(crate) fn until(at: Instant) -> Duration {
    at.saturating_duration_since(now())
}

/// The same moment as the system counts it from its start on.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot(at: Instant) -> Option<Duration> {
    system::since_boot(at)
}

/// Milliseconds since the epoch by this machine's wall clock, which jumps: for people to read beside what servers date.
#[expect(clippy::disallowed_methods, reason = "for people to read")]
pub(crate) fn wall_millis() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The same moment by the standard library's clock, which stands still while the system sleeps. That holds up to the next
/// sleep: to be asked for anew at each look.
pub(crate) fn on_the_standard_clock(at: Instant) -> Instant {
    #[cfg(test)]
    if super::sim::is_simulated() {
        return at;
    }
    // In this order: a pause in between makes the moment come early, and never late.
    let standard = system::standard();
    translated(at, standard, now())
}

/// `standard` and `now` are what both clocks show at one moment.
fn translated(at: Instant, standard: Instant, now: Instant) -> Instant {
    let slept = now.saturating_duration_since(standard);
    // No system sleeps for so short. The moment stays the same at each call while there was no sleep.
    if slept < LEAST_SLEEP { at } else { at.checked_sub(slept).unwrap_or(at) }
}

/// One clock is read a moment after the other.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

#[cfg(target_os = "linux")]
mod system {
    use std::{
        sync::OnceLock,
        time::{Duration, Instant},
    };

    use nix::time::{ClockId, clock_gettime};

    #[expect(clippy::disallowed_methods, reason = "the clock itself")]
    pub(super) fn standard() -> Instant {
        Instant::now()
    }

    /// The time since the start of the system as Linux counts it, its sleep included. Read without a system call: 27 ns, and 21 for the
    /// standard clock.
    pub(super) fn now() -> Instant {
        boot().zip(boot_time()).map_or_else(standard, |(boot, now)| boot + now)
    }

    pub(super) fn since_boot(at: Instant) -> Option<Duration> {
        Some(at.saturating_duration_since(boot()?))
    }

    /// The start of the system.
    fn boot() -> Option<Instant> {
        static BOOT: OnceLock<Option<Instant>> = OnceLock::new();
        // In this order: after a pause in between all moments come early, and never late.
        *BOOT.get_or_init(|| standard().checked_sub(boot_time()?))
    }

    /// `None` for a kernel before 2.6.39, which has no such clock: always or never.
    fn boot_time() -> Option<Duration> {
        clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::{Instant, SystemTime};

    use super::Sleeps;
    use crate::base::sync::Mutex;

    static SLEEPS: Mutex<Option<Sleeps>> = Mutex::new(None);

    #[expect(clippy::disallowed_methods, reason = "the clock itself")]
    pub(super) fn standard() -> Instant {
        Instant::now()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the larger of both counts: a wall clock that jumps makes a hold end early"
    )]
    pub(super) fn now() -> Instant {
        let (standard, wall) = (standard(), SystemTime::now());
        SLEEPS.lock().get_or_insert_with(|| Sleeps::new(standard, wall)).seen(standard, wall)
    }
}

/// The sleeps of a system that has no clock for them, seen by its wall clock: where that is ahead of the monotonic one by a
/// step, the system has slept, or somebody has set it. Both count, so that a hold may end early and never late.
#[cfg(any(test, not(target_os = "linux")))]
#[derive(Debug)]
struct Sleeps {
    start: (Instant, std::time::SystemTime),
    /// By how much the wall clock was ahead, or behind, at the last look.
    drift: i128,
    slept: Duration,
}

#[cfg(any(test, not(target_os = "linux")))]
impl Sleeps {
    /// Less is the two clocks' being read one after the other, and their different rates.
    const STEP: i128 = 20_000_000;

    fn new(standard: Instant, wall: std::time::SystemTime) -> Sleeps {
        Sleeps { start: (standard, wall), drift: 0, slept: Duration::ZERO }
    }

    fn seen(&mut self, standard: Instant, wall: std::time::SystemTime) -> Instant {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let past = match wall.duration_since(self.start.1) {
            Ok(past) => nanos(past),
            Err(before) => -nanos(before.duration()),
        };
        let drift = past - nanos(standard.saturating_duration_since(self.start.0));
        let step = drift - self.drift;
        if step.abs() >= Sleeps::STEP {
            self.drift = drift;
            self.slept += Duration::from_nanos(u64::try_from(step.max(0)).unwrap_or(u64::MAX));
        }
        standard + self.slept
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_of_a_sleep_is_seen_by_the_wall_clock() {
        let (standard, wall) = (system::standard(), SystemTime::UNIX_EPOCH + SECOND * 1_000_000);
        let mut sleeps = Sleeps::new(standard, wall);
        let mut seen = |awake: u32, by_the_wall: i32| {
            let by = SECOND * by_the_wall.unsigned_abs();
            let wall = if by_the_wall < 0 { wall - by } else { wall + by };
            sleeps.seen(standard + SECOND * awake, wall) - standard
        };
        assert_eq!((seen(0, 0), seen(5, 5)), (Duration::ZERO, SECOND * 5), "awake");
        assert_eq!((seen(6, 16), seen(7, 17)), (SECOND * 16, SECOND * 17), "it slept for 10 s");
        assert_eq!((seen(8, -100), seen(9, -99)), (SECOND * 18, SECOND * 19), "set back, time goes on");
        assert_eq!(seen(10, 0), SECOND * 118, "set forth: a hold ends early");
    }

    #[test]
    fn no_moment_lasts_longer_for_a_sleep() {
        let (standard, wall) = (system::standard(), SystemTime::UNIX_EPOCH + SECOND * 1_000_000);
        let (mut sleeps, mut rng) = (Sleeps::new(standard, wall), fastrand::Rng::with_seed(1));
        let (mut awake, mut passed) = (Duration::ZERO, Duration::ZERO);
        let mut late = 0;
        for _ in 0..10_000 {
            let until = standard + passed + SECOND;
            let (more, slept) = (Duration::from_millis(rng.u64(0..2000)), Duration::from_millis(rng.u64(0..4000)));
            (awake, passed) = (awake + more, passed + more + slept);
            let (is_over, now) = (standard + passed >= until, standard + awake);
            let missed = Duration::from_nanos(u64::try_from(Sleeps::STEP).unwrap_or_default());
            // By a clock that knows of sleeps, and by one that has to find out.
            assert!(translated(until, now, standard + passed) > now || is_over);
            assert!(translated(until, now, standard + passed) <= now + LEAST_SLEEP || !is_over);
            assert!(sleeps.seen(now, wall + passed) + missed >= until || !is_over);
            late += u32::from(is_over && more < SECOND);
        }
        println!("10,000 sleeps: the end was missed by none, and by a clock that stands {late} times");
        assert!(late > 1000);
    }

    #[test]
    fn the_clock_goes_on_and_translates_to_the_standard_one() {
        let (before, standard) = (now(), system::standard());
        let later = before + SECOND;
        let translated = on_the_standard_clock(later);
        assert!(translated >= standard, "{:?}", standard - translated);
        assert!(on_the_standard_clock(before) <= system::standard());
        assert!(since(before) < SECOND * 60 && now() >= before);
    }

    /// Without optimization it takes 63 ns, and the standard clock 24; see `system::now`.
    #[test]
    fn a_look_costs_about_as_much_as_one_at_the_standard_clock() {
        let cost = |look: fn() -> Instant| {
            let took = |_| {
                let begin = system::standard();
                (0..1000).for_each(|_| _ = std::hint::black_box(look()));
                system::standard() - begin
            };
            (0..50).map(took).min().unwrap_or_default() / 1000
        };
        let (standard, boot) = (cost(system::standard), cost(now));
        println!("a look at the clock: {boot:?}, at the standard one: {standard:?}");
        assert!(boot < standard * 50 + Duration::from_micros(1), "a system call is no look");
    }
}
