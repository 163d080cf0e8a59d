//! Decides which contender may enter, in one place for every kind of lock, without a socket, thread, clock or channel.
//!
//! [`machine`] is one contender, from its create to its grant: (state, input, view) -> (state, next request or pause),
//! so that `tests/model` can try it in every interleaving. [`spec`] is how the kinds of lock differ, and the types that
//! contender and acquire exchange. [`driver`] decides from the names of a directory's children, [`doubt`] counts for how
//! long a hold could not be made certain.

#[allow(unreachable_pub, reason = "a part of the machine")]
pub(in crate::locks) mod doubt;
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub(crate) mod driver;
#[allow(unreachable_pub, reason = "as above")]
pub(crate) mod machine;
#[allow(unreachable_pub, reason = "as above")]
pub(crate) mod spec;
pub(in crate::locks) mod znode_name;
