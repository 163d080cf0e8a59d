//! This crate's own session: callers write to the socket, and one thread reads it.

mod reader;
mod search;
pub(crate) mod session;

pub use session::NativeSessionFactory;
