//! Bytes only: the jute codec, frames, and every request and reply. No socket, no thread, no clock.

mod request;
mod response;
mod types;

pub use request::{MultiOp, Request};
pub use response::{MultiResult, Response};
pub use types::{Acl, CreateMode, ErrorCode, EventType, Notification, Stat, WatchTable, perms};
