//! Znodes whose existence this process relies on, and how it learns that they are gone.

pub(crate) mod changes;
pub(crate) mod deadlines;
pub(crate) mod grants;
pub(crate) mod holds;
pub(in crate::framework) mod limits;
pub(crate) mod node;
pub(crate) mod registry;
pub(crate) mod revocation;
mod subscribers;
