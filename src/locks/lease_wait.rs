//! Lease znodes that are not counted yet, from their creation to the grant or the end of the time.

use std::{collections::HashSet, sync::Arc, time::Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{
    driver::Decision,
    internals::{LockInternals, Patience},
    limit::Limit,
    wait::{is_certain, next_recheck},
};
use crate::{
    Result,
    framework::{Call, Claim, Created, HeldNode, Listing, Outlasted},
    proto::{EventType, Request, Response, Stat},
    session::{Session, WaitEnd, Watch, WatchEvent, Watcher, submit},
};

/// How the wait for leases ended.
pub(super) enum Counted {
    /// With all of them.
    Granted(Vec<Arc<HeldNode>>),
    /// The time was up.
    TimeIsUp,
    /// Somebody deleted one of the own znodes.
    NodeGone,
    /// The place at the head of the queue was lost, so that somebody else may wait here too.
    PlaceLost,
    /// The session ended, and with it the own znodes.
    SessionEnded,
}

/// What wakes the waiter, on a channel of its own.
enum Wake {
    Leases(WatchEvent),
    /// The number of leases may have changed.
    Limit,
    /// Something happened to the place at the head of the queue.
    Place,
}

/// What to do after a wake-up.
enum Next {
    /// Read the leases again.
    List,
    /// Decide again about what was read.
    Decide,
    End(Counted),
}

/// What is known about the own znodes after asking.
enum Verified {
    /// They were there, over this connection.
    Over(u64),
    Unclear,
    End(Counted),
}

/// The place at the head of the queue in `locks`: only who has it waits for leases. Dropping it gives it up without
/// waiting.
pub(super) struct Place<'a> {
    locks: &'a LockInternals,
    /// `None` only after it was handed over.
    held: Option<Arc<HeldNode>>,
}

impl<'a> Place<'a> {
    pub(super) fn new(locks: &'a LockInternals, held: Arc<HeldNode>) -> Place<'a> {
        Place { locks, held: Some(held) }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.lost().is_some())
    }

    fn wake_on_change(&self, wakes: Sender<Wake>) {
        if let Some(held) = &self.held {
            held.listen(Arc::new(move |_| drop(wakes.send(Wake::Place))));
        }
    }

    /// Hands over the znode, to be deleted.
    fn into_claim(mut self) -> Option<Claim> {
        let held = self.held.take()?;
        held.released();
        let client = self.locks.client();
        client.core.held.remove(&held);
        Some(Claim::node(client, held.session(), held.path().clone(), true))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.locks.release_in_background(held);
        }
    }
}

/// The lease znodes of one acquire. Dropping them deletes them in the background.
pub(super) struct LeaseWait<'a> {
    leases: &'a LockInternals,
    limit: &'a Limit,
    call: &'a Call<'a>,
    patience: Patience<'a>,
    session: Arc<dyn Session>,
    /// In the order of their numbers.
    nodes: Vec<Created>,
    /// The name of the last of them: if that one has a lease, so have the others.
    last_name: String,
    wakes: (Sender<Wake>, Receiver<Wake>),
    watch: Option<Watch>,
    has_waited: bool,
}

impl<'a> LeaseWait<'a> {
    /// Takes charge of at least one znode.
    pub(super) fn new(
        leases: &'a LockInternals,
        limit: &'a Limit,
        call: &'a Call<'a>,
        patience: Patience<'a>,
        nodes: Vec<Created>,
    ) -> Result<LeaseWait<'a>> {
        let last = nodes.last().and_then(|last| Some((last.claim.session().clone(), last.claim.path()?.name())));
        let (session, last_name) = last.ok_or_else(|| call.connection_loss())?;
        leases.check_number(last_name)?;
        let last_name = last_name.to_owned();
        let wakes = unbounded();
        Ok(LeaseWait {
            leases,
            limit,
            call,
            patience,
            session,
            nodes,
            last_name,
            wakes,
            watch: None,
            has_waited: false,
        })
    }

    /// Takes the leases if there are enough, without waiting for others. `None` leaves it to the caller to look again.
    pub(super) fn take_now(&self, children: &[String], connection: u64) -> Result<Option<Counted>> {
        match self.decide(children) {
            Decision::Granted => self.grant(connection),
            Decision::Wait { .. } | Decision::Missing => Ok(None),
        }
    }

    /// Waits until there are enough leases. `listing` was read after the znodes were created, without a watch.
    pub(super) fn wait(&mut self, place: &Place<'_>, mut listing: Option<Listing>) -> Result<Counted> {
        let wakes = self.wakes.0.clone();
        // Before the first look at the limit, so that no change after it is missed.
        let _subscription = self.limit.subscribe(Arc::new(move || drop(wakes.send(Wake::Limit))));
        place.wake_on_change(self.wakes.0.clone());
        loop {
            let seen = match listing.take() {
                Some(listing) => listing,
                None => match self.list()? {
                    Ok(listing) => listing,
                    Err(counted) => return Ok(counted),
                },
            };
            match self.decide(&seen.children) {
                Decision::Missing => return Ok(Counted::NodeGone),
                Decision::Granted => {
                    if let Some(counted) = self.grant(seen.connection)? {
                        return Ok(counted);
                    }
                }
                Decision::Wait { .. } if self.session.is_ended() => return Ok(Counted::SessionEnded),
                // Two that wait here, each behind the other's znodes, could wait for ever.
                Decision::Wait { .. } if place.is_lost() => return Ok(Counted::PlaceLost),
                // Read again, with a watch this time.
                Decision::Wait { .. } if self.watch.is_none() => {}
                Decision::Wait { .. } => match self.sleep()? {
                    Next::List => {}
                    Next::Decide => listing = Some(seen),
                    Next::End(counted) => return Ok(counted),
                },
            }
        }
    }

    /// Whether there were too few leases at first.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// They are held now.
    pub(super) fn keep(self) {
        self.nodes.into_iter().for_each(|node| node.claim.keep());
    }

    /// Deletes the znodes without waiting for that; whatever this thread sends next comes after it.
    pub(super) fn withdraw(mut self) {
        self.watch = None;
        for node in self.nodes {
            if let Some(path) = node.claim.path().filter(|_| !self.session.is_ended()) {
                self.leases.delete_in_background(&self.session, path.clone());
            }
            node.claim.keep();
        }
    }

    /// Deletes the znodes and gives up the place; if the server answers in time, all are gone then.
    pub(super) fn leave(mut self, place: Place<'_>) {
        self.watch = None;
        let mut claims: Vec<Claim> = self.nodes.into_iter().map(|node| node.claim).collect();
        claims.extend(place.into_claim());
        self.leases.withdraw_all(claims);
    }

    /// Whether all the znodes are among the first, as many as there are leases.
    ///
    /// Curator counts all children instead. That is the same while everybody waits at the head of the queue, and what it
    /// lets in is among the first too, so the two rules never let in more than there are leases.
    fn decide(&self, children: &[String]) -> Decision {
        if self.nodes.len() > 1 {
            let listed: HashSet<&str> = children.iter().map(String::as_str).collect();
            if !self.nodes.iter().all(|node| node.claim.path().is_some_and(|path| listed.contains(path.name()))) {
                return Decision::Missing;
            }
        }
        self.leases.driver().decide(children, &self.last_name, self.limit.current())
    }

    /// Reads the leases and watches them.
    fn list(&mut self) -> Result<Result<Listing, Counted>> {
        loop {
            let connection = self.session.connection();
            let request = self.leases.list_request(true);
            let wakes = self.wakes.0.clone();
            let watcher: Watcher = Arc::new(move |event: &WatchEvent| drop(wakes.send(Wake::Leases(event.clone()))));
            let sent = submit(&self.session, vec![(request, Some(watcher))]).into_iter().next();
            let (pending, watch) = sent.ok_or_else(|| self.call.connection_loss())?;
            match self.call.reply(pending) {
                Ok(Response::Children { names, .. }) => {
                    self.watch = watch;
                    return Ok(Ok(Listing { children: names, connection }));
                }
                Ok(other) => return Err(self.call.unexpected(&other)),
                Err(error) if error.is_no_node() => return Ok(Err(Counted::NodeGone)),
                Err(error) => match self.call.outlast(&self.session, self.patience.waits_until(), error)? {
                    Outlasted::Connected => {}
                    Outlasted::SessionEnded => return Ok(Err(Counted::SessionEnded)),
                    Outlasted::TimeIsUp => return Ok(Err(Counted::TimeIsUp)),
                },
            }
        }
    }

    /// Sleeps until something happens.
    ///
    /// No wake-up can be lost: the channel exists before the watch is sent for, whatever fires stays in it, and the watch
    /// is set by the very request that reads the leases.
    fn sleep(&mut self) -> Result<Next> {
        self.has_waited = true;
        loop {
            let recheck = next_recheck(self.leases.client());
            let stop = self.patience.stop;
            let bound = recheck.map_or(stop, |at| stop.by(at));
            match bound.recv(&self.wakes.1) {
                Ok(wake) => {
                    if let Some(next) = self.woken(&wake) {
                        return Ok(next);
                    }
                }
                Err(end) => match stop.is_over().or((bound.deadline == stop.deadline).then_some(end)) {
                    Some(WaitEnd::Cancelled) => return Err(self.call.cancelled()),
                    Some(WaitEnd::Deadline) => return Ok(Next::End(Counted::TimeIsUp)),
                    None => return Ok(Next::List),
                },
            }
        }
    }

    /// What an event calls for; `None`: sleep on.
    fn woken(&self, wake: &Wake) -> Option<Next> {
        match wake {
            Wake::Limit | Wake::Place => Some(Next::Decide),
            Wake::Leases(WatchEvent::Ended) => Some(Next::End(Counted::SessionEnded)),
            Wake::Leases(WatchEvent::Node { event: EventType::NodeDeleted, .. }) => Some(Next::End(Counted::NodeGone)),
            Wake::Leases(WatchEvent::Node { .. } | WatchEvent::Reconnected { .. }) => Some(Next::List),
            // The znodes keep their places while the session may live.
            Wake::Leases(WatchEvent::Disconnected) => None,
        }
    }

    /// There are enough leases: makes sure that the znodes are still there and their session alive. `None`: look again.
    fn grant(&self, connection: u64) -> Result<Option<Counted>> {
        let mut seen_over = connection;
        if !is_certain(&self.session, connection) {
            match self.verify()? {
                Verified::Over(connection) => seen_over = connection,
                Verified::Unclear => return Ok(None),
                Verified::End(counted) => return Ok(Some(counted)),
            }
        }
        // The session could have been replaced since (CURATOR-604): a znode of another session is no lease.
        if self.session.is_ended() {
            return Ok(Some(Counted::SessionEnded));
        }
        let held = &self.leases.client().core.held;
        let hold = |node: &Created| {
            let path = node.claim.path()?.clone();
            Some(held.add(path, self.session.clone(), node.stat.czxid, seen_over, None))
        };
        Ok(Some(Counted::Granted(self.nodes.iter().filter_map(hold).collect())))
    }

    /// Asks whether the own znodes exist and belong to this session.
    fn verify(&self) -> Result<Verified> {
        let (asked, connection) = (Instant::now(), self.session.connection());
        let paths = self.nodes.iter().filter_map(|node| node.claim.path());
        let requests = paths.map(|path| (Request::Exists { path: path.as_str().to_owned(), watch: false }, None));
        let replies = submit(&self.session, requests).into_iter().map(|(pending, _)| self.call.reply(pending));
        for (node, reply) in self.nodes.iter().zip(replies) {
            match reply {
                Ok(Response::Stat(stat)) if self.is_own(node, &stat) => {}
                Ok(Response::Stat(_)) => return Ok(Verified::End(Counted::NodeGone)),
                Ok(other) => return Err(self.call.unexpected(&other)),
                Err(error) if error.is_no_node() => return Ok(Verified::End(Counted::NodeGone)),
                Err(error) => {
                    return Ok(match self.call.outlast(&self.session, self.patience.waits_until(), error)? {
                        Outlasted::Connected => Verified::Unclear,
                        Outlasted::SessionEnded => Verified::End(Counted::SessionEnded),
                        Outlasted::TimeIsUp => Verified::End(Counted::TimeIsUp),
                    });
                }
            }
        }
        // Asked while there was no connection yet: over which one the answer came is unknown. And an old answer proves
        // nothing: the process may have been paused since.
        let is_unclear = connection == 0 || asked.elapsed() >= self.session.timeout() / 2;
        Ok(if is_unclear { Verified::Unclear } else { Verified::Over(connection) })
    }

    fn is_own(&self, node: &Created, stat: &Stat) -> bool {
        stat.czxid == node.stat.czxid && stat.ephemeral_owner == self.session.id()
    }
}
