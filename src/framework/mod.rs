//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

pub(crate) mod cleanup;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod held;
pub mod operations;
pub(crate) mod transaction;
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
pub use held::changes::{DeadlineEvent, HoldState, StateChanges};
pub use transaction::{
    Transaction, TransactionCheckBuilder, TransactionCreateBuilder, TransactionDeleteBuilder, TransactionResult,
    TransactionSetDataBuilder,
};
