//! The locks under test, and which cases make no sense for which of them.
//!
//! Both lists go to `contract!` where they are wanted, so that the tests have the same names in the simulator and on servers.

use super::subject::Subject;

/// One lock under test.
pub(crate) struct Tested {
    pub(crate) subject: &'static Subject,
    /// Why each case that is no test of this lock makes no sense for it.
    pub(crate) reasons: &'static [&'static str],
}

/// One module for each lock, and in it one test for each case that is not listed.
macro_rules! contract {
    ($list:ident; $(
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

                pub(crate) const TESTED: Tested = Tested { subject: &SUBJECT, reasons: &[$($reason),*] };

                macro_rules! test {
                    $(($absent) => {};)*
                    ($case:ident) => {
                        #[test]
                        fn $case() {
                            play(&SUBJECT, cases::$case);
                        }
                    };
                }

                cases::for_each_case! { test }
            }
        )*

        pub(crate) const $list: &[Tested] = &[$($(#[$attribute])* $lock::TESTED),*];
    };
}
pub(crate) use contract;

pub(crate) const BELONGS_TO_A_THREAD: &str =
    "its guard belongs to a thread, and is not `Send` (`thread_owned_guards_are_not_send`)";
pub(crate) const ANY_THREAD: &str =
    "any thread may release it (`semaphore`: `any_thread_may_release_and_a_second_release_is_refused`)";
pub(crate) const NOT_REENTRANT: &str =
    "it is not re-entrant (`semaphore`: `it_is_not_reentrant_and_a_timed_failure_keeps_what_is_held`)";
pub(crate) const READERS: &str = "readers hold together (`read_write`: `readers_hold_together_and_a_writer_alone`)";
pub(crate) const NO_QUEUE: &str = "nobody queues: whoever is faster has it";
pub(crate) const NO_WAIT_TO_CANCEL: &str = "no call waits for others, so there is no wait to cancel";
pub(crate) const NO_WAIT_TO_WAKE: &str = "no call waits for others, so none has to be woken";
pub(crate) const QUEUES_AGAIN: &str = "its listener is told and it queues again by itself (`zk_write_lock`: \
                            `an_owner_whose_session_expires_is_told_and_queues_again_in_the_next`)";
pub(crate) const PERSISTENT: &str = "its directory is persistent, as in ZooKeeper's own recipe (`zk_write_lock`: \
                          `the_directory_is_persistent`)";
pub(crate) const ONE_OBJECT: &str = "its object is one contender, and there is no guard";
pub(crate) const VALUES: &str = "what is given back is a value, which ends itself";
pub(crate) const NO_GUARD: &str = "there is no guard";
pub(crate) const NO_HOLD: &str = "nothing that its holder can ask outlives it";
pub(crate) const NO_MEMBER: &str = "it is no `InterProcessLock`";
pub(crate) const NO_REQUEST: &str = "a release asks no server";
pub(crate) const NO_ZNODE: &str = "who waits has no znode";
pub(crate) const NO_RESUMPTION: &str =
    "its servers resume no session (`a_holder_is_told_and_keeps_others_out_until_it_has_released`)";
pub(crate) const NO_CONTAINERS: &str =
    "its servers have no containers: directories stay (`what_is_made_on_the_way_stays_and_is_said_once`)";

/// Locks that talk with servers each in its own way: by a queue, by transactions, by ZooKeeper's recipe.
macro_rules! locks_of_their_own {
    ($contract:ident) => {
        $contract! {
            OF_THEIR_OWN;
            mutex = subject::MUTEX, without [guard_send: BELONGS_TO_A_THREAD]
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
        }
    };
}
pub(crate) use locks_of_their_own;

/// Locks whose requests are those of the former, or of a semaphore mutex at a RaftKeeper: what they add to them happens in
/// the process.
macro_rules! locks_alike {
    ($contract:ident) => {
        $contract! {
            ALIKE;
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
            upgradable = subject::UPGRADABLE, without [guard_send: BELONGS_TO_A_THREAD]
            lease = subject::LEASE, without [
                stale_locker: VALUES,
                release_of_nothing: "what is given back is a value: without one there is nothing to call",
                release_by_another_thread: "it belongs to no thread",
                reentrancy: "each acquire is one more lease",
                released_hold: NO_HOLD,
                lost_member: NO_MEMBER,
            ]
        }
    };
}
pub(crate) use locks_alike;
