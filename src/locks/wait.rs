//! One contender in the queue, from its first listing to the grant or the end of its time.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    WaitStrategy,
    ahead::{Ahead, Seen},
    driver::Decision,
    internals::{LockInternals, Patience},
};
use crate::{
    CuratorFramework, Error, Result,
    framework::{Call, Claim, Created, HeldNode, Listing, Outlasted, RevocableNode, Znode},
    proto::{EventType, Request, Response, Stat},
    session::{Session, WaitEnd, WakeReceiver, WakeSender, Watch, WatchEvent, Watcher, submit, wakes},
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

/// What wakes a waiter. Each has a channel of its own, so that one event wakes one thread.
enum Wake {
    /// With the number of the watch: an event of an earlier predecessor may still be in the channel when the next one
    /// is watched, and says nothing about that one.
    Predecessor(u64, WatchEvent),
    /// The listing that was under way when the predecessor with this number went, or `None` if it failed.
    Listed(u64, Option<Listing>),
    Own(WatchEvent),
    Directory(WatchEvent),
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

/// The watch on the own znode: it wakes the waiter, and later serves the holder.
struct OwnWatch {
    watch: Watch,
    target: Arc<Mutex<Target>>,
}

enum Target {
    Waiter(WakeSender<Wake>),
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
    wakes: Option<(WakeSender<Wake>, WakeReceiver<Wake>)>,
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
        let on_listing = Box::new(move |listing| wakes.send(Wake::Listed(number, listing)));
        predecessor.ahead = Some(Ahead::watch(&self.session, path, self.lock.list_request(false), on_listing));
    }

    /// Reads the queue.
    fn list(&mut self) -> Result<Result<Listing, Turn>> {
        loop {
            let connection = self.session.connection();
            let (request, watcher) = match (self.lock.strategy(), &self.directory) {
                (WaitStrategy::WatchParent, None) => {
                    let (sender, _) = self.wakes.get_or_insert_with(wakes);
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
        let (sender, _) = self.wakes.get_or_insert_with(wakes);
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
            let next = match wakes.recv(&self.session, bound) {
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
        // Who was never behind anybody was hardly ever seen behind anybody: its successors know from their own listings
        // that it holds the lock. Only one that went by its number may have come while its predecessor was leaving; who
        // saw both looks once more.
        if self.has_waited && self.lock.driver().successor_follows_holder() {
            core.grants.add(&path);
        }
        let (session, revocable) = (self.session.clone(), self.revocable.clone());
        // The token of a writer that goes on as a reader stays: the reader's znode may be younger than those that wait
        // behind it, and tokens must not shrink from one grant to the next.
        let token = self.writer.map_or(self.stat.czxid, HeldNode::token);
        let outlives_session = !self.lock.driver().create_mode().is_ephemeral();
        let znode = Znode { path, czxid: self.stat.czxid, token, outlives_session };
        let held = core.held.add_znode(znode, session, seen_over, watch, revocable);
        if let Some(target) = target {
            let before = std::mem::replace(&mut *target.lock(), Target::Holder(Arc::downgrade(&held)));
            // From here on events go to the holder. Those from before are in the channel.
            if matches!(before, Target::Deleted) || self.was_deleted(&held) {
                core.held.remove(&held);
                return Ok(Some(Turn::NodeGone));
            }
        }
        // Once more, as late as can be: the process may have been paused since the first look.
        if !held.is_certain() {
            let verified = self.verify();
            if !matches!(verified, Ok(Verified::Over(_))) {
                core.held.remove(&held);
            }
            match verified? {
                Verified::Over(_) => {}
                Verified::Unclear => return Ok(None),
                Verified::End(turn) => return Ok(Some(turn)),
            }
        }
        if self.is_alone && self.writer.is_none() {
            self.lock.vacancy().stands_alone(held.path());
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
            Wake::Predecessor(..) | Wake::Listed(..) | Wake::Directory(_) => false,
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

/// Whether a held znode is in the list.
fn stands(held: &HeldNode, children: &[String]) -> bool {
    children.iter().any(|child| child == held.path().name())
}

fn directory_watcher(wakes: WakeSender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| wakes.send(Wake::Directory(event.clone())))
}

fn predecessor_watcher(number: u64, wakes: WakeSender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| wakes.send(Wake::Predecessor(number, event.clone())))
}

fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let mut target = target.lock();
        match &*target {
            Target::Waiter(wakes) => {
                // Put there under the lock, so that none comes after the waiter has looked for the last time.
                let ring = wakes.put(Wake::Own(event.clone()));
                let is_deleted = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. });
                // A sender that is dropped rings, too.
                let before = is_deleted.then(|| std::mem::replace(&mut *target, Target::Deleted));
                drop(target);
                drop((before, ring));
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

/// When a waiter looks again although nothing has happened.
pub(crate) fn next_recheck(client: &CuratorFramework) -> Option<Instant> {
    Instant::now().checked_add(spread(client.core.config.recheck_interval?))
}

/// A quarter more or less, so that waiters do not all look at once.
fn spread(interval: Duration) -> Duration {
    let quarter = interval / 4;
    quarter.saturating_mul(3).saturating_add(quarter.mul_f64(2.0 * fastrand::f64()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::Wake as Woken;

    use super::*;

    /// Notes whether the lock was free when it was woken.
    struct Probe {
        target: Mutex<Option<Arc<Mutex<Target>>>>,
        was_free: Mutex<Vec<bool>>,
    }

    impl Woken for Probe {
        fn wake(self: Arc<Self>) {
            let target = self.target.lock().clone().unwrap();
            let is_free = target.try_lock().is_some();
            self.was_free.lock().push(is_free);
        }
    }

    #[test]
    fn what_happens_to_the_own_znode_wakes_the_waiter_under_no_lock() {
        for event in [EventType::NodeDataChanged, EventType::NodeDeleted] {
            let (sender, receiver) = wakes();
            let target = Arc::new(Mutex::new(Target::Waiter(sender)));
            let probe = Arc::new(Probe { target: Mutex::new(Some(target.clone())), was_free: Mutex::default() });
            receiver.arm(&probe.clone().into());
            own_watcher(target)(&WatchEvent::Node { event, connection: 1 });
            assert_eq!(receiver.try_iter().count(), 1);
            assert_eq!(*probe.was_free.lock(), [true], "{event:?}");
        }
    }
}
