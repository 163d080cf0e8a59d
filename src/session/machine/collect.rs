//! Writes of many callers as one transaction.
//!
//! While as many are on the wire as keep a server busy, those that come wait for the next reply to one of them, and then go
//! together: for the server that is one transaction, and one wake-up for each of its threads. Who is alone never waits.

use std::time::{Duration, Instant};

use super::{Link, Machine, Purpose, Submitted, actions::Action};
use crate::{
    base::collections::HashSet,
    error::Meaning,
    proto::{
        codec::together,
        error::ProtoError,
        op,
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode},
    },
    session::api::SessionError,
};

/// So many writes may always be on the wire.
pub(super) const LEAST: usize = 2;

/// For how long a write keeps a server busy, about. Where the way to the server takes much longer, more of them have to be on the
/// wire before it is worth while to wait.
const WRITE_TIME: Duration = Duration::from_micros(50);

/// The largest request that goes together with others.
const LARGEST: usize = 4096;

const MOST_WRITES: usize = 128;

/// Of lists that go together the replies come as one frame, which has to stay below the client's limit.
const MOST_LISTS: usize = 32;

/// The bytes of a transaction around its operations: length, xid, operation, end mark.
const AROUND: usize = 12 + 9;

/// What a machine knows of the writes that could go together.
#[derive(Default)]
pub(super) struct Collector {
    /// How many frames with such writes are on the wire.
    in_flight: usize,
    /// Whether what has waited goes out next.
    is_due: bool,
    /// The shortest time after which a write was answered on this connection.
    round_trip: Option<Duration>,
    /// The write whose answer is awaited for that, and when it was sent.
    timed: Option<(i32, Instant)>,
    /// The servers know no transactions.
    is_refused: bool,
    /// The servers do not answer several lists together.
    are_lists_refused: bool,
}

impl Collector {
    /// How many writes may be on the wire before others wait. With less than a round trip can hold, waiting would cost time that
    /// the server has nothing to do in.
    fn most(&self) -> usize {
        let Some(round_trip) = self.round_trip else { return usize::MAX };
        let held = round_trip.as_nanos() / WRITE_TIME.as_nanos();
        usize::try_from(held).unwrap_or(usize::MAX).max(LEAST)
    }

    pub(super) fn sent(&mut self, xid: i32, now: Instant) {
        self.in_flight += 1;
        self.timed.get_or_insert((xid, now));
    }

    fn answered(&mut self, xid: i32, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some((_, sent)) = self.timed.take_if(|(timed, _)| *timed == xid) {
            let took = now.saturating_duration_since(sent);
            self.round_trip = Some(self.round_trip.map_or(took, |shortest| shortest.min(took)));
        }
    }

    /// The next connection may be to another server.
    pub(super) fn disconnected(&mut self) {
        let Collector { is_refused, are_lists_refused, .. } = *self;
        *self = Collector { is_refused, are_lists_refused, ..Collector::default() };
    }
}

/// Whether the request may go together with others. What contenders of one client do many times, in directories of each, is
/// that; what makes a directory, or may be unknown to the server, is not.
pub(super) fn may_be_collected(request: &Request, frame: &[u8]) -> bool {
    let (Request::Create { mode: CreateMode::Ephemeral | CreateMode::EphemeralSequential, .. }
    | Request::Delete { .. }) = request
    else {
        return false;
    };
    frame.len() <= LARGEST
}

impl<C, W: Clone> Machine<C, W> {
    /// Requests from this ticket on were submitted back to back, and must not be carried out in another order. They are where
    /// those that went together are refused: these go again, behind whatever is on the wire by then. So only a write with
    /// nothing but lists behind it may go with others; the lists are sent again with it.
    pub(crate) fn submitted(&mut self, first: u64) {
        let from = self.unsent.partition_point(|request| request.ticket < first);
        let mut batch = self.unsent.range_mut(from..);
        batch.next();
        if !batch.all(|request| is_list(request)) {
            self.unsent.range_mut(from..).for_each(|request| request.is_collected = false);
        }
    }

    /// Whether a request waits for the reply to a write. It never waits for ever: where the replies do not come, the
    /// connection ends.
    pub(super) fn waits(&self, next: &Submitted<C>) -> bool {
        let Collector { in_flight, is_due, is_refused, .. } = self.collector;
        next.is_collected
            && !is_due
            && !is_refused
            && in_flight >= self.collector.most()
            && self.link == (Link::Up { read_only: false })
            && self.abilities.is_some_and(|known| known.knows(op::MULTI))
    }

    /// A write was answered. What waits goes out once fewer are on the wire than keep the server busy: with each reply there
    /// would be less to go together, and in the end nothing.
    pub(super) fn write_answered(&mut self, xid: i32, now: Instant) {
        let has_waited = self.unsent.front().is_some_and(|next| self.waits(next));
        self.collector.answered(xid, now);
        self.collector.is_due |= has_waited && self.collector.in_flight < self.collector.most();
    }

    /// All that has waited is taken for writing.
    pub(super) fn make_undue(&mut self) {
        self.collector.is_due &= !self.unsent.is_empty();
    }

    /// Takes writes that go together off the queue, and the lists between them, which go behind: a transaction, and requests
    /// that hold the lists. `None`: nothing has waited, or the next one goes alone.
    ///
    /// That the lists go behind is seen by nobody: a write in the directory of a list in front of it goes with the next ones.
    /// Two creates in one directory never go together: their fencing tokens would be the same.
    pub(super) fn gather(&mut self, limit: usize) -> Option<(Submitted<C>, Vec<Submitted<C>>)> {
        if !self.collector.is_due || self.unsent.front().is_none_or(|next| !next.is_collected) {
            return None;
        }
        let limit = limit.min(self.request_limit());
        let (mut count, mut writes, mut last, mut size) = (0, 0, 0, 2 * AROUND);
        // Where something is written: the directory of a create, with its slash; the path of a delete.
        let (mut written, mut listed) = (HashSet::<&[u8]>::default(), HashSet::<&[u8]>::default());
        for next in &self.unsent {
            size += next.frame.len();
            let path = path(&next.frame);
            if next.is_collected {
                let directory = directory(path);
                let parent = directory.strip_suffix(b"/").unwrap_or(directory);
                let key = if next.op == op::CREATE { directory } else { path };
                let is_listed = listed.contains(parent) || listed.contains(path);
                if size > limit || writes == MOST_WRITES || is_listed || !written.insert(key) {
                    break;
                }
                writes += 1;
                last = count;
            } else if !is_list(next) {
                break;
            } else if size > limit {
                // A write goes with all of its lists.
                (count, writes) = (last, writes.saturating_sub(1));
                break;
            } else {
                listed.insert(path);
            }
            count += 1;
        }
        if writes < 2 {
            return None;
        }
        let (members, lists): (Vec<_>, Vec<_>) = self.unsent.drain(..count).partition(|next| next.is_collected);
        let lists = self.lists_together(lists);
        Some((Submitted { is_collected: true, ..group(op::MULTI, members, lists.len()) }, lists))
    }

    fn lists_together(&self, lists: Vec<Submitted<C>>) -> Vec<Submitted<C>> {
        let is_known = self.abilities.is_some_and(|known| known.knows(op::MULTI_READ));
        if !is_known || self.collector.are_lists_refused || lists.len() < 2 {
            return lists;
        }
        let (mut groups, mut lists) = (Vec::new(), lists.into_iter().peekable());
        while lists.peek().is_some() {
            groups.push(group(op::MULTI_READ, lists.by_ref().take(MOST_LISTS).collect(), 0));
        }
        groups
    }

    /// Hands the results of what went together to those who wait for them. What was refused as a whole goes again, one by one.
    pub(super) fn group_answered(
        &mut self,
        op: i32,
        (members, behind): (Vec<Submitted<C>>, usize),
        reply: Result<Response, ErrorCode>,
        actions: &mut Vec<Action<C, W>>,
    ) {
        match reply {
            Ok(Response::Multi(results)) if op == op::MULTI_READ || results.iter().all(Result::is_ok) => {
                for (member, result) in members.into_iter().zip(results) {
                    if let Purpose::Caller { completion, .. } = member.purpose {
                        let failed = |code: Option<ErrorCode>| {
                            SessionError::Server(code.unwrap_or(ErrorCode::RuntimeInconsistency))
                        };
                        actions.push(Action::Complete(completion, result.map_err(failed)));
                    }
                }
            }
            Err(code) if code.meaning() != Meaning::Final => {
                for member in members {
                    self.fail(member, SessionError::Server(code), actions);
                }
            }
            reply => {
                if op == op::MULTI_READ {
                    self.collector.are_lists_refused = true;
                } else if matches!(reply, Err(ErrorCode::Unimplemented | ErrorCode::BadArguments)) {
                    self.collector.is_refused = true;
                }
                self.send_again(members, behind);
            }
        }
    }

    /// The reply to lists that went together is too large for one frame, and theirs may not be.
    pub(super) fn lists_too_large(&mut self, lists: Vec<Submitted<C>>) {
        self.collector.are_lists_refused = true;
        self.send_again(lists, 0);
    }

    /// Puts requests of which none was carried out back in front of the queue, in their order, each by itself. With them go the
    /// lists that were sent `behind` them, as the replies that those get tell of directories without these writes.
    fn send_again(&mut self, mut again: Vec<Submitted<C>>, behind: usize) {
        for (_, list) in self.in_flight.iter_mut().take(behind) {
            match std::mem::replace(&mut list.purpose, Purpose::Housekeeping) {
                Purpose::Group { members, .. } => again.extend(members),
                purpose => {
                    let frame = std::mem::take(&mut list.frame);
                    again.push(Submitted { frame, purpose, ticket: list.ticket, op: list.op, ..Submitted::empty() });
                }
            }
        }
        again.retain(|request| matches!(request.purpose, Purpose::Caller { .. }));
        again.sort_by_key(|request| request.ticket);
        // Those without a ticket are in front of all others.
        let is_ticketed = self.unsent.iter().position(|request| request.ticket != 0);
        let later = self.unsent.split_off(is_ticketed.unwrap_or(self.unsent.len()));
        self.unsent.extend(again.into_iter().map(|request| Submitted { is_collected: false, ..request }));
        self.unsent.extend(later);
    }
}

impl<C> Submitted<C> {
    /// A request of the session's own, of which nobody hears.
    pub(super) fn empty() -> Submitted<C> {
        let (frame, purpose) = (Vec::new(), Purpose::Housekeeping);
        Submitted { ticket: 0, frame, op: 0, questionable: None, is_collected: false, purpose }
    }
}

fn is_list<C>(request: &Submitted<C>) -> bool {
    request.op == op::GET_CHILDREN && matches!(request.purpose, Purpose::Caller { watch: None, .. })
}

/// Whether each of those who went together has a result, or all have failed.
pub(super) fn check_results<C>(request: &Submitted<C>, response: &Response) -> Result<(), ProtoError> {
    let (Purpose::Group { members, .. }, Response::Multi(results)) = (&request.purpose, response) else {
        return Ok(());
    };
    if members.len() == results.len() {
        return Ok(());
    }
    let value = i32::try_from(results.len()).unwrap_or(i32::MAX);
    Err(ProtoError::Unexpected { what: "number of results in the reply of a multi", value })
}

fn group<C>(op: i32, members: Vec<Submitted<C>>, behind: usize) -> Submitted<C> {
    let frame = together(op, members.iter().map(|member| (member.op, member.frame.as_slice())));
    Submitted { frame, op, purpose: Purpose::Group { members, behind }, ..Submitted::empty() }
}

/// The path that the frames of creates, deletes and lists begin with.
fn path(frame: &[u8]) -> &[u8] {
    let length = frame.get(12..16).and_then(|length| length.try_into().ok()).map_or(0, u32::from_be_bytes);
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(16);
    frame.get(16..end).unwrap_or_default()
}

/// With its slash, so that it is no path.
fn directory(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.get(..end).unwrap_or_default()
}
