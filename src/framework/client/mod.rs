//! The client: its life, its session, its calls.

pub(crate) mod background;
pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
