//! One table of requests and replies, on the model and on real servers: both must answer alike, but for what may differ
//! (absolute numbers of transactions, times, ids and passwords of sessions, the order of children).
//!
//! A row is a name and steps between semicolons (`script`). `dialogue` carries them out and writes down what comes back.
//! Where model and server disagree, the server is right.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

mod cuts;
mod dialogue;
mod expiry;
mod model;
mod plain;
mod real;
mod rows;
mod script;
mod tests;
