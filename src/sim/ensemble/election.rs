//! How servers find a leader, and what ends a term.

use std::time::Duration;

use super::{
    Ensemble, What,
    follower::Following,
    leader::Leading,
    links::Message,
    looks::Happened,
    requests::IDLE,
    server::{Commit, Role},
    tracker::Tracker,
};

/// The first transaction of an epoch has the number behind this.
fn first_zxid(epoch: i64) -> i64 {
    epoch << 32
}

impl Ensemble {
    /// The begin of the run: one server leads, the others follow, and all of them serve.
    pub(super) fn begin(&mut self) {
        let (leader, is_half_tick) = (self.random.usize(0..self.servers.len()), self.random.bool());
        if self.servers.len() == 1 {
            return self.lead_alone(leader);
        }
        self.take_office(leader, 1);
        for index in 0..self.servers.len() {
            let server = &mut self.servers[index];
            (server.accepted_epoch, server.current_epoch, server.tree.zxid) = (1, 1, first_zxid(1));
            if index != leader {
                let mut following = Following::new(leader, Duration::ZERO);
                (following.serves, following.has_state) = (true, true);
                server.role = Role::Following(following);
                self.opens(index);
                let sync_limit = self.config.sync_limit;
                self.leading(leader).unwrap().adopt(index, sync_limit, true);
            }
        }
        // The run begins anywhere between two of the leader's ticks.
        let ahead = Duration::ZERO..=self.config.tick / 2;
        self.after(&ahead, leader, What::LeaderTick);
        self.leading(leader).unwrap().is_half_tick = is_half_tick;
        self.serve(leader);
    }

    /// A server without others leads from where its log ends.
    fn lead_alone(&mut self, index: usize) {
        self.replay_log(index);
        self.servers[index].begin_anew();
        let zxid = self.servers[index].tree.zxid;
        let tracker = self.new_tracker(index);
        self.servers[index].role = Role::Leading(Box::new(Leading::new(0, zxid, tracker)));
        self.at(self.now + self.config.tick / 2, index, What::LeaderTick);
        self.serve(index);
    }

    /// Carries out what is logged and not carried out yet.
    fn replay_log(&mut self, index: usize) {
        while let Some(entry) = self.servers[index].log.pop_front() {
            self.replay(index, &entry);
        }
        let server = &mut self.servers[index];
        server.durable = server.tree.zxid;
    }

    fn new_tracker(&self, index: usize) -> Tracker {
        let sessions = self.servers[index].tree.sessions.iter().map(|(session, timeout)| (*session, *timeout));
        Tracker::new(self.config.tick, self.phases[index], sessions, self.now)
    }

    /// The server begins to serve clients.
    pub(super) fn opens(&mut self, index: usize) {
        self.at(self.now + IDLE, index, What::Idle);
        if matches!(self.servers[index].role, Role::Following(_)) {
            self.at(self.now, index, What::LeaderTimeout);
        }
    }

    /// The leader begins to serve: all sessions begin anew.
    fn serve(&mut self, index: usize) {
        let (tracker, now) = (self.new_tracker(index), self.now);
        let next = tracker.next_tick();
        let Some(leading) = self.leading(index) else { return };
        leading.serves = true;
        leading.tracker = tracker;
        let epoch = leading.epoch;
        self.servers[index].current_epoch = epoch;
        self.journal.note(now, Happened::Leads { server: index, epoch });
        self.at(next, index, What::ExpiryTick);
        self.at(now + self.config.container_interval, index, What::Containers);
        self.opens(index);
    }

    /// Gives its role up, and its clients, and looks for a leader.
    pub(super) fn look(&mut self, index: usize) {
        self.leave(index);
        let span = self.config.election.clone();
        self.after(&span, index, What::Vote);
    }

    /// Ends all connections of the server.
    pub(super) fn leave(&mut self, index: usize) {
        let peers: Vec<usize> = match &self.servers[index].role {
            Role::Looking => Vec::new(),
            Role::Leading(leading) => leading.learners.keys().copied().collect(),
            Role::Following(following) => vec![following.leader],
        };
        for peer in peers {
            self.tell(index, peer, Message::Gone);
        }
        self.end_all(index);
        self.servers[index].begin_anew();
    }

    /// A server that looks for a leader follows one, or is part of an election, or looks again later.
    pub(super) fn vote(&mut self, index: usize) {
        if !matches!(self.servers[index].role, Role::Looking) {
            return;
        }
        if self.servers.len() == 1 {
            return self.lead_alone(index);
        }
        if let Some(leader) = self.established(index) {
            return self.join(index, leader);
        }
        if let Some((leader, voters)) = self.winner() {
            self.elected(leader, &voters);
        }
        if matches!(self.servers[index].role, Role::Looking) {
            let span = self.config.election.clone();
            self.after(&span, index, What::Vote);
        }
    }

    /// A leader that a quorum, as far as this server can see, follows.
    fn established(&self, index: usize) -> Option<usize> {
        let sees = |other: usize| other != index && self.is_awake(other) && self.links.reach(index, other);
        let follows = |other: usize, leader: usize| match &self.servers[other].role {
            Role::Leading(_) => other == leader,
            Role::Following(following) => following.leader == leader,
            Role::Looking => false,
        };
        let others = 0..self.servers.len();
        others.clone().find(|&leader| {
            let leads = matches!(self.servers[leader].role, Role::Leading(_));
            let supporters = others.clone().filter(|&other| sees(other) && follows(other, leader)).count();
            leads && sees(leader) && supporters >= self.config.quorum()
        })
    }

    fn is_awake(&self, index: usize) -> bool {
        self.servers[index].is_up && !self.servers[index].is_paused
    }

    /// The server with the longest history among a quorum of those that look for a leader and can talk with it.
    fn winner(&self) -> Option<(usize, Vec<usize>)> {
        let looks = |index: &usize| self.is_awake(*index) && matches!(self.servers[*index].role, Role::Looking);
        let mut candidates: Vec<usize> = (0..self.servers.len()).filter(looks).collect();
        candidates.sort_by_key(|index| self.credentials(*index));
        (0..candidates.len()).rev().find_map(|place| {
            let leader = candidates[place];
            let voters = candidates[..place].iter().copied().filter(|voter| self.links.reach(leader, *voter));
            let voters: Vec<usize> = voters.collect();
            (voters.len() + 1 >= self.config.quorum()).then_some((leader, voters))
        })
    }

    fn credentials(&self, index: usize) -> (i64, i64, bool, usize) {
        let server = &self.servers[index];
        (server.current_epoch, server.last_logged(), self.preferred == Some(index), index)
    }

    fn elected(&mut self, leader: usize, voters: &[usize]) {
        let all = voters.iter().chain([&leader]);
        let epoch = 1 + all.map(|index| self.servers[*index].accepted_epoch).max().unwrap();
        self.preferred = None;
        self.take_office(leader, epoch);
        for voter in voters {
            self.servers[*voter].accepted_epoch = epoch;
            self.follow(*voter, leader);
            self.adopt(leader, *voter);
        }
    }

    /// Becomes a leader that serves nobody yet.
    fn take_office(&mut self, index: usize, epoch: i64) {
        self.replay_log(index);
        self.servers[index].begin_anew();
        let zxid = first_zxid(epoch);
        let tracker = self.new_tracker(index);
        let server = &mut self.servers[index];
        server.accepted_epoch = epoch;
        (server.tree.zxid, server.durable) = (zxid, zxid);
        server.role = Role::Leading(Box::new(Leading::new(epoch, zxid, tracker)));
        self.awaits(index);
    }

    fn follow(&mut self, index: usize, leader: usize) {
        let now = self.now;
        self.servers[index].begin_anew();
        self.servers[index].role = Role::Following(Following::new(leader, now));
        self.awaits(index);
    }

    fn join(&mut self, index: usize, leader: usize) {
        self.follow(index, leader);
        self.tell(index, leader, Message::Join);
    }

    fn awaits(&mut self, index: usize) {
        let limit = self.config.tick * self.config.init_limit;
        self.at(self.now + limit, index, What::Joins);
    }

    /// The time to get to work is over.
    pub(super) fn joins_no_longer(&mut self, index: usize) {
        if !self.servers[index].serves() {
            self.look(index);
        }
    }

    /// Takes a follower on: it gets the leader's znodes, and what is under way.
    pub(super) fn adopt(&mut self, index: usize, learner: usize) {
        let sync_limit = self.config.sync_limit;
        let Some(leading) = self.leading(index) else { return };
        leading.adopt(learner, sync_limit, false);
        let epoch = leading.epoch;
        let server = &self.servers[index];
        let tree = Box::new(server.tree.clone());
        let log: Vec<_> = server.log.iter().cloned().collect();
        let committed: Vec<i64> = server.commits.iter().filter_map(Commit::zxid).collect();
        self.tell(index, learner, Message::State { epoch, tree });
        for entry in log {
            self.tell(index, learner, Message::Proposal(entry));
        }
        for zxid in committed {
            self.tell(index, learner, Message::Commit(zxid));
        }
    }

    /// A follower has the leader's state. With a quorum of them the leader begins to serve.
    pub(super) fn joined(&mut self, index: usize, learner: usize) {
        let quorum = self.config.quorum();
        let Some(leading) = self.leading(index) else { return };
        if let Some(learner) = leading.learners.get_mut(&learner) {
            learner.has_joined = true;
        }
        let welcome: Vec<usize> = if leading.serves {
            vec![learner]
        } else if leading.followed_by() >= quorum {
            leading.learners.iter().filter(|(_, learner)| learner.has_joined).map(|(index, _)| *index).collect()
        } else {
            return;
        };
        if !leading.serves {
            self.at(self.now + self.config.tick / 2, index, What::LeaderTick);
            self.serve(index);
        }
        for learner in welcome {
            self.tell(index, learner, Message::UpToDate);
        }
    }
}
