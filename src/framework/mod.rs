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
mod panics;
mod protected;
mod removal;
mod retry;
mod revocation;
mod vacancy;

pub use acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider};
pub use builder::{Builder, CuratorFrameworkFactory};
pub use client::{CuratorFramework, CuratorFrameworkState, ListenerId};
pub use connection_state::ConnectionState;
pub use ensemble::{EnsembleProvider, FixedEnsembleProvider};
pub use held::{HoldState, StateChanges};
pub use retry::{
    BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
    RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};

pub(crate) use batch::Batch;
pub(crate) use call::{Call, Failure, Outlasted};
pub(crate) use cleanup::Job;
pub(crate) use followers::Follower;
pub(crate) use held::{HeldNode, Znode};
pub(crate) use holds::{HoldKind, ThreadHold};
pub(crate) use panics::caught;
pub(crate) use protected::{Claim, Created, Creation, Listing, protection};
pub(crate) use removal::Mark;
#[allow(unused_imports, reason = "driven without a session by who checks all schedules")]
pub(crate) use removal::{Progress, Removal};
pub(crate) use revocation::{REVOKE_MESSAGE, RevocableNode, Revocation};
pub(crate) use vacancy::Vacancy;
