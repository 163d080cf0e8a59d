//! This crate's own session: callers write to the socket, and one thread reads it.
//!
//! `session` is the side of the callers, `reader` the thread that connects and reads, `shared` the state that both work
//! on.

mod reader;
pub(crate) mod session;
mod shared;
