//! What can go wrong on the way between a process and a server.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::connection::path_of;

/// The links that a fault is about: those of a process, to a server, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) process: Option<usize>,
    pub(crate) server: Option<usize>,
}

impl Links {
    pub(crate) fn all() -> Links {
        Links { process: None, server: None }
    }

    pub(crate) fn to(server: usize) -> Links {
        Links { process: None, server: Some(server) }
    }

    /// Those of them that lead to this server.
    pub(crate) fn and_to(self, server: usize) -> Links {
        Links { server: Some(server), ..self }
    }

    pub(crate) fn has(self, process: usize, server: usize) -> bool {
        self.process.is_none_or(|wanted| wanted == process) && self.server.is_none_or(|wanted| wanted == server)
    }
}

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Fin,
    Reset,
}

/// Which way a black hole swallows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    ToServer,
    ToClient,
}

impl Way {
    pub(super) fn is_to_server(self) -> bool {
        self != Way::ToClient
    }

    pub(super) fn is_to_client(self) -> bool {
        self != Way::ToServer
    }
}

/// What the name service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameService {
    Works,
    Fails,
    /// It answers nothing.
    Silent,
}

/// How a client dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// The system resets its connections.
    Reset,
    /// The machine is gone: the servers hear nothing.
    Silent,
}

/// A fault of single requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFault {
    pub(crate) links: Links,
    /// Requests with this operation code (`proto::op`); `None`: any.
    pub(crate) op: Option<i32>,
    /// So many of them pass first.
    pub(crate) skip: u64,
    pub(crate) times: u64,
    pub(crate) lost: Lost,
}

/// What is lost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The server never gets the request: the connection ends instead.
    RequestAndCut,
    /// The server gets the request, and right after it the end of the connection; so does the client.
    AfterRequestCut,
    /// The server has done the request, and the client gets the end of the connection for a reply.
    ReplyAndCut,
    /// The server has done the request, and its reply is dropped. The connection stays.
    ReplyStays,
    /// The server never gets the request. The connection stays.
    RequestStays,
    /// The server never gets the request, and the client gets this error code for a reply.
    Refused(i32),
    /// The request, and what comes after it on the connection, waits until the fault is over.
    RequestHeld,
    /// The server has done the request. Its reply, and what comes after it on the connection, waits until the fault is over.
    ReplyHeld,
}

/// A request that has come over the links of a process whose requests are kept.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) connection: usize,
    pub(crate) xid: i32,
    pub(crate) op: i32,
    /// What it is about; of a transaction, what its first operation is about.
    pub(crate) path: Option<String>,
    /// How it was answered.
    pub(crate) error: Option<i32>,
}

/// A fault that was injected.
#[derive(Debug, Clone)]
pub(crate) struct Injected(pub(super) Arc<AtomicU64>);

impl Injected {
    /// How often it was done so far.
    pub(crate) fn hits(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Looks at the operation code of a request, and at the path that it is about.
pub(crate) type Accepts = Box<dyn Fn(i32, Option<&str>) -> bool + Send>;

pub(super) struct Rule {
    fault: RequestFault,
    /// Only these; `None`: all.
    accepts: Option<Accepts>,
    seen: u64,
    hits: Arc<AtomicU64>,
}

impl Rule {
    pub(super) fn new(fault: RequestFault, accepts: Option<Accepts>) -> (Rule, Injected) {
        let hits = Arc::new(AtomicU64::new(0));
        (Rule { fault, accepts, seen: 0, hits: hits.clone() }, Injected(hits))
    }

    /// What is lost of this request, if it is one of those, and the number of hits, where it is still to be counted: with
    /// the reply.
    pub(super) fn matches(
        &mut self,
        process: usize,
        server: usize,
        op: i32,
        frame: &[u8],
    ) -> Option<(Lost, Arc<AtomicU64>)> {
        let RequestFault { links, op: wanted, skip, times, lost } = self.fault;
        if !links.has(process, server) || wanted.is_some_and(|wanted| wanted != op) {
            return None;
        }
        if self.accepts.as_ref().is_some_and(|accepts| !accepts(op, path_of(frame).as_deref())) {
            return None;
        }
        self.seen += 1;
        if self.seen <= skip || self.seen > skip.saturating_add(times) {
            return None;
        }
        if !matches!(lost, Lost::Refused(_) | Lost::ReplyHeld) {
            self.hits.fetch_add(1, Relaxed);
        }
        Some((lost, self.hits.clone()))
    }

    pub(super) fn is(&self, injected: &Injected) -> bool {
        Arc::ptr_eq(&self.hits, &injected.0)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.seen >= self.fault.skip.saturating_add(self.fault.times)
    }
}

/// One link.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Without faults.
    base: RangeInclusive<Duration>,
    delay: Option<RangeInclusive<Duration>>,
    /// Since when.
    pub(super) hole_to_server: Option<u64>,
    pub(super) hole_to_client: Option<u64>,
    pub(super) refuses: bool,
}

impl Link {
    pub(super) fn new(base: RangeInclusive<Duration>) -> Link {
        Link { base, delay: None, hole_to_server: None, hole_to_client: None, refuses: false }
    }

    pub(super) fn latency(&self) -> &RangeInclusive<Duration> {
        self.delay.as_ref().unwrap_or(&self.base)
    }

    pub(super) fn set_delay(&mut self, delay: Option<RangeInclusive<Duration>>) {
        self.delay = delay;
    }

    pub(super) fn is_hole(&self) -> bool {
        self.hole_to_server.is_some() || self.hole_to_client.is_some()
    }
}

/// What has happened on the network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    /// Requests that reached a server.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// By kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(super) fn fault(&mut self, kind: &'static str, times: u64) {
        if times > 0 {
            *self.faults.entry(kind).or_default() += times;
        }
    }
}
