//! The numbers of a client for operators, and spans for users of `tracing`.
//!
//! | open | for |
//! |---|---|
//! | `instruments` | one counter, one gauge, one timer |
//! | `counters` | all counters of one client, their names, and the numbers as a user reads them |
//! | `named` | the series of a lock that has a name |
//! | `spans` | the spans of the feature `tracing` |

pub(crate) mod counters;
pub(crate) mod instruments;
pub(crate) mod named;
pub(crate) mod spans;

pub use counters::{Acquires, Connections, Losses, Metrics, Requests};
pub use instruments::Times;
