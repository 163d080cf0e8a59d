//! One granted znode for many holds of one process, off by default.
//!
//! A *tenure* is the time for which one znode of a lock object is granted. [`local_queue`] decides which thread has its
//! turn, and when the znode goes: a plain type without thread, clock or request, tried in every schedule by `model`.
//! [`cache`] carries the effects out: it wakes threads, gives znodes back, and watches the directory for others.
//! [`enter`] is one acquire: it sleeps, and queues at the servers by the same contender as every other lock. [`options`]
//! are set by the caller.

pub(in crate::locks) mod cache;
pub(in crate::locks) mod enter;
pub(in crate::locks) mod local_queue;
#[cfg(test)]
pub(in crate::locks) mod model;
pub(in crate::locks) mod options;

pub use options::Caching;
