//! What operators see of a client: its numbers, and spans for those who trace.
//!
//! | open | for |
//! |---|---|
//! | `instruments` | one counter, one gauge, one timer |
//! | `counters` | all that one client counts, and under which names |
//! | `snapshot` | what a user reads |
//! | `spans` | what the feature `tracing` adds, and what stands there without it |

pub(crate) mod counters;
pub(crate) mod instruments;
pub(crate) mod snapshot;
pub(crate) mod spans;
pub(crate) mod times;

pub use counters::{Acquires, Connections, Losses, Requests};
pub use snapshot::Metrics;
pub use times::Times;
