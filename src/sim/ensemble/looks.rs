//! What a test may see of the servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{ConnId, Ensemble, Entry, Tree, connection::Connection, server::Role};

/// What has come about in the ensemble.
#[derive(Debug, Clone)]
pub(crate) enum Happened {
    /// The leader has carried a transaction out.
    Committed(Arc<Entry>),
    /// The leader's clock has ended a session. It is closed by the next transaction of that session.
    Expired(i64),
    /// A server leads, and serves.
    Leads { server: usize, epoch: i64 },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub(crate) connections: u64,
    pub(crate) handshakes: u64,
    /// By operation.
    pub(crate) requests: BTreeMap<i32, u64>,
    pub(crate) events: u64,
    pub(crate) commits: u64,
    pub(crate) expired: u64,
    pub(crate) elections: u64,
}

impl Counters {
    pub(super) fn count_request(&mut self, op_code: i32) {
        *self.requests.entry(op_code).or_default() += 1;
    }
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) counters: Counters,
    happened: Vec<(Duration, Happened)>,
    is_kept: bool,
}

impl Journal {
    pub(super) fn note(&mut self, now: Duration, happened: Happened) {
        match happened {
            Happened::Committed(_) => self.counters.commits += 1,
            Happened::Expired(_) => self.counters.expired += 1,
            Happened::Leads { .. } => self.counters.elections += 1,
        }
        if self.is_kept {
            self.happened.push((now, happened));
        }
    }
}

impl Ensemble {
    /// Begins to keep what happens, for [`take_journal`](Self::take_journal).
    pub(crate) fn keep_journal(&mut self) {
        self.journal.is_kept = true;
    }

    /// What has happened since the last call, in order.
    pub(crate) fn take_journal(&mut self) -> Vec<(Duration, Happened)> {
        Ensemble::take(&mut self.journal.happened)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.journal.counters
    }

    /// The server that leads and serves, with the latest epoch: one that is cut off may believe to lead, too.
    pub(crate) fn leader(&self) -> Option<usize> {
        let epoch = |index: &usize| match &self.servers[*index].role {
            Role::Leading(leading) if leading.serves => Some(leading.epoch),
            _ => None,
        };
        (0..self.servers.len()).filter(|index| epoch(index).is_some()).max_by_key(epoch)
    }

    /// Whether a server leads, as far as it knows.
    pub(crate) fn believes_to_lead(&self, server: usize) -> bool {
        matches!(self.servers[server].role, Role::Leading(_))
    }

    /// Whether a server takes requests, as far as it knows.
    pub(crate) fn serves(&self, server: usize) -> bool {
        self.servers[server].serves()
    }

    /// The znodes and sessions as this server knows them.
    pub(crate) fn tree(&self, server: usize) -> &Tree {
        &self.servers[server].tree
    }

    /// When the leader takes the session from its clock if nothing is heard of it, and whether it is being closed.
    pub(crate) fn expiry(&self, session: i64) -> Option<(Duration, bool)> {
        match &self.servers[self.leader()?].role {
            Role::Leading(leading) => leading.tracker.look(session),
            _ => None,
        }
    }

    /// Which session of the followers' clients is due first if nothing is heard of it: when, and at which follower.
    pub(crate) fn first_due_at_a_follower(&self) -> Option<(Duration, usize)> {
        let leader = self.leader()?;
        let of_followers = self.conns.values().filter(|connection| connection.server != leader);
        let due = |connection: &Connection| Some((self.expiry(connection.session)?.0, connection.server));
        of_followers.filter_map(due).min()
    }

    /// The watches of a server: the path, and the session.
    pub(crate) fn watches(&self, server: usize) -> Vec<(&str, i64)> {
        let watches = self.servers[server].watches.iter();
        watches.map(|(path, conn)| (path, self.conns.get(&conn).map_or(0, |connection| connection.session))).collect()
    }

    /// The connections of a server, with their sessions; 0 before the first frame.
    pub(crate) fn connections(&self, server: usize) -> Vec<(ConnId, i64)> {
        let of_server = self.conns.iter().filter(|(_, connection)| connection.server == server);
        of_server.map(|(conn, connection)| (*conn, connection.session)).collect()
    }
}
