//! One client's connection, as its server sees it.

use std::{collections::VecDeque, time::Duration};

use super::{acl::Id, txn::Applied, wire::Call};

/// Names a connection, over all servers and the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first frame has not come.
    New,
    /// The session is being made, or asked for. Nothing more is read.
    Starting,
    Open,
    /// Nothing more is read, and the end is under way.
    Ending,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: usize,
    pub(super) stage: Stage,
    pub(super) session: i64,
    pub(super) timeout_ms: i32,
    pub(super) is_old: bool,
    /// Who the client is.
    pub(super) ids: Vec<Id>,
    /// Bytes of frames that are not complete, or not read yet.
    pub(super) bytes: Vec<u8>,
    /// Requests that are not answered yet, in order.
    pub(super) pending: VecDeque<Pending>,
    pub(super) requests: u64,
    /// When something was last read.
    pub(super) read_at: Duration,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) call: Call,
    /// Who the client was when the request came.
    pub(super) ids: Vec<Id>,
    pub(super) progress: Progress,
}

#[derive(Debug)]
pub(super) enum Progress {
    /// It is answered from the server's own znodes, when its turn has come.
    Read,
    /// The leader refused it without a transaction.
    Refused(i32),
    /// It waits for its transaction, or for the end of a sync.
    Awaits,
    /// It waits for this transaction, which its session asked for over another connection. Servers keep the requests of a
    /// session in order, not those of a connection (`CommitProcessor.pendingRequests`).
    Behind(i64),
    Applied(Applied),
}

impl Connection {
    pub(super) fn new(server: usize, now: Duration) -> Connection {
        Connection {
            server,
            stage: Stage::New,
            session: 0,
            timeout_ms: 0,
            is_old: false,
            ids: vec![Id::new("ip", "127.0.0.1")],
            bytes: Vec::new(),
            pending: VecDeque::new(),
            requests: 0,
            read_at: now,
        }
    }

    /// The next frame that may be read; an error ends the connection.
    pub(super) fn next_frame(&mut self, limit: usize) -> Result<Option<Vec<u8>>, ()> {
        let Some(prefix) = self.bytes.first_chunk().filter(|_| matches!(self.stage, Stage::New | Stage::Open)) else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(*prefix)).ok().filter(|length| *length <= limit).ok_or(())?;
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        let frame = self.bytes.drain(..4 + length).skip(4).collect();
        Ok(Some(frame))
    }

    pub(super) fn push(&mut self, xid: i32, op: i32, call: Call, progress: Progress) -> u64 {
        self.requests += 1;
        let ids = self.ids.clone();
        self.pending.push_back(Pending { number: self.requests, xid, op, call, ids, progress });
        self.requests
    }

    pub(super) fn request(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|pending| pending.number == number)
    }

    /// Takes the first request if its turn has come.
    pub(super) fn next_ready(&mut self) -> Option<Pending> {
        self.pending.pop_front_if(|pending| !matches!(pending.progress, Progress::Awaits | Progress::Behind(_)))
    }

    /// Lets those go on that waited for this transaction.
    pub(super) fn carried_out(&mut self, zxid: i64) {
        for pending in &mut self.pending {
            if matches!(pending.progress, Progress::Behind(behind) if behind <= zxid) {
                pending.progress = Progress::Read;
            }
        }
    }
}
