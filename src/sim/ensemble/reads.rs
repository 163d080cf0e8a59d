//! Requests that a server answers from its own znodes, and the replies to those that it carried out.

use super::{
    ConnId, Ensemble,
    acl::{self, Id},
    code,
    connection::{Pending, Progress},
    tree::{Node, Tree},
    txn::{self, Applied},
    watches::{WatchTable, Watches},
    wire::{self, Call, Reply, SetWatches},
};
use crate::proto::{op, types::perms};

/// The znodes of one server, before one request.
struct Read<'a> {
    tree: &'a Tree,
    watches: &'a mut Watches,
    conn: ConnId,
    session: i64,
    ids: &'a [Id],
    /// Events that come before the reply.
    events: Vec<(i32, String)>,
}

/// Completes a header to a reply.
type Body = Box<dyn FnOnce(Reply) -> Reply>;

fn empty() -> Body {
    Box::new(|reply| reply)
}

impl Ensemble {
    /// Answers one request whose turn has come.
    pub(super) fn answer(&mut self, conn: ConnId, pending: Pending) {
        if is_of_moved_session(&pending) {
            return self.end(conn);
        }
        if let (Call::CreateSession { .. }, Progress::Applied(Applied::Done)) = (&pending.call, &pending.progress) {
            return self.start_session(conn, true);
        }
        let bytes = self.reply(conn, &pending);
        self.send(conn, bytes);
        if pending.op == op::CLOSE_SESSION {
            self.end(conn);
        }
    }

    fn reply(&mut self, conn: ConnId, pending: &Pending) -> Vec<u8> {
        let zxid = self.servers[self.conns[&conn].server].tree.zxid;
        match &pending.progress {
            Progress::Refused(code) => Reply::new(pending.xid, zxid, *code).finish(),
            Progress::Applied(applied) => applied_reply(pending, applied, zxid),
            _ if pending.op == op::PING => wire::pong(zxid),
            _ => self.read(conn, pending, zxid),
        }
    }

    /// Answers from the server's own znodes. Events that it brings about come first.
    fn read(&mut self, conn: ConnId, pending: &Pending, zxid: i64) -> Vec<u8> {
        let connection = &self.conns[&conn];
        let (session, server) = (connection.session, &mut self.servers[connection.server]);
        let (tree, watches, ids) = (&server.tree, &mut server.watches, &pending.ids);
        let mut read = Read { tree, watches, conn, session, ids, events: Vec::new() };
        let result = read.answer(&pending.call);
        for (kind, path) in read.events {
            self.send(conn, wire::notification(kind, &path));
        }
        match result {
            Ok(body) => body(Reply::new(pending.xid, zxid, 0)).finish(),
            Err(code) => Reply::new(pending.xid, zxid, code).finish(),
        }
    }
}

/// The session went on at another server, which ends this connection without a reply.
fn is_of_moved_session(pending: &Pending) -> bool {
    match &pending.progress {
        Progress::Refused(code) => *code == code::SESSION_MOVED,
        Progress::Applied(Applied::Multi(results)) => results.iter().any(|one| one.code() == code::SESSION_MOVED),
        Progress::Applied(applied) => applied.code() == code::SESSION_MOVED,
        _ => false,
    }
}

/// The reply to a request that was a transaction, or a sync.
fn applied_reply(pending: &Pending, applied: &Applied, zxid: i64) -> Vec<u8> {
    let reply = Reply::new(pending.xid, zxid, applied.code());
    match (&pending.call, applied) {
        (Call::Create(new), Applied::Created { path, .. }) if new.op == op::CREATE => reply.string(path),
        (_, Applied::Created { path, stat }) => reply.string(path).stat(stat),
        (_, Applied::Stat(stat)) => reply.stat(stat),
        (Call::Multi(calls), Applied::Multi(results)) => reply.results(calls, results),
        (Call::Sync { path }, Applied::Done) => reply.string(path),
        _ => reply,
    }
    .finish()
}

impl Read<'_> {
    fn answer(&mut self, call: &Call) -> Result<Body, i32> {
        match call {
            Call::Exists { path, watch } => self.exists(path, *watch),
            Call::GetData { path, watch } => self.get_data(path, *watch),
            Call::GetChildren { path, watch, with_stat } => self.get_children(path, *watch, *with_stat),
            Call::GetAcl { path } => self.get_acl(path),
            Call::Sync { path } => {
                let path = path.clone();
                Ok(Box::new(move |reply| reply.string(&path)))
            }
            Call::SetWatches(watches) => {
                self.set_watches(watches);
                Ok(empty())
            }
            Call::CheckWatches { path, table } => self.check_watches(path, *table),
            Call::RemoveWatches { path, table } => self.remove_watches(path, *table),
            Call::GetEphemerals { prefix } => Ok(self.get_ephemerals(prefix)),
            Call::MultiRead(calls) => {
                let results: Vec<_> = calls.iter().map(|call| (call.clone(), self.answer(call))).collect();
                let write = |reply: Reply, (call, result): (Call, Result<Body, i32>)| match result {
                    Ok(body) => body(reply.result(&call)),
                    Err(code) => reply.failed_result(code),
                };
                Ok(Box::new(move |reply| results.into_iter().fold(reply, write).end_of_results()))
            }
            Call::WhoAmI => {
                let ids = self.ids.to_vec();
                Ok(Box::new(move |reply| reply.users(&ids)))
            }
            _ => Err(code::MARSHALLING),
        }
    }

    fn node(&self, path: &str, perms: i32) -> Result<&Node, i32> {
        let node = self.tree.node(path).ok_or(code::NO_NODE)?;
        if acl::may(&node.acl, perms, self.ids) { Ok(node) } else { Err(code::NO_AUTH) }
    }

    fn exists(&mut self, path: &str, watch: bool) -> Result<Body, i32> {
        if path.contains('\0') {
            return Err(code::BAD_ARGUMENTS);
        }
        if watch {
            self.watches.data.add(path, self.conn);
        }
        let stat = self.tree.node(path).ok_or(code::NO_NODE)?.stat();
        Ok(Box::new(move |reply| reply.stat(&stat)))
    }

    fn get_data(&mut self, path: &str, watch: bool) -> Result<Body, i32> {
        let node = self.node(path, perms::READ)?;
        let (data, stat) = (node.data.clone(), node.stat());
        if watch {
            self.watches.data.add(path, self.conn);
        }
        Ok(Box::new(move |reply| reply.data(&data).stat(&stat)))
    }

    fn get_children(&mut self, path: &str, watch: bool, with_stat: bool) -> Result<Body, i32> {
        let node = self.node(path, perms::READ)?;
        let (mut names, stat) = (Vec::from_iter(node.children.clone()), node.stat());
        names.sort_by_key(|name| place_in_a_hash_set(name));
        if watch {
            self.watches.children.add(path, self.conn);
        }
        Ok(Box::new(move |reply| {
            let reply = reply.strings(&names);
            if with_stat { reply.stat(&stat) } else { reply }
        }))
    }

    fn get_acl(&self, path: &str) -> Result<Body, i32> {
        let node = self.node(path, perms::READ | perms::ADMIN)?;
        let may_administer = acl::may(&node.acl, perms::ADMIN, self.ids);
        let acl = if may_administer { node.acl.clone() } else { acl::without_hashes(&node.acl) };
        let stat = node.stat();
        Ok(Box::new(move |reply| reply.acl(&acl).stat(&stat)))
    }

    fn get_ephemerals(&self, prefix: &str) -> Body {
        let all = matches!(prefix.trim(), "" | "/");
        let paths = self.tree.ephemerals(self.session).filter(|path| all || path.starts_with(prefix));
        let paths: Vec<String> = paths.cloned().collect();
        Box::new(move |reply| reply.strings(&paths))
    }

    /// Watches are left again, or tell at once what they have missed.
    fn set_watches(&mut self, wanted: &SetWatches) {
        for path in &wanted.data {
            match self.tree.node(path) {
                None => self.events.push((txn::DELETED, path.clone())),
                Some(node) if node.mzxid > wanted.zxid => self.events.push((txn::CHANGED, path.clone())),
                Some(_) => self.watches.data.add(path, self.conn),
            }
        }
        for path in &wanted.exist {
            match self.tree.node(path) {
                Some(_) => self.events.push((txn::CREATED, path.clone())),
                None => self.watches.data.add(path, self.conn),
            }
        }
        for path in &wanted.child {
            match self.tree.node(path) {
                None => self.events.push((txn::DELETED, path.clone())),
                Some(node) if node.pzxid > wanted.zxid => self.events.push((txn::CHILDREN_CHANGED, path.clone())),
                Some(_) => self.watches.children.add(path, self.conn),
            }
        }
    }

    fn check_watches(&mut self, path: &str, table: i32) -> Result<Body, i32> {
        let found = self.tables(table)?.into_iter().any(|table| table.is_watched(path));
        if found { Ok(empty()) } else { Err(code::NO_WATCHER) }
    }

    fn remove_watches(&mut self, path: &str, table: i32) -> Result<Body, i32> {
        let conn = self.conn;
        let removed =
            self.tables(table)?.into_iter().filter_map(|table| table.remove(path, conn).then_some(())).count();
        if removed > 0 { Ok(empty()) } else { Err(code::NO_WATCHER) }
    }

    fn tables(&mut self, table: i32) -> Result<Vec<&mut WatchTable>, i32> {
        let Watches { data, children } = &mut *self.watches;
        match table {
            1 => Ok(vec![children]),
            2 => Ok(vec![data]),
            3 => Ok(vec![children, data]),
            _ => Err(code::MARSHALLING),
        }
    }
}

/// ZooKeeper keeps names in Java's `HashSet`, in whose order they are listed.
pub(super) fn place_in_a_hash_set(name: &str) -> u32 {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash ^ hash >> 16) % 256
}
