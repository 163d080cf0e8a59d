//! The client: builder, retries, namespace, ACLs, connection states, protected create, guaranteed delete.

pub(crate) mod cleanup;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod held;
pub mod operations;
pub(crate) mod transaction;
pub(crate) mod znodes;
