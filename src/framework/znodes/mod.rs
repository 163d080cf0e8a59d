//! Creating znodes, and who cleans up after a create.

pub(crate) mod create;
