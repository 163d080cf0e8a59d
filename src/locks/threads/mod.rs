//! How threads of one process share a lock: [`deadlock`] finds a thread that would wait for itself, [`caching`] passes
//! one granted znode from one to the next.

pub(in crate::locks) mod caching;
pub(in crate::locks) mod deadlock;
