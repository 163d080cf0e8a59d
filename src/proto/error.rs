//! Errors in bytes from the peer.

/// Bytes that are not the message they should be.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The message ends too early.
    #[error("message too short: {needed} bytes needed, {left} left")]
    Short {
        /// How many bytes the next field takes.
        needed: usize,
        /// How many there are.
        left: usize,
    },
    /// A length or count below -1 (which stands for null), or a frame length below 0.
    #[error("negative length {length}")]
    NegativeLength {
        /// The length on the wire.
        length: i32,
    },
    /// A vector claims more elements than the rest of the message can hold.
    #[error("count {count} cannot fit in the {left} bytes left")]
    Count {
        /// The number of elements on the wire.
        count: usize,
        /// How many bytes there are.
        left: usize,
    },
    /// The message goes on after its last field.
    #[error("{left} bytes after the end of the message")]
    Trailing {
        /// How many bytes are left over.
        left: usize,
    },
    /// A string is not UTF-8.
    #[error("invalid UTF-8 after byte {valid_up_to} of a string")]
    Utf8 {
        /// How much of the string is valid.
        valid_up_to: usize,
    },
    /// A field has a value that the protocol does not know.
    #[error("unexpected {what}: {value}")]
    Unexpected {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: i32,
    },
    /// The handshake was answered with another session than the one asked for, or with none.
    #[error("session {given:#x} instead of {wanted:#x}")]
    WrongSession {
        /// The session's id, 0 for a new one.
        wanted: i64,
        /// The value that the server sent.
        given: i64,
    },
    /// A frame is above the limit.
    #[error("frame of {size} bytes, the limit is {limit}")]
    FrameTooLarge {
        /// The frame's length, without the length prefix.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
}
