//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

mod acl;
mod background;
mod batch;
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
mod retry;
mod revocation;
mod vacancy;

pub use acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider};
pub use builder::{Builder, CuratorFrameworkFactory};
pub use client::{CuratorFramework, CuratorFrameworkState, ListenerId};
pub use connection_state::ConnectionState;
pub use ensemble::{EnsembleProvider, FixedEnsembleProvider};
pub use held::HoldState;
pub use retry::{
    BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
    RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};

pub(crate) use crate::panics::caught;
pub(crate) use batch::Batch;
pub(crate) use call::{Call, Failure, Outlasted};
pub(crate) use cleanup::{Job, Mark};
pub(crate) use followers::Follower;
pub(crate) use held::{HeldNode, Znode};
pub(crate) use holds::{HoldKind, ThreadHold};
pub(crate) use protected::{Claim, Created, Creation, Listing, protection};
pub(crate) use revocation::{REVOKE_MESSAGE, RevocableNode, Revocation};
pub(crate) use vacancy::Vacancy;
