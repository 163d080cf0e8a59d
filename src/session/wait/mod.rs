//! How a caller waits: until when, for which reply, and what wakes it.

pub(crate) mod cancel;
pub(crate) mod deadline;
pub(crate) mod pending;
pub(crate) mod reply_slot;
