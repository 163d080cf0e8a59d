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
mod history;
#[path = "../locks/leaving.rs"]
mod leaving;
mod subject;
mod world;

use std::{fs, path::Path};

use curator_locks::{LockGuard, Locker, MultiLockGuard, testing::Dialect};
use subject::Subject;

/// One lock under test.
struct Tested {
    subject: &'static Subject,
    /// Why each case that is no test of this lock makes no sense for it.
    reasons: &'static [&'static str],
}

/// One module for each lock, and in it one test for each case that is not listed.
macro_rules! contract {
    ($(
        $(#[$attribute:meta])*
        $lock:ident = $subject:expr, without [$($absent:ident: $reason:expr),* $(,)?]
    )*) => {
        $(
            $(#[$attribute])*
            mod $lock {
                use super::*;

                static SUBJECT: Subject = Subject { name: stringify!($lock), ..$subject };

                /// No lock is without what is no case.
                const _: &[fn(&'static Subject)] = &[$(cases::$absent),*];

                pub(super) const TESTED: Tested = Tested { subject: &SUBJECT, reasons: &[$($reason),*] };

                macro_rules! test {
                    $(($absent) => {};)*
                    ($case:ident) => {
                        #[test]
                        fn $case() {
                            cases::$case(&SUBJECT);
                        }
                    };
                }

                cases::for_each_case! { test }
            }
        )*

        const LOCKS: &[Tested] = &[$($(#[$attribute])* $lock::TESTED),*];
    };
}

const BELONGS_TO_A_THREAD: &str =
    "its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`)";
const ANY_THREAD: &str =
    "any thread may release it (`semaphore`: `any_thread_may_release_and_a_second_release_is_refused`)";
const NOT_REENTRANT: &str =
    "it is not re-entrant (`semaphore`: `it_is_not_reentrant_and_a_timed_failure_keeps_what_is_held`)";
const READERS: &str = "readers hold together (`read_write`: `readers_hold_together_and_a_writer_alone`)";
const NO_QUEUE: &str = "nobody queues: whoever is faster has it";
const NO_WAIT_TO_CANCEL: &str = "no call waits for others, so there is no wait to cancel";
const NO_WAIT_TO_WAKE: &str = "no call waits for others, so none has to be woken";
const QUEUES_AGAIN: &str = "its listener is told and it queues again by itself (`zk_write_lock`: \
                            `an_owner_whose_session_expires_is_told_and_queues_again_in_the_next`)";
const PERSISTENT: &str = "its directory is persistent, as in ZooKeeper's own recipe (`zk_write_lock`: \
                          `the_directory_is_persistent`)";
const ONE_OBJECT: &str = "its object is one contender, and there is no guard";
const VALUES: &str = "what is given back is a value, which ends itself";
const NO_GUARD: &str = "there is no guard";
const NO_HOLD: &str = "nothing that its holder can ask outlives it";
const NO_MEMBER: &str = "it is no `InterProcessLock`";
const NO_REQUEST: &str = "a release asks no server";
const NO_ZNODE: &str = "who waits has no znode";
const NO_RESUMPTION: &str =
    "its servers resume no session (`a_holder_is_told_and_keeps_others_out_until_it_has_released`)";
const NO_CONTAINERS: &str =
    "its servers have no containers: directories stay (`what_is_made_on_the_way_stays_and_is_said_once`)";

contract! {
    mutex = subject::MUTEX, without [guard_send: BELONGS_TO_A_THREAD]
    cached_mutex = subject::CACHED_MUTEX, without [guard_send: BELONGS_TO_A_THREAD, refused_release: NO_REQUEST]
    cached_read = subject::CACHED_READ, without [
        exclusion_of_its_own_kind: READERS,
        guard_send: BELONGS_TO_A_THREAD,
        refused_release: NO_REQUEST,
    ]
    cached_write = subject::CACHED_WRITE, without [guard_send: BELONGS_TO_A_THREAD, refused_release: NO_REQUEST]
    semaphore_mutex = subject::SEMAPHORE_MUTEX, without [
        release_by_another_thread: ANY_THREAD,
        reentrancy: NOT_REENTRANT,
    ]
    multi = subject::MULTI, without [guard_send: BELONGS_TO_A_THREAD]
    read = subject::READ, without [exclusion_of_its_own_kind: READERS, guard_send: BELONGS_TO_A_THREAD]
    write = subject::WRITE, without [guard_send: BELONGS_TO_A_THREAD]
    unfair = subject::UNFAIR, without [fifo: NO_QUEUE, guard_send: BELONGS_TO_A_THREAD, refused_withdrawal: NO_ZNODE]
    zk_write_lock = subject::ZK_WRITE_LOCK, without [
        released_changes: NO_GUARD,
        stale_locker: ONE_OBJECT,
        release_of_nothing: "to unlock what is not locked does nothing, as in ZooKeeper's own recipe",
        release_by_another_thread: "it belongs to no thread: whoever has the object may unlock it",
        reentrancy: "a second `lock` only tells whether it is the owner",
        cancel: NO_WAIT_TO_CANCEL,
        close_of_waiter: NO_WAIT_TO_WAKE,
        session_loss_of_holder: QUEUES_AGAIN,
        vanishing_directory: "its `lock` has no time: it tries again as often as the retry policy says",
        container_cleanup: PERSISTENT,
        guard_drop: "there is no guard: dropping the object leaves the queue, which panic_while_holding shows",
        guard_release: NO_GUARD,
        guard_knows: NO_GUARD,
        guard_tokens_grow: NO_GUARD,
        guard_send: NO_GUARD,
        stale_release: QUEUES_AGAIN,
        released_hold: NO_HOLD,
        lost_member: NO_MEMBER,
        slow_link: "it queues again by itself (`zk_write_lock`: \
                    `an_owner_to_be_on_a_slow_link_lets_those_behind_it_have_the_lock`)",
        vanished_servers: "no call waits for others, so there is no wait to end",
    ]
    lease = subject::LEASE, without [
        stale_locker: VALUES,
        release_of_nothing: "what is given back is a value: without one there is nothing to call",
        release_by_another_thread: "it belongs to no thread",
        reentrancy: "each acquire is one more lease",
        released_hold: NO_HOLD,
        lost_member: NO_MEMBER,
    ]
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
    ]
    #[cfg(feature = "zookeeper")]
    zookeeper_mutex = subject::MUTEX.over_the_package(), without [
        guard_send: BELONGS_TO_A_THREAD,
        container_cleanup: "the package makes plain znodes instead of containers",
        old_answer: "its sessions are as long as the test",
        slow_link: "its sessions are as long as the test",
        vanished_servers: "its sessions are as long as the test",
    ]
}

/// What a reason refers to, in backticks, is a test; other names are shorter.
#[test]
fn reasons_name_tests_that_exist() {
    const SHORTEST: usize = 20;
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    for reason in LOCKS.iter().flat_map(|lock| lock.reasons) {
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
    match role.as_str() {
        "contender" => history::contender(subject_named(&arguments[0]), &arguments[1..]),
        "paused" => cases::paused_child(subject_named(&arguments[0]), &arguments[1], &arguments[2]),
        other => panic!("no role {other}"),
    }
}

fn subject_named(name: &str) -> &'static Subject {
    LOCKS.iter().map(|lock| lock.subject).find(|subject| subject.name == name).unwrap()
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
