//! The server that leads: transactions proposed and committed, sessions expired, followers kept.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Ensemble, What,
    acl::Id,
    links::Message,
    looks::Happened,
    prep::{Outstanding, Prep},
    server::{Commit, Role},
    tracker::Tracker,
    tree::{Kind, Tree},
    txn::{Entry, Origin},
    wire::Call,
};

#[derive(Debug)]
pub(super) struct Leading {
    pub(super) epoch: i64,
    pub(super) serves: bool,
    /// The last number given to a transaction.
    pub(super) zxid: i64,
    pub(super) tracker: Tracker,
    pub(super) outstanding: Outstanding,
    /// Transactions that no quorum has acknowledged yet.
    pub(super) proposals: VecDeque<Proposal>,
    pub(super) learners: BTreeMap<usize, Learner>,
    /// Syncs that wait for the transaction before them.
    syncs: Vec<(i64, usize, Origin)>,
    ticks: u64,
    pub(super) is_half_tick: bool,
}

#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) entry: Arc<Entry>,
    pub(super) acks: BTreeSet<usize>,
    proposed: Duration,
}

#[derive(Debug)]
pub(super) struct Learner {
    /// It has taken the leader's state.
    pub(super) has_joined: bool,
    /// In ticks: until when it counts without a message.
    deadline: u64,
}

impl Leading {
    pub(super) fn new(epoch: i64, zxid: i64, tracker: Tracker) -> Leading {
        Leading {
            epoch,
            serves: false,
            zxid,
            tracker,
            outstanding: Outstanding::default(),
            proposals: VecDeque::new(),
            learners: BTreeMap::new(),
            syncs: Vec::new(),
            ticks: 0,
            is_half_tick: true,
        }
    }

    pub(super) fn adopt(&mut self, server: usize, sync_limit: u32, has_joined: bool) {
        let deadline = self.ticks + u64::from(sync_limit);
        self.learners.insert(server, Learner { has_joined, deadline });
    }

    /// The servers that have its state, itself among them, and were heard of lately.
    pub(super) fn followed_by(&self) -> usize {
        1 + self.learners.values().filter(|learner| learner.has_joined && learner.deadline >= self.ticks).count()
    }
}

impl Ensemble {
    pub(super) fn leading(&mut self, index: usize) -> Option<&mut Leading> {
        if let Role::Leading(leading) = &mut self.servers[index].role { Some(leading) } else { None }
    }

    /// Turns a request into a transaction, and proposes it.
    pub(super) fn lead(
        &mut self,
        index: usize,
        origin: Option<Origin>,
        session: i64,
        owner: usize,
        call: &Call,
        ids: &[Id],
    ) {
        let (time, now) = (self.wall_clock(), self.now);
        let server = &mut self.servers[index];
        let Role::Leading(leading) = &mut server.role else { return };
        if !leading.serves {
            return;
        }
        leading.zxid += 1;
        let mut prep = Prep {
            tree: &server.tree,
            tracker: &mut leading.tracker,
            outstanding: &mut leading.outstanding,
            extended_types: self.config.extended_types,
            zxid: leading.zxid,
            now,
            session,
            owner,
            ids,
        };
        let txn = prep.prepare(call);
        let entry = Arc::new(Entry { zxid: leading.zxid, time, session, txn, origin });
        self.propose(index, entry);
    }

    fn propose(&mut self, index: usize, entry: Arc<Entry>) {
        let now = self.now;
        self.servers[index].log.push_back(Arc::clone(&entry));
        let Some(leading) = self.leading(index) else { return };
        leading.proposals.push_back(Proposal { entry: Arc::clone(&entry), acks: BTreeSet::new(), proposed: now });
        let learners: Vec<usize> = leading.learners.keys().copied().collect();
        for learner in learners {
            self.tell(index, learner, Message::Proposal(Arc::clone(&entry)));
        }
        self.write_log(index, entry.zxid);
    }

    /// Writes the log to the disk, which takes its time.
    pub(super) fn write_log(&mut self, index: usize, zxid: i64) {
        let span = self.config.disk.clone();
        self.after(&span, index, What::Logged { zxid });
    }

    pub(super) fn logged(&mut self, index: usize, zxid: i64) {
        let server = &mut self.servers[index];
        if zxid <= server.durable {
            return; // a later write was quicker, and had this one in it
        }
        server.durable = zxid;
        match &server.role {
            Role::Leading(_) => self.acknowledged(index, index, zxid),
            Role::Following(following) => {
                let leader = following.leader;
                self.tell(index, leader, Message::Ack(zxid));
            }
            Role::Looking => {}
        }
    }

    /// Everything up to this transaction is on this server's disk. Commits what a quorum has, in order.
    pub(super) fn acknowledged(&mut self, index: usize, by: usize, zxid: i64) {
        let quorum = self.config.quorum();
        let Some(leading) = self.leading(index) else { return };
        for proposal in leading.proposals.iter_mut().take_while(|proposal| proposal.entry.zxid <= zxid) {
            proposal.acks.insert(by);
        }
        let mut committed = Vec::new();
        while let Some(proposal) = leading.proposals.pop_front_if(|first| first.acks.len() >= quorum) {
            committed.push(proposal.entry);
        }
        for entry in committed {
            self.committed(index, entry);
        }
    }

    fn committed(&mut self, index: usize, entry: Arc<Entry>) {
        let zxid = entry.zxid;
        self.commit(index, Commit::Entry(entry));
        let Some(leading) = self.leading(index) else { return };
        let learners: Vec<usize> = leading.learners.keys().copied().collect();
        let syncs: Vec<_> = leading.syncs.extract_if(.., |(behind, ..)| *behind <= zxid).collect();
        for learner in learners {
            self.tell(index, learner, Message::Commit(zxid));
        }
        for (_, learner, origin) in syncs {
            self.tell(index, learner, Message::Synced(origin));
        }
    }

    /// A follower's sync is answered once what was proposed before it is committed.
    fn sync(&mut self, index: usize, from: usize, origin: Origin) {
        let Some(leading) = self.leading(index) else { return };
        match leading.proposals.back() {
            Some(last) => leading.syncs.push((last.entry.zxid, from, origin)),
            None => self.tell(index, from, Message::Synced(origin)),
        }
    }

    pub(super) fn message_of_learner(&mut self, index: usize, from: usize, message: Message) {
        let (now, sync_limit) = (self.now, u64::from(self.config.sync_limit));
        if matches!(message, Message::Join) {
            return self.adopt(index, from);
        }
        let Some(leading) = self.leading(index) else { return };
        let Some(learner) = leading.learners.get_mut(&from) else { return };
        learner.deadline = leading.ticks + sync_limit;
        match message {
            Message::Joined => self.joined(index, from),
            Message::Request { origin, call: Call::Sync { .. }, .. } => self.sync(index, from, origin),
            Message::Request { origin, session, call, ids } => {
                self.lead(index, Some(origin), session, from, &call, &ids);
            }
            Message::Revalidate { conn, session, timeout_ms } => {
                let is_valid = leading.tracker.touch(session, timeout_ms, now);
                if is_valid {
                    leading.tracker.set_owner(session, from);
                }
                self.tell(index, from, Message::Revalidated { conn, is_valid });
            }
            Message::Ack(zxid) => self.acknowledged(index, from, zxid),
            Message::Touched(sessions) => {
                for (session, timeout_ms) in sessions {
                    leading.tracker.touch(session, timeout_ms, now);
                }
            }
            Message::Gone => drop(leading.learners.remove(&from)),
            _ => {}
        }
    }

    /// Twice a tick: pings to all followers; at every other one a look whether enough of them are left.
    pub(super) fn leader_tick(&mut self, index: usize) {
        let (now, quorum) = (self.now, self.config.quorum());
        let grace = self.config.tick * self.config.sync_limit;
        let Some(leading) = self.leading(index) else { return };
        if !leading.is_half_tick {
            leading.ticks += 1;
            if leading.followed_by() < quorum {
                return self.look(index);
            }
        }
        leading.is_half_tick = !leading.is_half_tick;
        let gone = |(index, learner): (&usize, &Learner)| {
            let unanswered = leading.proposals.iter().find(|proposal| !proposal.acks.contains(index));
            let is_slow = unanswered.is_some_and(|proposal| proposal.proposed + grace < now);
            (is_slow || learner.deadline < leading.ticks).then_some(*index)
        };
        let gone: Vec<usize> = leading.learners.iter().filter_map(gone).collect();
        for learner in gone {
            self.leading(index).map(|leading| leading.learners.remove(&learner));
            self.tell(index, learner, Message::Gone);
        }
        let learners: Vec<usize> =
            self.leading(index).map_or_else(Vec::new, |leading| leading.learners.keys().copied().collect());
        for learner in learners {
            self.tell(index, learner, Message::Ping);
        }
        self.at(now + self.config.tick / 2, index, What::LeaderTick);
    }

    pub(super) fn expiry_tick(&mut self, index: usize) {
        let (now, span) = (self.now, self.config.expiry.clone());
        let Some(leading) = self.leading(index) else { return };
        if leading.tracker.poll(now) {
            return self.after(&span, index, What::ExpireOne);
        }
        let next = leading.tracker.next_tick().max(now);
        self.at(next, index, What::ExpiryTick);
    }

    pub(super) fn expire_one(&mut self, index: usize) {
        let span = self.config.expiry.clone();
        let Some(session) = self.leading(index).and_then(|leading| leading.tracker.expire_one()) else {
            return self.expiry_tick(index);
        };
        self.journal.note(self.now, Happened::Expired(session));
        self.lead(index, None, session, index, &Call::CloseSession, &[]);
        if self.leading(index).is_some_and(|leading| leading.tracker.is_expiring()) {
            return self.after(&span, index, What::ExpireOne);
        }
        self.expiry_tick(index);
    }

    /// Asks for the removal of containers that were used and are empty, and of TTL znodes whose time is over.
    pub(super) fn remove_containers(&mut self, index: usize) {
        let time = self.wall_clock();
        let tree = &self.servers[index].tree;
        let paths: Vec<String> = tree.transient.iter().filter(|path| is_left(tree, path, time)).cloned().collect();
        for path in paths {
            self.lead(index, None, 0, index, &Call::DeleteContainer { path }, &[]);
        }
        self.at(self.now + self.config.container_interval, index, What::Containers);
    }
}

fn is_left(tree: &Tree, path: &str, time: i64) -> bool {
    let Some(node) = tree.node(path).filter(|node| node.children.is_empty()) else { return false };
    match node.kind {
        Kind::Container => node.created > 0,
        Kind::Ttl(ttl) => time - node.mtime > ttl,
        _ => false,
    }
}
