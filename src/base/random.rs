//! Names that no two contenders have. Numbers come from `fastrand`, whose generator is each thread's own: a simulation gives
//! each of its threads a seed.

use uuid::Uuid;

/// A random UUID of version 4.
#[inline(always)]
pub(crate) fn uuid() -> Uuid {
    #[cfg(test)]
    if super::sim::is_simulated() {
        return uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes()).into_uuid();
    }
    #[expect(clippy::disallowed_methods, reason = "no simulated thread asks here")]
    Uuid::new_v4()
}
