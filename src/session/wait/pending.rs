//! Blocking on top of [`Session`]: replies that can be waited for, and watches as objects.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    deadline::{WaitBound, WaitEnd},
    reply_slot::{ReplySender, ReplySlot, reply_slot},
};
use crate::{
    base::{clock, sync::Mutex},
    error::Meaning,
    proto::{op, request::Request, response::Response, types::ErrorCode},
    session::api::{OnReply, Reply, Session, SessionError, Submission, Ticket, Watcher},
};

/// A reply that is on its way.
pub(crate) struct Pending {
    session: Arc<dyn Session>,
    ticket: Ticket,
    reply: ReplySlot,
    submitted: Instant,
    /// Whether the reply was handed out, or is not of interest any more.
    is_settled: bool,
}

/// The wait ended without the reply.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) end: WaitEnd,
    /// Whether the request was, or may have been, sent.
    pub(crate) sent: bool,
}

impl Pending {
    /// Waits for the reply. A request that was not written when the wait ends is taken back.
    pub(crate) fn wait(mut self, bound: WaitBound<'_>) -> Result<Reply, Stopped> {
        let received = self.reply.wait(bound);
        self.is_settled = true;
        received.or_else(|end| {
            let sent = !self.session.withdraw(self.ticket);
            // The reply may have come in between.
            self.reply.try_take().ok_or(Stopped { end, sent })
        })
    }

    /// Waits for the reply; but a request that was not even written `write_timeout` after its submission is taken back.
    pub(crate) fn wait_sent(mut self, bound: WaitBound<'_>, write_timeout: Duration) -> Result<Reply, Stopped> {
        self.await_arrival(bound, write_timeout);
        if !self.reply.is_settled() && bound.is_over().is_none() && self.session.withdraw(self.ticket) {
            self.is_settled = true;
            return Err(Stopped { end: WaitEnd::Deadline, sent: false });
        }
        // On the wire: the reply, or the end of the connection, comes in its time.
        self.wait(bound)
    }

    /// Whether nothing more will come.
    pub(crate) fn is_settled(&self) -> bool {
        self.reply.is_settled()
    }

    /// Waits until the reply is there, or the request was given time enough to be written. Either way the pending reply
    /// can be waited for as before.
    pub(crate) fn await_arrival(&mut self, bound: WaitBound<'_>, write_timeout: Duration) {
        let written_by = self.submitted.checked_add(write_timeout);
        self.reply.wait_until_settled(written_by.map_or(bound, |at| bound.by(at)));
    }
}

impl Drop for Pending {
    /// Takes a request back that was not written yet, as no caller waits for the reply. While the server takes nothing,
    /// requests that callers have given up would pile up otherwise.
    fn drop(&mut self) {
        if !self.is_settled && !self.reply.is_settled() {
            self.session.withdraw(self.ticket);
        }
    }
}

/// A watch at the server.
///
/// Dropping it gives the watch up on both sides, which may send a request: drop it with no lock held
/// ([`drop_unlocked`](crate::base::unlocked::drop_unlocked)).
pub(crate) struct Watch {
    session: Arc<dyn Session>,
    ticket: Ticket,
}

impl Watch {
    /// Takes charge of the watch that a submission left.
    pub(crate) fn new(session: Arc<dyn Session>, ticket: Ticket) -> Watch {
        Watch { session, ticket }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.session.unwatch(self.ticket);
    }
}

fn on_reply() -> (OnReply, ReplySlot) {
    let (sender, slot) = reply_slot();
    (Box::new(move |reply| sender.send(reply)), slot)
}

/// Requests whose replies are handed over together, in the order of the requests, once the last of them is there.
pub(crate) fn answered_together(
    requests: Vec<(Request, Option<Watcher>)>,
    then: impl FnOnce(Vec<Reply>) + Send + 'static,
) -> impl Iterator<Item = Submission> {
    let all = Arc::new(Mutex::new((vec![None; requests.len()], Some(then))));
    requests.into_iter().enumerate().map(move |(index, (request, watcher))| {
        let all = all.clone();
        let on_reply = Box::new(move |reply| {
            let mut all = all.lock();
            let (replies, then) = &mut *all;
            if let Some(place) = replies.get_mut(index) {
                *place = Some(reply);
            }
            if replies.iter().all(Option::is_some)
                && let Some(then) = then.take()
            {
                let replies = replies.drain(..).flatten().collect();
                drop(all);
                then(replies);
            }
        });
        Submission { request, watcher, on_reply }
    })
}

/// Submits requests back to back.
pub(crate) fn submit(
    session: &Arc<dyn Session>,
    requests: impl IntoIterator<Item = (Request, Option<Watcher>)>,
) -> Vec<(Pending, Option<Watch>)> {
    let requests = requests.into_iter();
    let mut waiting = Vec::with_capacity(requests.size_hint().0);
    let batch = requests
        .map(|(request, watcher)| {
            let (on_reply, reply) = on_reply();
            waiting.push((reply, watcher.is_some()));
            Submission { request, watcher, on_reply }
        })
        .collect();
    let submitted = clock::now();
    let tickets = session.submit(batch);
    tickets
        .into_iter()
        .zip(waiting)
        .map(|(ticket, (reply, watched))| {
            let watch = watched.then(|| Watch { session: session.clone(), ticket });
            (Pending { session: session.clone(), ticket, reply, submitted, is_settled: false }, watch)
        })
        .collect()
}

/// Submits requests as one transaction, and groups of reads behind it, each as one request. Each has a pending reply of its own. What
/// would be larger than the limit goes as several.
///
/// [`UNDONE`] is the answer to each of a transaction that failed: none was carried out, and which one is to blame shows where
/// each is sent by itself. Where creates failed for want of a parent, [`NoNode`](ErrorCode::NoNode) is.
pub(crate) fn submit_together(
    session: &Arc<dyn Session>,
    together: Vec<Request>,
    behind: Vec<Vec<Request>>,
    limit: usize,
) -> (Vec<Pending>, Vec<Pending>) {
    let (mut batch, mut waiting) = (Vec::new(), Vec::with_capacity(together.len() + behind.len()));
    let count = together.len();
    let reads = behind.into_iter().flat_map(|group| in_parts(group, limit));
    for mut part in in_parts(together, limit).into_iter().chain(reads) {
        let (senders, replies): (Vec<_>, Vec<_>) = part.iter().map(|_| reply_slot()).unzip();
        waiting.extend(replies.into_iter().map(|reply| (batch.len(), reply)));
        let creates = part.iter().all(|request| matches!(request, Request::Create { .. }));
        let request = part.pop_if(|_| senders.len() == 1).unwrap_or(Request::Multi(part));
        let is_read = request.op_code() == op::MULTI_READ;
        let on_reply: OnReply =
            Box::new(
                move |reply| {
                    if is_read { share_out_reads(senders, reply) } else { share_out(senders, reply, creates) }
                },
            );
        batch.push(Submission { request, watcher: None, on_reply });
    }
    let submitted = clock::now();
    let tickets = session.submit(batch);
    let mut sent = waiting.into_iter().map(|(index, reply)| {
        let ticket = tickets.get(index).copied().unwrap_or(Ticket(0));
        Pending { session: session.clone(), ticket, reply, submitted, is_settled: false }
    });
    (sent.by_ref().take(count).collect(), sent.collect())
}

/// The answer to each request of a transaction that failed.
pub(crate) const UNDONE: ErrorCode = ErrorCode::RuntimeInconsistency;

/// Cuts requests into parts, none of which is larger than the limit unless it is a single request.
fn in_parts(requests: Vec<Request>, limit: usize) -> Vec<Vec<Request>> {
    let (mut parts, mut size): (Vec<Vec<Request>>, usize) = (Vec::new(), 0);
    for request in requests {
        // With the end of a transaction, which that has once.
        let more = request.encode(0).len() + 9;
        size += more;
        match parts.last_mut().filter(|_| size <= limit) {
            Some(part) => part.push(request),
            None => {
                size = more;
                parts.push(vec![request]);
            }
        }
    }
    parts
}

/// Hands the results of a transaction to those who wait for them.
fn share_out(senders: Vec<ReplySender>, reply: Reply, creates: bool) {
    let failed = |code: ErrorCode| {
        let is_without_parent = creates && code == ErrorCode::NoNode;
        let code = if code.meaning() == Meaning::Final && !is_without_parent { UNDONE } else { code };
        vec![Err(SessionError::Server(code)); senders.len()]
    };
    let replies: Vec<Reply> = match reply {
        Ok(Response::Multi(results)) => match results.iter().find_map(|result| result.as_ref().err()) {
            None => results.into_iter().flatten().map(Ok).collect(),
            Some(_) => failed(results.iter().find_map(|result| result.as_ref().err().copied()?).unwrap_or(UNDONE)),
        },
        Err(SessionError::Server(code)) if senders.len() > 1 => failed(code),
        reply => vec![reply; senders.len()],
    };
    // One without a result of its own has an unknown outcome.
    senders.into_iter().zip(replies).for_each(|(sender, reply)| sender.send(reply));
}

/// Hands the results of several reads to those who wait for them: each has its own.
fn share_out_reads(senders: Vec<ReplySender>, reply: Reply) {
    let own = |result: Result<Response, Option<ErrorCode>>| {
        result.map_err(|code| SessionError::Server(code.unwrap_or(UNDONE)))
    };
    let replies = match reply {
        Ok(Response::Multi(results)) => results.into_iter().map(own).collect(),
        reply => vec![reply; senders.len()],
    };
    // One without a result of its own has an unknown outcome.
    senders.into_iter().zip(replies).for_each(|(sender, reply)| sender.send(reply));
}

/// Submits one request.
pub(crate) fn submit_one(session: &Arc<dyn Session>, request: Request) -> Pending {
    let (on_reply, reply) = on_reply();
    let submitted = clock::now();
    let tickets = session.submit(vec![Submission { request, watcher: None, on_reply }]);
    let ticket = tickets.first().copied().unwrap_or(Ticket(0));
    Pending { session: session.clone(), ticket, reply, submitted, is_settled: false }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;
