//! One connection: two streams of bytes, each in order.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, atomic::AtomicU64},
};

use crate::{proto::op, sim::ensemble::ConnId};

/// What travels on a connection.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// How the other side has ended the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Fin,
    Reset,
    /// The own side: nothing more comes.
    Own,
}

/// One direction.
#[derive(Default)]
pub(super) struct Pipe {
    /// When the last item arrives: none overtakes it.
    pub(super) last: u64,
    /// Lost in a black hole so far, until it is sent again.
    pub(super) held: VecDeque<Item>,
    /// Bytes that were sent and have not arrived.
    pub(super) on_the_way: usize,
    /// What is held, until its fault is over.
    pub(super) held_back: Option<HeldBack>,
}

/// A request or a reply that is held, and what has come behind it.
pub(super) struct HeldBack {
    /// Counts how often its fault was done.
    pub(super) hits: Arc<AtomicU64>,
    /// Requests that have arrived.
    pub(super) requests: Vec<Vec<u8>>,
    pub(super) items: VecDeque<Item>,
}

impl HeldBack {
    pub(super) fn of(hits: Arc<AtomicU64>) -> HeldBack {
        HeldBack { hits, requests: Vec::new(), items: VecDeque::new() }
    }
}

/// What is done to the reply of a request. What is counted with the reply has its counter.
#[derive(Debug, Clone)]
pub(super) enum ReplyFault {
    Drop,
    Cut,
    Refuse(i32, Arc<AtomicU64>),
    Hold(Arc<AtomicU64>),
}

pub(super) struct Conn {
    pub(super) process: usize,
    pub(super) server: usize,
    /// The server's name for it, until one of the two has ended it there.
    pub(super) id: Option<ConnId>,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    /// Arrived at the client and not read.
    pub(super) received: VecDeque<u8>,
    pub(super) end: Option<End>,
    /// The client's end is closed, and its FIN was sent.
    pub(super) is_closed: bool,
    /// Arrived at the server: the beginning of a frame.
    pub(super) frame: Vec<u8>,
    pub(super) has_shaken_hands: bool,
    /// Requests whose replies do not come, by xid.
    pub(super) replies: BTreeMap<i32, ReplyFault>,
    /// What its readers and writers wait for.
    pub(super) key: Arc<[u8; 8]>,
}

impl Conn {
    pub(super) fn new(process: usize, server: usize, id: ConnId) -> Conn {
        Conn {
            process,
            server,
            id: Some(id),
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            received: VecDeque::new(),
            end: None,
            is_closed: false,
            frame: Vec::new(),
            has_shaken_hands: false,
            replies: BTreeMap::new(),
            key: Arc::new([0; 8]),
        }
    }

    /// Readers and writers wait for this.
    pub(super) fn key(&self) -> usize {
        // An `Arc` of bytes may begin at any multiple of its counters' size.
        Arc::as_ptr(&self.key).addr() & !3
    }

    /// Takes what has arrived; `None`: nothing yet.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        if self.is_closed {
            return Some(Ok(0));
        }
        if !self.received.is_empty() {
            let count = self.received.len().min(buffer.len());
            for (place, byte) in buffer.iter_mut().zip(self.received.drain(..count)) {
                *place = byte;
            }
            return Some(Ok(count));
        }
        match self.end? {
            End::Fin | End::Own => Some(Ok(0)),
            End::Reset => Some(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Cuts complete frames off what has arrived at the server. Each has its length before it.
    pub(super) fn frames(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.frame.extend_from_slice(bytes);
        let (frames, rest) = cut(&self.frame);
        self.frame = rest;
        frames
    }
}

/// Cuts bytes into frames and the beginning of one.
pub(super) fn cut(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let Some(length) = int_at(rest, 0).and_then(|length| usize::try_from(length).ok()) {
        let Some((frame, behind)) = rest.split_at_checked(4 + length) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    (frames, rest.to_vec())
}

/// The path that a request is about; of a transaction, that of its first operation.
pub(super) fn path_of(request: &[u8]) -> Option<String> {
    let at = match int_at(request, 8)? {
        op::PING | op::AUTH | op::SET_WATCHES | op::SET_WATCHES2 | op::CLOSE_SESSION => return None,
        // Type, done and error come before it.
        op::MULTI | op::MULTI_READ => 12 + 9,
        _ => 12,
    };
    let length = usize::try_from(int_at(request, at)?).ok()?;
    String::from_utf8(request.get(at + 4..)?.get(..length)?.to_vec()).ok()
}

/// The number at that place of a frame.
pub(super) fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at + 4)?;
    Some(i32::from_be_bytes(four.try_into().ok()?))
}
