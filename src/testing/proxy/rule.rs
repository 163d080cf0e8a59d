//! Faults of single requests: which requests, and what is done to them.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{frame::RequestHeader, op};

/// An action on a request.
///
/// A reply that is held holds back all that comes after it on its connection, as the order of a stream demands. A held
/// request does the same.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, ErrorCode, RetryOneTime};
/// use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// let no_auth = proxy.inject(RequestMatch::op(op::SET_DATA), Fault::Refuse(ErrorCode::NoAuth.into()));
/// assert!(client.set_data().for_path_and_data("/", "data").is_err());
/// assert_eq!(no_auth.hits(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server never gets the request. The connection stays.
    DropRequest,
    /// The server never gets the request: the connection is closed instead (FIN).
    CutInsteadOfRequest,
    /// The server gets the request, and right after it the end of the connection (FIN); so does the client.
    CutAfterRequest,
    /// The request is held until [`release`](super::InjectedFault::release).
    HoldRequest,
    /// The server has done the request, but its reply is dropped. The connection stays.
    DropReply,
    /// The server has done the request, but the client gets the end of the connection (FIN) for a reply.
    CutInsteadOfReply,
    /// The server has done the request, but its reply is held until [`release`](super::InjectedFault::release).
    HoldReply,
    /// The server never gets the request, and the client gets this error code for a reply.
    Refuse(i32),
}

impl Fault {
    /// Whether it is done to the reply rather than to the request.
    pub(super) fn is_of_reply(self) -> bool {
        matches!(self, Fault::DropReply | Fault::CutInsteadOfReply | Fault::HoldReply | Fault::Refuse(_))
    }

    /// Whether it is done to the request.
    pub(super) fn is_of_request(self) -> bool {
        !self.is_of_reply() || self.refusal().is_some()
    }

    /// The error code that the client gets instead of the server's.
    pub(super) fn refusal(self) -> Option<i32> {
        match self {
            Fault::Refuse(code) => Some(code),
            _ => None,
        }
    }
}

type PathPredicate = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Which requests a fault is for. Unless told otherwise: the next one.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
/// use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// let matches = [
///     RequestMatch::any().path(|path| path.starts_with("/locks")),
///     RequestMatch::op(op::SET_DATA).skip(1).times(2), // the second and the third
///     RequestMatch::ops([op::CREATE, op::CREATE_2]),
/// ];
/// let faults = matches.map(|requests| proxy.inject(requests, Fault::CutInsteadOfReply));
/// let created = proxy.inject(RequestMatch::creates(), Fault::HoldReply);
/// created.release(); // it holds nothing any more
/// assert!(faults.iter().all(|fault| fault.hits() == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct RequestMatch {
    /// `None`: all but pings.
    ops: Option<Vec<i32>>,
    path: Option<PathPredicate>,
    skip: u64,
    times: u64,
}

impl RequestMatch {
    /// Every request but pings, which come when the clock says so.
    pub fn any() -> RequestMatch {
        RequestMatch { ops: None, path: None, skip: 0, times: 1 }
    }

    /// Requests with this operation code, see [`op`].
    pub fn op(op: i32) -> RequestMatch {
        RequestMatch::ops([op])
    }

    /// Requests with one of these operation codes, see [`op`].
    pub fn ops(ops: impl IntoIterator<Item = i32>) -> RequestMatch {
        RequestMatch { ops: Some(ops.into_iter().collect()), ..RequestMatch::any() }
    }

    /// Requests that create one znode of whatever kind.
    pub fn creates() -> RequestMatch {
        RequestMatch::ops([op::CREATE, op::CREATE_2, op::CREATE_CONTAINER, op::CREATE_TTL])
    }

    /// Transactions, but for those that are heartbeats: each with
    /// [`quorum_heartbeats`](crate::Builder::quorum_heartbeats), and else those behind a reconnect or a silence of the servers.
    pub fn transactions() -> RequestMatch {
        RequestMatch::op(op::MULTI).path(|path| path != "/")
    }

    /// Only requests about a path that this accepts.
    pub fn path(mut self, accepts: impl Fn(&str) -> bool + Send + Sync + 'static) -> RequestMatch {
        self.path = Some(Box::new(accepts));
        self
    }

    /// Lets the first `count` of them pass.
    pub fn skip(mut self, count: u64) -> RequestMatch {
        self.skip = count;
        self
    }

    /// This many of them. Defaults to 1.
    pub fn times(mut self, count: u64) -> RequestMatch {
        self.times = count;
        self
    }

    fn accepts(&self, request: &RequestHeader) -> bool {
        let op = self.ops.as_ref().map_or(request.op != op::PING, |ops| ops.contains(&request.op));
        let path = self.path.as_ref().is_none_or(|accepts| request.path.as_deref().is_some_and(accepts));
        op && path
    }
}

impl fmt::Debug for RequestMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestMatch")
            .field("ops", &self.ops)
            .field("skip", &self.skip)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// One injected fault. Its flags are changed under the relay's lock where a thread may be waiting for them.
#[derive(Debug)]
pub(super) struct Rule {
    requests: RequestMatch,
    pub(super) fault: Fault,
    /// Requests that matched, those let pass included.
    seen: AtomicU64,
    hits: AtomicU64,
    released: AtomicBool,
}

impl Rule {
    pub(super) fn new(requests: RequestMatch, fault: Fault) -> Rule {
        Rule { requests, fault, seen: AtomicU64::new(0), hits: AtomicU64::new(0), released: AtomicBool::new(false) }
    }

    /// Whether the fault is for this request. Counts it if so.
    pub(super) fn claims(&self, request: &RequestHeader) -> bool {
        if self.is_released() || !self.requests.accepts(request) {
            return false;
        }
        let before = self.seen.fetch_add(1, Ordering::SeqCst);
        before >= self.requests.skip && before - self.requests.skip < self.requests.times
    }

    /// Whether it will claim no request any more.
    pub(super) fn is_used_up(&self) -> bool {
        let seen = self.seen.load(Ordering::SeqCst);
        self.is_released() || seen >= self.requests.skip.saturating_add(self.requests.times)
    }

    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }

    pub(super) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: i32, path: &str) -> RequestHeader {
        RequestHeader { xid: 1, op, path: Some(path.into()) }
    }

    #[test]
    fn a_rule_claims_the_requests_after_the_skipped_ones() {
        let requests = RequestMatch::creates().path(|path| path.contains("lock-")).skip(1).times(2);
        let rule = Rule::new(requests, Fault::DropReply);
        assert!(!rule.claims(&request(op::DELETE, "/lock-1")));
        assert!(!rule.claims(&request(op::CREATE, "/other")));
        let claims: Vec<bool> = (0..4).map(|_| rule.claims(&request(op::CREATE_2, "/lock-1"))).collect();
        assert_eq!(claims, [false, true, true, false]);
        assert!(rule.is_used_up());
    }

    #[test]
    fn any_request_means_no_ping() {
        let rule = Rule::new(RequestMatch::any(), Fault::DropRequest);
        assert!(!rule.claims(&RequestHeader { xid: -2, op: op::PING, path: None }));
        assert!(rule.claims(&RequestHeader { xid: 1, op: op::CLOSE_SESSION, path: None }));
    }

    #[test]
    fn a_released_rule_claims_nothing() {
        let rule = Rule::new(RequestMatch::any(), Fault::HoldReply);
        rule.release();
        assert!(!rule.claims(&request(op::CREATE, "/a")));
    }
}
