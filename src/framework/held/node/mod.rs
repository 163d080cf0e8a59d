//! One held znode: what the client knows of it, and whom it tells.
//!
//! | open | for |
//! |---|---|
//! | `state` | what the client knows: held, in doubt, lost, until when for certain |
//! | `telling` | whom it tells, and when its thread has to look |
//! | `ending` | losses, releases, limits |
//! | `asking` | what the server is asked, and what its answers mean |
//! | `report` | what operators hear of it |
//! | `tenure` | one znode that serves many holds |

mod asking;
mod ending;
mod report;
mod state;
pub(crate) mod telling;
pub(crate) mod tenure;

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    changes::HoldState,
    limits::Limits,
    revocation::{RevokeWord, request_in},
    subscribers::Subscribers,
};
use crate::{
    base::{paths::ServerPath, telemetry::counters::Counters},
    error::{LostReason, Result},
    framework::events::{dispatch::Dispatcher, event::EventSender},
    proto::types::Stat,
    session::{
        api::Session,
        wait::{cancel::CancelToken, pending::Watch},
    },
};

/// The znode that is a hold.
pub(crate) struct Znode {
    pub(crate) path: ServerPath,
    pub(crate) czxid: i64,
    /// What the holder shows to storage: the czxid, unless the lock was made from another one that was held before.
    pub(crate) token: i64,
    /// The grant that it shows beside that; 0 unless the other lock was cached.
    pub(crate) grant: u64,
    /// Others were in front of it.
    pub(crate) has_waited: bool,
    /// No session owns it, as the driver says. Then it is held until somebody deletes it; after the end of the session
    /// that made it, nobody looks any more whether it is there.
    pub(crate) outlives_session: bool,
    /// It is no lock, but a place in the queue for one.
    pub(crate) is_place: bool,
}

/// Who hands a held znode on from hold to hold.
pub(crate) trait Keeper: Send + Sync {
    /// The znode, or its session, is gone. Runs on a thread that reads for a session or on the client's own, under no lock;
    /// must not block.
    fn gone(&self, tenure: &HeldNode);

    /// Ends one of its holds, without waiting for a server.
    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()>;

    /// This tenure of a writer's is handed on to nobody: its holder reads beside it, whose znode others have to queue for.
    fn ends_with_turn(&self, tenure: u64);

    /// What it does with its znodes at this moment.
    fn usage(&self) -> Usage;
}

/// What only the process of a [`Keeper`] knows.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Its znodes, each with how many threads hold by it, or are about to.
    pub(crate) inside: Vec<(ServerPath, usize)>,
    /// How many threads wait that have no znode.
    pub(crate) waiting: usize,
}

/// What one hold of many knows.
pub(super) struct Grant {
    pub(super) tenure: Arc<HeldNode>,
    /// The keeper's name for the tenure.
    pub(super) tenure_number: u64,
    /// Counted from 1 in each tenure.
    pub(super) number: u64,
}

/// What all holds of one znode have in common.
pub(super) struct Common {
    pub(super) znode: Znode,
    pub(super) session: Arc<dyn Session>,
    pub(super) events: EventSender,
    pub(super) dispatcher: Arc<Dispatcher>,
}

/// A znode of a session, held until released or lost.
pub(crate) struct HeldNode {
    pub(super) id: u64,
    pub(super) common: Arc<Common>,
    pub(super) since: Instant,
    /// The connection over which the znode was last seen to exist. Over a later one the server has to say so again.
    pub(super) seen_over: AtomicU64,
    /// The connection over which the server was last asked for that.
    pub(super) asked_over: AtomicU64,
    /// Set if requests to give the lock back are read from its data.
    pub(super) revocable: Option<Arc<RevocableNode>>,
    /// Set if this is one of many holds that one held znode serves.
    pub(super) grant: Option<Grant>,
    /// Set if this znode serves many holds: who hands them out.
    pub(super) keeper: OnceLock<Weak<dyn Keeper>>,
    /// `None`: it is a place in a queue, or one of many holds of a znode, and counts as no lock.
    pub(super) counters: Option<Arc<Counters>>,
    /// So many of its holds were not given back yet.
    pub(super) out: AtomicUsize,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) lost: Option<LostReason>,
    pub(super) released: bool,
    /// The znode is gone, and it is not known yet whether the session is, too.
    pub(super) deletion: Option<Deletion>,
    /// A watch, or a check after a reconnect, is on its way or in place.
    pub(super) watch: WatchState,
    /// The server has confirmed the watch, and it has not been used up.
    pub(super) is_watched: bool,
    /// The connection over which a question came to nothing, and until when it is not asked again there.
    pub(super) failed: Option<(u64, Instant)>,
    /// The server has refused the data, so it is asked only whether the znode is there.
    pub(super) may_not_read: bool,
    /// When to ask that again: servers may send no event to those who may not read the znode (CVE-2024-23944).
    pub(super) asks_again: Option<Instant>,
    /// What was told last, for the log. Of a hold that begins nothing is told.
    pub(super) told: Option<HoldState>,
    /// Cancelled when the znode is lost: whoever holds it waits for something else, in vain then.
    pub(super) interrupts: Vec<Weak<CancelToken>>,
    pub(super) subscribers: Subscribers,
    pub(super) limits: Limits,
    /// How many warnings said that the lock is held for long.
    pub(super) warnings: u32,
    /// Those of its holds that need looks: somebody listens, or they may last too long.
    pub(super) grants: Vec<Arc<HeldNode>>,
    /// Whether it is among those holds of its znode.
    pub(super) is_attended: bool,
    /// It was given back while other holds of its znode were not.
    pub(super) has_left_others: bool,
}

#[derive(Default)]
pub(super) enum WatchState {
    #[default]
    Absent,
    Requested,
    Present(#[allow(dead_code, reason = "dropping it gives the watch up")] Watch),
}

/// The end of a znode, as long as it is not known whether the session has ended, too.
pub(super) struct Deletion {
    /// The connection that reported it.
    pub(super) connection: u64,
    /// The session was asked for a sign of life after that.
    pub(super) is_asked: bool,
}

impl Inner {
    /// Whether its state stays for ever.
    pub(super) fn is_final(&self) -> bool {
        self.lost.is_some() || self.released
    }

    pub(super) fn may_ask_over(&self, connection: u64, now: Instant) -> bool {
        self.failed.is_none_or(|(over, until)| over != connection || now >= until)
    }

    /// After how long a hold the next warning is due.
    fn next_warning(&self, limit: Duration) -> Duration {
        limit.saturating_mul(1 << self.warnings.min(30))
    }
}

impl HeldNode {
    pub(crate) fn path(&self) -> &ServerPath {
        &self.common.znode.path
    }

    pub(crate) fn outlives_session(&self) -> bool {
        self.common.znode.outlives_session
    }

    /// Of many holds only the first one has waited at the servers.
    pub(crate) fn has_waited(&self) -> bool {
        self.common.znode.has_waited && self.grant.as_ref().is_none_or(|grant| grant.number <= 1)
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.common.session
    }

    pub(crate) fn revocable(&self) -> Option<&RevocableNode> {
        self.revocable.as_deref()
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.common.znode.czxid
    }

    /// What storage has to be shown: grows with every grant of a lock.
    pub(crate) fn token(&self) -> i64 {
        self.common.znode.token
    }

    /// The znode that is looked after for this hold.
    pub(super) fn root(&self) -> &HeldNode {
        self.grant.as_ref().map_or(self, |grant| &grant.tenure)
    }

    /// The held znode of which this is one hold of many.
    pub(crate) fn tenure(&self) -> Option<&Arc<HeldNode>> {
        self.grant.as_ref().map(|grant| &grant.tenure)
    }

    /// Which grant of its znode it is; 0 for the only one.
    pub(crate) fn grant_number(&self) -> u64 {
        self.grant.as_ref().map_or(self.common.znode.grant, |grant| grant.number)
    }

    /// Who ends this hold, where the znode stays: with the keeper's name for its tenure.
    pub(crate) fn keeper(&self) -> Option<(Arc<dyn Keeper>, u64)> {
        let grant = self.grant.as_ref()?;
        Some((grant.tenure.keeper.get()?.upgrade()?, grant.tenure_number))
    }
}

impl fmt::Debug for HeldNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNode")
            .field("path", &self.common.znode.path)
            .field("czxid", &self.common.znode.czxid)
            .finish_non_exhaustive()
    }
}

type OnRequest = Box<dyn Fn(&RevokeWord, Option<Arc<HeldNode>>) + Send + Sync>;

/// Whom to tell about requests.
pub(crate) struct Revocation {
    /// Runs on a thread that reads for a session, so it only hands over.
    request: OnRequest,
    is_lasting: bool,
}

impl Revocation {
    /// Forgotten at the next release.
    pub(crate) fn new(request: impl Fn() + Send + Sync + 'static) -> Revocation {
        Revocation { request: Box::new(move |_, _| request()), is_lasting: false }
    }

    /// Stays over releases.
    pub(crate) fn lasting(request: impl Fn(&RevokeWord, Option<Arc<HeldNode>>) + Send + Sync + 'static) -> Revocation {
        Revocation { request: Box::new(request), is_lasting: true }
    }

    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

/// One znode that can be revoked, from the first look at its data on.
pub(crate) struct RevocableNode {
    revocation: Arc<Revocation>,
    /// The transaction of the last request that was told, so that reading it twice does not tell it twice.
    told: AtomicI64,
    last: Mutex<Option<RevokeWord>>,
    /// The hold, once the lock was granted. It may come to nothing before it is the caller's, and another one follows.
    held: Mutex<Weak<HeldNode>>,
}

impl RevocableNode {
    pub(crate) fn new(revocation: Arc<Revocation>) -> Arc<RevocableNode> {
        let (told, last, held) = (AtomicI64::new(0), Mutex::default(), Mutex::default());
        Arc::new(RevocableNode { revocation, told, last, held })
    }

    pub(crate) fn revocation(&self) -> &Arc<Revocation> {
        &self.revocation
    }

    /// Its contender was granted the lock.
    pub(super) fn holds(&self, held: &Arc<HeldNode>) {
        *self.held.lock() = Arc::downgrade(held);
    }

    /// The last request.
    pub(crate) fn last(&self) -> Option<RevokeWord> {
        self.last.lock().clone()
    }

    /// The znode's data was read. A request that was written before the watch is seen here, too.
    pub(crate) fn read(&self, data: &[u8], stat: &Stat) {
        let Some(word) = request_in(data) else { return };
        if self.told.fetch_max(stat.mzxid, Ordering::AcqRel) < stat.mzxid {
            self.tell(&word);
        }
    }

    /// A request was read, here or by whoever looks after the znode.
    pub(crate) fn tell(&self, word: &RevokeWord) {
        *self.last.lock() = Some(word.clone());
        let held = self.held.lock().upgrade();
        (self.revocation.request)(word, held);
    }
}

#[cfg(test)]
mod tests;
