//! Jute, ZooKeeper's encoding: big-endian numbers, and a length before everything whose size varies.

use crate::proto::error::ProtoError;

/// Hands out checked pieces of a message. Every length is compared with what is left before anything is allocated.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Ends the message: bytes left over mean that the peer and we do not agree on its type.
    pub(crate) fn finish(self) -> Result<(), ProtoError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ProtoError::Trailing { left: self.rest.len() }) }
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ProtoError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, ProtoError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, ProtoError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(ProtoError::Unexpected { what: "boolean", value: other.into() }),
        }
    }

    /// A buffer; the null buffer (length -1) counts as empty.
    pub(crate) fn buffer(&mut self) -> Result<&'a [u8], ProtoError> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.short(length))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn string(&mut self) -> Result<String, ProtoError> {
        let bytes = self.buffer()?;
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(text.to_owned());
        }
        let (mut rest, mut text) = (bytes, String::with_capacity(bytes.len()));
        loop {
            let Some(chunk) = rest.utf8_chunks().next() else { return Ok(text) };
            text.push_str(chunk.valid());
            if chunk.invalid().is_empty() {
                return Ok(text);
            }
            let at = chunk.valid().len();
            let Some((character, after)) = split_surrogates(rest, at) else {
                return Err(ProtoError::Utf8 {
                    valid_up_to: bytes.len().saturating_sub(rest.len()).saturating_add(at),
                });
            };
            text.push(character);
            rest = after;
        }
    }

    /// A vector whose elements take at least `min_size` bytes each; the null vector (count -1) counts as empty.
    pub(crate) fn vector<T>(
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

    pub(crate) fn strings(&mut self) -> Result<Vec<String>, ProtoError> {
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

/// Cuts one surrogate pair off at `at`. The server encodes the two halves of a Java string's pair one by one, three
/// bytes each, which is not UTF-8 but what `getACL` and `whoAmI` answer for a user whose name has such a character.
fn split_surrogates(bytes: &[u8], at: usize) -> Option<(char, &[u8])> {
    let &[0xED, a @ 0xA0..=0xAF, b @ 0x80..=0xBF, 0xED, c @ 0xB0..=0xBF, d @ 0x80..=0xBF, ref rest @ ..] =
        bytes.get(at..)?
    else {
        return None;
    };
    let [a, b, c, d] = [a & 0x0F, b & 0x3F, c & 0x0F, d & 0x3F].map(u32::from);
    Some((char::from_u32(0x1_0000 + (a << 16 | b << 10 | c << 6 | d))?, rest))
}

/// Builds one frame.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn frame() -> Self {
        // Enough for nearly every request, so that it grows seldom.
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[0; 4]);
        Writer { bytes }
    }

    /// Ends the frame: the length goes in front.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = wire_length(self.bytes.len().saturating_sub(4));
        if let Some(prefix) = self.bytes.first_chunk_mut() {
            *prefix = length.to_be_bytes();
        }
        self.bytes
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(value.into());
    }

    /// Bytes that are encoded already.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn buffer(&mut self, bytes: &[u8]) {
        self.i32(wire_length(bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.buffer(text.as_bytes());
    }

    pub(crate) fn vector<T>(&mut self, elements: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.i32(wire_length(elements.len()));
        for each in elements {
            element(self, each);
        }
    }
}

/// A length as it goes on the wire. A length that does not fit in 31 bits is above every frame limit, so the frame is
/// refused by its size before this number is read.
fn wire_length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read<'a, T>(
        bytes: &'a [u8],
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, ProtoError>,
    ) -> Result<T, ProtoError> {
        let mut reader = Reader::new(bytes);
        let value = read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    #[test]
    fn numbers_are_big_endian() {
        assert_eq!(read(b"\x01\x02\x03\x04", Reader::i32), Ok(0x0102_0304));
        assert_eq!(read(b"\xff\xff\xff\xff\xff\xff\xff\xfe", Reader::i64), Ok(-2));
    }

    #[test]
    fn only_0_and_1_are_booleans() {
        assert_eq!(read(b"\0", Reader::bool), Ok(false));
        assert_eq!(read(b"\x01", Reader::bool), Ok(true));
        assert_eq!(read(b"\x02", Reader::bool), Err(ProtoError::Unexpected { what: "boolean", value: 2 }));
    }

    #[test]
    fn null_counts_as_empty() {
        assert_eq!(read(b"\xff\xff\xff\xff", Reader::buffer), Ok(&[][..]));
        assert_eq!(read(b"\xff\xff\xff\xff", Reader::string), Ok(String::new()));
        assert_eq!(read(b"\xff\xff\xff\xff", Reader::strings), Ok(vec![]));
    }

    #[test]
    fn a_length_below_null_is_refused() {
        let refused = ProtoError::NegativeLength { length: -2 };
        assert_eq!(read(b"\xff\xff\xff\xfe", Reader::buffer), Err(refused.clone()));
        assert_eq!(read(b"\xff\xff\xff\xfe", Reader::strings), Err(refused));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert_eq!(read(b"\0\0\0", Reader::i32), Err(ProtoError::Short { needed: 4, left: 3 }));
        assert_eq!(read(b"\0\0\0\x03ab", Reader::buffer), Err(ProtoError::Short { needed: 3, left: 2 }));
    }

    #[test]
    fn a_count_that_cannot_fit_is_refused_before_the_first_element() {
        let result = read(b"\0\0\0\x03\0\0\0\0\0\0\0", |reader| {
            reader.vector::<()>(4, |_| Err(ProtoError::Unexpected { what: "element", value: 0 }))
        });
        assert_eq!(result, Err(ProtoError::Count { count: 3, left: 7 }));
    }

    #[test]
    fn bytes_left_over_are_refused() {
        assert_eq!(read(b"\0\0", Reader::bool), Err(ProtoError::Trailing { left: 1 }));
    }

    #[test]
    fn surrogate_pairs_become_one_character() {
        let bytes = b"\0\0\0\x0cu\xed\xa0\xbd\xed\xb8\x80\xc3\xa9\xf0\x9f\x98"; // cut inside the last character
        assert_eq!(read(bytes, Reader::string), Err(ProtoError::Utf8 { valid_up_to: 9 }));
        let bytes = b"\0\0\0\x0au\xed\xa0\xbd\xed\xb8\x80\xc3\xa9v";
        assert_eq!(read(bytes, Reader::string), Ok("u\u{1F600}\u{e9}v".to_owned()));
        let (lowest, highest) = (b"\0\0\0\x06\xed\xa0\x80\xed\xb0\x80", b"\0\0\0\x06\xed\xaf\xbf\xed\xbf\xbf");
        assert_eq!(read(lowest, Reader::string), Ok("\u{10000}".to_owned()));
        assert_eq!(read(highest, Reader::string), Ok("\u{10FFFF}".to_owned()));
    }

    #[test]
    fn other_invalid_utf8_is_refused() {
        for bytes in [&b"\0\0\0\x02a\xff"[..], b"\0\0\0\x04a\xed\xa0\xbd", b"\0\0\0\x04a\xed\xb8\x80"] {
            assert_eq!(read(bytes, Reader::string), Err(ProtoError::Utf8 { valid_up_to: 1 }));
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = Writer::frame();
        writer.i32(i32::MIN);
        writer.i64(i64::MIN);
        writer.bool(true);
        writer.buffer(&[0, 255]);
        writer.string("\u{e9}");
        writer.vector(&["a", ""], |writer, text| writer.string(text));
        let frame = writer.finish();
        let (length, body) = frame.split_first_chunk().unwrap();
        assert_eq!(usize::try_from(i32::from_be_bytes(*length)), Ok(body.len()));
        let mut reader = Reader::new(body);
        assert_eq!((reader.i32(), reader.i64(), reader.bool()), (Ok(i32::MIN), Ok(i64::MIN), Ok(true)));
        assert_eq!(reader.buffer(), Ok(&[0, 255][..]));
        assert_eq!(reader.string(), Ok("\u{e9}".to_owned()));
        assert_eq!(reader.strings(), Ok(vec!["a".to_owned(), String::new()]));
        assert_eq!(reader.finish(), Ok(()));
    }
}
