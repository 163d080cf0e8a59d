//! Sharing locks with Curator and kazoo: what works with what, exactly.
//!
//! A path can be contended by processes of this crate, of [Apache Curator](https://curator.apache.org/) in Java and of
//! [kazoo](https://kazoo.readthedocs.io/) in Python at the same time: they stand in one queue, first come, first
//! served. So a system can be ported one service at a time. There is nothing to switch on; what there is to mind is on
//! this page.
//!
//! It is tested (`tests/interop`) with **Curator 5.4.0**, **kazoo 2.8.0**, **`zookeeper-recipes-lock` 3.8.0** and a
//! ZooKeeper server 3.8.0: processes of all sides contend for the same paths, undisturbed, while holders are killed or
//! paused, and while the server restarts, and one history of all of them is checked.
//!
//! # With Curator
//!
//! | here | Curator 5.4.0 | to mind |
//! |---|---|---|
//! | [`InterProcessMutex`](crate::InterProcessMutex) | the same queue | |
//! | [`InterProcessSemaphoreMutex`](crate::InterProcessSemaphoreMutex) | the same queue | |
//! | [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2) | the same queue and leases | in Java, **one lease at a time**, see below; the same limit everywhere, or one [`SharedCount`](crate::SharedCount) |
//! | [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) | the same queue | going on from writer to reader only on this side, or with Curator 5.5.0 and newer, see below |
//! | [`InterProcessMultiLock`](crate::InterProcessMultiLock) | the same mutexes | in Java, give the **paths in sorted order**: here they are sorted, there they are taken as given |
//! | [`Revoker`](crate::Revoker), [`make_revocable`](crate::InterProcessMutex::make_revocable) | each side asks the other | ask Java's holders again until they have reacted, see below |
//! | [`SharedCount`](crate::SharedCount) | the same znode: four bytes, big-endian | |
//! | [`participant_nodes`](crate::InterProcessMutex::participant_nodes) | the same paths in the same order | Curator lists every child of the directory, this crate only those that end in a sequence number |
//! | [`InterProcessUnfairMutex`](crate::InterProcessUnfairMutex) | nothing there uses its znode | |
//! | - | `InterProcessSemaphore` (deprecated), `LeaderLatch`, `LeaderSelector` | not here; do not use their paths |
//!
//! Both sides have to agree on:
//!
//! - the namespace ([`Builder::namespace`](crate::Builder::namespace)) or chroot, and the path;
//! - credentials, if znodes have an ACL ([`Builder::acl_provider`](crate::Builder::acl_provider)): who may not see the
//!   znode in front cannot wait for it, and fails with `NoAuth`. `creatorAllAcl` and
//!   [`CreatorAllAclProvider`](crate::CreatorAllAclProvider) write the same;
//! - no compression (`enableCompression` of newer Curators) where data or revocations are to be read by the other side.
//!
//! They need not agree on parents: both make containers, and use what is there. They do not write the same by default
//! into their znodes: both write an address of their machine, but Curator that to which its host name resolves.
//!
//! ## What Java cannot do
//!
//! - **`acquire(n)` with n > 1 of its `InterProcessSemaphoreV2`** takes one lease after the other and lets others in
//!   between. Two that want two of two each wait for ever, whichever language the other one is written in. Take one at
//!   a time there; [`acquire_many`](crate::InterProcessSemaphoreV2::acquire_many) here is all or nothing.
//! - **From writer to reader** before 5.5.0 (CURATOR-621): its reader goes to the end of the queue, and a waiting writer
//!   gets in beside it. The readers of this crate keep the writer's place, which all versions of Curator respect.
//! - **A request for a lock** that is written after the znode was made and before Curator watches it is lost
//!   ([`Revoker::attempt_revoke`](crate::Revoker::attempt_revoke) cannot know). Repeating it does no harm. A revocable
//!   mutex of Curator's has no lock data.
//! - **The lock of a lost session.** A Java holder is not told; it has to listen to connection states itself. And Curator
//!   can be granted a lock on the znode of a session that it has given up itself (CURATOR-604, open): until the server
//!   deletes that znode there is one holder, afterwards the next in the queue holds beside it. To recognize it: the
//!   znode's `ephemeralOwner` is not the Java client's session. This crate compares them before each grant, so it happens to
//!   none of its own. Storage that checks [fencing tokens](crate#fencing) is safe from both; Java's token is the czxid of
//!   its znode.
//! - **Foreign children.** Curator counts every child of the directory as a contender. Put nothing else there.
//!
//! # With kazoo
//!
//! kazoo's lock works by other names, so **kazoo as it is and Curator do not see each other: both hold the lock at the
//! same time.** There are two ways. Each needs kazoo 2.8 or newer, and either a chroot in kazoo's host string
//! (`zk1:2181/shop`) or the namespace in front of the path.
//!
//! **With Curator's names**, for paths that Java uses, too:
//!
//! ```python
//! from kazoo.recipe.lock import Lock
//!
//! class CuratorsLock(Lock):
//!     _NODE_NAME = "-lock-"
//!     _EXCLUDE_NAMES = ["lock-"]
//!
//! with CuratorsLock(client, "/locks/order-42"):
//!     ...
//! ```
//!
//! **With its own names and an extra pattern**, for paths that only this crate and kazoo use:
//!
//! ```python
//! with client.Lock("/locks/order-42", extra_lock_patterns=("lock-",)):
//!     ...
//! ```
//!
//! This crate counts every child that ends in a sequence number, whatever its name, so it waits for kazoo's; the pattern
//! makes kazoo wait for this crate's. Curator would sort kazoo's names by their random beginnings.
//!
//! | | this crate | Curator |
//! |---|---|---|
//! | kazoo's `Lock` with Curator's names | one queue with [`InterProcessMutex`](crate::InterProcessMutex) | one queue |
//! | kazoo's `Lock` with its own names and `extra_lock_patterns=("lock-",)` | one queue | never |
//! | kazoo's `Lock` as it is | never: it does not see this crate's znodes | never |
//! | kazoo's `ReadLock`, `WriteLock`, `Semaphore` | never | never |
//!
//! kazoo's lock is not re-entrant, not revocable, and makes its directories persistent if it comes first: then they stay.
//!
//! # With ZooKeeper's own lock
//!
//! [`WriteLock`](crate::WriteLock) shares its queue with the `WriteLock` of `zookeeper-recipes-lock`, and with nothing
//! else on this page. On the Java side:
//!
//! - **one object per session and directory**: two of them take each other's znode for their own;
//! - **call `lock()` again while waiting**, say each second: if the predecessor vanishes while the recipe looks at it, it
//!   sets no watch, and nothing would wake it;
//! - `close()` and not `unlock()` when done for good: after `unlock()` a late event makes the recipe queue again.
//!
//! The directory is persistent and stays.
//!
//! # Other versions
//!
//! The tests can be run against any version that is at hand: set `CURATOR_CLASSPATH` to its jars, `KAZOO_PYTHON` to a
//! Python with another kazoo, `ZOOKEEPER_HOME` to another release of the server, and run
//! `cargo test --all-features --test interop`. `tests/peers/README.md` has the details.
