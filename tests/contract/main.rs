//! The contract of locks: the same cases for every lock.
//!
//! A test `lock::case` is one case ([`cases`]) with one lock ([`subject`]). Every case is a test of every lock, but for the
//! few that make no sense for it: those are listed below, with the reason. Where a lock does not exclude its own kind
//! (readers), its [rival](subject::Subject::rival) stands against it, so that the case applies all the same: a reader
//! waits for a writer, readers and writers queue in turns, a writer is alone.
//!
//! One of the locks has the sessions of the package `zookeeper`: what such a session owes every lock is a contract of its
//! own (`tests/client/session`). What else the package cannot do (search with sync; create and list in one round trip)
//! is no part of either: the search after a lost reply and the number of packets have tests over this crate's session.
#![cfg(feature = "testing")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod adapters;
mod cases;
mod controls;
mod history;
#[path = "../locks/leaving.rs"]
mod leaving;
mod seam;
mod subject;
mod table;
mod world;

use std::{fs, path::Path};

use curator_locks::{LockGuard, Locker, MultiLockGuard, testing::Dialect};
use seam::Parent;
use subject::Subject;
use table::*;

/// Runs a case.
fn play(subject: &'static Subject, case: fn(&'static Subject)) {
    case(subject);
}

locks_of_their_own! { contract }

/// What `ci/test` leaves to the simulator, and `ci/dialects` does not.
mod simulated {
    use super::*;

    locks_alike! { contract }
}

contract! {
    AT_OTHERS;
    keeper_mutex = subject::MUTEX.at(Dialect::KeeperBefore267), without [
        guard_send: BELONGS_TO_A_THREAD,
        container_cleanup: NO_CONTAINERS,
        server_restart: NO_RESUMPTION,
    ]
    keeper_unfair = subject::UNFAIR.at(Dialect::Keeper), without [
        fifo: NO_QUEUE,
        guard_send: BELONGS_TO_A_THREAD,
        refused_withdrawal: NO_ZNODE,
        container_cleanup: NO_CONTAINERS,
        server_restart: NO_RESUMPTION,
    ]
    raft_semaphore_mutex = subject::SEMAPHORE_MUTEX.at(Dialect::RaftKeeper), without [
        release_by_another_thread: ANY_THREAD,
        reentrancy: NOT_REENTRANT,
        container_cleanup: NO_CONTAINERS,
    ]
    old_cached_read = subject::CACHED_READ.at(Dialect::ZooKeeper34), without [
        exclusion_of_its_own_kind: READERS,
        guard_send: BELONGS_TO_A_THREAD,
        refused_release: NO_REQUEST,
        container_cleanup: NO_CONTAINERS,
        vanishing_directory: "its server ends the connection at the first container, within the time",
        timeout: "its server may do so within the time of a call; `cached_read` shows it in the simulator",
    ]
    #[cfg(feature = "zookeeper")]
    zookeeper_mutex = subject::MUTEX.over_the_package(), without [
        guard_send: BELONGS_TO_A_THREAD,
        container_cleanup: "the package makes plain znodes instead of containers",
        old_answer: "its sessions are as long as the test",
        slow_link: "its sessions are as long as the test",
        unknown_session: "the package has no such code: the session that is asked for then is there",
        vanished_servers: "its sessions are as long as the test",
    ]
}

fn locks() -> impl Iterator<Item = &'static Tested> {
    OF_THEIR_OWN.iter().chain(simulated::ALIKE).chain(AT_OTHERS)
}

/// What a reason refers to, in backticks, is a test; other names are shorter.
#[test]
fn reasons_name_tests_that_exist() {
    const SHORTEST: usize = 20;
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    for reason in locks().flat_map(|lock| lock.reasons) {
        for name in reason.split('`').skip(1).step_by(2).filter(|name| name.len() > SHORTEST) {
            assert!(sources.contains(&format!("fn {name}()")), "no such test: {name}");
        }
    }
}

/// The text of all files below a directory.
fn sources(directory: &Path) -> String {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths
        .map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap_or_default() })
        .collect()
}

/// What a child process runs; by itself it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = support::child::role() else { return };
    let subject = locks().map(|lock| lock.subject).find(|subject| subject.name == arguments[0]);
    world::play_role(&role, subject.unwrap(), &arguments[1..], &Parent);
}

/// Compiles only as long as `T` is not `Send`: for one that is, both implementations apply and the call is ambiguous.
trait NotSend<A> {
    fn is_not_send() {}
}

impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<u8> for T {}

#[test]
fn thread_owned_guards_are_not_send() {
    <LockGuard as NotSend<_>>::is_not_send();
    <MultiLockGuard as NotSend<_>>::is_not_send();
    <Locker<'static> as NotSend<_>>::is_not_send();
}
