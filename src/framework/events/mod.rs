//! What happens to a client, and who hears of it: connection states, followers, listeners.

pub(crate) mod connection_state;
pub(crate) mod dispatch;
pub(crate) mod event;
pub(crate) mod followers;
