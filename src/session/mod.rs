//! One ZooKeeper session, over any number of connections.
//!
//! [`Session`](api::Session) is the seam: the client and the locks above know nothing else. A request is submitted now and its reply
//! awaited later, so several can be on the wire before the first answer; their order on the wire is the order of
//! submission.
//!
//! | open | for |
//! |---|---|
//! | `api` | the trait and its values |
//! | `dialect` | kinds of servers, and which operations each knows |
//! | `machine` | the session as a state machine: requests, watches, heartbeats |
//! | `native` | the threads and the socket around the machine |
//! | `servers`, `transport` | which server comes next; TCP and TLS |
//! | `sasl` | who the client is, proved on each connection |
//! | `wait` | how a caller waits: deadline, cancellation, reply |
//! | `zookeeper` | the other session, over the package `zookeeper` |

pub(crate) mod api;
pub(crate) mod dialect;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod machine;
pub(crate) mod native;
#[cfg(feature = "sasl")]
pub(crate) mod sasl;
pub(crate) mod servers;
pub(crate) mod successor;
pub(crate) mod transport;
pub(crate) mod wait;
#[cfg(feature = "zookeeper")]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "another session's threads, which no simulation has"
)]
pub(crate) mod zookeeper;
