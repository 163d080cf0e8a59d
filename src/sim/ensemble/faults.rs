//! What a test does to the servers from outside.

use std::time::Duration;

use super::{Ensemble, Output, THREADS, Throttle, What, acl::Id, tracker::ADMINISTRATOR, wire::Call};

/// What a server that crashes still has of the transactions that no quorum had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    Kept,
    Lost,
}

/// Which messages an isolated server is cut off from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolated {
    /// Those of the other servers.
    In,
    /// Its own.
    Out,
    Both,
}

impl Ensemble {
    /// The process ends at once, as with SIGKILL. Without the tail the machine ends with it.
    pub(crate) fn crash(&mut self, server: usize, tail: Tail, now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        if self.servers[server].is_up {
            let kept = self.last_on_quorum(server);
            self.leave(server);
            let server = &mut self.servers[server];
            (server.is_up, server.is_paused) = (false, false);
            server.missed.clear();
            if tail == Tail::Lost {
                server.log.retain(|entry| entry.zxid <= kept);
            }
            server.durable = server.last_logged();
        }
        self.finish(out);
    }

    /// The last transaction of a server that a quorum has on disk.
    fn last_on_quorum(&self, server: usize) -> i64 {
        let has_quorum =
            |zxid: i64| self.servers.iter().filter(|server| server.has(zxid)).count() >= self.config.quorum();
        let server = &self.servers[server];
        let last = server.log.iter().rev().find(|entry| has_quorum(entry.zxid));
        last.map_or(server.tree.zxid, |entry| entry.zxid)
    }

    /// Starts a server that has crashed.
    pub(crate) fn restart(&mut self, server: usize, now: Duration) {
        self.advance(now);
        if !self.servers[server].is_up {
            self.servers[server].is_up = true;
            let span = self.config.start.clone();
            self.after(&span, server, What::Vote);
        }
    }

    /// The process stands still (SIGSTOP). Its connections stay, and it hears of nothing.
    pub(crate) fn pause(&mut self, server: usize, now: Duration) {
        self.advance(now);
        self.servers[server].is_paused = self.servers[server].is_up;
    }

    /// The process goes on, each of its threads a little later.
    pub(crate) fn resume(&mut self, server: usize, now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        let span = self.config.wake.clone();
        // One that has not gone on since the pause before goes on when it was to: its happenings stay in order.
        let (before, now) = (self.servers[server].wakes, self.now);
        let wakes: [Duration; THREADS] = std::array::from_fn(|thread| {
            let wakes = now + self.pick(&span);
            if before[thread] > now { before[thread] } else { wakes }
        });
        self.servers[server].is_paused = false;
        self.servers[server].wakes = wakes;
        for (number, happening) in Ensemble::take(&mut self.servers[server].missed) {
            let at = match happening.what {
                // A read finds what has come meanwhile, and does not time out.
                What::LeaderTimeout => self.now + *span.end(),
                _ => wakes[happening.what.thread()],
            };
            self.happenings.insert((at, number), happening);
        }
        self.finish(out);
    }

    /// Cuts a server off from the others, not from its clients.
    pub(crate) fn isolate(&mut self, server: usize, how: Isolated, now: Duration) {
        self.advance(now);
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            if how != Isolated::Out {
                self.links.cut(other, server);
            }
            if how != Isolated::In {
                self.links.cut(server, other);
            }
        }
    }

    /// Cuts the way from one server to another.
    pub(crate) fn cut(&mut self, from: usize, to: usize, now: Duration) {
        self.advance(now);
        self.links.cut(from, to);
    }

    /// The server talks with all others again.
    pub(crate) fn mend(&mut self, server: usize, now: Duration) {
        self.advance(now);
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            self.mend_link(server, other);
            self.mend_link(other, server);
        }
    }

    /// A server carries transactions out this much later than they are committed.
    pub(crate) fn set_lag(&mut self, server: usize, lag: Duration) {
        self.servers[server].lag = lag;
    }

    /// On all servers, a directory is as if it had had so many children: its sequence numbers go on from there.
    pub(crate) fn set_created(&mut self, path: &str, created: i32) {
        for server in &mut self.servers {
            server.tree.set_created(path, created);
        }
    }

    /// What a server does with requests from now on.
    pub(crate) fn set_throttle(&mut self, server: usize, throttle: Throttle) {
        self.servers[server].throttle = throttle;
    }

    /// Servers grant no session a longer timeout from now on, new or resumed.
    pub(crate) fn grant_at_most(&mut self, timeout: Duration) {
        self.config.max_session_timeout = timeout;
    }

    /// The leader steps down, and `to` wins the election among those with the same history.
    pub(crate) fn transfer_leadership(&mut self, to: usize, now: Duration, out: &mut Vec<Output>) {
        self.advance(now);
        self.preferred = Some(to);
        if let Some(leader) = self.leader() {
            self.look(leader);
        }
        self.finish(out);
    }

    /// Closes a session from outside. `false`: nobody leads.
    pub(crate) fn expire(&mut self, session: i64, now: Duration, out: &mut Vec<Output>) -> bool {
        self.advance(now);
        let leader = self.leader();
        if let Some(leader) = leader {
            self.lead(leader, None, session, leader, &Call::CloseSession, &[]);
        }
        self.finish(out);
        leader.is_some()
    }

    /// A request that no client has sent, by somebody who may do everything.
    pub(super) fn administer(&mut self, call: &Call) -> bool {
        let leader = self.leader();
        if let Some(leader) = leader {
            let ids = [Id::new("super", "")];
            self.lead(leader, None, ADMINISTRATOR, leader, call, &ids);
        }
        leader.is_some()
    }
}
