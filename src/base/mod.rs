//! The parts that the rooms above share: paths ([`paths`]), a client's counters ([`telemetry`]), panics of a caller's
//! code ([`panics`], [`log`]), data for people to read ([`text`]), dropping outside of a lock ([`unlocked`]), and a timer that ends the
//! process ([`timer`]).
//!
//! And all through which this crate meets the machine: the clock ([`clock`]), threads ([`threads`]), locks ([`sync`]),
//! channels ([`channel`]), chance ([`random`], [`collections`]); connections are in `session::transport`. In a build they are
//! those of the standard library, of `parking_lot` and `crossbeam-channel`. The crate's own unit tests can run all of it on
//! simulated threads in virtual time (`sim`), so nothing else in `src` may go around them: `clippy.toml` lists the originals.

pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod collections;
pub(crate) mod log;
pub(crate) mod panics;
pub(crate) mod paths;
pub(crate) mod random;
#[cfg(test)]
pub(crate) mod sim;
pub(crate) mod sync;
pub(crate) mod telemetry;
pub(crate) mod text;
pub(crate) mod threads;
pub(crate) mod timer;
pub(crate) mod unlocked;
