//! What the facade `metrics` is told of locks that have a name there; nothing without the feature.

use std::time::Duration;

/// The series of one lock, beside the totals of its client. The facade's handles are asked for once, as in `instruments`.
#[derive(Debug)]
pub(crate) struct NamedLock {
    #[cfg(feature = "metrics")]
    acquires: [(&'static str, metrics::Histogram); 5],
    #[cfg(feature = "metrics")]
    holds: [(&'static str, metrics::Histogram); 2],
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
        let series = |name: &'static str, label: &'static str, value: &'static str| {
            (value, metrics::histogram!(name, "lock" => lock.clone(), label => value))
        };
        NamedLock {
            acquires: ["granted", "cached", "timed_out", "cancelled", "failed"]
                .map(|outcome| series(ACQUIRES, "outcome", outcome)),
            holds: ["released", "lost"].map(|end| series(HOLDS, "end", end)),
        }
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, clippy::unused_self, reason = "what the facade calls it")
    )]
    pub(crate) fn acquired(&self, outcome: &'static str, took: Duration) {
        #[cfg(feature = "metrics")]
        record(&self.acquires, outcome, took);
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, clippy::unused_self, reason = "what the facade calls it")
    )]
    pub(crate) fn held(&self, end: &'static str, lasted: Duration) {
        #[cfg(feature = "metrics")]
        record(&self.holds, end, lasted);
    }
}

#[cfg(feature = "metrics")]
fn record(series: &[(&'static str, metrics::Histogram)], value: &str, time: Duration) {
    series.iter().filter(|(of, _)| *of == value).for_each(|(_, histogram)| histogram.record(time));
}
