//! Leases: of a semaphore, and of the semaphore of one that is a mutex for anybody; a number that
//! processes share, such as the number of leases.

pub(in crate::locks) mod lease;
pub(in crate::locks) mod limit;
pub(in crate::locks) mod mutex;
pub(in crate::locks) mod shared_count;
pub(in crate::locks) mod v2;
pub(in crate::locks) mod versioned_value;
