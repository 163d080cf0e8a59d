//! The client.
//!
//! | open | for |
//! |---|---|
//! | `core` | the state that all handles of a client share: its life, its session, the threads that wait for a connection |
//! | `handle` | the methods for users |
//! | `builder` | how a client is configured |
//! | `call` | one call: its deadline, its cancellation, its retries |
//! | `background` | the client's own thread |
//! | `ensemble_tracker` | where the client goes when the ensemble moves |

pub(crate) mod background;
pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
mod ensemble_tracker;
pub(crate) mod handle;
