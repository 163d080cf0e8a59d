//! Bytes only: the jute codec, frames, and every request and reply. No socket, no thread, no clock.

pub(crate) mod codec;
pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod op;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(feature = "sasl")]
pub(crate) mod sasl;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod types;
