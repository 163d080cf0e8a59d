//! Sessions and servers that do what a test says.

pub(crate) mod server_side;
pub(crate) mod stub;
