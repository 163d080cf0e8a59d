//! Who goes on: the choices of one run, all of them from its seed.

use std::time::Duration;

use fastrand::Rng;

/// How a run chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Schedule {
    /// One of the others, as the seed says.
    FromSeed,
    /// Any thread, each as likely as another; at a call of the seam that need not wait with this probability.
    Uniform { switch: f64 },
    /// The one of the highest priority, as Burckhardt and others describe it ("A randomized scheduler with probabilistic
    /// guarantees of finding bugs"). Priorities are drawn when threads start; about `changes` times in 100,000 steps the thread
    /// that runs falls behind all others.
    Pct { changes: u32 },
}

/// The choices of a run.
pub(crate) struct Choices {
    rng: Rng,
    /// The last draw: a step takes what it needs from its bits.
    draw: u64,
    /// Of 65,536 steps, after how many another thread may go on.
    switch: u64,
    /// Of 2^32 steps, in how many the thread stands still for a while.
    stall: u64,
    /// In nanoseconds.
    longest_stall: u64,
    /// The longest that a step takes, in nanoseconds.
    longest_step: u64,
    pub(super) is_pct: bool,
    /// The priority of the thread that fell behind last.
    lowest: u64,
}

const STEPS: f64 = 65_536.0;
/// Priorities above this are drawn, those below are of threads that have fallen behind.
const DRAWN: u64 = 1 << 32;

impl Choices {
    /// `stall`: for how long a thread stands still at most; none does where that is nothing.
    pub(crate) fn new(seed: u64, schedule: Schedule, stall: Option<Duration>) -> Choices {
        let mut rng = Rng::with_seed(seed);
        let schedule = match schedule {
            Schedule::FromSeed => match rng.u32(0..8) {
                0 => Schedule::Uniform { switch: 0.0 },
                1 => Schedule::Uniform { switch: 0.001 },
                2 => Schedule::Uniform { switch: 0.01 },
                3 => Schedule::Uniform { switch: 0.05 },
                4 => Schedule::Uniform { switch: 0.3 },
                5 => Schedule::Pct { changes: 3 },
                6 => Schedule::Pct { changes: 30 },
                _ => Schedule::Pct { changes: 300 },
            },
            schedule => schedule,
        };
        let switch = match schedule {
            Schedule::Uniform { switch } => switch,
            Schedule::Pct { changes } => f64::from(changes) / 100_000.0,
            Schedule::FromSeed => 0.0,
        };
        let drawn = [0, 0, 0, 20, 1_000, 6_000][rng.usize(0..6)];
        let longest = stall.unwrap_or(Duration::from_millis(drawn));
        let longest_stall = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 65,536")]
        let switch = (switch.clamp(0.0, 1.0) * STEPS).ceil() as u64;
        let stall = if longest.is_zero() { 0 } else { [40_000, 400_000, 4_000_000][rng.usize(0..3)] };
        let longest_step = [200, 2_000, 20_000][rng.usize(0..3)];
        let is_pct = matches!(schedule, Schedule::Pct { .. });
        Choices { rng, draw: 0, switch, stall, longest_stall, longest_step, is_pct, lowest: DRAWN }
    }

    /// One more step: how long it takes, in nanoseconds.
    pub(super) fn step(&mut self) -> u64 {
        self.draw = self.rng.u64(..);
        ((self.draw & 0xffff) * self.longest_step) >> 16
    }

    /// Whether another thread may go on after this step.
    pub(super) fn switches(&self) -> bool {
        (self.draw >> 16) & 0xffff < self.switch
    }

    /// For how long the thread stands still after this step.
    pub(super) fn stall(&mut self) -> Option<u64> {
        // Short ones are as likely as long ones, in orders of magnitude.
        (self.draw >> 32 < self.stall).then(|| self.longest_stall >> self.rng.u32(0..12))
    }

    pub(super) fn any(&mut self, of: usize) -> usize {
        self.rng.usize(..of)
    }

    pub(super) fn priority(&mut self) -> u64 {
        self.rng.u64(DRAWN..)
    }

    /// A priority behind all others.
    pub(super) fn last(&mut self) -> u64 {
        self.lowest = self.lowest.saturating_sub(1);
        self.lowest
    }
}
