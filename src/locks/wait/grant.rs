//! The end of a wait: the znode is first, and has to be there and its session alive.

use std::{sync::Arc, time::Instant};

use super::{
    Queued, Turn,
    wake::{Target, Wake},
};
use crate::{
    Result,
    framework::{HeldNode, Znode},
    proto::{EventType, Request, Response, Stat},
    session::{Session, WatchEvent},
};

/// What is known about the own znode after asking.
enum Verified {
    /// It was there, over this connection.
    Over(u64),
    Unclear,
    End(Turn),
}

impl Queued<'_> {
    /// The turn has come: makes sure that the znode is still there and its session alive. `None`: look again.
    pub(super) fn grant(&mut self, connection: u64) -> Result<Option<Turn>> {
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
    pub(super) fn was_granted_here(&self, name: &str) -> bool {
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

    pub(super) fn is_owner(&self, stat: &Stat) -> bool {
        !self.lock.driver().create_mode().is_ephemeral() || stat.ephemeral_owner == self.session.id()
    }
}

/// Whether a grant needs no question: the names were read over this very connection, and the servers cannot have expired
/// the session yet. A process may be paused for long between the event and this line.
pub(in crate::locks) fn is_certain(session: &Arc<dyn Session>, connection: u64) -> bool {
    connection != 0 && session.connection() == connection && session.valid_until().is_some_and(|at| Instant::now() < at)
}
