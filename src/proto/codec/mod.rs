//! Between bytes and messages: `jute` reads and writes fields, `encode` requests, `decode` replies and notifications.

mod decode;
mod encode;
pub(crate) mod jute;

pub(crate) use encode::together;
