//! The contract of [`Session`](curator_locks::unversioned::Session): the same cases for this crate's session and for the
//! one over a handle of the package `zookeeper`; and what is special about the latter.
//!
//! A test `native::case` or `package::case` is one case ([`cases`]) with one kind of session ([`opened`]). What a lock
//! needs of the package's session beyond this, the contract of locks shows with a mutex over it.
#![cfg(all(feature = "testing", feature = "zookeeper"))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../../support/mod.rs"]
mod support;

mod cases;
mod locks;
mod opened;

/// One module for each kind of session, and in it one test for each case that is not listed.
macro_rules! contract {
    ($($kind:ident = $value:expr, without [$($absent:ident: $reason:expr),* $(,)?])*) => {
        $(
            mod $kind {
                use crate::{cases, opened::Kind};

                /// What makes no sense for it is a case, and there is a reason.
                const _: &[(fn(Kind), &str)] = &[$((cases::$absent, $reason)),*];

                macro_rules! test {
                    $(($absent) => {};)*
                    ($case:ident) => {
                        #[test]
                        fn $case() {
                            cases::$case($value);
                        }
                    };
                }

                cases::for_each_case! { test }
            }
        )*
    };
}

contract! {
    native = Kind::Native, without []
    package = Kind::Package, without [
        other_servers_are_used_from_the_next_connection_on: "a handle of the package keeps its servers",
        a_watch_is_told_before_the_reply_to_what_came_after_the_change: "its `tells_in_order` is false",
        a_watch_outlives_a_cut: "the package does not set it again: \
                                 `a_change_during_a_cut_is_told_after_it` shows that it is told as a change",
    ]
}
