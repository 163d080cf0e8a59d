//! The servers, the addresses of their names, which one comes next, and why none could be reached.

pub(crate) mod connect_errors;
pub(crate) mod connect_string;
pub(crate) mod dynamic_config;
pub(crate) mod handshakes;
pub(crate) mod resolver;
pub(crate) mod rotation;
pub(crate) mod srv;
