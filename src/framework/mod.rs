//! The client.

mod acl;
mod connect_string;
mod connection_state;
mod ensemble;
pub(crate) mod paths;
mod retry;

pub use acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider};
pub use connect_string::ConnectString;
pub use connection_state::ConnectionState;
pub use ensemble::{EnsembleProvider, FixedEnsembleProvider};
pub use retry::{
    BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
    RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};
