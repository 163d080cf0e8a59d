//! Replies of every kind as a server writes them, and what can become of them on the way.

use crate::proto::{
    op,
    request::Request,
    types::{Acl, CreateMode, WatchTable},
};

/// Op codes with every kind of reply.
pub(crate) const KINDS: [i32; 13] = [
    op::DELETE,
    op::CREATE,
    op::CREATE2,
    op::EXISTS,
    op::GET_DATA,
    op::GET_CHILDREN,
    op::GET_CHILDREN2,
    op::GET_ACL,
    op::SYNC,
    op::MULTI,
    op::MULTI_READ,
    op::GET_EPHEMERALS,
    op::WHO_AM_I,
];

/// Every request that a caller can send, with and without a watch.
pub(crate) fn requests() -> Vec<Request> {
    let path = || "/locks/one".to_owned();
    let create = |mode| Request::Create { path: path(), data: b"data".to_vec(), acl: Acl::open_unsafe(), mode };
    let multi = vec![
        create(CreateMode::Ephemeral),
        Request::Check { path: path(), version: 0 },
        Request::SetData { path: path(), data: Vec::new(), version: 0 },
        Request::Delete { path: path(), version: -1 },
    ];
    let mut requests = vec![
        create(CreateMode::EphemeralSequential),
        create(CreateMode::Persistent),
        create(CreateMode::Container),
        Request::Delete { path: path(), version: -1 },
        Request::SetData { path: path(), data: b"x".to_vec(), version: 3 },
        Request::GetAcl { path: path() },
        Request::SetAcl { path: path(), acl: Acl::creator_all(), version: -1 },
        Request::Sync { path: path() },
        Request::Multi(multi),
        Request::RemoveWatches { path: path(), table: WatchTable::Data },
        Request::GetEphemerals { prefix: path() },
        Request::WhoAmI,
    ];
    for watch in [false, true] {
        requests.push(Request::Exists { path: path(), watch });
        requests.push(Request::GetData { path: path(), watch });
        requests.push(Request::GetChildren { path: path(), watch, with_stat: false });
        requests.push(Request::GetChildren { path: path(), watch, with_stat: true });
    }
    requests
}

fn int(out: &mut Vec<u8>, value: i32) {
    out.extend(value.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    int(out, i32::try_from(text.len()).unwrap());
    out.extend(text.bytes());
}

fn stat(out: &mut Vec<u8>) {
    out.extend((0..68).map(|at| at as u8));
}

fn names(out: &mut Vec<u8>, count: i32) {
    int(out, count);
    for number in 0..count {
        text(out, &format!("_c_7a1b-lock-{number:010}"));
    }
}

fn multi(out: &mut Vec<u8>, results: &[(i32, i32)]) {
    for &(op, err) in results {
        int(out, op);
        out.push(0);
        int(out, err);
        match op {
            1 => text(out, "/locks/one"),
            15 => {
                text(out, "/locks/one");
                stat(out);
            }
            5 => stat(out),
            4 => {
                text(out, "192.0.2.1");
                stat(out);
            }
            8 => names(out, 2),
            -1 => int(out, err),
            _ => {}
        }
    }
    int(out, -1);
    out.push(1);
    int(out, -1);
}

/// The body of a reply to a request with this op code.
pub(crate) fn body(op_code: i32) -> Vec<u8> {
    let mut out = Vec::new();
    match op_code {
        op::CREATE | op::SYNC => text(&mut out, "/locks/one"),
        op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            text(&mut out, "/locks/one/_c_7a1b-lock-0000000007");
            stat(&mut out);
        }
        op::EXISTS | op::SET_DATA | op::SET_ACL => stat(&mut out),
        op::GET_DATA => {
            text(&mut out, "192.0.2.1");
            stat(&mut out);
        }
        op::GET_CHILDREN => names(&mut out, 12),
        op::GET_CHILDREN2 => {
            names(&mut out, 3);
            stat(&mut out);
        }
        op::GET_ACL => {
            int(&mut out, 2);
            for (scheme, id) in [("world", "anyone"), ("digest", "u\u{e9}:x")] {
                int(&mut out, 31);
                text(&mut out, scheme);
                text(&mut out, id);
            }
            stat(&mut out);
        }
        op::MULTI => multi(&mut out, &[(1, 0), (15, 0), (13, 0), (5, 0), (2, 0), (-1, -101)]),
        op::MULTI_READ => multi(&mut out, &[(8, 0), (4, 0), (-1, -101), (8, 0)]),
        op::GET_EPHEMERALS => names(&mut out, 2),
        op::WHO_AM_I => {
            int(&mut out, 2);
            for (scheme, user) in [("ip", "127.0.0.1"), ("digest", "me")] {
                text(&mut out, scheme);
                text(&mut out, user);
            }
        }
        _ => {}
    }
    out
}

/// A reply without its length.
pub(crate) fn reply(xid: i32, zxid: i64, err: i32, body: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &zxid.to_be_bytes(), &err.to_be_bytes(), body].concat()
}

/// A notification without its length.
pub(crate) fn notification(event: i32, state: i32, path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    int(&mut body, event);
    int(&mut body, state);
    text(&mut body, path);
    reply(-1, -1, 0, &body)
}

/// The body of an answer to a handshake.
pub(crate) fn greeting() -> Vec<u8> {
    let mut out = Vec::new();
    int(&mut out, 0);
    int(&mut out, 12_000);
    out.extend(0x1234_5678_i64.to_be_bytes());
    int(&mut out, 16);
    out.extend([7; 16]);
    out.push(0);
    out
}

/// The values with which lengths, counts and codes are overwritten.
const NUMBERS: [i32; 12] =
    [i32::MAX, i32::MIN, -1, -2, 0, 1, 0x00FF_FFFF, 0x0001_0000, 65_535, 1 << 30, -101, i32::MAX - 4];

/// Does to a message one of the things that must do no harm.
pub(crate) fn mutate(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    let at = rng.usize(..bytes.len().max(1));
    match rng.u8(..6) {
        // A bit flips.
        0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << rng.u8(..8),
        // It ends early.
        2 => bytes.truncate(at),
        // It goes on.
        3 => bytes.extend((0..rng.usize(1..40)).map(|_| rng.u8(..))),
        // A length, a count or a code says something else: huge, negative, nothing. Most stand on these places.
        _ if bytes.len() >= 4 => {
            let at = if rng.bool() { at.min(bytes.len() - 4) } else { at.min(bytes.len() - 4) / 4 * 4 };
            bytes[at..at + 4].copy_from_slice(&NUMBERS[rng.usize(..NUMBERS.len())].to_be_bytes());
        }
        _ => bytes.push(rng.u8(..)),
    }
}

/// Bytes without any meaning; half of them mostly small numbers, which get further.
pub(crate) fn noise(rng: &mut fastrand::Rng) -> Vec<u8> {
    if rng.bool() {
        return (0..rng.usize(..160)).map(|_| rng.u8(..)).collect();
    }
    let numbers = (0..rng.usize(..40)).flat_map(|_| rng.i32(-2..16).to_be_bytes());
    numbers.collect()
}
