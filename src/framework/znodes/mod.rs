//! What znodes are created with.

pub(crate) mod create;
