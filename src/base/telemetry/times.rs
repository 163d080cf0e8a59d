//! How long something took, altogether.

use std::{fmt, time::Duration};

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
