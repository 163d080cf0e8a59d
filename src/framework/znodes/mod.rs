//! How znodes are created.

pub(crate) mod create;
