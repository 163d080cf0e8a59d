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
//!     .session_timeout(Duration::from_secs(30))
//!     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
//!     .namespace("shop")
//!     .build()?; // checks, no I/O
//! client.start()?; // connects in the background, and again whenever it has to
//!
//! let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
//!
//! mutex.acquire()?; // as in Java
//! mutex.release()?;
//!
//! let held = mutex.lock()?; // or as a guard, which is released when it is dropped
//! assert!(held.is_valid());
//! held.release()?; // as dropping it does, but says how it went
//!
//! if let Some(held) = mutex.lock_timeout(Duration::from_secs(5))? {
//!     println!("the lock is ours, with the number {}", held.fencing_token());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is here
//!
//! | | |
//! |---|---|
//! | the client | [`CuratorFramework`], its [`Builder`] and [`RetryPolicy`]; operations on znodes in [`framework::operations`] |
//! | locks that belong to a thread | [`InterProcessMutex`], [`InterProcessReadWriteLock`], [`InterProcessUnfairMutex`] |
//! | locks that belong to nobody | [`InterProcessSemaphoreMutex`], [`InterProcessSemaphoreV2`] with [`SharedCount`] |
//! | several at once, or any | [`InterProcessMultiLock`]; as a trait object [`InterProcessLock`], held by a [`Locker`] |
//! | an election | [`WriteLock`] with [`LockListener`] |
//! | what a holder has | [`LockGuard`], [`SemaphoreMutexGuard`], [`MultiLockGuard`], [`Lease`]; in each a [`Hold`], with its [`FencingToken`] and [`HoldState`]. Without a guard: [`InterProcessMutex::hold`] |
//! | how to wait | [`AcquireOptions`], [`CancelToken`], [`WaitStrategy`] |
//! | asking for a lock back | [`Revoker`], [`Revocable`] |
//! | who queues, since when | [`LockInternals::participants`], [`Participant`] |
//! | the storage's side of fencing | [`FencingChecker`] |
//! | locks of your own | [`LockInternals`], [`LockInternalsDriver`] |
//! | tests of your own | the module `testing`: real servers and ensembles as child processes, injected faults (feature `testing`) |
//!
//! # How it works
//!
//! Four layers, and each knows only those below it:
//!
//! ```text
//! locks      create a znode, decide from the names, watch the predecessor; one driver per kind of lock
//! framework  the client: retries, namespace, ACLs, connection states, protected create, clean-up, held znodes
//! session    one ZooKeeper session over any number of connections: requests, watches, heartbeats, reconnects
//! proto      bytes only: no socket, no thread, no clock
//! ```
//!
//! Between them are seams that can be filled otherwise: [`session::Session`] (submit requests now, get the replies
//! later), [`RetryPolicy`], [`EnsembleProvider`], [`AclProvider`], and [`LockInternalsDriver`], which decides by names
//! alone who has the lock and whom to watch.
//!
//! ## How a contender gets the lock
//!
//! 1. It creates an ephemeral sequential znode in the lock's directory and lists the directory, in one round trip. The
//!    znode's name carries a unique id, so that it is found again if the reply is lost. Missing directories are made,
//!    as containers, which servers remove when they are empty.
//! 2. The driver decides from the names: the lock is its own, or it waits for this predecessor. A mutex goes by the
//!    sequence numbers, and children without one do not count.
//! 3. It sets watches on the predecessor and on its own znode, in one round trip, and sleeps on a channel of its own
//!    until a watch fires, its time is up or its [`CancelToken`] is cancelled; so one release wakes one waiting thread.
//!    Every 30 s it looks by itself, which makes a delay of what would else be a hang
//!    ([`Builder::lock_recheck_interval`]).
//! 4. When a predecessor is deleted that is known to have held the lock, over the connection over which the queue was
//!    read, the next one has the lock without another look. Otherwise it reads the queue again. So that this is known of
//!    a predecessor in another process, too, whoever is third in line or further back watches the one in front of its
//!    predecessor as well: once that is gone the queue is read, while the predecessor holds the lock. Behind a znode of
//!    another kind, and in a read/write lock, the queue is read each time, because a downgrade leaves a reader with the
//!    writer's number.
//! 5. The last thing before the return is one more look: the znode belongs to the current session, and the session is
//!    alive for certain. If either is in doubt, for instance because the process was paused, the server is asked, in one
//!    write of sync and exists, and the acquire waits until the next heartbeats make the session certain again, at most
//!    for the session timeout. A znode of an earlier session is never taken for a lock.
//!
//!    All of this is one state machine for every kind of lock, without a socket, a thread or a clock. `tests/model.rs`
//!    tries it in every schedule of two and three contenders with faults.
//! 6. Each way out without the lock deletes the znode: at once if the server answers, else in the background until it
//!    is known to be gone or its session has ended.
//!
//! Uncontended, that is three requests in two round trips: create and list, then delete. From the third hold in a row of
//! one lock object on, if nobody else comes, it is two requests, without the list. A directory numbers the children that
//! are created in it, so nobody came in between if the new number follows that of the last hold, which stood alone. A
//! directory that was removed and made anew begins at 0 again. So the client watches it from the second hold in a row on,
//! and goes by the numbers only if the watch has not fired, the server has confirmed the delete, and the connection is
//! the same, over which events come before later replies. If somebody did come, the list takes a round trip of its own;
//! so from then on eight holds have to follow each other before it is left out again, and the watch is given up, as it is
//! when the lock object is dropped.
//!
//! ## What the holder knows
//!
//! - [`Hold::fencing_token`]: a number that grows with every grant.
//! - [`Hold::valid_until`]: up to here the servers cannot have given the lock to anybody else, unless somebody
//!   deletes its znode. It moves on with the heartbeats, a quarter of the session timeout apart. [`Hold::deadline`] warns
//!   some time before it, [`AcquireOptions::min_validity`] has a lock granted only so long before it, and
//!   [`Deadline`] says how to choose the session timeout. It assumes clocks that run
//!   at one rate, a session timeout of two ticks of the server or more, and a server that is no observer behind an
//!   observer master; so it is a bound, and no proof. The clock is monotonic and stands while the system sleeps: the
//!   servers may expire a laptop's session in its sleep, and a holder there does not see the time pass.
//! - [`Hold::state`], also as a [channel](Hold::state_changes) and a [callback](Hold::on_state_change):
//!   [`Held`](HoldState::Held), [`InDoubt`](HoldState::InDoubt) once `valid_until` has passed, which can become `Held`
//!   again, [`Lost`](HoldState::Lost) with the reason, or [`Released`](HoldState::Released). A lock held for more than 100 ms is watched, so that its
//!   holder hears of an administrator who deletes it.
//!
//! ## When the connection goes
//!
//! | | waiter | holder |
//! |---|---|---|
//! | [`Suspended`](ConnectionState::Suspended): the connection is gone, the session may live | keeps its place and waits on, until its own time is up | keeps the lock; in doubt when `valid_until` has passed. `release` tries as the retry policy says, at most for the session timeout, and then leaves the rest to the background |
//! | [`Reconnected`](ConnectionState::Reconnected), same session | watches are set again, the queue is read again | each held znode is checked: held again, or lost |
//! | [`Lost`](ConnectionState::Lost): the server said so, or it was suspended for the whole session timeout | queues again, at the end, in the session that follows, if that comes before the retry policy gives up | [`HoldState::Lost`]; re-entry and `release` fail with [`Error::LockLost`] |
//! | the client is closed | [`Error::ClientClosed`], at once | [`HoldState::Lost`] |
//!
//! A session that is given up is taken up once more in the background, only to close it, so that its znodes block
//! nobody for longer than necessary.
//!
//! ## Threads
//!
//! Callers write their requests to the socket and sleep until they are woken: by a reply, an event, a [`CancelToken`], or
//! the end of their time. A client has three threads of its own, however many callers there are. One connects, reads the
//! socket, wakes the callers, and keeps the timers. One looks after connection states, held znodes and clean-up. One runs
//! listeners, in order and under no lock, so they may use the client; while one runs, the others wait. A listener that
//! panics is logged, and the thread goes on. Servers' names are resolved, and servers are asked whether they can write
//! ([`Builder::can_be_read_only`]), on threads that end with the answer.
//!
//! Never use a client after `fork`. The child has none of these threads but shares the socket, and what it writes there
//! ends the parent's connection, or changes the parent's locks. Fork before the client is started, or `exec` at once.
//!
//! # Fencing
//!
//! No lock service can keep a holder from being paused after its last look at the clock. What can be had is storage that
//! refuses a writer whose lock has passed on:
//!
//! ```
//! use curator_locks::{CuratorFramework, FencingChecker, FencingToken, InterProcessMutex, RetryOneTime, StaleToken};
//!
//! /// Storage that takes part.
//! #[derive(Default)]
//! struct Account {
//!     balance: i64,
//!     fence: FencingChecker,
//! }
//!
//! impl Account {
//!     fn set(&mut self, balance: i64, token: FencingToken) -> Result<(), StaleToken> {
//!         self.fence.check(token)?;
//!         self.balance = balance;
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(feature = "testing")]
//! # let server = curator_locks::testing::TestingServer::start()?;
//! # #[cfg(feature = "testing")]
//! # let servers = server.connect_string();
//! # #[cfg(not(feature = "testing"))]
//! # let servers = "zk1:2181";
//! # if cfg!(not(feature = "testing")) { return Ok(()) }
//! # let client = CuratorFramework::builder()
//! #     .connect_string(servers)
//! #     .retry_policy(RetryOneTime::new(std::time::Duration::from_millis(100)))
//! #     .build()?;
//! # client.start()?;
//! let mutex = InterProcessMutex::new(&client, "/locks/account")?;
//! let mut account = Account::default();
//!
//! let held = mutex.lock()?;
//! let early = held.fencing_token();
//! account.set(100, early)?;
//! held.release()?;
//!
//! let held = mutex.lock()?; // somebody else, on another machine
//! account.set(80, held.fencing_token())?;
//!
//! assert!(account.set(110, early).is_err()); // the first one wakes up too late
//! assert_eq!(account.balance, 80);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! One [`Error`] for everything, by who is to blame:
//!
//! | | |
//! |---|---|
//! | the caller | [`InvalidPath`](Error::InvalidPath), [`InvalidArgument`](Error::InvalidArgument), [`NotStarted`](Error::NotStarted), [`AlreadyStarted`](Error::AlreadyStarted), [`NotOwner`](Error::NotOwner) |
//! | the caller's wish | [`Cancelled`](Error::Cancelled), [`WouldDeadlock`](Error::WouldDeadlock), [`Timeout`](Error::Timeout), [`ClientClosed`](Error::ClientClosed) |
//! | the lock | [`LockLost`](Error::LockLost), [`SequenceExhausted`](Error::SequenceExhausted) |
//! | the connection | [`ConnectionLoss`](Error::ConnectionLoss), [`SessionExpired`](Error::SessionExpired): the retry policy is exhausted, and whether the operation took effect may be unknown |
//! | the server's answer | [`Server`](Error::Server) with its code, [`AuthFailed`](Error::AuthFailed), [`FrameTooLarge`](Error::FrameTooLarge), [`Protocol`](Error::Protocol) |
//!
//! A timed acquire that finds the lock taken is no error: it returns `false` or `None`. Whatever the error, an acquire
//! that failed leaves nothing in the queue.
//!
//! # From Curator
//!
//! The names are Curator's, in snake_case and without `get`; each item names its source. The README has the table and
//! what is out for now. Which locks processes in Java and Python can share with those of this crate, and what there is to
//! mind, is in the chapter [Sharing locks with Curator and kazoo](sharing).
#![forbid(unsafe_code)]

mod cancel;
mod error;
pub mod framework;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod hooks;
pub mod locks;
mod panics;
mod paths;
pub mod proto;
pub mod session;
pub mod sharing;
#[cfg(feature = "testing")]
pub mod testing;

pub use cancel::CancelToken;
pub use error::{Error, ErrorCode, LostReason, Result};
pub use framework::{
    AclProvider, BoundedExponentialBackoffRetry, Builder, ConnectionState, CreatorAllAclProvider, CuratorFramework,
    CuratorFrameworkFactory, CuratorFrameworkState, DeadlineEvent, DefaultAclProvider, EnsembleProvider,
    ExponentialBackoffRetry, FixedEnsembleProvider, HoldState, ListenerId, RetryForever, RetryNTimes, RetryOneTime,
    RetryPolicy, RetrySleeper, RetryUntilElapsed, SessionFailedRetryPolicy, StateChanges,
};
pub use locks::{
    AcquireOptions, Deadline, Decision, FencingChecker, FencingToken, Hold, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, InterProcessWriteLock, Lease, LockGuard, LockInternals,
    LockInternalsDriver, LockInternalsSorter, LockListener, Locker, MultiLockGuard, Participant, PredicateResults,
    ReadLockDriver, Revocable, RevocationListener, Revoker, SemaphoreMutexGuard, SharedCount, StaleToken,
    StandardLockInternalsDriver, VersionedValue, WaitStrategy, WriteLock, WriteLockDriver, ZNodeName,
};
pub use proto::{Acl, CreateMode, Stat, perms};
pub use session::ConnectString;
#[cfg(feature = "tls")]
pub use session::TlsConfig;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
