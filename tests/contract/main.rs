//! The contract of locks: the same cases for every lock, over this crate's session and over the one of the package
//! `zookeeper`.
//!
//! A test `lock::case` is one case ([`cases`]) with one lock ([`subject`]). Each lock's module below says which cases
//! it runs and which make no sense for it; a case that is neither fails `every_case_is_run_or_listed`. Where a lock does
//! not exclude its own kind (readers), its [rival](subject::Subject::rival) stands against it, so that the case applies
//! all the same: a reader waits for a writer, readers and writers queue in turns, a writer is alone.
//!
//! Not applicable:
//!
//! | lock | case | reason |
//! |---|---|---|
//! | mutex | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | cached_mutex | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | cached_mutex | refused_release | a release asks no server |
//! | cached_read | exclusion_of_its_own_kind | readers hold together (`read_write`: `readers_hold_together_and_a_writer_alone`) |
//! | cached_read | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | cached_read | refused_release | a release asks no server |
//! | cached_write | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | cached_write | refused_release | a release asks no server |
//! | semaphore_mutex | release_by_another_thread | any thread may release it (`semaphore`: `any_thread_may_release_and_a_second_release_is_refused`) |
//! | semaphore_mutex | reentrancy | it is not re-entrant (`semaphore`: `it_is_not_reentrant_and_a_timed_failure_keeps_what_is_held`) |
//! | multi | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | read | exclusion_of_its_own_kind | readers hold together (`read_write`: `readers_hold_together_and_a_writer_alone`) |
//! | read | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | write | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | unfair | fifo | nobody queues: whoever is faster has it |
//! | unfair | refused_withdrawal | who waits has no znode |
//! | unfair | guard_send | its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`) |
//! | zk_write_lock | release_of_nothing | to unlock what is not locked does nothing, as in ZooKeeper's own recipe |
//! | zk_write_lock | release_by_another_thread | it belongs to no thread: whoever has the object may unlock it |
//! | zk_write_lock | reentrancy | a second `lock` only tells whether it is the owner |
//! | zk_write_lock | cancel | no call waits for others, so there is no wait to cancel |
//! | zk_write_lock | close_of_waiter | no call waits for others, so none has to be woken |
//! | zk_write_lock | session_loss_of_holder | its listener is told and it queues again by itself (`zk_write_lock`: `an_owner_whose_session_expires_is_told_and_queues_again_in_the_next`) |
//! | zk_write_lock | vanishing_directory | its `lock` has no time: it tries again as often as the retry policy says |
//! | zk_write_lock | container_cleanup | its directory is persistent, as in ZooKeeper's own recipe (`zk_write_lock`: `the_directory_is_persistent`) |
//! | zk_write_lock | guard_drop | there is no guard: dropping the object leaves the queue, which panic_while_holding shows |
//! | zk_write_lock | guard_release | there is no guard |
//! | zk_write_lock | guard_knows | there is no guard |
//! | zk_write_lock | guard_tokens_grow | there is no guard |
//! | zk_write_lock | guard_send | there is no guard |
//! | zk_write_lock | released_changes | there is no guard |
//! | zk_write_lock | stale_locker | its object is one contender, and there is no guard |
//! | zk_write_lock | stale_release | its listener is told and it queues again by itself (`zk_write_lock`: `an_owner_whose_session_expires_is_told_and_queues_again_in_the_next`) |
//! | zk_write_lock | released_hold | nothing that its holder can ask outlives it |
//! | zk_write_lock | lost_member | it is no `InterProcessLock` |
//! | lease | stale_locker | what is given back is a value, which ends itself |
//! | lease | released_hold | nothing that its holder can ask outlives it |
//! | lease | lost_member | it is no `InterProcessLock` |
//! | lease | release_of_nothing | what is given back is a value: without one there is nothing to call |
//! | lease | release_by_another_thread | it belongs to no thread |
//! | lease | reentrancy | each acquire is one more lease |
//! | zookeeper_* | what the same lock has above | |
//! | zookeeper_* | container_cleanup | the package makes plain znodes instead of containers |
//! | zookeeper_* | session_loss_of_holder | expiry from outside: the package does not tell the session's password |
//! | zookeeper_* | session_loss_of_waiter | expiry from outside: the package does not tell the session's password |
//! | zookeeper_* | stale_release | expiry from outside: the package does not tell the session's password |
//! | zookeeper_* | lost_member | expiry from outside: the package does not tell the session's password |
//! | zookeeper_* | old_answer | its sessions are as long as the test |
//!
//! What else the package cannot do (search with sync; create and list in one round trip) is no part of this contract:
//! the search after a lost reply and the number of packets have tests of their own, over this crate's session.
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

use std::collections::BTreeSet;

use curator_locks::{LockGuard, Locker, MultiLockGuard};
use subject::Subject;

/// A case that makes no sense for a lock, and why.
struct NotApplicable {
    lock: &'static str,
    case: &'static str,
    reason: &'static str,
}

/// What one lock's module says.
struct Coverage {
    subject: &'static Subject,
    run: &'static [&'static str],
    not_applicable: &'static [NotApplicable],
}

/// One module for each lock, one test for each case that it runs.
macro_rules! contract {
    ($(
        $(#[$attribute:meta])*
        $lock:ident = $subject:expr => {
            run: [$($case:ident),* $(,)?],
            not_applicable: [$($absent:ident: $reason:expr),* $(,)?] $(,)?
        }
    )*) => {
        $(
            $(#[$attribute])*
            mod $lock {
                use crate::{Coverage, NotApplicable, subject::{self, Subject}};

                static SUBJECT: Subject = $subject;

                pub(super) const COVERAGE: Coverage = Coverage {
                    subject: &SUBJECT,
                    run: &[$(stringify!($case)),*],
                    not_applicable: &[$(
                        NotApplicable { lock: stringify!($lock), case: stringify!($absent), reason: $reason }
                    ),*],
                };

                $(
                    #[test]
                    fn $case() {
                        crate::cases::$case(&SUBJECT);
                    }
                )*
            }
        )*

        fn coverage() -> Vec<Coverage> {
            vec![$($(#[$attribute])* $lock::COVERAGE),*]
        }
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
#[cfg(feature = "zookeeper")]
const NO_CONTAINERS: &str = "the package makes plain znodes instead of containers";
#[cfg(feature = "zookeeper")]
const NO_PASSWORD: &str = "expiry from outside: the package does not tell the session's password";
#[cfg(feature = "zookeeper")]
const LONG_SESSIONS: &str = "its sessions are as long as the test";

contract! {
    mutex = subject::MUTEX => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [guard_send: super::BELONGS_TO_A_THREAD],
    }
    cached_mutex = subject::CACHED_MUTEX => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [guard_send: super::BELONGS_TO_A_THREAD, refused_release: super::NO_REQUEST],
    }
    cached_read = subject::CACHED_READ => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_over_threads, exclusion_over_clients,
            exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter, server_restart,
            container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open, locker,
            guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [
            exclusion_of_its_own_kind: super::READERS,
            guard_send: super::BELONGS_TO_A_THREAD,
            refused_release: super::NO_REQUEST,
        ],
    }
    cached_write = subject::CACHED_WRITE => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [guard_send: super::BELONGS_TO_A_THREAD, refused_release: super::NO_REQUEST],
    }
    semaphore_mutex = subject::SEMAPHORE_MUTEX => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            cancel, exclusion_of_its_own_kind, exclusion_over_threads, exclusion_over_clients,
            exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter, server_restart,
            container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open, locker,
            guard_drop, guard_release, guard_knows, guard_tokens_grow, guard_send, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [release_by_another_thread: super::ANY_THREAD, reentrancy: super::NOT_REENTRANT],
    }
    multi = subject::MULTI => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [guard_send: super::BELONGS_TO_A_THREAD],
    }
    read = subject::READ => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_over_threads, exclusion_over_clients,
            exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter, server_restart,
            container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open, locker,
            guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [exclusion_of_its_own_kind: super::READERS, guard_send: super::BELONGS_TO_A_THREAD],
    }
    write = subject::WRITE => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, refused_withdrawal, old_answer, lost_member,
        ],
        not_applicable: [guard_send: super::BELONGS_TO_A_THREAD],
    }
    unfair = subject::UNFAIR => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, session_loss_of_holder, session_loss_of_waiter,
            server_restart, container_cleanup, namespace, close_of_waiter, close_of_holder, client_that_is_not_open,
            locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, panic_while_holding, stale_release,
            released_hold, release_after_close, refused_release, old_answer, lost_member,
        ],
        not_applicable: [
            fifo: super::NO_QUEUE,
            guard_send: super::BELONGS_TO_A_THREAD,
            refused_withdrawal: super::NO_ZNODE,
        ],
    }
    zk_write_lock = subject::ZK_WRITE_LOCK => {
        run: [
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait,
            exclusion_of_its_own_kind, exclusion_over_threads, exclusion_over_clients, exclusion_over_processes, fifo,
            session_loss_of_waiter, server_restart, namespace, close_of_holder, client_that_is_not_open, locker,
            panic_while_holding, release_after_close, refused_release, refused_withdrawal, old_answer,
        ],
        not_applicable: [
            released_changes: super::NO_GUARD,
            stale_locker: super::ONE_OBJECT,
            release_of_nothing: "to unlock what is not locked does nothing, as in ZooKeeper's own recipe",
            release_by_another_thread: "it belongs to no thread: whoever has the object may unlock it",
            reentrancy: "a second `lock` only tells whether it is the owner",
            cancel: super::NO_WAIT_TO_CANCEL,
            close_of_waiter: super::NO_WAIT_TO_WAKE,
            session_loss_of_holder: super::QUEUES_AGAIN,
            vanishing_directory: "its `lock` has no time: it tries again as often as the retry policy says",
            container_cleanup: super::PERSISTENT,
            guard_drop: "there is no guard: dropping the object leaves the queue, which panic_while_holding shows",
            guard_release: super::NO_GUARD,
            guard_knows: super::NO_GUARD,
            guard_tokens_grow: super::NO_GUARD,
            guard_send: super::NO_GUARD,
            stale_release: super::QUEUES_AGAIN,
            released_hold: super::NO_HOLD,
            lost_member: super::NO_MEMBER,
        ],
    }
    lease = subject::LEASE => {
        run: [
            released_changes,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, cancel,
            exclusion_of_its_own_kind, exclusion_over_threads, exclusion_over_clients, exclusion_over_processes, fifo,
            session_loss_of_holder, session_loss_of_waiter, server_restart, container_cleanup, namespace,
            close_of_waiter, close_of_holder, client_that_is_not_open, locker, guard_drop, guard_release, guard_knows,
            guard_tokens_grow, guard_send, panic_while_holding, stale_release, release_after_close, refused_release,
            refused_withdrawal, old_answer,
        ],
        not_applicable: [
            stale_locker: super::VALUES,
            release_of_nothing: "what is given back is a value: without one there is nothing to call",
            release_by_another_thread: "it belongs to no thread",
            reentrancy: "each acquire is one more lease",
            released_hold: super::NO_HOLD,
            lost_member: super::NO_MEMBER,
        ],
    }

    #[cfg(feature = "zookeeper")]
    zookeeper_mutex = subject::MUTEX.over_the_package("zookeeper_mutex") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, server_restart, namespace, close_of_waiter,
            close_of_holder, client_that_is_not_open, locker, guard_drop, guard_release, guard_knows,
            guard_tokens_grow, panic_while_holding, released_hold, release_after_close, refused_release,
            refused_withdrawal,
        ],
        not_applicable: [
            guard_send: super::BELONGS_TO_A_THREAD,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
        ],
    }
    #[cfg(feature = "zookeeper")]
    zookeeper_semaphore_mutex = subject::SEMAPHORE_MUTEX.over_the_package("zookeeper_semaphore_mutex") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            cancel, exclusion_of_its_own_kind, exclusion_over_threads, exclusion_over_clients,
            exclusion_over_processes, fifo, server_restart, namespace, close_of_waiter, close_of_holder,
            client_that_is_not_open, locker, guard_drop, guard_release, guard_knows, guard_tokens_grow, guard_send,
            panic_while_holding, released_hold, release_after_close, refused_release, refused_withdrawal,
        ],
        not_applicable: [
            release_by_another_thread: super::ANY_THREAD,
            reentrancy: super::NOT_REENTRANT,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
        ],
    }
    #[cfg(feature = "zookeeper")]
    zookeeper_multi = subject::MULTI.over_the_package("zookeeper_multi") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, server_restart, namespace, close_of_waiter,
            close_of_holder, client_that_is_not_open, locker, guard_drop, guard_release, guard_knows,
            guard_tokens_grow, panic_while_holding, released_hold, release_after_close, refused_release,
            refused_withdrawal,
        ],
        not_applicable: [
            guard_send: super::BELONGS_TO_A_THREAD,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
        ],
    }
    #[cfg(feature = "zookeeper")]
    zookeeper_read = subject::READ.over_the_package("zookeeper_read") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_over_threads, exclusion_over_clients,
            exclusion_over_processes, fifo, server_restart, namespace, close_of_waiter, close_of_holder,
            client_that_is_not_open, locker, guard_drop, guard_release, guard_knows, guard_tokens_grow,
            panic_while_holding, released_hold, release_after_close, refused_release, refused_withdrawal,
        ],
        not_applicable: [
            exclusion_of_its_own_kind: super::READERS,
            guard_send: super::BELONGS_TO_A_THREAD,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
        ],
    }
    #[cfg(feature = "zookeeper")]
    zookeeper_write = subject::WRITE.over_the_package("zookeeper_write") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, fifo, server_restart, namespace, close_of_waiter,
            close_of_holder, client_that_is_not_open, locker, guard_drop, guard_release, guard_knows,
            guard_tokens_grow, panic_while_holding, released_hold, release_after_close, refused_release,
            refused_withdrawal,
        ],
        not_applicable: [
            guard_send: super::BELONGS_TO_A_THREAD,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
        ],
    }
    #[cfg(feature = "zookeeper")]
    zookeeper_unfair = subject::UNFAIR.over_the_package("zookeeper_unfair") => {
        run: [
            released_changes,
            stale_locker,
            acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time,
            refused_directory, long_wait, vanishing_directory, release_of_nothing,
            release_by_another_thread, reentrancy, cancel, exclusion_of_its_own_kind, exclusion_over_threads,
            exclusion_over_clients, exclusion_over_processes, server_restart, namespace, close_of_waiter,
            close_of_holder, client_that_is_not_open, locker, guard_drop, guard_release, guard_knows,
            guard_tokens_grow, panic_while_holding, released_hold, release_after_close, refused_release,
        ],
        not_applicable: [
            fifo: super::NO_QUEUE,
            guard_send: super::BELONGS_TO_A_THREAD,
            container_cleanup: super::NO_CONTAINERS,
            session_loss_of_holder: super::NO_PASSWORD,
            session_loss_of_waiter: super::NO_PASSWORD,
            stale_release: super::NO_PASSWORD,
            lost_member: super::NO_PASSWORD,
            old_answer: super::LONG_SESSIONS,
            refused_withdrawal: super::NO_ZNODE,
        ],
    }
}

#[test]
fn every_case_is_run_or_listed() {
    let all: BTreeSet<&str> = cases::ALL.iter().copied().collect();
    for Coverage { subject, run, not_applicable } in coverage() {
        let absent = not_applicable.iter().map(|absent| absent.case);
        let declared: Vec<&str> = run.iter().copied().chain(absent).collect();
        let once: BTreeSet<&str> = declared.iter().copied().collect();
        assert_eq!(once.len(), declared.len(), "{}: a case is declared twice", subject.name);
        assert_eq!(once, all, "{}: a case is neither run nor listed", subject.name);
    }
}

#[test]
fn not_applicable_cases_are_listed() {
    let documented = include_str!("main.rs");
    for Coverage { subject, not_applicable, .. } in coverage() {
        for NotApplicable { lock, case, reason } in not_applicable {
            assert_eq!(*lock, subject.name);
            println!("not applicable: {lock}::{case}: {reason}");
            let like = lock.strip_prefix("zookeeper_").unwrap_or(lock);
            let is_listed = [like, "zookeeper_*"]
                .iter()
                .any(|lock| documented.contains(&format!("//! | {lock} | {case} | {reason} |\n")));
            assert!(is_listed, "not in this file's table: {lock}::{case}: {reason}");
        }
    }
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
    coverage().into_iter().map(|coverage| coverage.subject).find(|subject| subject.name == name).unwrap()
}

/// Compiles only as long as `T` is not `Send`: for one that is, both implementations apply and the call is ambiguous.
trait NotSend<A> {
    fn is_not_send() {}
}

impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<u8> for T {}

#[test]
fn thread_owned_guards_are_not_send() {
    <LockGuard<'static> as NotSend<_>>::is_not_send();
    <MultiLockGuard<'static> as NotSend<_>>::is_not_send();
    <Locker<'static> as NotSend<_>>::is_not_send();
}
