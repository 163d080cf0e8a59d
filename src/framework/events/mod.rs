//! Events of a client and their receivers: connection states, reactions of recipes, listeners.

pub(crate) mod connection_state;
pub(crate) mod dispatch;
pub(crate) mod event;
pub(crate) mod reactions;
