//! Locks that processes on many machines share through ZooKeeper, for threads that block: Apache Curator's lock recipes,
//! under Curator's names and in Curator's queues.
//!
//! ```
//! use std::time::Duration;
//!
//! use curator_locks::{CuratorFramework, ExponentialBackoffRetry, InterProcessMutex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(feature = "testing")]
//! # let server = curator_locks::testing::TestingServer::start()?;
//! # #[cfg(feature = "testing")]
//! # let servers = server.connect_string();
//! # #[cfg(not(feature = "testing"))]
//! let servers = "zk1:2181,zk2:2181,zk3:2181";
//! # if cfg!(not(feature = "testing")) { return Ok(()) }
//! let client = CuratorFramework::builder()
//!     .connect_string(servers)
//!     .session_timeout(Duration::from_secs(10)) // a lock outlives a crash by this long
//!     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
//!     .namespace("shop")
//!     .build()?; // checks, no I/O
//! client.start()?; // connects in the background, and again whenever it has to
//!
//! let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
//!
//! let held = mutex.lock()?; // a guard, which is released when it is dropped
//! assert!(held.is_valid());
//! held.release()?; // as dropping it does, but says how it went
//!
//! if let Some(held) = mutex.lock_timeout(Duration::from_secs(5))? {
//!     println!("the lock is ours, with the number {}", held.fencing_token());
//! }
//! mutex.run(|_held| println!("nobody else is here"))?; // an error if the lock was lost meanwhile
//!
//! mutex.acquire()?; // or as in Java: the lock belongs to this thread
//! mutex.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is here
//!
//! | for | see |
//! |---|---|
//! | the client | [`CuratorFramework`], its [`Builder`] and [`RetryPolicy`]; operations on znodes in [`operations`] |
//! | locks that belong to a thread | [`InterProcessMutex`], [`InterProcessReadWriteLock`], [`InterProcessUnfairMutex`] |
//! | locks without an owner thread | [`InterProcessSemaphoreMutex`], [`InterProcessSemaphoreV2`] with [`SharedCount`], or a [`SharedCountReader`] of your own |
//! | values that processes share and watch | [`SharedValue`] with [`SharedValueListener`], [`SharedCount`] with [`SharedCountListener`] |
//! | several locks at once, locks of any kind | [`InterProcessMultiLock`]; as a trait object [`InterProcessLock`], held by a [`Locker`] |
//! | leader election, with listeners or a thread of its own | [`LeaderLatch`] with [`LeaderLatchListener`], [`LeaderSelector`] with [`LeaderSelectorListener`]; in both a [`Leadership`] |
//! | the lock of ZooKeeper's own recipes | [`zookeeper_recipe`] |
//! | a held lock | [`LockGuard`], [`SemaphoreMutexGuard`], [`Lease`], and [`MultiLockGuard`] of several; in each a [`Hold`] for each lock, with its [`FencingToken`], [`HoldState`], [`Deadline`] and [`WaitedFor`]. Without a guard: [`InterProcessMutex::hold`] |
//! | how to wait | [`AcquireOptions`], [`CancelToken`], [`WaitStrategy`] |
//! | asking for a lock back | [`Revoker`], [`Revocable`], [`RevocationRequest`] |
//! | holders and waiters, and since when | [`LockQueue`], of every kind of lock and of other clients, too; of a leader [`LeaderLatch::participants`] |
//! | a client's numbers, for operators | [`CuratorFramework::metrics`]: [`Metrics`], with [`Times`], [`Acquires`], [`Losses`], [`Connections`], [`Requests`] |
//! | the storage's side of fencing | [`FencingChecker`], [`FileFencingChecker`], [`ZooKeeperFencingChecker`] |
//! | several writes as one, guarded by a lock | [`Transaction`], [`Hold::guard_transaction`] |
//! | locks of your own | [`LockInternals`], [`LockInternalsDriver`] |
//! | who the client is | `Sasl`: a user with a password, or `Kerberos` (features `sasl`, `kerberos`) |
//! | a session of your own | [`unversioned`], which promises nothing |
//! | tests of your own | the module `testing`: real servers and ensembles as child processes, injected faults (feature `testing`) |
//!
//! # Chapters
//!
//! | chapter | about |
//! |---|---|
//! | [How it works](docs::guide) | how a contender gets the lock, what its holder knows, lost connections, threads, errors |
//! | [What is guaranteed](docs::guarantees) | each promise, its condition, what breaks it; fencing |
//! | [The simulator](docs::simulator) | how the promises are tried in virtual time, and how to run it |
//! | [Coming from Curator](docs::porting) | method by method, and what is stricter |
//! | [Sharing locks](docs::sharing) | with Curator in Java and kazoo in Python |
//! | [Running it](docs::operations) | how to choose the session timeout, logs, numbers, what to alert on, access control |
//!
//! No lock service can keep a holder from being paused after its last look at the clock. Storage that must not be written
//! twice checks the [`FencingToken`]: see [Fencing](docs::guarantees#fencing).
#![forbid(unsafe_code)]
// In the build of the unit tests: in others what `base` hands out is what is disallowed.
#![cfg_attr(test, warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(test)]
extern crate self as curator_locks;

mod base;
pub mod docs;
mod error;
mod framework;
mod locks;
#[cfg(test)]
#[path = "../tests/support/machine.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing, reason = "what all tests share")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it watches the real machine")]
mod machine;
mod proto;
mod session;
#[cfg(test)]
mod sim;
#[cfg(feature = "testing")]
#[allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real servers in real time"
)]
pub mod testing;
pub mod unversioned;

pub use base::telemetry::{Acquires, Connections, Losses, Metrics, Requests, Times};
pub use error::{Error, ErrorCode, LostReason, Result};
pub use framework::{
    client::{
        builder::{Builder, CuratorFrameworkFactory},
        core::{CuratorFramework, CuratorFrameworkState, ListenerId},
    },
    config::{
        acl::{AclProvider, CreatorAllAclProvider, DefaultAclProvider},
        ensemble::{EnsembleProvider, FixedEnsembleProvider},
        retry::{
            BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryForever, RetryNTimes, RetryOneTime,
            RetryPolicy, RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy,
        },
    },
    events::connection_state::{ConnectionState, ConnectionStateErrorPolicy},
    held::{
        changes::{DeadlineEvent, HoldState, StateChanges},
        waited_for::WaitedFor,
    },
    operations,
    transaction::{
        Transaction, TransactionCheckBuilder, TransactionCreateBuilder, TransactionDeleteBuilder, TransactionResult,
        TransactionSetDataBuilder,
    },
};
pub use locks::{
    AcquireOptions, Caching, CancelLeadership, CloseMode, Deadline, Decision, EntryMode, EntryState, FencingChecker,
    FencingError, FencingToken, FileFencingChecker, Hold, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    InterProcessUnfairMutex, InterProcessWriteLock, LeaderLatch, LeaderLatchListener, LeaderSelector,
    LeaderSelectorListener, LeaderState, Leadership, Lease, LockGuard, LockInternals, LockInternalsDriver,
    LockInternalsSorter, LockKind, LockQueue, Locker, MultiLockGuard, NameStyle, Participant, PredicateResults,
    QueueEntry, ReadLockDriver, Revocable, RevocationListener, RevocationRequest, Revoker, SelfFence,
    SemaphoreMutexGuard, SharedCount, SharedCountListener, SharedCountReader, SharedValue, SharedValueListener,
    SharedValueReader, StaleToken, StandardLockInternalsDriver, TenureState, UncleanDeath, VersionedValue,
    WaitStrategy, WriteLockDriver, ZooKeeperFencingChecker, zookeeper_recipe,
};
pub use proto::types::{Acl, CreateMode, Stat, perms};
#[cfg(feature = "sasl")]
pub use session::sasl::Sasl;
#[cfg(feature = "kerberos")]
pub use session::sasl::kerberos::config::Kerberos;
#[cfg(feature = "tls")]
pub use session::transport::tls_config::TlsConfig;
#[cfg(feature = "zookeeper")]
pub use session::zookeeper::ZooKeeperSessionFactory;
pub use session::{dialect::Dialect, servers::connect_string::ConnectString, wait::cancel::CancelToken};
