//! Writes that a lost lock cannot make: tokens that grow, storage that compares them, transactions that name the lock.

pub(in crate::locks) mod checker;
pub(in crate::locks) mod file;
mod guarded_write;
pub(in crate::locks) mod token;
pub(in crate::locks) mod zookeeper;
