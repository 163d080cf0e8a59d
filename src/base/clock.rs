//! The monotonic clock.

use std::time::{Duration, Instant};

/// What the monotonic clock shows now; on a simulated thread, what that of its process does.
#[inline(always)]
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = super::sim::now() {
        return now;
    }
    #[expect(clippy::disallowed_methods, reason = "the clock itself")]
    Instant::now()
}

/// How long ago that was; zero for what is still to come.
#[inline(always)]
pub(crate) fn since(begin: Instant) -> Duration {
    now().saturating_duration_since(begin)
}
