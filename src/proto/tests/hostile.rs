//! Any request survives the way to a server, any reply the way back, and no bytes whatsoever make us panic or allocate
//! more than a small multiple of their number.

use std::mem::size_of;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    corpus::KINDS,
    peer::{decode_request, encode_response},
};
use crate::proto::{
    connect::ConnectResponse,
    error::ProtoError,
    frame::FrameBuffer,
    header::decode_header,
    request::Request,
    response::Response,
    types::{Acl, CreateMode, ErrorCode, Notification, Stat, WatchTable},
};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..8).prop_map(|characters| characters.into_iter().collect())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..5)
}

fn acl() -> impl Strategy<Value = Vec<Acl>> {
    vec((any::<i32>(), text(), text()).prop_map(|(perms, scheme, id)| Acl { perms, scheme, id }), 0..4)
}

fn mode() -> impl Strategy<Value = CreateMode> {
    prop_oneof![
        Just(CreateMode::Persistent),
        Just(CreateMode::Ephemeral),
        Just(CreateMode::PersistentSequential),
        Just(CreateMode::EphemeralSequential),
        Just(CreateMode::Container),
        any::<i64>().prop_map(CreateMode::PersistentWithTtl),
        any::<i64>().prop_map(CreateMode::PersistentSequentialWithTtl),
    ]
}

/// The operations that may stand in a multi.
fn multi_op() -> impl Strategy<Value = Request> {
    let version = any::<i32>;
    prop_oneof![
        (text(), bytes(), acl(), mode()).prop_map(|(path, data, acl, mode)| Request::Create { path, data, acl, mode }),
        (text(), version()).prop_map(|(path, version)| Request::Delete { path, version }),
        (text(), bytes(), version()).prop_map(|(path, data, version)| Request::SetData { path, data, version }),
        (text(), version()).prop_map(|(path, version)| Request::Check { path, version }),
    ]
}

fn multi_read() -> impl Strategy<Value = Request> {
    prop_oneof![
        text().prop_map(|path| Request::GetData { path, watch: false }),
        text().prop_map(|path| Request::GetChildren { path, watch: false, with_stat: false }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let (flag, version) = (any::<bool>, any::<i32>);
    prop_oneof![
        4 => multi_op(),
        1 => (text(), flag()).prop_map(|(path, watch)| Request::Exists { path, watch }),
        1 => (text(), flag()).prop_map(|(path, watch)| Request::GetData { path, watch }),
        1 => text().prop_map(|path| Request::GetAcl { path }),
        1 => (text(), acl(), version()).prop_map(|(path, acl, version)| Request::SetAcl { path, acl, version }),
        1 => (text(), flag(), flag()).prop_map(|(path, watch, with_stat)| Request::GetChildren { path, watch, with_stat }),
        1 => text().prop_map(|path| Request::Sync { path }),
        1 => vec(multi_op(), 0..5).prop_map(Request::Multi),
        1 => vec(multi_read(), 1..5).prop_map(Request::Multi),
        1 => (text(), prop_oneof![Just(WatchTable::Data), Just(WatchTable::Children)])
            .prop_map(|(path, table)| Request::RemoveWatches { path, table }),
        1 => (text(), bytes()).prop_map(|(scheme, auth)| Request::Auth { scheme, auth }),
        1 => (any::<i64>(), texts(), texts(), texts()).prop_map(|(relative_zxid, data, exist, child)| {
            Request::SetWatches { relative_zxid, data, exist, child }
        }),
        1 => text().prop_map(|prefix| Request::GetEphemerals { prefix }),
        1 => prop_oneof![Just(Request::Ping), Just(Request::WhoAmI), Just(Request::CloseSession)],
    ]
}

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(long, int)| Stat {
        czxid: long[0],
        mzxid: long[1],
        ctime: long[2],
        mtime: long[3],
        version: int[0],
        cversion: int[1],
        aversion: int[2],
        ephemeral_owner: long[4],
        data_length: int[3],
        num_children: int[4],
        pzxid: long[5],
    })
}

/// That in the header of each reply.
const ZXID: i64 = 9;

fn maybe_stat() -> impl Strategy<Value = Option<Stat>> {
    proptest::option::of(stat())
}

fn multi_result() -> impl Strategy<Value = Result<Response, Option<ErrorCode>>> {
    prop_oneof![
        text().prop_map(|path| Ok(Response::Created { path, czxid: ZXID })),
        Just(Ok(Response::Done)),
        stat().prop_map(|stat| Ok(Response::Stat(stat))),
        (bytes(), stat()).prop_map(|(data, stat)| Ok(Response::Data { data, stat })),
        texts().prop_map(|names| Ok(Response::Children { names, stat: None })),
        Just(Err(None)),
        (i32::MIN..0).prop_map(|code| Err(Some(ErrorCode::from(code)))),
    ]
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        Just(Response::Done),
        text().prop_map(|path| Response::Created { path, czxid: ZXID }),
        stat().prop_map(Response::Stat),
        (bytes(), stat()).prop_map(|(data, stat)| Response::Data { data, stat }),
        (texts(), maybe_stat()).prop_map(|(names, stat)| Response::Children { names, stat }),
        (acl(), stat()).prop_map(|(acl, stat)| Response::Acl { acl, stat }),
        text().prop_map(|path| Response::Synced { path }),
        vec(multi_result(), 0..6).prop_map(Response::Multi),
        texts().prop_map(Response::Ephemerals),
        vec((text(), text()), 0..5).prop_map(Response::WhoAmI),
    ]
}

/// Bytes on the heap, spare capacity included.
fn heap(response: &Response) -> usize {
    fn table<T>(elements: &Vec<T>, each: impl Fn(&T) -> usize) -> usize {
        elements.capacity() * size_of::<T>() + elements.iter().map(each).sum::<usize>()
    }
    match response {
        Response::Done | Response::Stat(_) => 0,
        Response::Created { path, .. } | Response::Synced { path } => path.capacity(),
        Response::Data { data, .. } => data.capacity(),
        Response::Children { names, .. } | Response::Ephemerals(names) => table(names, String::capacity),
        Response::Acl { acl, .. } => table(acl, |entry| entry.scheme.capacity() + entry.id.capacity()),
        Response::WhoAmI(users) => table(users, |(scheme, user)| scheme.capacity() + user.capacity()),
        Response::Multi(results) => table(results, |result| match result {
            Ok(response) => heap(response),
            Err(_) => 0,
        }),
    }
}

/// Decodes as everything there is. A result of a multi takes 9 bytes on the wire and about 100 in memory, in a vector
/// that doubles (from 4 on): nothing takes more.
fn decode_as_everything(bytes: &[u8]) {
    for op_code in KINDS {
        if let Ok(response) = Response::decode(op_code, ZXID, bytes) {
            assert!(heap(&response) <= 32 * bytes.len() + 512, "op {op_code}: {} bytes", heap(&response));
        }
    }
    let _ = decode_header(bytes);
    let _ = Notification::decode(bytes);
    let _ = ConnectResponse::decode(bytes);
}

fn vec_of(first: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| first.wrapping_add((at % 251) as u8)).collect()
}

/// Reads `bytes` through a buffer in pieces of these sizes, until the end or the first error.
fn frames(limit: usize, bytes: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Option<ProtoError>) {
    let mut buffer = FrameBuffer::new(limit);
    let (mut frames, mut rest) = (Vec::new(), bytes);
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let space = buffer.space();
        assert!((4096..=limit + 4 + 4096 + 16 * 1024).contains(&space.len()), "{} bytes of room", space.len());
        let (piece, after) = rest.split_at(rest.len().min(space.len()).min(*pieces.next().unwrap()));
        space[..piece.len()].copy_from_slice(piece);
        buffer.filled(piece.len());
        rest = after;
        loop {
            match buffer.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

proptest! {
    #[test]
    fn requests_are_what_the_server_reads(request in request(), xid in any::<i32>()) {
        let frame = request.encode(xid);
        prop_assert_eq!(&frame[4..8], xid.to_be_bytes());
        prop_assert_eq!(decode_request(&frame), request);
    }

    #[test]
    fn replies_are_what_the_server_wrote(response in response()) {
        let (op_code, body) = encode_response(&response);
        prop_assert_eq!(Response::decode(op_code, ZXID, &body), Ok(response));
    }

    #[test]
    fn replies_cut_anywhere_are_refused(response in response()) {
        let (op_code, body) = encode_response(&response);
        for end in 0..body.len() {
            prop_assert!(Response::decode(op_code, ZXID, &body[..end]).is_err(), "{} bytes", end);
        }
    }

    #[test]
    fn replies_prolonged_are_refused(response in response(), more in vec(any::<u8>(), 1..9)) {
        let (op_code, mut body) = encode_response(&response);
        body.extend_from_slice(&more);
        prop_assert_eq!(Response::decode(op_code, ZXID, &body), Err(ProtoError::Trailing { left: more.len() }));
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        decode_as_everything(&bytes);
    }

    /// Random bytes seldom get past the first length; these are mostly small numbers.
    #[test]
    fn plausible_bytes_do_no_harm(numbers in vec(prop_oneof![-2..16i32, any::<i32>()], 0..60), cut in 0..4usize) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        decode_as_everything(bytes.get(cut..).unwrap_or_default());
    }

    #[test]
    fn mutated_replies_do_no_harm(
        response in response(),
        mutations in vec((any::<Index>(), prop_oneof![Just(0xff), Just(0x7f), Just(0), any::<u8>()]), 1..6),
    ) {
        let (_, mut body) = encode_response(&response);
        for (index, value) in mutations {
            if !body.is_empty() {
                let at = index.index(body.len());
                body[at] = value;
            }
        }
        decode_as_everything(&body);
    }

    #[test]
    fn lengths_out_of_range_do_no_harm(response in response(), index in any::<Index>(), length in any::<i32>()) {
        let (_, mut body) = encode_response(&response);
        if body.len() >= 4 {
            let at = index.index(body.len() - 3);
            body[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        decode_as_everything(&body);
    }

    #[test]
    fn frames_come_out_as_they_went_in(
        bodies in vec((any::<u8>(), prop_oneof![0..50usize, 3000..30_000usize]), 0..12),
        pieces in vec(prop_oneof![1..20usize, 1000..50_000usize], 1..6),
    ) {
        let bodies: Vec<Vec<u8>> = bodies.into_iter().map(|(fill, size)| vec_of(fill, size)).collect();
        let stream: Vec<u8> = bodies
            .iter()
            .flat_map(|body| [&i32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat())
            .collect();
        prop_assert_eq!(frames(30_000, &stream, &pieces), (bodies, None));
    }

    #[test]
    fn a_random_stream_does_no_harm(
        numbers in vec(prop_oneof![-1..300i32, any::<i32>()], 0..400),
        pieces in vec(1..300usize, 1..6),
    ) {
        let stream: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        let (frames, _) = frames(200, &stream, &pieces);
        prop_assert!(frames.iter().all(|frame| frame.len() <= 200));
    }
}
