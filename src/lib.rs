//! Curator's lock recipes on ZooKeeper.
#![forbid(unsafe_code)]

mod cancel;
mod error;
pub mod framework;
pub mod locks;
pub mod proto;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;

pub use cancel::CancelToken;
pub use error::{Error, ErrorCode, LostReason, Result};
pub use framework::{
    AclProvider, BoundedExponentialBackoffRetry, Builder, ConnectString, ConnectionState, CreatorAllAclProvider,
    CuratorFramework, CuratorFrameworkFactory, CuratorFrameworkState, DefaultAclProvider, EnsembleProvider,
    ExponentialBackoffRetry, FixedEnsembleProvider, HoldState, ListenerId, RetryForever, RetryNTimes, RetryOneTime,
    RetryPolicy, RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
};
pub use locks::{
    AcquireOptions, Decision, FencingToken, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Lease, LockGuard, LockInternals, LockInternalsDriver,
    LockInternalsSorter, Locker, PredicateResults, ReadLockDriver, SemaphoreMutexGuard, SharedCount,
    StandardLockInternalsDriver, VersionedValue, WriteLockDriver,
};
pub use proto::{Acl, CreateMode, Stat, perms};
