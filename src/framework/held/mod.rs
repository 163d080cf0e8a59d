//! The locks that this process holds: the znodes at the servers, and the holds of each.
//!
//! | open | for |
//! |---|---|
//! | `certainty` | whether a znode still stands |
//! | `node` | a znode, as the servers know it, and a hold of it, as its holder does |
//! | `subscribers` | the subscribers of a hold's changes, and of warnings before its end |
//! | `fence` | the timer that ends the process before a hold may be another's |
//! | `registry` | all held znodes of a client, and when its thread looks at them |
//!
//! A plain lock is a znode with one hold. A cached one has a hold of its cache's, which lasts as long as the znode, and
//! one for each thread that the cache hands it to.

pub(crate) mod certainty;
pub(crate) mod changes;
pub(crate) mod fence;
pub(crate) mod grants;
pub(crate) mod holds;
pub(crate) mod node;
pub(crate) mod registry;
pub(crate) mod revocation;
pub(crate) mod subscribers;
pub(crate) mod waited_for;

use std::time::Duration;

/// As good as for ever, and within the clock's range.
pub(in crate::framework) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A hold shorter than this is not watched, so that an uncontended cycle needs no packets besides create, list and delete.
const WATCH_AFTER: Duration = Duration::from_millis(100);
