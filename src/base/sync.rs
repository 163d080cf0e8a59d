//! The lock of everything that threads share. Simulated threads have their own.

#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;

#[cfg(test)]
pub(crate) use super::sim::sync::Mutex;
