//! The handshake: the first frame in each direction, without a header.

use std::fmt;

use super::{
    codec::jute::{Reader, Writer},
    error::ProtoError,
};

/// The only version there has ever been.
const PROTOCOL_VERSION: i32 = 0;

/// The version with which ClickHouse Keeper and RaftKeeper refuse a session, for instance without a leader.
const REFUSED: i32 = 42;

/// Asks for a session, or for an old one to be taken up again.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The last transaction this client has seen; a server that is behind it refuses.
    pub last_zxid_seen: i64,
    /// The session timeout wanted, in milliseconds.
    pub timeout_ms: i32,
    /// The session to take up again, 0 for a new one.
    pub session_id: i64,
    /// Its password; 16 zeros for a new one.
    pub password: Vec<u8>,
    /// Whether a read-only server will do.
    pub read_only: bool,
}

impl ConnectRequest {
    /// The whole frame, with its length prefix.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::frame();
        writer.i32(PROTOCOL_VERSION);
        writer.i64(self.last_zxid_seen);
        writer.i32(self.timeout_ms);
        writer.i64(self.session_id);
        writer.buffer(&self.password);
        writer.bool(self.read_only);
        writer.finish()
    }
}

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("last_zxid_seen", &self.last_zxid_seen)
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// The server's answer to a [`ConnectRequest`].
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectResponse {
    /// The session timeout agreed, in milliseconds; 0 or less says that the session has expired.
    pub timeout_ms: i32,
    /// The session's id.
    pub session_id: i64,
    /// The session's password, to be shown when it is taken up again.
    pub password: Vec<u8>,
    /// Whether the server can only read.
    pub read_only: bool,
}

impl ConnectResponse {
    /// Decodes the first frame of a connection.
    ///
    /// # Errors
    /// The frame is not such an answer.
    pub fn decode(frame: &[u8]) -> Result<Self, ProtoError> {
        let mut reader = Reader::new(frame);
        let version = reader.i32()?;
        let timeout_ms = reader.i32()?;
        // RaftKeeper says in the same way that a session has expired, and then the timeout tells.
        if version == REFUSED && timeout_ms > 0 {
            let what = "protocol version, with which a server refuses that has no leader";
            return Err(ProtoError::Unexpected { what, value: version });
        }
        let session_id = reader.i64()?;
        let password = reader.buffer()?.to_vec();
        // Servers that know no read-only mode end here.
        let read_only = if reader.rest().is_empty() { false } else { reader.bool()? };
        reader.finish()?;
        Ok(ConnectResponse { timeout_ms, session_id, password, read_only })
    }
}

impl fmt::Debug for ConnectResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectResponse")
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
