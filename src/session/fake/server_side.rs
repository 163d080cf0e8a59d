//! The server's side of the wire, for tests: requests read, replies written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{sync::Arc, time::Duration};

use crate::session::{api::SessionConfig, dialect::Dialect};

pub(crate) const DELETE: i32 = 2;
pub(crate) const EXISTS: i32 = 3;
pub(crate) const GET_DATA: i32 = 4;
pub(crate) const GET_CHILDREN: i32 = 8;
pub(crate) const SYNC: i32 = 9;
pub(crate) const MULTI: i32 = 14;
pub(crate) const PING: i32 = 11;
pub(crate) const REMOVE_WATCHES: i32 = 18;
pub(crate) const AUTH: i32 = 100;
pub(crate) const SET_WATCHES: i32 = 101;
pub(crate) const CLOSE: i32 = -11;

pub(crate) const NO_NODE: i32 = -101;
pub(crate) const EXPIRED: i32 = -112;
pub(crate) const UNKNOWN_SESSION: i32 = -12;
pub(crate) const AUTH_FAILED: i32 = -115;
pub(crate) const NOT_READ_ONLY: i32 = -119;

pub(crate) const CREATED: i32 = 1;
pub(crate) const DELETED: i32 = 2;
pub(crate) const CHANGED: i32 = 3;
pub(crate) const CHILDREN_CHANGED: i32 = 4;

pub(crate) fn config() -> SessionConfig {
    SessionConfig {
        hosts: "127.0.0.1:2181".parse().unwrap(),
        known: Arc::default(),
        // The server is not asked what it is.
        dialect: Some(Dialect::ZooKeeper),
        successor: Arc::default(),
        session_timeout: Duration::from_secs(12),
        connection_timeout: Duration::from_secs(15),
        authorizations: Vec::new(),
        quorum_heartbeats: false,
        max_frame_size: 4 * 1024 * 1024,
        max_request_size: 4 * 1024 * 1024,
        counters: Default::default(),
    }
}

/// A request as it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) body: Vec<u8>,
    /// The size of all of it, length included.
    pub(crate) size: usize,
}

impl Frame {
    pub(crate) fn decode(frame: &[u8]) -> Frame {
        Frame { xid: int(frame), op: int(&frame[4..]), body: frame[8..].to_vec(), size: frame.len() + 4 }
    }

    /// The path that most requests begin with.
    pub(crate) fn path(&self) -> String {
        string(&mut self.body.as_slice())
    }

    /// Whether the request, one of those that can, asks for a watch.
    pub(crate) fn watch(&self) -> bool {
        self.body.last() == Some(&1)
    }

    /// The table that `removeWatches` names: 1 children, 2 data.
    pub(crate) fn table(&self) -> i32 {
        int(&self.body[self.body.len() - 4..])
    }

    /// The contents of `setWatches`: zxid, then data, exist, child.
    pub(crate) fn set_watches(&self) -> (i64, [Vec<String>; 3]) {
        let zxid = i64::from_be_bytes(*self.body.first_chunk().unwrap());
        let mut rest = &self.body[8..];
        let lists = [0; 3].map(|_| {
            let count = int(rest);
            rest = &rest[4..];
            (0..count).map(|_| string(&mut rest)).collect()
        });
        assert!(rest.is_empty());
        (zxid, lists)
    }
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(*bytes.first_chunk().unwrap())
}

pub(crate) fn string(bytes: &mut &[u8]) -> String {
    let (text, rest) = bytes[4..].split_at(usize::try_from(int(bytes)).unwrap());
    *bytes = rest;
    String::from_utf8(text.to_vec()).unwrap()
}

/// Takes written bytes apart.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (frame, rest) = bytes[4..].split_at(usize::try_from(int(bytes)).unwrap());
        frames.push(Frame::decode(frame));
        bytes = rest;
    }
    frames
}

/// A reply without its length.
pub(crate) fn reply(xid: i32, zxid: i64, err: i32, body: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &zxid.to_be_bytes(), &err.to_be_bytes(), body].concat()
}

/// The reply that a server gives to a request that succeeds (or, with `err`, fails), without its length.
pub(crate) fn answer(request: &Frame, zxid: i64, err: i32) -> Vec<u8> {
    let body = if err == 0 { success(request) } else { Vec::new() };
    reply(request.xid, zxid, err, &body)
}

fn success(request: &Frame) -> Vec<u8> {
    let stat = vec![0; 68];
    match request.op {
        EXISTS => stat,
        GET_DATA => [&0_i32.to_be_bytes()[..], &stat].concat(),
        GET_CHILDREN => 0_i32.to_be_bytes().to_vec(),
        SYNC => request.body.clone(),
        MULTI => end_of_multi(),
        DELETE | PING | REMOVE_WATCHES | AUTH | SET_WATCHES | CLOSE => Vec::new(),
        other => panic!("no answer to operation {other}"),
    }
}

/// Returns the header that follows the last result of a transaction.
pub(crate) fn end_of_multi() -> Vec<u8> {
    [&(-1_i32).to_be_bytes()[..], &[1], &(-1_i32).to_be_bytes()].concat()
}

/// A notification without its length.
pub(crate) fn notification(event: i32, path: &str) -> Vec<u8> {
    let body = [&event.to_be_bytes()[..], &3_i32.to_be_bytes(), &prefixed(path.as_bytes())].concat();
    reply(-1, -1, 0, &body)
}

/// The bytes with their length in front.
pub(crate) fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&i32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
