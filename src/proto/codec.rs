//! Jute, ZooKeeper's encoding: big-endian numbers, and a length before everything whose size varies.

use super::ProtoError;

/// Hands out checked pieces of a message. Every length is compared with what is left before anything is allocated.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the message: bytes left over mean that the peer and we do not agree on its type.
    pub(super) fn finish(self) -> Result<(), ProtoError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ProtoError::Trailing { left: self.rest.len() }) }
    }

    pub(super) fn i32(&mut self) -> Result<i32, ProtoError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, ProtoError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn bool(&mut self) -> Result<bool, ProtoError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(ProtoError::Unexpected { what: "boolean", value: other.into() }),
        }
    }

    /// A buffer; the null buffer (length -1) counts as empty.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], ProtoError> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.short(length))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn string(&mut self) -> Result<String, ProtoError> {
        match std::str::from_utf8(self.buffer()?) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(ProtoError::Utf8 { valid_up_to: error.valid_up_to() }),
        }
    }

    /// A vector whose elements take at least `min_size` bytes each; the null vector (count -1) counts as empty.
    pub(super) fn vector<T>(
        &mut self,
        min_size: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, ProtoError>,
    ) -> Result<Vec<T>, ProtoError> {
        let count = self.length()?;
        if count > self.rest.len() / min_size.max(1) {
            return Err(ProtoError::Count { count, left: self.rest.len() });
        }
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    pub(super) fn strings(&mut self) -> Result<Vec<String>, ProtoError> {
        self.vector(4, Reader::string)
    }

    /// A length or count: -1 is how jute writes null, anything below is nonsense.
    fn length(&mut self) -> Result<usize, ProtoError> {
        match self.i32()? {
            -1 => Ok(0),
            length => usize::try_from(length).map_err(|_| ProtoError::NegativeLength { length }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn short(&self, needed: usize) -> ProtoError {
        ProtoError::Short { needed, left: self.rest.len() }
    }
}

/// Builds one frame. The capacity is reserved once, so it should cover the whole frame.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins a frame whose body takes at most `body` bytes.
    pub(super) fn frame(body: usize) -> Self {
        let mut bytes = Vec::with_capacity(body.saturating_add(4));
        bytes.extend_from_slice(&[0; 4]);
        Writer { bytes }
    }

    /// Ends the frame: the length goes in front.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = wire_length(self.bytes.len().saturating_sub(4));
        if let Some(prefix) = self.bytes.first_chunk_mut() {
            *prefix = length.to_be_bytes();
        }
        self.bytes
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.bytes.push(value.into());
    }

    pub(super) fn buffer(&mut self, bytes: &[u8]) {
        self.i32(wire_length(bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn string(&mut self, text: &str) {
        self.buffer(text.as_bytes());
    }

    pub(super) fn vector<T>(&mut self, elements: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.i32(wire_length(elements.len()));
        for each in elements {
            element(self, each);
        }
    }
}

/// A length as it goes on the wire. What does not fit in 31 bits is above every frame limit, so the frame is refused
/// by its size before anybody reads this number.
fn wire_length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
