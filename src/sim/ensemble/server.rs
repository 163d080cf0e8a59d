//! One server: what it keeps on disk, and what it forgets when it ends.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    ConnId, Happening, THREADS,
    follower::Following,
    leader::Leading,
    tree::Tree,
    txn::{Entry, Origin},
    watches::Watches,
};

#[derive(Debug)]
pub(super) enum Role {
    /// It looks for a leader, and serves nobody.
    Looking,
    Leading(Box<Leading>),
    Following(Following),
}

/// What a server does with the requests of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Throttle {
    #[default]
    Off,
    /// Each request waits so long before anybody looks at it.
    Delay(Duration),
    /// All but pings and the begin and end of sessions are answered with `ThrottledOp`.
    Refuse,
}

/// Something that waits for its turn behind committed transactions.
#[derive(Debug, Clone)]
pub(super) enum Commit {
    Entry(Arc<Entry>),
    Sync(Origin),
}

impl Commit {
    pub(super) fn zxid(&self) -> Option<i64> {
        if let Commit::Entry(entry) = self { Some(entry.zxid) } else { None }
    }
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) is_up: bool,
    /// Counts starts and changes of role. What was under way before is void.
    pub(super) life: u64,
    pub(super) is_paused: bool,
    /// What a paused server has not noticed yet.
    pub(super) missed: Vec<(u64, Happening)>,
    /// When each of its threads goes on after a pause.
    pub(super) wakes: [Duration; THREADS],
    // On disk.
    pub(super) tree: Tree,
    /// Transactions behind the tree's.
    pub(super) log: VecDeque<Arc<Entry>>,
    /// Up to where the log has reached the disk.
    pub(super) durable: i64,
    pub(super) accepted_epoch: i64,
    pub(super) current_epoch: i64,
    // Volatile.
    pub(super) role: Role,
    pub(super) watches: Watches,
    /// The connection of each session that is connected here.
    pub(super) connected: BTreeMap<i64, ConnId>,
    pub(super) commits: VecDeque<Commit>,
    /// When the last of them is due.
    pub(super) commits_due: Duration,
    pub(super) next_session: i64,
    // Faults.
    pub(super) lag: Duration,
    pub(super) throttle: Throttle,
    pub(super) throttled_until: Duration,
}

impl Server {
    pub(super) fn new(index: usize, first_session: i64) -> Server {
        let number = i64::try_from(index + 1).unwrap();
        Server {
            is_up: true,
            life: 0,
            is_paused: false,
            missed: Vec::new(),
            wakes: [Duration::ZERO; THREADS],
            tree: Tree::new(),
            log: VecDeque::new(),
            durable: 0,
            accepted_epoch: 0,
            current_epoch: 0,
            role: Role::Looking,
            watches: Watches::default(),
            connected: BTreeMap::new(),
            commits: VecDeque::new(),
            commits_due: Duration::ZERO,
            next_session: number << 56 | first_session << 16,
            lag: Duration::ZERO,
            throttle: Throttle::Off,
            throttled_until: Duration::ZERO,
        }
    }

    /// The last transaction in the log, carried out or not.
    pub(super) fn last_logged(&self) -> i64 {
        self.log.back().map_or(self.tree.zxid, |entry| entry.zxid)
    }

    /// Whether the transaction is on disk here.
    pub(super) fn has(&self, zxid: i64) -> bool {
        zxid <= self.tree.zxid || (zxid <= self.durable && self.log.iter().any(|entry| entry.zxid == zxid))
    }

    /// The last transaction that this session asked for over another connection, and that is not carried out yet.
    pub(super) fn asked_elsewhere(&self, session: i64, conn: ConnId) -> Option<i64> {
        let is_other =
            |entry: &&Arc<Entry>| entry.session == session && entry.origin.is_some_and(|origin| origin.conn != conn);
        self.log.iter().rev().find(is_other).map(|entry| entry.zxid)
    }

    /// Whether it takes requests.
    pub(super) fn serves(&self) -> bool {
        self.is_up
            && match &self.role {
                Role::Looking => false,
                Role::Leading(leading) => leading.serves,
                Role::Following(following) => following.serves,
            }
    }

    /// Forgets what only the memory held, and begins to look for a leader.
    pub(super) fn begin_anew(&mut self) {
        self.life += 1;
        self.role = Role::Looking;
        self.watches = Watches::default();
        self.connected.clear();
        self.commits.clear();
        self.commits_due = Duration::ZERO;
    }
}
