//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

pub(crate) mod cleanup;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod held;
pub mod operations;
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
pub use held::changes::{HoldState, StateChanges};

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
    holds::{HoldKind, ThreadHold},
    node::{HeldNode, Znode},
    revocation::{REVOKE_MESSAGE, RevocableNode, Revocation},
    tenure::{Footing, Keeper},
};
pub(crate) use znodes::create::protection;
