//! What this process holds: the znodes at the servers, and for each the holds of those who rely on it.
//!
//! | open | for |
//! |---|---|
//! | `node` | a znode, as the servers know it, and a hold of it, as its holder does |
//! | `subscribers` | who is told of a hold's changes, or some time before its end |
//! | `registry` | all of a client, and when its thread looks at them |
//!
//! A plain lock is a znode with one hold. A cached one has a hold of its cache's, which lasts as long as the znode, and one
//! for each thread that the cache hands it to.

pub(crate) mod changes;
pub(crate) mod grants;
pub(crate) mod holds;
pub(in crate::framework) mod limits;
pub(crate) mod node;
pub(crate) mod registry;
pub(crate) mod revocation;
pub(crate) mod subscribers;
