//! The client.
//!
//! | open | for |
//! |---|---|
//! | `core` | what all handles of a client share: its life, its session, who waits for a connection |
//! | `handle` | what a user calls |
//! | `builder` | how a client is configured |
//! | `call` | one call: its deadline, its cancellation, its retries |
//! | `background` | the client's own thread |

pub(crate) mod background;
pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod handle;
