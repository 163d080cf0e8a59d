//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

mod acl;
mod background;
mod builder;
mod call;
mod cleanup;
mod client;
pub(crate) mod connection_state;
mod dispatch;
mod ensemble;
mod followers;
mod grants;
mod held;
mod holds;
pub mod operations;
mod protected;
mod removal;
mod retry;
mod revocation;
mod transaction;

pub use acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider};
pub use builder::{Builder, CuratorFrameworkFactory};
pub use client::{CuratorFramework, CuratorFrameworkState, ListenerId};
pub use connection_state::ConnectionState;
pub use ensemble::{EnsembleProvider, FixedEnsembleProvider};
pub use held::{DeadlineEvent, HoldState, StateChanges};
pub use retry::{
    BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
    RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};
pub use transaction::{
    Transaction, TransactionCheckBuilder, TransactionCreateBuilder, TransactionDeleteBuilder, TransactionResult,
    TransactionSetDataBuilder,
};

pub(crate) use crate::panics::caught;
pub(crate) use call::{Call, Failure};
pub(crate) use cleanup::Job;
#[cfg(test)]
pub(crate) use dispatch::Dispatcher;
pub(crate) use followers::Follower;
#[cfg(test)]
pub(crate) use held::HeldNodes;
pub(crate) use held::{DeadlineSubscription, HeldNode, Znode};
pub(crate) use holds::{HoldKind, ThreadHold};
pub(crate) use protected::protection;
pub(crate) use removal::Mark;
pub(crate) use revocation::{REVOKE_MESSAGE, RevocableNode, Revocation};
