//! This crate's own session: callers write to the socket, and one thread reads it.
//!
//! `session` is what callers see, `reader` the thread that connects and reads, `shared` what both work on; `search` looks
//! for a server that can write.

mod connect_errors;
pub(crate) mod factory;
mod reader;
mod session;
mod shared;
