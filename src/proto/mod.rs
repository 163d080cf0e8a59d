//! Bytes only: the jute codec, frames, and every request and reply. No socket, no thread, no clock.

pub(crate) mod codec;
pub(crate) mod connect;
mod decode;
mod encode;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod op;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(test)]
mod tests;
pub(crate) mod types;

pub use connect::{ConnectRequest, ConnectResponse};
pub use error::ProtoError;
pub use frame::FrameBuffer;
pub use header::{ReplyHeader, XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, decode_header, set_xid};
pub use request::{MultiOp, Request};
pub use response::{MultiResult, ReplyKind, Response};
pub use types::{Acl, CreateMode, ErrorCode, EventType, Notification, Stat, WatchTable, perms};
