//! Leases: of a semaphore, and of the semaphore of one that is a mutex for anybody.

pub(in crate::locks) mod lease;
pub(in crate::locks) mod limit;
pub(in crate::locks) mod mutex;
pub(in crate::locks) mod v2;
