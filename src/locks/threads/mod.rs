//! How threads of one process share a lock: [`caching`] passes one granted znode from one to the next.

pub(in crate::locks) mod caching;
