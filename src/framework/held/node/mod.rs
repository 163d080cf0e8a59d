//! Held znodes and holds of them: the types.
//!
//! | open | for |
//! |---|---|
//! | `znode` | whether a znode is there, until when for certain, and the report of its end to operators |
//! | `asking` | the questions to the servers about a znode, and the meaning of their answers |
//! | `hold` | one hold of it: its length, its limits, its release |
//! | `telling` | the subscribers of a hold, and when the client's thread has to look at it |

mod asking;
mod hold;
pub(crate) mod telling;
mod znode;

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{changes::HoldState, revocation::request_in, subscribers::Subscriber, waited_for::WaitedFor};
use crate::{
    base::{
        paths::ServerPath,
        sync::Mutex,
        telemetry::{counters::Counters, named::NamedLock},
        unlocked::drop_unlocked,
    },
    error::{LostReason, Result},
    framework::events::{dispatch::Dispatcher, event::EventSender, reactions::WakeUp},
    proto::types::Stat,
    session::{api::Session, wait::pending::Watch},
};

/// The znode that is a hold.
pub(crate) struct Znode {
    pub(crate) path: ServerPath,
    pub(crate) czxid: i64,
    /// The fencing token: the czxid, unless the lock was made from another one that was held before.
    pub(crate) token: i64,
    /// The grant in the fencing token; 0 unless the other lock was cached.
    pub(crate) grant: u64,
    /// Whether others were in front of it.
    pub(crate) has_waited: bool,
    /// The one of them that is known.
    pub(crate) waited_for: Option<Arc<WaitedFor>>,
    /// Whether it is no lock, but a place in the queue for one.
    pub(crate) is_queue: bool,
    /// The lock's series in the facade `metrics`, if its caller has named it there.
    pub(crate) named: Option<Arc<NamedLock>>,
}

/// A cache that hands a held znode on from hold to hold.
pub(crate) trait ZnodeCache: Send + Sync {
    /// The znode, or its session, is gone. Runs on a thread that reads for a session or on the client's own, under no lock;
    /// must not block.
    fn gone(&self, znode: &HeldZnode);

    /// Ends one of its holds, without waiting for a server.
    fn release(&self, grant: &HeldNode, tenure: u64) -> Result<()>;

    /// Ends a writer's tenure with its turn: the holder also reads, by a znode that others have to queue for.
    fn ends_with_turn(&self, tenure: u64);

    /// The use of its znodes at this moment, which only its process knows: each znode with the number of the threads that
    /// hold by it, or are about to; and the number of the threads that wait without a znode.
    fn usage(&self) -> (Vec<(ServerPath, usize)>, usize);
}

/// A znode of a session, until released or lost.
pub(crate) struct HeldZnode {
    pub(super) id: u64,
    pub(super) znode: Znode,
    session: Arc<dyn Session>,
    events: EventSender,
    dispatcher: Arc<Dispatcher>,
    since: Instant,
    /// A hold that lasts longer is worth a warning.
    max_hold_time: Option<Duration>,
    /// The connection over which the znode was last seen to exist. Over a later one the server has to say so again.
    seen_over: AtomicU64,
    /// The connection over which the server was last asked for that.
    asked_over: AtomicU64,
    /// Set if requests to give the lock back are read from its data.
    revocable: Option<Arc<RevocableNode>>,
    /// Set if a cache hands it on from hold to hold.
    cache: OnceLock<Weak<dyn ZnodeCache>>,
    /// `None` if the znode is a place in a queue, which counts as no lock.
    counters: Option<Arc<Counters>>,
    /// How many of the cache's holds were not released yet.
    out: AtomicUsize,
    inner: Mutex<ZnodeState>,
}

#[derive(Default)]
struct ZnodeState {
    life: Life,
    /// The connection that reported the end of the znode, as long as it is not known whether the session has ended, too.
    deleted_over: Option<u64>,
    /// The session was asked for a sign of life after that.
    is_asked: bool,
    /// A watch, or a check after a reconnect, is on its way or in place.
    watch: WatchState,
    /// The server has confirmed the watch, and it has not been used up.
    is_watched: bool,
    /// The connection over which a question came to nothing, and until when it is not asked again there.
    failed: Option<(u64, Instant)>,
    /// The server has refused the data, or they are too large: it is asked only whether the znode is there.
    may_not_read: bool,
    /// When to ask that again: servers may send no event without read permission (CVE-2024-23944).
    asks_again: Option<Instant>,
    /// The state that was reported last. A znode that begins to be held is not reported.
    reported: Option<HoldState>,
    /// The waiters to wake when the znode is lost: the holder of a place waits for something else, in vain then.
    on_loss: Vec<Weak<WakeUp>>,
    /// The holds that need looks: they have subscribers, or may last too long.
    holds: Vec<Arc<HeldNode>>,
}

/// How far a znode, or a hold of one, has come. The last two stay for ever.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Life {
    #[default]
    Lasting,
    Lost(LostReason),
    /// The reason is there if the znode or the hold was lost before.
    Released(Option<LostReason>),
}

#[derive(Default)]
enum WatchState {
    #[default]
    Absent,
    Requested,
    Present(#[allow(dead_code, reason = "dropping it gives the watch up")] Watch),
}

/// One hold of a znode, until it is released or lost.
pub(crate) struct HeldNode {
    znode: Arc<HeldZnode>,
    /// The cache's name for the tenure, if a cache has handed the znode to this hold.
    tenure: Option<u64>,
    /// The number of the grant, counted from 1 in each tenure.
    number: u64,
    pub(super) since: Instant,
    /// The listener of requests to give this hold back.
    revocable: Option<Arc<RevocableNode>>,
    inner: Mutex<HoldParts>,
}

#[derive(Default)]
struct HoldParts {
    life: Life,
    /// The subscribers in the order in which they came, each with its number.
    subscribers: Vec<(u64, Subscriber)>,
    last_subscriber: u64,
    /// Whether there has ever been a subscriber to the state. The thread plans looks from then on, so that repeated
    /// subscriptions need not wake it each time.
    was_asked: bool,
    /// The znode stays until then, even if the holder releases it sooner.
    stays_until: Option<Instant>,
    /// When the hold ends at the latest.
    ends_at: Option<Instant>,
    /// Gives the lock back after that: taken when the hold has lasted too long, or is released.
    give_back: Option<Box<dyn FnOnce() + Send>>,
    /// After how long a hold the next warning is due that the lock is held for long.
    warns_after: Option<Duration>,
    /// Whether it is among those holds of its znode that need looks.
    is_attended: bool,
    /// Whether a fence was ever armed for it.
    is_fenced: bool,
    /// The margin of the fence that lasts as long as the hold.
    fenced_by: Option<Duration>,
    /// Whether it was released while other holds of its znode were not.
    has_left_others: bool,
}

/// Gets the asker's name and the reason, and the hold. It runs on a thread that reads for a session, so it only hands over.
type OnRequest = Box<dyn Fn(&(String, String), Option<Arc<HeldNode>>) + Send + Sync>;

/// The listener of requests to give a lock back.
pub(crate) struct Revocation {
    is_lasting: bool,
    /// `None`: about to be dropped.
    request: Option<OnRequest>,
}

impl Drop for Revocation {
    /// The last hold that it listens for may be dropped by a guard of the caller's, by a thread that unwinds.
    fn drop(&mut self) {
        drop_unlocked((), self.request.take());
    }
}

impl Revocation {
    pub(crate) fn new(
        is_lasting: bool,
        request: impl Fn(&(String, String), Option<Arc<HeldNode>>) + Send + Sync + 'static,
    ) -> Revocation {
        Revocation { is_lasting, request: Some(Box::new(request)) }
    }

    /// Whether the listener stays over releases. Otherwise the next release ends it.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

/// One znode that can be revoked, from the first look at its data on.
pub(crate) struct RevocableNode {
    revocation: Arc<Revocation>,
    /// The transaction of the last request that was told, so that reading it twice does not tell it twice.
    told: AtomicI64,
    /// The asker's name and the reason of that request.
    last: Mutex<Option<(String, String)>>,
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

    /// Notes the hold that was granted.
    pub(super) fn holds(&self, held: &Arc<HeldNode>) {
        *self.held.lock() = Arc::downgrade(held);
    }

    /// The asker's name and the reason of the last request.
    pub(crate) fn last(&self) -> Option<(String, String)> {
        self.last.lock().clone()
    }

    /// Takes the znode's data. A request that was written before the watch is seen here, too.
    pub(crate) fn read(&self, data: &[u8], stat: &Stat) {
        let Some(request) = request_in(data) else { return };
        if self.told.fetch_max(stat.mzxid, Ordering::AcqRel) < stat.mzxid {
            self.tell(&request);
        }
    }

    /// Tells the listener of a request, read here or by the znode's cache.
    pub(crate) fn tell(&self, request: &(String, String)) {
        *self.last.lock() = Some(request.clone());
        let held = self.held.lock().upgrade();
        if let Some(tell) = &self.revocation.request {
            tell(request, held);
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "real threads, in real time")]
mod tests;
