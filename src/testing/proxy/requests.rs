//! The log of requests that went through, and their counters.

use std::{collections::BTreeMap, time::Instant};

use super::frame::RequestHeader;

/// One request that a client has sent.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
/// use curator_locks::testing::{FaultProxy, RequestRecord, op};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// client.create().for_path("/currency")?;
/// let log: Vec<RequestRecord> = proxy.log();
/// let create = log.iter().find(|request| request.path.as_deref() == Some("/currency")).ok_or("no create")?;
/// assert_eq!((create.connection, create.error), (1, Some(0)));
/// println!("operation {} took {:?}", create.op, create.replied.map(|at| at - create.received));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// The number of its connection, counted from 1.
    pub connection: u64,
    /// Its number in the connection; negative for pings and the like.
    pub xid: i32,
    /// Its operation code, see [`op`](super::op).
    pub op: i32,
    /// The path it is about; of a multi, the path of its first operation.
    pub path: Option<String>,
    /// When it reached the proxy.
    pub received: Instant,
    /// When its reply reached the proxy, whatever became of it then.
    pub replied: Option<Instant>,
    /// The error code of its reply, 0 for success.
    pub error: Option<i32>,
}

/// All requests since the last clearing, and their counts since the beginning.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    pub(super) records: Vec<RequestRecord>,
    /// How many records were cleared away.
    cleared: usize,
    pub(super) counts: BTreeMap<i32, u64>,
}

impl RequestLog {
    /// Gives the place of the new record, for [`replied`](Self::replied).
    pub(super) fn add(&mut self, connection: u64, request: &RequestHeader) -> usize {
        *self.counts.entry(request.op).or_default() += 1;
        let RequestHeader { xid, op, path } = request.clone();
        let received = Instant::now();
        self.records.push(RequestRecord { connection, xid, op, path, received, replied: None, error: None });
        self.cleared + self.records.len() - 1
    }

    pub(super) fn replied(&mut self, place: usize, error: i32) {
        let record = place.checked_sub(self.cleared).and_then(|index| self.records.get_mut(index));
        if let Some(record) = record {
            record.replied = Some(Instant::now());
            record.error = Some(error);
        }
    }

    pub(super) fn clear(&mut self) {
        self.cleared += self.records.len();
        self.records.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::op, *};

    #[test]
    fn a_reply_to_a_cleared_request_changes_no_other() {
        let mut log = RequestLog::default();
        let request = RequestHeader { xid: 1, op: op::CREATE, path: None };
        let first = log.add(1, &request);
        log.clear();
        let second = log.add(1, &request);
        log.replied(first, -101);
        assert_eq!(log.records.first().map(|record| record.error), Some(None));
        log.replied(second, 0);
        assert_eq!(log.records.first().map(|record| record.error), Some(Some(0)));
        assert_eq!(log.counts.get(&op::CREATE), Some(&2));
    }
}
