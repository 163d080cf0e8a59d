//! The servers, the addresses of their names, and which one comes next.

pub(crate) mod connect_string;
pub(crate) mod resolver;
pub(crate) mod rotation;
