//! Cutting a stream of bytes into ZooKeeper's frames, and reading the few fields that faults are chosen by.

use std::io::{self, Read};

use super::op;
use crate::proto::request::Request;

/// Longer frames are taken for another protocol: four letter words and TLS begin with bytes that make a huge length.
const MAX_FRAME: usize = 64 << 20;

const CHUNK: usize = 64 << 10;

/// A piece of a stream. Both kinds are passed on as they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole frame, its length included.
    Frame(Vec<u8>),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Piece::Frame(bytes) | Piece::Bytes(bytes) => bytes,
        }
    }
}

/// Reads pieces: frames, until something that is none.
#[derive(Debug)]
pub(super) struct PieceReader {
    framed: bool,
}

impl PieceReader {
    pub(super) fn new(framed: bool) -> PieceReader {
        PieceReader { framed }
    }

    /// The next piece; `None` at the end of the stream.
    pub(super) fn next(&mut self, stream: &mut impl Read) -> io::Result<Option<Piece>> {
        if !self.framed {
            return read_chunk(stream);
        }
        let mut bytes = Vec::with_capacity(4);
        stream.by_ref().take(4).read_to_end(&mut bytes)?;
        let length = int_at(&bytes, 0).map(usize::try_from);
        let Some(Ok(length @ 0..=MAX_FRAME)) = length else {
            self.framed = false;
            return Ok(Some(bytes).filter(|bytes| !bytes.is_empty()).map(Piece::Bytes));
        };
        stream.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() == 4 + length {
            return Ok(Some(Piece::Frame(bytes)));
        }
        self.framed = false;
        Ok(Some(Piece::Bytes(bytes)))
    }
}

fn read_chunk(stream: &mut impl Read) -> io::Result<Option<Piece>> {
    let mut bytes = vec![0; CHUNK];
    let count = stream.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()).map(Piece::Bytes))
}

/// The header of a request, and the path it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) path: Option<String>,
}

/// Reads a request's frame; not for the first frame of a connection.
pub(super) fn request(frame: &[u8]) -> Option<RequestHeader> {
    let (xid, op) = (int_at(frame, 4)?, int_at(frame, 8)?);
    let path = match op {
        op::PING | op::AUTH | op::SET_WATCHES | op::SET_WATCHES_2 | op::SASL | op::WHO_AM_I | op::CLOSE_SESSION => None,
        // Type, done and error come before the first operation.
        op::MULTI | op::MULTI_READ => string_at(frame, 12 + 9),
        _ => string_at(frame, 12),
    };
    Some(RequestHeader { xid, op, path })
}

/// Reads xid and error code of a reply's frame; not for the first frame of a connection.
pub(super) fn reply(frame: &[u8]) -> Option<(i32, i32)> {
    Some((int_at(frame, 4)?, int_at(frame, 16)?))
}

/// A request of the same number that changes nothing: whether the root exists, without a watch.
pub(super) fn harmless(request: &[u8]) -> Vec<u8> {
    Request::Exists { path: "/".into(), watch: false }.encode(int_at(request, 4).unwrap_or_default())
}

/// A reply of the same number that has nothing but this error code.
pub(super) fn refusal(reply: &[u8], code: i32) -> Vec<u8> {
    [&16i32.to_be_bytes(), reply.get(4..16).unwrap_or_default(), &code.to_be_bytes()].concat()
}

/// The reply to a read of data, made of one to a request that is answered with a stat.
pub(super) fn with_data(reply: &[u8], data: &[u8]) -> Vec<u8> {
    let (header, stat) = reply.get(4..).unwrap_or_default().split_at_checked(16).unwrap_or_default();
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let length = header.len() + 4 + data.len() + stat.len();
    [&size(length), header, &size(data.len()), data, stat].concat()
}

/// A handshake that asks for a new session, whichever it asked for.
pub(super) fn without_session(mut handshake: Vec<u8>) -> Vec<u8> {
    // Behind the length: version, last zxid, session timeout. The password has its length in front.
    for place in [20..28, 32..48] {
        if let Some(bytes) = handshake.get_mut(place) {
            bytes.fill(0);
        }
    }
    handshake
}

fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(i32::from_be_bytes)
}

fn string_at(bytes: &[u8], at: usize) -> Option<String> {
    let length = usize::try_from(int_at(bytes, at)?).ok()?;
    let begin = at + 4;
    let text = bytes.get(begin..begin.checked_add(length)?)?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pieces(mut stream: &[u8], framed: bool) -> Vec<Piece> {
        let mut reader = PieceReader::new(framed);
        std::iter::from_fn(|| reader.next(&mut stream).unwrap()).collect()
    }

    #[test]
    fn frames_are_cut_by_their_length() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 0, 0, 0];
        let expected = [vec![0, 0, 0, 2, 7, 8], vec![0, 0, 0, 0]].map(Piece::Frame);
        assert_eq!(pieces(&stream, true), expected);
    }

    #[test]
    fn the_rest_of_a_broken_frame_is_passed_on_as_it_is() {
        assert_eq!(pieces(&[0, 0, 0, 2, 7], true), [Piece::Bytes(vec![0, 0, 0, 2, 7])]);
        assert_eq!(pieces(&[0, 0], true), [Piece::Bytes(vec![0, 0])]);
    }

    #[test]
    fn another_protocol_is_passed_on_as_it_is() {
        let expected = [Piece::Bytes(b"ruok".to_vec()), Piece::Bytes(b"\n".to_vec())];
        assert_eq!(pieces(b"ruok\n", true), expected);
        assert_eq!(pieces(&[255; 8], true), [Piece::Bytes(vec![255; 4]), Piece::Bytes(vec![255; 4])]);
        assert_eq!(pieces(&[0, 0, 0, 1, 9], false), [Piece::Bytes(vec![0, 0, 0, 1, 9])]);
    }

    #[test]
    fn a_request_shows_its_path_if_it_has_one() {
        let header = |op: i32, body: &[u8]| [&[0; 4], &5i32.to_be_bytes(), &op.to_be_bytes(), body].concat();
        let path = b"\0\0\0\x02/a";
        let expected = |op, path: Option<&str>| Some(RequestHeader { xid: 5, op, path: path.map(Into::into) });
        assert_eq!(request(&header(op::CREATE, path)), expected(op::CREATE, Some("/a")));
        assert_eq!(request(&header(op::PING, &[])), expected(op::PING, None));
        let multi = [&[0; 9], path.as_slice()].concat();
        assert_eq!(request(&header(op::MULTI, &multi)), expected(op::MULTI, Some("/a")));
        assert_eq!(request(&header(op::DELETE, b"\x7f\xff\xff\xff/")), expected(op::DELETE, None));
        assert_eq!(request(&[0; 11]), None);
    }
}
