//! Which servers there are, where their names lead, and which one comes next.

pub(crate) mod connect_string;
pub(crate) mod resolver;
pub(crate) mod rotation;
