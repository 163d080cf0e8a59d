//! Leases: of a semaphore ([`v2`]), and of the semaphore of one that is a mutex for anybody ([`mutex`]).

pub(in crate::locks) mod lease;
pub(in crate::locks) mod mutex;
pub(in crate::locks) mod v2;
