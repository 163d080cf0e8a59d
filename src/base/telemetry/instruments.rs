//! One counter, one gauge, one timer with what it reads: relaxed atomics, and with the feature `metrics` the facade's as well.
//!
//! The facade's handles are asked for once, as asking takes a lock and allocates. Its recorder is the caller's code.

use std::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

#[cfg(feature = "metrics")]
use crate::base::log::contained;

/// A number that grows. On a cache line of its own: threads that count something else must not wait for it.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Counter {
    value: AtomicU64,
    #[cfg(feature = "metrics")]
    published: metrics::Counter,
}

impl Counter {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "what the facade calls it"))]
    pub(super) fn new(name: &'static str, label: Option<(&'static str, &'static str)>, help: &'static str) -> Counter {
        #[cfg(feature = "metrics")]
        metrics::describe_counter!(name, metrics::Unit::Count, help);
        Counter {
            value: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            published: match label {
                Some((key, value)) => metrics::counter!(name, key => value),
                None => metrics::counter!(name),
            },
        }
    }

    pub(crate) fn count(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        contained(|| self.published.increment(1));
    }

    pub(super) fn read(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Goes up and down. The clients of a process add to one number in the facade, so each tells what has changed.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Gauge {
    value: AtomicI64,
    #[cfg(feature = "metrics")]
    published: metrics::Gauge,
}

impl Gauge {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "what the facade calls it"))]
    pub(super) fn new(name: &'static str, help: &'static str) -> Gauge {
        #[cfg(feature = "metrics")]
        metrics::describe_gauge!(name, metrics::Unit::Count, help);
        Gauge {
            value: AtomicI64::new(0),
            #[cfg(feature = "metrics")]
            published: metrics::gauge!(name),
        }
    }

    /// Replaces the count `before` by `now`.
    pub(crate) fn change(&self, before: usize, now: usize) {
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.add(signed(now) - signed(before));
    }

    pub(crate) fn add(&self, change: i64) {
        self.value.fetch_add(change, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        contained(|| self.published.increment(change as f64));
    }

    pub(super) fn read(&self) -> u64 {
        // A decrease may be seen before the increase that it follows.
        u64::try_from(self.value.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// How long something took: how often and altogether here, as a histogram in the facade.
#[derive(Debug)]
pub(crate) struct Timer {
    count: AtomicU64,
    micros: AtomicU64,
    #[cfg(feature = "metrics")]
    published: metrics::Histogram,
}

impl Timer {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "what the facade calls it"))]
    pub(super) fn new(name: &'static str, help: &'static str) -> Timer {
        #[cfg(feature = "metrics")]
        metrics::describe_histogram!(name, metrics::Unit::Seconds, help);
        Timer {
            count: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            published: metrics::histogram!(name),
        }
    }

    pub(crate) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        contained(|| self.published.record(took));
    }

    pub(super) fn read(&self) -> Times {
        let sum = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        Times { count: self.count.load(Ordering::Relaxed), sum }
    }
}

/// How often something happened since the client was made, and how long it took altogether. The histograms of the
/// facade tell how the times are spread (feature `metrics`).
///
/// ```
/// # use curator_locks::Times;
/// fn is_slow(waits: &Times) -> bool {
///     waits.mean().is_some_and(|wait| wait.as_secs() >= 10)
/// }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How often it happened.
    pub count: u64,
    /// How long it took altogether.
    pub sum: Duration,
}

impl Times {
    /// How long it took on average; `None` if it never happened.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mean() {
            Some(mean) => write!(f, "{}, mean {mean:.1?}", self.count),
            None => f.write_str("0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_all_and_what_never_happened_has_none() {
        let times = |count, micros| Times { count, sum: Duration::from_micros(micros) };
        assert_eq!(times(4, 103).to_string(), "4, mean 25.8µs");
        assert_eq!((times(0, 0).mean(), times(0, 0).to_string()), (None, "0".to_owned()));
    }
}
