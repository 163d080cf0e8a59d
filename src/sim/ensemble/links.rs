//! Messages between servers: streams that keep their order, until somebody cuts them.

use std::{sync::Arc, time::Duration};

use super::{
    ConnId, Ensemble, Happening, What,
    acl::Id,
    tree::Tree,
    txn::{Entry, Origin},
    wire::Call,
};

#[derive(Debug, Clone)]
pub(super) enum Message {
    // From a follower.
    /// It has looked for a leader, and found this one.
    Join,
    /// It has taken the leader's state.
    Joined,
    Request {
        origin: Origin,
        session: i64,
        call: Call,
        ids: Vec<Id>,
    },
    Revalidate {
        conn: ConnId,
        session: i64,
        timeout_ms: i32,
    },
    Ack(i64),
    /// Answers a ping: the sessions that were heard of since the one before, with their timeouts.
    Touched(Vec<(i64, i32)>),
    // From a leader.
    State {
        epoch: i64,
        tree: Box<Tree>,
    },
    UpToDate,
    Proposal(Arc<Entry>),
    Commit(i64),
    Synced(Origin),
    Revalidated {
        conn: ConnId,
        is_valid: bool,
    },
    Ping,
    // From either.
    /// The stream has ended.
    Gone,
}

/// The stream from one server to another.
#[derive(Debug, Default)]
struct Link {
    /// When the last message that is on its way comes.
    last: Duration,
    is_cut: bool,
    /// What TCP will send again once the link is mended.
    held: Vec<Happening>,
}

#[derive(Debug)]
pub(super) struct Links {
    size: usize,
    links: Vec<Link>,
}

impl Links {
    pub(super) fn new(size: usize) -> Links {
        Links { size, links: (0..size * size).map(|_| Link::default()).collect() }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.size + to]
    }

    /// Whether messages go both ways.
    pub(super) fn reach(&self, one: usize, other: usize) -> bool {
        !self.links[one * self.size + other].is_cut && !self.links[other * self.size + one].is_cut
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.link(from, to).is_cut = true;
    }
}

impl Ensemble {
    /// Sends a message to another server.
    pub(super) fn tell(&mut self, from: usize, to: usize, message: Message) {
        if !self.servers[to].is_up {
            return;
        }
        let happening = Happening { server: to, life: self.servers[to].life, what: What::Message { from, message } };
        if self.links.link(from, to).is_cut {
            return self.links.link(from, to).held.push(happening);
        }
        self.carry(from, to, happening);
    }

    /// Puts a message on its way, behind those before it.
    fn carry(&mut self, from: usize, to: usize, happening: Happening) {
        let (span, (late, delay)) = (self.config.link.clone(), self.config.late.clone());
        let mut at = self.now + self.pick(&span);
        if self.random.u32(0..1000) < late {
            at += self.pick(&delay);
        }
        let link = self.links.link(from, to);
        link.last = at.max(link.last);
        let at = link.last;
        self.schedule(at, happening);
    }

    /// Mends a link: what was held comes now, unless its time is over.
    pub(super) fn mend_link(&mut self, from: usize, to: usize) {
        let link = self.links.link(from, to);
        link.is_cut = false;
        for happening in Ensemble::take(&mut link.held) {
            self.carry(from, to, happening);
        }
    }
}
