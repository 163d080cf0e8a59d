//! One contender in the queue, from its first listing to the grant or the end of its time.

mod grant;
mod wake;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

pub(super) use self::grant::is_certain;
use self::wake::{OwnWatch, Target, Wake, directory_watcher, own_watcher, predecessor_watcher};
use super::{
    WaitStrategy,
    ahead::{Ahead, Seen},
    driver::Decision,
    internals::{LockInternals, Patience},
};
use crate::{
    CuratorFramework, Error, Result,
    framework::{Call, Claim, Created, HeldNode, Listing, Outlasted, RevocableNode},
    proto::{EventType, Request, Response, Stat},
    session::{Session, WaitEnd, Watch, WatchEvent, submit},
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
    /// The write lock whose place was to be taken does not stand any more.
    WriterGone,
}

/// A watched predecessor.
struct Predecessor {
    name: String,
    /// The number of its watch.
    number: u64,
    /// It was the first of the queue when it was found, so it held the lock.
    held_the_lock: bool,
    /// Its znode is this session's.
    is_here: bool,
    /// The connection of the listing in which it was found.
    connection: u64,
    /// How the waiter learns meanwhile that it came to hold the lock.
    ahead: Option<Ahead>,
    #[allow(dead_code, reason = "dropping it gives the watch up")]
    watch: Watch,
}

/// What to do after a wake-up.
enum Next {
    /// Read the queue again.
    Look,
    /// The predecessor is gone, it held the lock, and nobody can have come in between.
    Grant,
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
    /// Somebody was in front of it.
    has_waited: bool,
    /// The list in which it came first named nobody else.
    is_alone: bool,
    /// The watch on the directory, of a waiter that chose that.
    directory: Option<Watch>,
    /// The write lock of the same thread whose place this reader takes.
    writer: Option<&'a HeldNode>,
    /// Somebody wants to know about requests to give the lock back, which a waiter can be sent, too.
    revocable: Option<Arc<RevocableNode>>,
}

impl<'a> Queued<'a> {
    pub(crate) fn new(
        lock: &'a LockInternals,
        call: &'a Call<'a>,
        patience: Patience<'a>,
        created: Created,
        writer: Option<&'a HeldNode>,
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
            has_waited: false,
            is_alone: false,
            directory: None,
            writer,
            revocable: lock.revocable_node(),
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
        drop(self.directory);
        self.lock.withdraw(self.claim);
        // The delete has used up the watch on the own znode.
        drop(self.own);
    }

    fn turn(&mut self) -> Result<Turn> {
        if self.writer.is_some_and(|writer| !Arc::ptr_eq(writer.session(), &self.session)) {
            return Ok(Turn::SessionEnded);
        }
        loop {
            let listing = match self.listing.take() {
                Some(listing) => listing,
                None => match self.list()? {
                    Ok(listing) => listing,
                    Err(turn) => return Ok(turn),
                },
            };
            let decision = self.lock.driver().decide(&listing.children, &self.name, self.lock.max_leases());
            // Both stand in one listing: nobody was granted between the writer and this reader.
            let is_writer_gone = self.writer.is_some_and(|writer| !stands(writer, &listing.children));
            let connection = listing.connection;
            let in_front = self.in_front_of_predecessor(&decision, &listing);
            self.is_alone = matches!(&*listing.children, [only] if *only == self.name);
            // Not to be kept while the waiter sleeps: a thousand waiters would hold a million names.
            drop(listing);
            self.has_waited |= matches!(decision, Decision::Wait { .. });
            let next = match decision {
                Decision::Missing => Next::End(Turn::NodeGone),
                _ if is_writer_gone => Next::End(Turn::WriterGone),
                Decision::Granted => Next::Grant,
                Decision::Wait { .. } if self.patience.only_try => Next::End(Turn::TimeIsUp),
                Decision::Wait { watch, first } => match self.prepare(watch, first, in_front, connection)? {
                    Some(next) => next,
                    None => self.sleep()?,
                },
            };
            match next {
                Next::Look => {}
                Next::End(turn) => return Ok(turn),
                Next::Grant => {
                    if let Some(turn) = self.grant(connection)? {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    /// Makes sure that something wakes the waiter, as its strategy says. `None`: it may sleep.
    fn prepare(
        &mut self,
        watch: String,
        first: bool,
        in_front: Option<String>,
        connection: u64,
    ) -> Result<Option<Next>> {
        match self.lock.strategy() {
            WaitStrategy::WatchPredecessor => {
                let next = self.watch(Some(watch), first, connection)?;
                if next.is_none() {
                    self.look_ahead(in_front);
                }
                Ok(next)
            }
            // The watch comes with the next listing, which shows what changed before it.
            WaitStrategy::WatchParent => Ok(self.directory.is_none().then_some(Next::Look)),
            // The own znode tells of its session's end, and later serves the holder.
            WaitStrategy::Poll(_) if self.own.is_none() => self.watch(None, first, connection),
            WaitStrategy::Poll(_) => Ok(None),
        }
    }

    /// Whom the predecessor waits for, where it is worth knowing.
    fn in_front_of_predecessor(&self, decision: &Decision, listing: &Listing) -> Option<String> {
        let Decision::Wait { watch, first: false } = decision else { return None };
        let is_known = self.predecessor.as_ref().is_some_and(|predecessor| predecessor.name == *watch);
        if is_known || !self.follows_holder() || self.lock.strategy() != WaitStrategy::WatchPredecessor {
            return None;
        }
        match self.lock.driver().decide(&listing.children, watch, self.lock.max_leases()) {
            Decision::Wait { watch, .. } => Some(watch),
            Decision::Granted | Decision::Missing => None,
        }
    }

    /// Whether the lock is the waiter's once the predecessor, which held it, is gone.
    fn follows_holder(&self) -> bool {
        self.lock.driver().successor_follows_holder() && self.lock.max_leases() == 1
    }

    /// Of a predecessor in this client it is known anyway whether it was granted the lock.
    fn look_ahead(&mut self, in_front: Option<String>) {
        let (Some(predecessor), Some((wakes, _)), Some(in_front)) = (&mut self.predecessor, &self.wakes, in_front)
        else {
            return;
        };
        if predecessor.is_here {
            return;
        }
        let path = self.lock.child(&in_front).into_string();
        let (number, wakes) = (predecessor.number, wakes.clone());
        let on_listing = Box::new(move |listing| {
            // The waiter may have gone.
            let _ = wakes.send(Wake::Listed(number, listing));
        });
        predecessor.ahead = Some(Ahead::watch(&self.session, path, self.lock.list_request(false), on_listing));
    }

    /// Reads the queue.
    fn list(&mut self) -> Result<Result<Listing, Turn>> {
        loop {
            let connection = self.session.connection();
            let (request, watcher) = match (self.lock.strategy(), &self.directory) {
                (WaitStrategy::WatchParent, None) => {
                    let (sender, _) = self.wakes.get_or_insert_with(unbounded);
                    let sender = sender.clone();
                    (self.lock.list_request(true), Some(directory_watcher(sender)))
                }
                _ => (self.lock.list_request(false), None),
            };
            let sent = submit(&self.session, vec![(request, watcher)]).into_iter().next();
            let (reply, watch) = match sent {
                Some((pending, watch)) => (self.call.reply(pending), watch),
                None => (Err(self.call.connection_loss()), None),
            };
            match reply {
                Ok(Response::Children { names, .. }) => {
                    self.directory = watch.or(self.directory.take());
                    return Ok(Ok(Listing { children: names, connection }));
                }
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
    fn watch(&mut self, name: Option<String>, first: bool, connection: u64) -> Result<Option<Next>> {
        if let Some(predecessor) = &mut self.predecessor
            && Some(&predecessor.name) == name.as_ref()
        {
            // The watch is still in place, over a reconnect too.
            predecessor.held_the_lock |= first;
            predecessor.connection = connection;
            if first {
                predecessor.ahead = None;
            }
            return Ok(None);
        }
        self.predecessor = None;
        self.watches += 1;
        let number = self.watches;
        let (sender, _) = self.wakes.get_or_insert_with(unbounded);
        let mut requests = Vec::with_capacity(2);
        if let Some(name) = &name {
            requests.push((self.lock.child(name).into_string(), predecessor_watcher(number, sender.clone())));
        }
        let target = Arc::new(Mutex::new(Target::Waiter(sender.clone())));
        if self.own.is_none() {
            requests.push((self.lock.child(&self.name).into_string(), own_watcher(target.clone())));
        }
        let requests =
            requests.into_iter().map(|(path, watcher)| (Request::GetData { path, watch: true }, Some(watcher)));
        let mut sent = submit(&self.session, requests);
        self.call.await_last(&mut sent);
        let mut replies = sent.into_iter();
        let predecessor = name.is_some().then(|| replies.next()).flatten();
        let own = replies.next();
        let predecessor = predecessor.map(|(pending, watch)| (self.call.reply(pending), watch));
        let own = own.map(|(pending, watch)| (self.call.reply(pending), watch));
        match own {
            Some((Ok(response), Some(watch))) => {
                if let (Response::Data { data, stat }, Some(revocable)) = (&response, &self.revocable) {
                    revocable.read(data, stat);
                }
                self.own = Some(OwnWatch { watch, target });
            }
            Some((Err(error), _)) if error.is_no_node() => return Ok(Some(Next::End(Turn::NodeGone))),
            Some((Err(error), _)) => return self.look_after(error),
            _ => {}
        }
        let Some(name) = name else { return Ok(None) };
        match predecessor {
            Some((Ok(response), Some(watch))) => {
                let is_here = matches!(&response, Response::Data { stat, .. } if self.is_owner(stat));
                let (held_the_lock, ahead) = (first, None);
                self.predecessor = Some(Predecessor { name, number, held_the_lock, is_here, connection, ahead, watch });
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
        loop {
            let Some((_, wakes)) = &self.wakes else { return Ok(Next::Look) };
            let recheck = match self.lock.strategy().interval() {
                None => next_recheck(self.lock.client()),
                Some(interval) => Instant::now().checked_add(interval),
            };
            let stop = self.patience.stop;
            let bound = recheck.map_or(stop, |at| stop.by(at));
            let next = match bound.recv(wakes) {
                Ok(wake) => self.woken(wake),
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
    fn woken(&mut self, wake: Wake) -> Option<Next> {
        match wake {
            Wake::Own(WatchEvent::Ended)
            | Wake::Predecessor(_, WatchEvent::Ended)
            | Wake::Directory(WatchEvent::Ended) => Some(Next::End(Turn::SessionEnded)),
            Wake::Directory(WatchEvent::Node { .. }) => {
                self.directory = None;
                Some(Next::Look)
            }
            Wake::Own(WatchEvent::Node { event: EventType::NodeDeleted, .. }) => Some(Next::End(Turn::NodeGone)),
            Wake::Own(WatchEvent::Node { .. }) => {
                // Its data changed, which uses the watch up: set both again.
                self.own = None;
                self.predecessor = None;
                Some(Next::Look)
            }
            // Its watch was given up for that of the present one, which will report for itself.
            Wake::Predecessor(number, _) | Wake::Listed(number, _)
                if self.predecessor.as_ref().is_none_or(|now| now.number != number) =>
            {
                None
            }
            Wake::Predecessor(_, WatchEvent::Node { event, connection }) => self.predecessor_changed(event, connection),
            Wake::Listed(_, listing) => {
                self.predecessor = None;
                self.listing = listing;
                Some(Next::Look)
            }
            // The znode keeps its place while the session may live.
            Wake::Own(WatchEvent::Disconnected)
            | Wake::Predecessor(_, WatchEvent::Disconnected)
            | Wake::Directory(WatchEvent::Disconnected) => None,
            // Events after a reconnect come in the order of paths, not of time: read again. A waiter that polls does so
            // anyway.
            Wake::Own(WatchEvent::Reconnected { .. }) => None,
            Wake::Predecessor(_, WatchEvent::Reconnected { .. }) | Wake::Directory(WatchEvent::Reconnected { .. }) => {
                Some(Next::Look)
            }
        }
    }

    /// The watch on the predecessor is used up. `None`: what it means comes with a listing that is under way.
    fn predecessor_changed(&mut self, event: EventType, connection: u64) -> Option<Next> {
        let predecessor = self.predecessor.take()?;
        // Over one connection all the time, and with the own znode watched.
        let is_sure = event == EventType::NodeDeleted
            && self.follows_holder()
            && predecessor.connection == connection
            && self.session.connection() == connection
            && self.own.is_some();
        if is_sure && (predecessor.held_the_lock || self.was_granted_here(&predecessor.name)) {
            return Some(Next::Grant);
        }
        match predecessor.ahead.as_ref().map_or(Seen::Nothing, Ahead::seen) {
            Seen::Listing(seen) if is_sure && seen.connection == connection => {
                match self.lock.driver().decide(&seen.children, &self.name, self.lock.max_leases()) {
                    Decision::Wait { watch, first } if watch == predecessor.name => {
                        Some(if first { Next::Grant } else { Next::Look })
                    }
                    // Made after the predecessor had gone: there is no need for another one.
                    _ => {
                        self.listing = Some(seen);
                        Some(Next::Look)
                    }
                }
            }
            Seen::Coming => {
                self.predecessor = Some(predecessor);
                None
            }
            Seen::Listing(_) | Seen::Nothing => Some(Next::Look),
        }
    }
}

/// Whether a held znode is in the list.
fn stands(held: &HeldNode, children: &[String]) -> bool {
    children.iter().any(|child| child == held.path().name())
}

/// When a waiter looks again although nothing has happened.
pub(crate) fn next_recheck(client: &CuratorFramework) -> Option<Instant> {
    Instant::now().checked_add(spread(client.core.config.recheck_interval?))
}

/// A quarter more or less, so that waiters do not all look at once.
fn spread(interval: Duration) -> Duration {
    let quarter = interval / 4;
    quarter.saturating_mul(3).saturating_add(quarter.mul_f64(2.0 * fastrand::f64()))
}
