//! One contender in the queue, from its first listing to the grant or the end of its time.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::{
    driver::Decision,
    internals::{LockInternals, Patience},
};
use crate::{
    CuratorFramework, Error, Result,
    framework::{Call, Claim, Created, HeldNode, Listing, Outlasted},
    proto::{EventType, Request, Response, Stat},
    session::{Session, WaitEnd, Watch, WatchEvent, Watcher, submit},
};

/// How the wait in the queue ended.
pub(crate) enum Turn {
    /// With the lock.
    Granted(Arc<HeldNode>),
    /// The time was up; the znode is gone.
    TimeIsUp,
    /// Somebody deleted the own znode.
    NodeGone,
    /// The session ended, and with it the own znode.
    SessionEnded,
}

/// What wakes a waiter. Each has a channel of its own, so that one event wakes one thread.
enum Wake {
    /// With the number of the watch: an event of an earlier predecessor may still be in the channel when the next one
    /// is watched, and says nothing about that one.
    Predecessor(u64, WatchEvent),
    Own(WatchEvent),
}

/// A watched predecessor.
struct Predecessor {
    name: String,
    /// The number of its watch.
    number: u64,
    /// It was the first of the queue when it was found, so it held the lock.
    held_the_lock: bool,
    /// The connection of the listing in which it was found.
    connection: u64,
    #[allow(dead_code, reason = "dropping it gives the watch up")]
    watch: Watch,
}

/// The watch on the own znode: it wakes the waiter, and later serves the holder.
struct OwnWatch {
    watch: Watch,
    target: Arc<Mutex<Target>>,
}

enum Target {
    Waiter(Sender<Wake>),
    /// The event came while the waiter was being granted.
    Deleted,
    Holder(Weak<HeldNode>),
}

/// What to do after a wake-up.
enum Next {
    /// Read the queue again.
    Look,
    /// The predecessor is gone, it held the lock, and nobody can have come in between.
    Grant,
    End(Turn),
}

/// What is known about the own znode after asking.
enum Verified {
    /// It was there, over this connection.
    Over(u64),
    Unclear,
    End(Turn),
}

/// A contender whose znode stands in the queue.
pub(crate) struct Queued<'a> {
    lock: &'a LockInternals,
    call: &'a Call<'a>,
    patience: Patience<'a>,
    session: Arc<dyn Session>,
    /// Dropping it deletes the znode in the background, on every way out.
    claim: Claim,
    name: String,
    stat: Stat,
    listing: Option<Listing>,
    wakes: Option<(Sender<Wake>, Receiver<Wake>)>,
    predecessor: Option<Predecessor>,
    /// How many predecessors were watched so far.
    watches: u64,
    own: Option<OwnWatch>,
}

impl<'a> Queued<'a> {
    pub(crate) fn new(
        lock: &'a LockInternals,
        call: &'a Call<'a>,
        patience: Patience<'a>,
        created: Created,
    ) -> Result<Queued<'a>> {
        let Created { stat, claim, listing } = created;
        let name = claim.path().map(|path| path.name().to_owned()).ok_or_else(|| call.connection_loss())?;
        let session = claim.session().clone();
        Ok(Queued {
            lock,
            call,
            patience,
            session,
            claim,
            name,
            stat,
            listing,
            wakes: None,
            predecessor: None,
            watches: 0,
            own: None,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the turn. Every way out but the grant takes the znode out of the queue.
    pub(crate) fn wait(mut self) -> Result<Turn> {
        match self.turn() {
            Ok(Turn::Granted(held)) => {
                self.claim.keep();
                Ok(Turn::Granted(held))
            }
            Ok(turn) => {
                self.leave();
                Ok(turn)
            }
            Err(error) => {
                self.leave();
                Err(error)
            }
        }
    }

    fn leave(self) {
        // First the watch on the predecessor: after the delete the server may be asked for nothing more.
        drop(self.predecessor);
        self.lock.withdraw(self.claim);
        // The delete has used up the watch on the own znode.
        drop(self.own);
    }

    fn turn(&mut self) -> Result<Turn> {
        loop {
            let listing = match self.listing.take() {
                Some(listing) => listing,
                None => match self.list()? {
                    Ok(listing) => listing,
                    Err(turn) => return Ok(turn),
                },
            };
            let next = match self.lock.driver().decide(&listing.children, &self.name, self.lock.max_leases()) {
                Decision::Granted => Next::Grant,
                Decision::Missing => Next::End(Turn::NodeGone),
                Decision::Wait { .. } if self.patience.only_try => Next::End(Turn::TimeIsUp),
                Decision::Wait { watch, first } => match self.watch(watch, first, listing.connection)? {
                    Some(next) => next,
                    None => self.sleep()?,
                },
            };
            match next {
                Next::Look => {}
                Next::End(turn) => return Ok(turn),
                Next::Grant => {
                    if let Some(turn) = self.grant(listing.connection)? {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    /// Reads the queue.
    fn list(&self) -> Result<Result<Listing, Turn>> {
        loop {
            let connection = self.session.connection();
            let reply = submit(&self.session, vec![(self.lock.list_request(), None)]).into_iter().next();
            let reply = reply.map_or_else(|| Err(self.call.connection_loss()), |(pending, _)| self.call.reply(pending));
            match reply {
                Ok(Response::Children { names, .. }) => return Ok(Ok(Listing { children: names, connection })),
                Ok(other) => return Err(self.call.unexpected(&other)),
                Err(error) if error.is_no_node() => return Ok(Err(Turn::NodeGone)),
                Err(error) => {
                    if let Some(turn) = self.outlast(error)? {
                        return Ok(Err(turn));
                    }
                }
            }
        }
    }

    /// A request failed: `None` when there is a connection again.
    fn outlast(&self, error: Error) -> Result<Option<Turn>> {
        Ok(match self.call.outlast(&self.session, self.patience.waits_until(), error)? {
            Outlasted::Connected => None,
            Outlasted::SessionEnded => Some(Turn::SessionEnded),
            Outlasted::TimeIsUp => Some(Turn::TimeIsUp),
        })
    }

    /// Sets the watches, on the predecessor and once on the own znode, in one write. `None`: they are in place.
    ///
    /// getData leaves no watch on a znode that is gone, which `exists` would (CURATOR-107).
    fn watch(&mut self, name: String, first: bool, connection: u64) -> Result<Option<Next>> {
        if let Some(predecessor) = &mut self.predecessor
            && predecessor.name == name
        {
            // The watch is still in place, over a reconnect too.
            predecessor.held_the_lock |= first;
            predecessor.connection = connection;
            return Ok(None);
        }
        self.predecessor = None;
        self.watches += 1;
        let number = self.watches;
        let (sender, _) = self.wakes.get_or_insert_with(unbounded);
        let mut requests = vec![(self.lock.child(&name).into_string(), predecessor_watcher(number, sender.clone()))];
        let target = Arc::new(Mutex::new(Target::Waiter(sender.clone())));
        if self.own.is_none() {
            requests.push((self.lock.child(&self.name).into_string(), own_watcher(target.clone())));
        }
        let requests =
            requests.into_iter().map(|(path, watcher)| (Request::GetData { path, watch: true }, Some(watcher)));
        let mut replies = submit(&self.session, requests.collect()).into_iter();
        let (predecessor, own) = (replies.next(), replies.next());
        let predecessor = predecessor.map(|(pending, watch)| (self.call.reply(pending), watch));
        let own = own.map(|(pending, watch)| (self.call.reply(pending), watch));
        match own {
            Some((Ok(_), Some(watch))) => self.own = Some(OwnWatch { watch, target }),
            Some((Err(error), _)) if error.is_no_node() => return Ok(Some(Next::End(Turn::NodeGone))),
            Some((Err(error), _)) => return self.look_after(error),
            _ => {}
        }
        match predecessor {
            Some((Ok(_), Some(watch))) => {
                self.predecessor = Some(Predecessor { name, number, held_the_lock: first, connection, watch });
                Ok(None)
            }
            Some((Err(error), _)) if error.is_no_node() => Ok(Some(Next::Look)),
            Some((Err(error), _)) => self.look_after(error),
            _ => Err(self.call.connection_loss()),
        }
    }

    fn look_after(&self, error: Error) -> Result<Option<Next>> {
        Ok(Some(self.outlast(error)?.map_or(Next::Look, Next::End)))
    }

    /// Sleeps until something happens.
    ///
    /// No wake-up can be lost: the channel exists before the watches are sent for, whatever fires stays in it, and a
    /// change from before the watch shows in the reply that sets it. The re-check turns what nobody thought of into a
    /// delay.
    fn sleep(&mut self) -> Result<Next> {
        let Some((_, wakes)) = &self.wakes else { return Ok(Next::Look) };
        let wakes = wakes.clone();
        loop {
            let recheck = next_recheck(self.lock.client());
            let stop = self.patience.stop;
            let bound = recheck.map_or(stop, |at| stop.by(at));
            let next = match bound.recv(&wakes) {
                Ok(wake) => self.woken(&wake),
                Err(end) => match stop.is_over().or((bound.deadline == stop.deadline).then_some(end)) {
                    Some(WaitEnd::Cancelled) => return Err(self.call.cancelled()),
                    Some(WaitEnd::Deadline) => return Ok(Next::End(Turn::TimeIsUp)),
                    None => Some(Next::Look),
                },
            };
            if let Some(next) = next {
                return Ok(next);
            }
        }
    }

    /// What an event calls for; `None`: sleep on.
    fn woken(&mut self, wake: &Wake) -> Option<Next> {
        match wake {
            Wake::Own(WatchEvent::Ended) | Wake::Predecessor(_, WatchEvent::Ended) => {
                Some(Next::End(Turn::SessionEnded))
            }
            Wake::Own(WatchEvent::Node { event: EventType::NodeDeleted, .. }) => Some(Next::End(Turn::NodeGone)),
            Wake::Own(WatchEvent::Node { .. }) => {
                // Its data changed, which uses the watch up: set both again.
                self.own = None;
                self.predecessor = None;
                Some(Next::Look)
            }
            // Its watch was given up for that of the present one, which will report for itself.
            Wake::Predecessor(number, _) if self.predecessor.as_ref().is_none_or(|now| now.number != *number) => None,
            Wake::Predecessor(_, WatchEvent::Node { event, connection }) => {
                let predecessor = self.predecessor.take()?;
                let grants = *event == EventType::NodeDeleted
                    && self.lock.driver().successor_follows_holder()
                    && self.lock.max_leases() == 1
                    && (predecessor.held_the_lock || self.was_granted_here(&predecessor.name))
                    && predecessor.connection == *connection
                    && self.session.connection() == *connection
                    && self.own.is_some();
                Some(if grants { Next::Grant } else { Next::Look })
            }
            // The znode keeps its place while the session may live.
            Wake::Own(WatchEvent::Disconnected) | Wake::Predecessor(_, WatchEvent::Disconnected) => None,
            // Events after a reconnect come in the order of paths, not of time: read again.
            Wake::Own(WatchEvent::Reconnected { .. }) => None,
            Wake::Predecessor(_, WatchEvent::Reconnected { .. }) => Some(Next::Look),
        }
    }

    /// The turn has come: makes sure that the znode is still there and its session alive. `None`: look again.
    fn grant(&mut self, connection: u64) -> Result<Option<Turn>> {
        let mut seen_over = connection;
        if !is_certain(&self.session, seen_over) {
            match self.verify()? {
                Verified::Over(connection) => seen_over = connection,
                Verified::Unclear => return Ok(None),
                Verified::End(turn) => return Ok(Some(turn)),
            }
        }
        // The session could have been replaced since (CURATOR-604): a znode of another session is no lock.
        if self.session.is_ended() {
            return Ok(Some(Turn::SessionEnded));
        }
        let own = self.own.take();
        let (watch, target) = own.map(|own| (own.watch, own.target)).unzip();
        let core = &self.lock.client().core;
        let path = self.lock.child(&self.name);
        if self.lock.driver().successor_follows_holder() {
            core.grants.add(&path);
        }
        let held = core.held.add(path, self.session.clone(), self.stat.czxid, seen_over, watch);
        if let Some(target) = target {
            let before = std::mem::replace(&mut *target.lock(), Target::Holder(Arc::downgrade(&held)));
            // From here on events go to the holder. Those from before are in the channel.
            if matches!(before, Target::Deleted) || self.was_deleted(&held) {
                core.held.remove(&held);
                return Ok(Some(Turn::NodeGone));
            }
        }
        Ok(Some(Turn::Granted(held)))
    }

    /// Whether a thread of this process held the lock with that znode. Then all that was in front of it is gone, and
    /// nobody can come in between: numbers only grow.
    fn was_granted_here(&self, name: &str) -> bool {
        self.lock.client().core.grants.contains(&self.lock.child(name))
    }

    /// Whether an event of the own znode's end waits in the channel. What else happened to it is for the holder to
    /// know: a change of the data has used the watch up.
    fn was_deleted(&self, held: &HeldNode) -> bool {
        let Some((_, wakes)) = &self.wakes else { return false };
        wakes.try_iter().any(|wake| match wake {
            Wake::Own(WatchEvent::Node { event: EventType::NodeDeleted, .. } | WatchEvent::Ended) => true,
            Wake::Own(event) => {
                held.watched(&event);
                false
            }
            Wake::Predecessor(..) => false,
        })
    }

    /// Asks whether the own znode exists and belongs to this session.
    fn verify(&self) -> Result<Verified> {
        let (asked, connection) = (Instant::now(), self.session.connection());
        let path = self.lock.child(&self.name).into_string();
        match self.call.ask(&self.session, Request::Exists { path, watch: false }) {
            Ok(Response::Stat(stat)) if stat.czxid != self.stat.czxid || !self.is_owner(&stat) => {
                Ok(Verified::End(Turn::NodeGone))
            }
            // Asked while there was no connection yet: over which one the answer came is unknown.
            Ok(Response::Stat(_)) if connection == 0 => Ok(Verified::Unclear),
            // An old answer proves nothing: the process may have been paused since.
            Ok(Response::Stat(_)) if asked.elapsed() >= self.session.timeout() / 2 => Ok(Verified::Unclear),
            Ok(Response::Stat(_)) => Ok(Verified::Over(connection)),
            Ok(other) => Err(self.call.unexpected(&other)),
            Err(error) if error.is_no_node() => Ok(Verified::End(Turn::NodeGone)),
            Err(error) => Ok(self.outlast(error)?.map_or(Verified::Unclear, Verified::End)),
        }
    }

    fn is_owner(&self, stat: &Stat) -> bool {
        !self.lock.driver().create_mode().is_ephemeral() || stat.ephemeral_owner == self.session.id()
    }
}

/// Whether a grant needs no question: the names were read over this very connection, and the servers cannot have expired
/// the session yet. A process may be paused for long between the event and this line.
pub(super) fn is_certain(session: &Arc<dyn Session>, connection: u64) -> bool {
    connection != 0 && session.connection() == connection && session.valid_until().is_some_and(|at| Instant::now() < at)
}

fn predecessor_watcher(number: u64, wakes: Sender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        // The waiter may have gone.
        let _ = wakes.send(Wake::Predecessor(number, event.clone()));
    })
}

fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let mut target = target.lock();
        match &*target {
            Target::Waiter(wakes) => {
                // The waiter may have gone.
                let _ = wakes.send(Wake::Own(event.clone()));
                if matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. }) {
                    *target = Target::Deleted;
                }
            }
            Target::Deleted => {}
            Target::Holder(held) => {
                let held = held.upgrade();
                drop(target);
                if let Some(held) = held {
                    held.watched(event);
                }
            }
        }
    })
}

/// When a waiter looks again although nothing has happened; a quarter more or less, so that not all look at once.
pub(super) fn next_recheck(client: &CuratorFramework) -> Option<Instant> {
    let quarter = client.core.config.recheck_interval? / 4;
    let interval = quarter.saturating_mul(3).saturating_add(quarter.mul_f64(2.0 * fastrand::f64()));
    Instant::now().checked_add(interval)
}
