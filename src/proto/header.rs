//! The headers of requests and replies.

use super::{codec::jute::Reader, error::ProtoError};

/// The xid of a [`Notification`](super::types::Notification), which no request asked for.
pub const XID_NOTIFICATION: i32 = -1;
/// The xid of a ping and of its reply.
pub(crate) const XID_PING: i32 = -2;
/// The xid of an auth request and of its reply.
pub(crate) const XID_AUTH: i32 = -4;
/// The xid of a setWatches request and of its reply.
pub(crate) const XID_SET_WATCHES: i32 = -8;

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The xid of the request, or one of the `XID_` constants.
    pub xid: i32,
    /// The last transaction that the server had applied; -1 in a notification, 0 in the reply to an auth request.
    pub zxid: i64,
    /// 0, or the wire number of an [`ErrorCode`](super::types::ErrorCode); then there is no body.
    pub err: i32,
}

/// Splits a frame into header and body.
///
/// # Errors
/// The frame is too short.
pub fn decode_header(frame: &[u8]) -> Result<(ReplyHeader, &[u8]), ProtoError> {
    let mut reader = Reader::new(frame);
    let header = ReplyHeader { xid: reader.i32()?, zxid: reader.i64()?, err: reader.i32()? };
    Ok((header, reader.rest()))
}

/// Overwrites the xid of an encoded request, which gets its number only when its place on the wire is known.
/// Not for a [`ConnectRequest`](super::connect::ConnectRequest), which has none.
pub(crate) fn set_xid(frame: &mut [u8], xid: i32) {
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&xid.to_be_bytes());
    }
}
