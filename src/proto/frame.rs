//! Frames: every message has its length in the 4 bytes before it.

use std::fmt;

use super::ProtoError;

/// Bytes of the length prefix.
const PREFIX: usize = 4;

/// The least room that [`FrameBuffer::space`] gives.
const MIN_SPACE: usize = 4 * 1024;

/// What the first read allocates: enough that common replies never make the buffer grow.
const INITIAL: usize = 16 * 1024;

/// A buffer that one big frame has grown beyond this is given back once it is empty.
const KEEP: usize = 1024 * 1024;

/// Collects bytes from a socket and cuts them into frames.
///
/// Bytes are read straight into the buffer and frames handed out as slices of it; only an incomplete frame at the end
/// of the buffer is ever moved.
pub struct FrameBuffer {
    /// All of it is initialised, `start..end` are the bytes not handed out yet.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

impl FrameBuffer {
    /// An empty buffer that accepts frames of up to `limit` bytes, the length prefix not counted. Allocates nothing
    /// before the first [`space`](Self::space).
    #[must_use]
    pub fn new(limit: usize) -> Self {
        FrameBuffer { bytes: Vec::new(), start: 0, end: 0, limit }
    }

    /// Room to read into, at least 4 KiB, and for all of the frame that has begun (unless that is too large). Report
    /// how much was read with [`filled`](Self::filled).
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.clear();
        }
        let pending = self.end.saturating_sub(self.start);
        // MIN_SPACE on top of the frame, so that its last piece does not make the buffer grow once more.
        let needed = self.accepted_size().unwrap_or(0).max(pending).saturating_add(MIN_SPACE);
        if self.bytes.len().saturating_sub(self.start) < needed {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = pending;
        }
        if self.bytes.len() < needed {
            self.grow(needed.max(INITIAL));
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Takes the first `n` bytes of the last [`space`](Self::space) as read.
    pub fn filled(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.bytes.len());
    }

    /// The next complete frame, without its length prefix, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`ProtoError::FrameTooLarge`] and [`ProtoError::NegativeLength`], as soon as the prefix is there, and again at
    /// each call: no frame follows, the connection has to end. [`peek_xid`](Self::peek_xid) tells whose reply it was.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, ProtoError> {
        let Some(size) = self.checked_size()? else { return Ok(None) };
        let from = self.start.saturating_add(PREFIX);
        let to = from.saturating_add(size);
        if to > self.end {
            return Ok(None);
        }
        self.start = to;
        Ok(self.bytes.get(from..to))
    }

    /// The first 4 bytes of the frame that [`next_frame`](Self::next_frame) would give or refuse, which are the xid of
    /// a reply; `None` if they have not arrived yet.
    #[must_use]
    pub fn peek_xid(&self) -> Option<i32> {
        let (_, body) = self.pending().split_first_chunk::<PREFIX>()?;
        body.first_chunk().map(|xid| i32::from_be_bytes(*xid))
    }

    /// Forgets all bytes, for the next connection.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
        if self.bytes.len() > KEEP {
            self.bytes = Vec::new();
        }
    }

    fn pending(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// The length of the frame that has begun; `None` before its prefix is complete.
    fn checked_size(&self) -> Result<Option<usize>, ProtoError> {
        let Some(prefix) = self.pending().first_chunk::<PREFIX>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        let size = usize::try_from(length).map_err(|_| ProtoError::NegativeLength { length })?;
        if size > self.limit {
            return Err(ProtoError::FrameTooLarge { size, limit: self.limit });
        }
        Ok(Some(size))
    }

    /// How much the frame that has begun takes with its prefix, if it is to be accepted.
    fn accepted_size(&self) -> Option<usize> {
        self.checked_size().ok().flatten().map(|size| size.saturating_add(PREFIX))
    }

    fn grow(&mut self, size: usize) {
        self.bytes.reserve_exact(size.saturating_sub(self.bytes.len()));
        self.bytes.resize(size, 0);
    }
}

impl fmt::Debug for FrameBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBuffer").field("pending", &self.pending().len()).field("limit", &self.limit).finish()
    }
}
