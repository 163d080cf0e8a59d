//! What threads of one process settle among themselves: [`deadlock`] finds those that would wait for each other, [`caching`]
//! passes one granted znode from one to the next.

pub(in crate::locks) mod caching;
pub(in crate::locks) mod deadlock;
