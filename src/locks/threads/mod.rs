//! Which thread of this process holds what: [`owners`] counts holds, [`deadlock`] finds threads that would wait for
//! each other, [`caching`] passes one granted znode among them.

pub(in crate::locks) mod caching;
pub(in crate::locks) mod deadlock;
pub(in crate::locks) mod owners;
