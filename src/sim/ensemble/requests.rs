//! From the bytes of a connection to requests: frames, the handshake, and which way a request goes.

use std::time::Duration;

use super::{
    ConnId, Ensemble, What, acl, code,
    connection::{Connection, Progress, Stage},
    links::Message,
    server::{Role, Throttle},
    txn::Origin,
    wire::{self, Call, Connect, Reply},
};
use crate::proto::op;

/// For how long a connection may be idle at least before its server ends it.
pub(super) const IDLE: Duration = Duration::from_secs(10);

impl Ensemble {
    pub(super) fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        connection.bytes.extend_from_slice(bytes);
        connection.read_at = self.now;
        self.read_frames(conn);
    }

    pub(super) fn read_frames(&mut self, conn: ConnId) {
        while let Some(connection) = self.conns.get_mut(&conn) {
            match connection.next_frame(self.config.frame_limit) {
                Err(()) => return self.end(conn),
                Ok(None) => return,
                Ok(Some(frame)) if connection.stage == Stage::New => self.handshake(conn, &frame),
                Ok(Some(frame)) => self.wait_for_turn(conn, frame),
            }
        }
    }

    fn handshake(&mut self, conn: ConnId, frame: &[u8]) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let server = &self.servers[connection.server];
        let Ok(connect) = Connect::read(frame) else { return self.end(conn) };
        // ZooKeeper 3.8.0 alone neither answers nor closes what comes before its database is loaded: the closing ends with a
        // NullPointerException. Here it is closed as an idle one.
        if !server.serves() && self.servers.len() == 1 && self.random.bool() {
            return;
        }
        if !server.serves() || connect.last_zxid_seen > server.tree.zxid {
            return self.end(conn);
        }
        let limits = [self.config.min_session_timeout, self.config.max_session_timeout];
        let [shortest, longest] = limits.map(|limit| i32::try_from(limit.as_millis()).unwrap());
        connection.timeout_ms = connect.timeout_ms.max(shortest).min(longest);
        connection.is_old = connect.is_old;
        connection.stage = Stage::Starting;
        self.journal.counters.handshakes += 1;
        if connect.session == 0 {
            self.new_session(conn);
        } else {
            self.take_up(conn, &connect);
        }
    }

    fn new_session(&mut self, conn: ConnId) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let (index, timeout_ms) = (connection.server, connection.timeout_ms);
        let server = &mut self.servers[index];
        let session = server.next_session;
        server.next_session += 1;
        server.connected.insert(session, conn);
        connection.session = session;
        if let Role::Leading(leading) = &mut server.role {
            leading.tracker.track(session, timeout_ms, self.now);
        }
        self.submit(conn, 0, wire::CREATE_SESSION, Call::CreateSession { timeout_ms });
    }

    fn take_up(&mut self, conn: ConnId, connect: &Connect) {
        let Some(index) = self.conns.get(&conn).map(|connection| connection.server) else { return };
        let session = connect.session;
        if let Some(former) = self.servers[index].connected.get(&session).copied() {
            self.end(former);
        }
        if self.config.dialect.resumes_as_another {
            return self.new_session(conn);
        }
        self.servers[index].connected.insert(session, conn);
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        connection.session = session;
        if connect.password != wire::password(session) {
            return self.start_session(conn, false);
        }
        let timeout_ms = connection.timeout_ms;
        match &mut self.servers[index].role {
            Role::Leading(leading) => {
                let is_valid = leading.tracker.touch(session, timeout_ms, self.now);
                leading.tracker.set_owner(session, index);
                self.start_session(conn, is_valid);
            }
            Role::Following(following) => {
                let leader = following.leader;
                self.tell(index, leader, Message::Revalidate { conn, session, timeout_ms });
            }
            Role::Looking => self.end(conn),
        }
    }

    /// Answers the handshake.
    pub(super) fn start_session(&mut self, conn: ConnId, is_valid: bool) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        connection.stage = if is_valid { Stage::Open } else { Stage::Ending };
        let session = is_valid.then_some((connection.session, connection.timeout_ms));
        let answer = wire::connected(session, &wire::password(connection.session), connection.is_old);
        self.send(conn, answer);
        if is_valid { self.read_frames(conn) } else { self.end(conn) }
    }

    /// A request has come, and may have to wait.
    fn wait_for_turn(&mut self, conn: ConnId, frame: Vec<u8>) {
        let server = self.conns[&conn].server;
        let throttle = self.servers[server].throttle;
        let delay = if let Throttle::Delay(delay) = throttle { delay } else { Duration::ZERO };
        let due = (self.now + delay).max(self.servers[server].throttled_until);
        if due > self.now {
            self.servers[server].throttled_until = due;
            return self.at(due, server, What::Request { conn, frame });
        }
        self.request(conn, &frame, throttle == Throttle::Refuse);
    }

    pub(super) fn request(&mut self, conn: ConnId, frame: &[u8], is_refused: bool) {
        let Ok((xid, op_code, body)) = wire::header(frame) else { return self.end(conn) };
        self.journal.counters.count_request(op_code);
        if self.config.dialect.unknown_ops.contains(&op_code) {
            return self.end(conn);
        }
        if op_code == op::AUTH {
            return self.authenticate(conn, xid, body);
        }
        if !self.touches(conn) {
            // The server drops what comes for a session that is about to be closed.
            return;
        }
        if !wire::is_known(op_code) {
            self.send(conn, Reply::new(xid, -1, code::UNIMPLEMENTED).finish());
            return self.end(conn);
        }
        let may_be_refused = !matches!(op_code, op::PING | op::CLOSE_SESSION);
        if is_refused && may_be_refused {
            return self.refuse(conn, xid, op_code, code::THROTTLED);
        }
        match self.config.dialect.containers_refused {
            Some(code) if op_code == op::CREATE_CONTAINER => self.refuse(conn, xid, op_code, code),
            _ => self.submit(conn, xid, op_code, Call::read(op_code, body)),
        }
    }

    fn refuse(&mut self, conn: ConnId, xid: i32, op_code: i32, code: i32) {
        if let Some(connection) = self.conns.get_mut(&conn) {
            connection.push(xid, op_code, Call::Malformed, Progress::Refused(code));
        }
        self.pump(conn);
    }

    fn authenticate(&mut self, conn: ConnId, xid: i32, body: &[u8]) {
        let Ok((scheme, credentials)) = wire::auth(body) else { return self.end(conn) };
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let code = match scheme.as_str() {
            "digest" => {
                let id = acl::digest(&credentials);
                if !connection.ids.contains(&id) {
                    connection.ids.push(id);
                }
                code::OK
            }
            // The address is known, whatever the client says.
            "ip" => code::OK,
            _ => code::AUTH_FAILED,
        };
        self.send(conn, Reply::new(xid, 0, code).finish());
        if code != code::OK {
            self.end(conn);
        }
    }

    /// `false`: the session is none, or is about to be closed. Only the leader knows that.
    fn touches(&mut self, conn: ConnId) -> bool {
        let Some(&Connection { server, session, timeout_ms, .. }) = self.conns.get(&conn) else { return false };
        match &mut self.servers[server].role {
            Role::Leading(leading) => leading.tracker.touch(session, timeout_ms, self.now),
            Role::Following(following) => {
                following.touched.insert(session, timeout_ms);
                true
            }
            Role::Looking => false,
        }
    }

    /// Puts a request behind those before it, and sends it to the leader if it is the leader's.
    fn submit(&mut self, conn: ConnId, xid: i32, op_code: i32, call: Call) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let (index, session) = (connection.server, connection.session);
        let is_write = call.is_write(op_code);
        let asked_before = self.servers[index].asked_elsewhere(session, conn);
        let (progress, leader) = match &mut self.servers[index].role {
            Role::Leading(_) if is_write => (Progress::Awaits, Some(index)),
            Role::Leading(leading) => {
                let checked = leading.tracker.check(session, index);
                (checked.map_or_else(Progress::Refused, |()| Progress::Read), None)
            }
            Role::Following(following) if is_write || matches!(call, Call::Sync { .. }) => {
                (Progress::Awaits, Some(following.leader))
            }
            _ => (Progress::Read, None),
        };
        let progress = match asked_before {
            Some(zxid) if matches!(progress, Progress::Read) => Progress::Behind(zxid),
            _ => progress,
        };
        let request = leader.map(|leader| (leader, call.clone(), connection.ids.clone()));
        let number = connection.push(xid, op_code, call, progress);
        let origin = Origin { server: index, conn, number };
        if let Some((leader, call, ids)) = request {
            if leader == index {
                self.lead(index, Some(origin), session, index, &call, &ids);
            } else {
                self.tell(index, leader, Message::Request { origin, session, call, ids });
            }
        }
        self.pump(conn);
    }

    /// Answers what may be answered, in order.
    pub(super) fn pump(&mut self, conn: ConnId) {
        while let Some(pending) = self.conns.get_mut(&conn).and_then(Connection::next_ready) {
            self.answer(conn, pending);
        }
    }

    /// Ends connections from which nothing has come for the session's timeout and a while, as if the client were gone.
    pub(super) fn close_idle(&mut self, server: usize) {
        let now = self.now;
        let is_idle = |connection: &Connection| {
            let timeout = Duration::from_millis(u64::try_from(connection.timeout_ms).unwrap_or(0));
            connection.server == server && connection.read_at + timeout.max(IDLE) < now
        };
        let idle = self.conns.iter().filter(|(_, connection)| is_idle(connection)).map(|(conn, _)| *conn);
        for conn in idle.collect::<Vec<_>>() {
            self.end(conn);
        }
        self.at(now + IDLE, server, What::Idle);
    }
}
