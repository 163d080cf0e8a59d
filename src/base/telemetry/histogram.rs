//! How long something took, many times.

use std::{fmt, time::Duration};

/// The last bucket begins at 2^35 µs, which is 9.5 hours.
pub(crate) const BUCKETS: usize = 37;

/// How often something took how long, since the client was made.
///
/// Each bucket reaches twice as far as the one before: the first one to 1 µs, the next ones to 2 µs, 4 µs and so on, up to
/// 9.5 hours; the last one has no end. So [`quantile`](Self::quantile) is at most twice the true value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: Duration,
}

/// The bucket of a duration.
pub(crate) fn bucket_of(micros: u64) -> usize {
    let bits = u64::BITS - micros.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

fn end_of(bucket: usize) -> Duration {
    if bucket + 1 < BUCKETS { Duration::from_micros(1 << bucket) } else { Duration::MAX }
}

impl Histogram {
    pub(crate) fn new(buckets: [u64; BUCKETS], sum: Duration) -> Histogram {
        Histogram { buckets, sum }
    }

    /// How often it happened.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How long it took altogether.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How long it took on average; `None` if it never happened.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(u128::from(self.count()))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// In this share of all cases, from 0 to 1, it took less than this; `None` if it never happened. It is the end of a
    /// bucket, [`Duration::MAX`] for the last one.
    ///
    /// ```
    /// # use curator_locks::Histogram;
    /// fn is_slow(waits: &Histogram) -> bool {
    ///     waits.quantile(0.99).is_some_and(|wait| wait.as_secs() >= 10)
    /// }
    /// ```
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * share.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        self.buckets().find_map(|(end, count)| {
            below += count;
            (below >= rank).then_some(end)
        })
    }

    /// Each bucket: where it ends, and how many are in it and in no bucket before it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.buckets.into_iter().enumerate().map(|(bucket, count)| (end_of(bucket), count))
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(mean), Some(median), Some(most)) = (self.mean(), self.quantile(0.5), self.quantile(0.99)) else {
            return f.write_str("0");
        };
        write!(f, "{}, mean {mean:.1?}, half < {median:.1?}, 99 % < {most:.1?}", self.count())
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &[u64]) -> Histogram {
        let mut buckets = [0; BUCKETS];
        for micros in micros {
            if let Some(bucket) = buckets.get_mut(bucket_of(*micros)) {
                *bucket += 1;
            }
        }
        Histogram::new(buckets, Duration::from_micros(micros.iter().copied().fold(0, u64::saturating_add)))
    }

    #[test]
    fn each_duration_is_in_the_bucket_whose_end_is_the_next_power_of_two() {
        for (micros, end) in
            [(0, 1), (1, 2), (2, 4), (3, 4), (4, 8), (1023, 1024), (1024, 2048), ((1 << 35) - 1, 1 << 35)]
        {
            assert_eq!(of(&[micros]).quantile(1.0), Some(Duration::from_micros(end)), "{micros} µs");
        }
        for micros in [1 << 35, 1 << 40, u64::MAX] {
            assert_eq!(of(&[micros]).quantile(1.0), Some(Duration::MAX), "{micros} µs");
        }
    }

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_in_which_that_share_is_complete() {
        let histogram = of(&[1, 1, 1, 100]);
        let (short, long) = (Some(Duration::from_micros(2)), Some(Duration::from_micros(128)));
        for (share, expected) in [(-1.0, short), (0.0, short), (0.5, short), (0.75, short), (0.76, long), (2.0, long)] {
            assert_eq!(histogram.quantile(share), expected, "{share}");
        }
        assert_eq!(histogram.quantile(f64::NAN), short);
        assert_eq!(histogram.mean(), Some(Duration::from_nanos(25_750)));
        assert_eq!(histogram.to_string(), "4, mean 25.8µs, half < 2.0µs, 99 % < 128.0µs");
    }

    #[test]
    fn what_never_happened_took_no_time() {
        let histogram = of(&[]);
        assert_eq!((histogram.count(), histogram.mean(), histogram.quantile(0.5)), (0, None, None));
        assert_eq!(histogram.to_string(), "0");
    }
}
