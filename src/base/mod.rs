//! What the rooms above share: paths ([`paths`]), what a client counts ([`telemetry`]), panics of a caller's code
//! ([`panics`]), and dropping outside of a lock ([`unlocked`]).

pub(crate) mod panics;
pub(crate) mod paths;
pub(crate) mod telemetry;
pub(crate) mod unlocked;
