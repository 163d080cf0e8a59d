//! Committed transactions on one server: carried out in order, later on a server that lags.

use std::sync::Arc;

use super::{
    Ensemble, What, acl,
    connection::Progress,
    looks::Happened,
    server::{Commit, Role},
    txn::{Applied, Entry, Origin, Replay, Txn},
    wire,
};

impl Ensemble {
    /// Puts a committed transaction, or the end of a sync, behind those before it.
    pub(super) fn commit(&mut self, index: usize, commit: Commit) {
        let server = &mut self.servers[index];
        let due = (self.now + server.lag).max(server.commits_due);
        server.commits_due = due;
        server.commits.push_back(commit);
        self.at(due, index, What::Commit);
    }

    pub(super) fn commit_next(&mut self, index: usize) {
        match self.servers[index].commits.pop_front() {
            Some(Commit::Entry(entry)) => self.apply(index, &entry),
            Some(Commit::Sync(origin)) => self.complete(origin, Applied::Done),
            None => {}
        }
    }

    fn apply(&mut self, index: usize, entry: &Arc<Entry>) {
        let applied = self.replay(index, entry);
        self.session_events(index, entry);
        if let Role::Leading(leading) = &mut self.servers[index].role {
            leading.outstanding.applied(entry.zxid);
            self.journal.note(self.now, Happened::Committed(Arc::clone(entry)));
        }
        match entry.origin {
            Some(origin) if origin.server == index => self.complete(origin, applied),
            // Nobody's request here, and the session is over: so is its connection.
            _ if matches!(entry.txn, Txn::CloseSession { .. }) => {
                if let Some(conn) = self.servers[index].connected.get(&entry.session).copied() {
                    self.end(conn);
                }
            }
            _ => {}
        }
        let conn = self.servers[index].connected.get(&entry.session).copied();
        if let Some((conn, connection)) = conn.and_then(|conn| Some((conn, self.conns.get_mut(&conn)?))) {
            connection.carried_out(entry.zxid);
            self.pump(conn);
        }
    }

    /// Changes the server's znodes, and tells who watches them.
    pub(super) fn replay(&mut self, index: usize, entry: &Entry) -> Applied {
        let server = &mut self.servers[index];
        let is_next = entry.zxid == server.tree.zxid + 1 || entry.zxid >> 32 > server.tree.zxid >> 32;
        assert!(is_next, "server {index} carries {:#x} out after {:#x}", entry.zxid, server.tree.zxid);
        if server.log.front().is_some_and(|first| first.zxid <= entry.zxid) {
            server.log.pop_front();
        }
        let mut replay = Replay { tree: &mut server.tree, watches: &mut server.watches, events: Vec::new() };
        let applied = replay.apply(entry);
        for event in replay.events {
            for conn in event.conns {
                // Who may not read the znode is not told: the mend of CVE-2024-23944.
                if self.conns.get(&conn).is_some_and(|connection| acl::may(&event.acl, 1, &connection.ids)) {
                    self.journal.counters.events += 1;
                    self.send(conn, wire::notification(event.kind, &event.path));
                }
            }
        }
        applied
    }

    fn session_events(&mut self, index: usize, entry: &Entry) {
        let role = &mut self.servers[index].role;
        match (&entry.txn, role) {
            (Txn::CreateSession { timeout_ms }, Role::Following(following)) => {
                following.touched.insert(entry.session, *timeout_ms);
            }
            (Txn::CloseSession { .. }, Role::Following(following)) => {
                following.touched.remove(&entry.session);
            }
            (Txn::CloseSession { .. }, Role::Leading(leading)) => leading.tracker.remove(entry.session),
            _ => {}
        }
    }

    /// The request has come to its end, and is answered when those before it are.
    fn complete(&mut self, origin: Origin, applied: Applied) {
        let Some(connection) = self.conns.get_mut(&origin.conn) else { return };
        if let Some(pending) = connection.request(origin.number) {
            pending.progress = Progress::Applied(applied);
        }
        self.pump(origin.conn);
    }
}
