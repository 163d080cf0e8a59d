//! The client.
mod acl;
mod connect_string;
mod connection_state;
mod ensemble;
mod paths;
mod retry;
pub use connect_string::ConnectString;
