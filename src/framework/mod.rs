//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

pub(crate) mod cleanup;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod held;
pub mod operations;
mod transaction;
pub(crate) mod znodes;

pub use client::{
    builder::{Builder, CuratorFrameworkFactory},
    core::{CuratorFramework, CuratorFrameworkState, ListenerId},
};
pub use config::{
    acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider},
    ensemble::{EnsembleProvider, FixedEnsembleProvider},
    retry::{
        BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime, RetryPolicy,
        RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
    },
};
pub use events::connection_state::{ConnectionState, ConnectionStateErrorPolicy};
pub use held::{
    changes::{HoldState, StateChanges},
    deadlines::DeadlineEvent,
};
pub use transaction::{
    Transaction, TransactionCheckBuilder, TransactionCreateBuilder, TransactionDeleteBuilder, TransactionResult,
    TransactionSetDataBuilder,
};

// What the locks use.
pub(crate) use crate::panics::caught;
pub(crate) use cleanup::{jobs::Job, removal::Mark};
pub(crate) use client::call::{Call, Failure};
#[cfg(test)]
pub(crate) use events::{dispatch::Dispatcher, event::event_channel};
pub(crate) use events::{
    dispatch::{as_listener, is_listener},
    followers::Follower,
};
#[cfg(test)]
pub(crate) use held::registry::HeldNodes;
pub(crate) use held::{
    deadlines::Subscription as DeadlineSubscription,
    holds::{HoldKind, ThreadHold},
    node::{HeldNode, Keeper, Znode},
    revocation::{REVOKE_MESSAGE, RevocableNode, Revocation, RevokeWord, with_request, without_request},
    tenure::Footing,
};
pub(crate) use znodes::create::protection;
