//! The series of locks that have a name in the facade `metrics`; there are none without the feature.

use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::base::log::contained;

/// The series of one lock, beside the totals of its client. The facade's handles are asked for once, as in `instruments`.
#[derive(Debug)]
pub(crate) struct NamedLock {
    /// How an acquire or a hold ends, and the times of those that ended so.
    #[cfg(feature = "metrics")]
    series: [(&'static str, metrics::Histogram); 7],
}

impl NamedLock {
    #[cfg(not(feature = "metrics"))]
    pub(crate) fn new(_lock: String) -> NamedLock {
        NamedLock {}
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn new(lock: String) -> NamedLock {
        const ACQUIRES: &str = "curator_locks_named_acquire_seconds";
        const HOLDS: &str = "curator_locks_named_hold_seconds";
        let seconds = metrics::Unit::Seconds;
        metrics::describe_histogram!(ACQUIRES, seconds, "Time of a named lock's acquires, by how they ended.");
        metrics::describe_histogram!(HOLDS, seconds, "Time for which a named lock was held, by how that ended.");
        let series = |how| {
            let (name, label) = if matches!(how, "released" | "lost") { (HOLDS, "end") } else { (ACQUIRES, "outcome") };
            (how, metrics::histogram!(name, "lock" => lock.clone(), label => how))
        };
        NamedLock { series: ["granted", "cached", "timed_out", "cancelled", "failed", "released", "lost"].map(series) }
    }

    /// An acquire, or a hold, has ended in this way.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, clippy::unused_self, reason = "what the facade calls it")
    )]
    pub(crate) fn ended(&self, how: &'static str, took: Duration) {
        #[cfg(feature = "metrics")]
        contained(|| self.series.iter().filter(|(of, _)| *of == how).for_each(|(_, histogram)| histogram.record(took)));
    }
}
