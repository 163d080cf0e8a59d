//! Frames: every message has its length in the 4 bytes before it.

use std::fmt;

use super::error::ProtoError;

/// Bytes of the length prefix.
const PREFIX: usize = 4;

/// The least room that [`FrameBuffer::space`] gives.
const MIN_SPACE: usize = 4 * 1024;

/// The size of the first allocation: large enough that common replies never make the buffer grow.
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
        let frame = self.checked_size().ok().flatten().map_or(0, |size| size.saturating_add(PREFIX));
        let needed = frame.max(pending).saturating_add(MIN_SPACE);
        if self.bytes.len().saturating_sub(self.start) < needed {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = pending;
        }
        if self.bytes.len() < needed {
            let size = needed.max(INITIAL);
            self.bytes.reserve_exact(size.saturating_sub(self.bytes.len()));
            self.bytes.resize(size, 0);
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

    /// Forgets all bytes, and gives a large buffer back.
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
}

impl fmt::Debug for FrameBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBuffer").field("pending", &self.pending().len()).field("limit", &self.limit).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn feed(buffer: &mut FrameBuffer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = buffer.space();
            let n = space.len().min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            buffer.filled(n);
            bytes = &bytes[n..];
        }
    }

    fn frame(size: usize, fill: u8) -> Vec<u8> {
        let mut frame = i32::try_from(size).unwrap().to_be_bytes().to_vec();
        frame.resize(PREFIX + size, fill);
        frame
    }

    #[test]
    fn nothing_is_allocated_before_the_first_read() {
        assert_eq!(FrameBuffer::new(100).bytes.capacity(), 0);
    }

    #[test]
    fn a_frame_is_given_once_its_last_byte_is_there() {
        let mut buffer = FrameBuffer::new(100);
        for byte in b"\0\0\0\x02a" {
            feed(&mut buffer, &[*byte]);
            assert_eq!(buffer.next_frame(), Ok(None));
        }
        feed(&mut buffer, b"b");
        assert_eq!(buffer.next_frame(), Ok(Some(&b"ab"[..])));
        assert_eq!(buffer.next_frame(), Ok(None));
    }

    #[test]
    fn several_frames_come_out_of_one_read() {
        let mut buffer = FrameBuffer::new(100);
        feed(&mut buffer, b"\0\0\0\x01a\0\0\0\0\0\0\0\x01b\0\0");
        assert_eq!(buffer.next_frame(), Ok(Some(&b"a"[..])));
        assert_eq!(buffer.next_frame(), Ok(Some(&b""[..])));
        assert_eq!(buffer.next_frame(), Ok(Some(&b"b"[..])));
        assert_eq!(buffer.next_frame(), Ok(None));
    }

    #[test]
    fn a_frame_at_the_limit_passes_and_one_above_does_not() {
        let mut buffer = FrameBuffer::new(10);
        feed(&mut buffer, &frame(10, 7));
        assert_eq!(buffer.next_frame(), Ok(Some(&[7; 10][..])));
        feed(&mut buffer, &frame(11, 7));
        assert_eq!(buffer.next_frame(), Err(ProtoError::FrameTooLarge { size: 11, limit: 10 }));
        assert_eq!(buffer.next_frame(), Err(ProtoError::FrameTooLarge { size: 11, limit: 10 }));
    }

    #[test]
    fn a_frame_that_is_too_large_shows_its_xid_and_allocates_nothing() {
        let mut buffer = FrameBuffer::new(1 << 20);
        feed(&mut buffer, b"\x7f\xff\xff\xff\0\0\x01");
        let too_large = ProtoError::FrameTooLarge { size: i32::MAX.unsigned_abs() as usize, limit: 1 << 20 };
        assert_eq!(buffer.next_frame(), Err(too_large.clone()));
        assert_eq!(buffer.peek_xid(), None);
        feed(&mut buffer, b"\x02rest");
        assert_eq!(buffer.next_frame(), Err(too_large));
        assert_eq!(buffer.peek_xid(), Some(0x102));
        assert_eq!(buffer.bytes.capacity(), INITIAL);
    }

    #[test]
    fn a_negative_length_is_refused() {
        let mut buffer = FrameBuffer::new(100);
        feed(&mut buffer, b"\xff\xff\xff\xff");
        assert_eq!(buffer.next_frame(), Err(ProtoError::NegativeLength { length: -1 }));
        assert!(buffer.space().len() >= MIN_SPACE);
    }

    #[test]
    fn one_allocation_makes_room_for_all_of_a_frame() {
        let size = 500_000;
        let mut buffer = FrameBuffer::new(size);
        let bytes = frame(size, 1);
        feed(&mut buffer, &bytes[..100]);
        assert!(buffer.space().len() >= bytes.len() - 100);
        let capacity = buffer.bytes.capacity();
        for piece in bytes[100..].chunks(1000) {
            feed(&mut buffer, piece);
            assert!(buffer.space().len() >= MIN_SPACE);
        }
        assert_eq!(buffer.next_frame(), Ok(Some(&bytes[PREFIX..])));
        assert_eq!(buffer.bytes.capacity(), capacity);
        assert!(capacity <= PREFIX + size + MIN_SPACE);
    }

    #[test]
    fn a_buffer_that_grew_large_is_given_back_when_empty() {
        let mut buffer = FrameBuffer::new(2 * KEEP);
        feed(&mut buffer, &frame(2 * KEEP, 1));
        assert!(buffer.next_frame().unwrap().is_some());
        assert_eq!(buffer.space().len(), INITIAL);
        assert_eq!(buffer.bytes.capacity(), INITIAL);
    }

    #[test]
    fn clear_forgets_half_a_frame() {
        let mut buffer = FrameBuffer::new(100);
        feed(&mut buffer, b"\0\0\0\x05ab");
        buffer.clear();
        feed(&mut buffer, b"\0\0\0\x01c");
        assert_eq!(buffer.next_frame(), Ok(Some(&b"c"[..])));
    }

    #[test]
    fn more_than_there_was_room_for_cannot_be_filled() {
        let mut buffer = FrameBuffer::new(100);
        buffer.filled(7);
        assert_eq!(buffer.next_frame(), Ok(None));
        buffer.space();
        buffer.filled(usize::MAX);
        assert_eq!(buffer.pending().len(), INITIAL);
    }
}
