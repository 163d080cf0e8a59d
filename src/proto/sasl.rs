//! A round of SASL (op 102): a token there, a token back.

use super::{
    codec::jute::{Reader, Writer},
    error::ProtoError,
    header::decode_header,
};

/// The operation.
const SASL: i32 = 102;

/// The whole frame of a request, with its length prefix.
pub(crate) fn encode(xid: i32, token: &[u8]) -> Vec<u8> {
    let mut writer = Writer::frame();
    writer.i32(xid);
    writer.i32(SASL);
    writer.buffer(token);
    writer.finish()
}

/// The server's token in the reply to the request with this xid, empty where it has none to send; or its error.
///
/// # Errors
/// The frame is no such reply.
pub(crate) fn decode(xid: i32, frame: &[u8]) -> Result<Result<Vec<u8>, i32>, ProtoError> {
    let (header, body) = decode_header(frame)?;
    if header.xid != xid {
        return Err(ProtoError::Unexpected { what: "xid of a reply", value: header.xid });
    }
    if header.err != 0 {
        return Ok(Err(header.err));
    }
    let mut reader = Reader::new(body);
    let token = reader.buffer()?.to_vec();
    reader.finish()?;
    Ok(Ok(token))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_header_and_token() {
        assert_eq!(encode(7, b"ab"), b"\0\0\0\x0e\0\0\0\x07\0\0\0\x66\0\0\0\x02ab");
    }

    #[test]
    fn a_reply_is_a_token_or_none_or_an_error() {
        let reply = |err: &[u8; 4], body: &[u8]| [b"\0\0\0\x07\0\0\0\0\0\0\0\0", &err[..], body].concat();
        assert_eq!(decode(7, &reply(b"\0\0\0\0", b"\0\0\0\x02ab")), Ok(Ok(b"ab".to_vec())));
        assert_eq!(decode(7, &reply(b"\0\0\0\0", b"\xff\xff\xff\xff")), Ok(Ok(Vec::new())));
        assert_eq!(decode(7, &reply(b"\xff\xff\xff\x8d", b"\xff\xff\xff\xff")), Ok(Err(-115)));
        assert!(decode(8, &reply(b"\0\0\0\0", b"\0\0\0\x02ab")).is_err());
        assert!(decode(7, &reply(b"\0\0\0\0", b"\0\0\0\x02abc")).is_err());
        assert!(decode(7, &reply(b"\0\0\0\0", b"\0\0\0\x03ab")).is_err());
        assert!(decode(7, b"\0\0\0\x07").is_err());
    }
}
