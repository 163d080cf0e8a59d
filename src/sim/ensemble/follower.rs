//! The servers that follow: they log what the leader proposes, carry out what it commits, and collect who was heard of.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Ensemble, What,
    links::Message,
    server::{Commit, Role},
    tree::Tree,
    txn::Entry,
};

#[derive(Debug)]
pub(super) struct Following {
    pub(super) leader: usize,
    pub(super) serves: bool,
    /// It has taken the leader's state. What the leader sent before that was for the connection before this one.
    pub(super) has_state: bool,
    heard: Duration,
    /// The sessions heard of since the leader's last ping, with their timeouts.
    pub(super) touched: BTreeMap<i64, i32>,
}

impl Following {
    pub(super) fn new(leader: usize, now: Duration) -> Following {
        Following { leader, serves: false, has_state: false, heard: now, touched: BTreeMap::new() }
    }
}

impl Ensemble {
    pub(super) fn message(&mut self, index: usize, from: usize, message: Message) {
        match &mut self.servers[index].role {
            Role::Looking => {}
            Role::Leading(_) => self.message_of_learner(index, from, message),
            Role::Following(following) if following.leader == from => {
                following.heard = self.now;
                self.message_of_leader(index, from, message);
            }
            Role::Following(_) => {}
        }
    }

    fn message_of_leader(&mut self, index: usize, leader: usize, message: Message) {
        let Role::Following(following) = &mut self.servers[index].role else { return };
        if !following.has_state && !matches!(message, Message::State { .. } | Message::Gone) {
            return;
        }
        following.has_state = true;
        match message {
            Message::State { epoch, tree } => self.take_state(index, leader, epoch, *tree),
            Message::UpToDate => {
                following.serves = true;
                self.opens(index);
            }
            Message::Proposal(entry) => self.log(index, entry),
            Message::Commit(zxid) => self.committed_by_leader(index, zxid),
            Message::Synced(origin) => self.commit(index, Commit::Sync(origin)),
            Message::Revalidated { conn, is_valid } => self.start_session(conn, is_valid),
            Message::Ping => {
                let touched = Ensemble::take(&mut following.touched).into_iter().collect();
                self.tell(index, leader, Message::Touched(touched));
            }
            Message::Gone => self.look(index),
            _ => {}
        }
    }

    fn take_state(&mut self, index: usize, leader: usize, epoch: i64, tree: Tree) {
        let server = &mut self.servers[index];
        if epoch < server.accepted_epoch {
            return self.look(index);
        }
        (server.accepted_epoch, server.current_epoch) = (epoch, epoch);
        server.durable = tree.zxid;
        server.tree = tree;
        server.log.clear();
        self.tell(index, leader, Message::Joined);
    }

    fn log(&mut self, index: usize, entry: Arc<Entry>) {
        let zxid = entry.zxid;
        self.servers[index].log.push_back(entry);
        self.write_log(index, zxid);
    }

    fn committed_by_leader(&mut self, index: usize, zxid: i64) {
        let entry = self.servers[index].log.iter().find(|entry| entry.zxid == zxid).cloned();
        if let Some(entry) = entry {
            self.commit(index, Commit::Entry(entry));
        } else {
            let has = self.servers[index].tree.zxid;
            assert!(
                zxid <= has,
                "server {index} hears of the commit of {zxid:#x} without its proposal, behind {has:#x}"
            );
        }
    }

    /// Gives its leader up if it has not heard of it for the limit, as a read from a socket times out.
    pub(super) fn leader_timeout(&mut self, index: usize) {
        let limit = self.config.tick * self.config.sync_limit;
        let Role::Following(following) = &self.servers[index].role else { return };
        let due = following.heard + limit;
        if due <= self.now {
            return self.look(index);
        }
        self.at(due, index, What::LeaderTimeout);
    }
}
