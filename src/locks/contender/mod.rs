//! One contender, from its create to its release: who may enter, decided in one place for every kind of lock.
//!
//! [`machine`] is the contender: (state, input, view) -> (state, what to do next). It has no socket, thread, clock or
//! channel, so that `tests/model` can try it in every interleaving. [`spec`] is what differs between the kinds of
//! lock, and the words that contender and shells exchange. [`unlisted`] knows when a create needs no list. Two shells
//! carry out what the contender wants, [`blocking`] for threads that wait and [`callbacks`] for those that are told;
//! [`effects`] is what they share. [`release`] is how a lock is given back; where the outcome is unknown, the client's
//! clean-up goes on. [`internals`] is what all of them know of a lock.

pub(crate) mod blocking;
pub(crate) mod callbacks;
pub(in crate::locks) mod candidate;
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
