//! Blocking on top of [`Session`]: replies that can be waited for, and watches as objects.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, select};

use super::{Reply, Session, Submission, Ticket, Watcher};
use crate::{cancel::CancelToken, proto::Request};

/// What ends a wait besides the event waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stop<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a CancelToken>,
}

/// Why a wait ended without the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Deadline,
    Cancelled,
}

impl<'a> Stop<'a> {
    pub(crate) fn at(deadline: Instant) -> Stop<'static> {
        Stop { deadline: Some(deadline), cancel: None }
    }

    /// The same, but at this deadline if that is earlier.
    pub(crate) fn by(self, deadline: Instant) -> Stop<'a> {
        Stop { deadline: Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline))), ..self }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    pub(crate) fn is_over(&self) -> Option<WaitEnd> {
        if self.is_cancelled() {
            Some(WaitEnd::Cancelled)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(WaitEnd::Deadline)
        } else {
            None
        }
    }

    /// Waits for a message. A channel whose senders are gone counts as one that never sends.
    pub(crate) fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, WaitEnd> {
        if let Ok(message) = channel.try_recv() {
            return Ok(message);
        }
        let received = match (self.deadline, self.cancel) {
            (None, None) => channel.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (Some(deadline), None) => channel.recv_deadline(deadline),
            (deadline, Some(cancel)) => {
                let time_is_up = deadline.map_or_else(crossbeam_channel::never, crossbeam_channel::at);
                select! {
                    recv(channel) -> message => message.map_err(|_| RecvTimeoutError::Disconnected),
                    recv(cancel.signal()) -> _ => return Err(WaitEnd::Cancelled),
                    recv(time_is_up) -> _ => Err(RecvTimeoutError::Timeout),
                }
            }
        };
        received.map_err(|_| WaitEnd::Deadline)
    }
}

/// A reply that is on its way.
pub(crate) struct Pending {
    session: Arc<dyn Session>,
    ticket: Ticket,
    reply: Receiver<Reply>,
    /// The reply was taken, or is not of interest any more.
    is_settled: bool,
}

/// How the wait for a reply ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With the reply.
    Reply(Reply),
    /// Without it; whether the request was, or may have been, sent.
    Stopped { end: WaitEnd, sent: bool },
}

impl Pending {
    /// Waits for the reply. A request that was not written when the wait ends is taken back.
    pub(crate) fn wait(mut self, stop: Stop<'_>) -> Answer {
        let received = stop.recv(&self.reply);
        self.is_settled = true;
        let end = match received {
            Ok(reply) => return Answer::Reply(reply),
            Err(end) => end,
        };
        if self.session.withdraw(self.ticket) {
            return Answer::Stopped { end, sent: false };
        }
        // It may have come in between.
        match self.reply.try_recv() {
            Ok(reply) => Answer::Reply(reply),
            Err(_) => Answer::Stopped { end, sent: true },
        }
    }
}

impl Pending {
    /// Waits for the reply; but a request that was not even written after `patience` is taken back.
    pub(crate) fn wait_sent(mut self, stop: Stop<'_>, patience: Duration) -> Answer {
        let end_of_patience = Instant::now().checked_add(patience);
        match end_of_patience.map_or(stop, |at| stop.by(at)).recv(&self.reply) {
            Ok(reply) => {
                self.is_settled = true;
                Answer::Reply(reply)
            }
            Err(end) if stop.is_over().is_none() && self.session.withdraw(self.ticket) => {
                self.is_settled = true;
                Answer::Stopped { end, sent: false }
            }
            // On the wire: the reply, or the end of the connection, comes in its time.
            Err(_) => self.wait(stop),
        }
    }
}

impl Drop for Pending {
    /// Nobody waits for the reply: a request that was not written yet need not be. While the server takes nothing, what
    /// callers have given up would pile up otherwise.
    fn drop(&mut self) {
        if !self.is_settled && self.reply.is_empty() {
            self.session.withdraw(self.ticket);
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// A watch at the server. Dropping it gives it up on both sides.
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

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Submits requests back to back.
pub(crate) fn submit(
    session: &Arc<dyn Session>,
    requests: Vec<(Request, Option<Watcher>)>,
) -> Vec<(Pending, Option<Watch>)> {
    let mut waiting = Vec::with_capacity(requests.len());
    let batch = requests
        .into_iter()
        .map(|(request, watcher)| {
            let (sender, reply) = bounded(1);
            waiting.push((reply, watcher.is_some()));
            let on_reply = Box::new(move |reply| {
                // Nobody listens if the caller's time was up.
                let _ = sender.send(reply);
            });
            Submission { request, watcher, on_reply }
        })
        .collect();
    let tickets = session.submit(batch);
    tickets
        .into_iter()
        .zip(waiting)
        .map(|(ticket, (reply, watched))| {
            let watch = watched.then(|| Watch { session: session.clone(), ticket });
            (Pending { session: session.clone(), ticket, reply, is_settled: false }, watch)
        })
        .collect()
}

/// Submits one request.
pub(crate) fn submit_one(session: &Arc<dyn Session>, request: Request) -> Pending {
    let (sender, reply) = bounded(1);
    let on_reply = Box::new(move |reply| {
        // Nobody listens if the caller's time was up.
        let _ = sender.send(reply);
    });
    let tickets = session.submit(vec![Submission { request, watcher: None, on_reply }]);
    let ticket = tickets.first().copied().unwrap_or(Ticket(0));
    Pending { session: session.clone(), ticket, reply, is_settled: false }
}

#[cfg(test)]
mod tests;
