//! Sessions and servers of which a test says what they do.

pub(crate) mod server_side;
pub(crate) mod stub;
