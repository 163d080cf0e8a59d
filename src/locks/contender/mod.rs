//! One contender, from its create to its release: who may enter, decided in one place for every kind of lock.
//!
//! [`machine`] is the contender: (state, input, view) -> (state, what to do next). It has no socket, thread, clock or
//! channel, so that `tests/model` can try it in every interleaving. [`spec`] is what differs between the kinds of
//! lock, and the words that contender and shell exchange. [`unlisted`] knows when a create needs no list. One shell carries
//! out what the contender wants, on the thread that waits: [`acquire`], with what it has brought about in [`effects`].
//! [`release`] is how a lock is given back; where the outcome is unknown, the client's clean-up goes on. [`internals`] is
//! what all of them know of a lock. [`doubt`] counts for how long nobody could make sure of a hold.

pub(crate) mod acquire;
#[allow(unreachable_pub, reason = "a part of the machine")]
pub(in crate::locks) mod doubt;
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub(crate) mod driver;
pub(in crate::locks) mod effects;
pub(crate) mod internals;
pub(in crate::locks) mod last_look;
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub(crate) mod machine;
pub(in crate::locks) mod release;
#[allow(unreachable_pub, reason = "as above")]
pub(crate) mod spec;
#[allow(unreachable_pub, reason = "as above")]
pub(crate) mod unlisted;
