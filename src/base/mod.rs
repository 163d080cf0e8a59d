//! The parts that the rooms above share: paths ([`paths`]), a client's counters ([`telemetry`]), panics of a caller's
//! code ([`panics`]), threads ([`threads`]), and dropping outside of a lock ([`unlocked`]).

pub(crate) mod panics;
pub(crate) mod paths;
pub(crate) mod telemetry;
pub(crate) mod threads;
pub(crate) mod unlocked;
