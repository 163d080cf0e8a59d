//! What a thread holds: from the registration to the end of the release.

use curator_locks::{
    ErrorCode,
    unversioned::{
        EventType, Request, WatchEvent,
        contender::{Leftover, Node, WatchId},
    },
};

use super::{
    client::{Client, Job, Owner},
    rules::{Lock, Rules},
    server::number_of,
    thread::{Hold, Owed, letter_of},
    world::{Notes, World},
};

impl World {
    pub fn register(&mut self, rules: &Rules, t: usize, number: usize, lock: &Lock) {
        let writer = lock.downgrades.and_then(|writer| self.threads[t].hold_of(writer)).map(|writer| writer.token);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = &thread.contender else { return };
        let nodes = contender.nodes.to_vec();
        let czxid = nodes.last().map_or(0, |node| node.czxid);
        if contender.has_waited && lock.spec.driver.successor_follows_holder() {
            client.granted.extend(nodes.last().map(|node| node.name.clone()));
        }
        for watch in &mut client.watches {
            if matches!(watch.owner, Owner::Contender(of, WatchId::Own(_)) if of == t) {
                watch.owner = Owner::Holder(t, czxid);
            }
        }
        let (session, seen_over) = (thread.session, contender.seen_over);
        let (token, since) = (writer.unwrap_or(czxid), client.clock);
        let is_lost = thread.mailbox.iter().any(|(watch, event)| {
            let is_end = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. });
            is_end && matches!(watch, WatchId::Own(_)) && contender.wants(*watch)
        });
        let is_returned = false;
        thread.holds.push(Hold { lock: number, nodes, session, token, seen_over, is_lost, is_returned, since });
        // The head of the other queue is for whoever waits next.
        let place = thread.holds.iter().position(|hold| Some(hold.lock) == lock.bar);
        if let Some(place) = place.map(|place| thread.holds.remove(place)).filter(|place| !place.is_lost) {
            unwatch_hold(client, t, &place);
            let leftovers = place.nodes.into_iter().map(Leftover::Node).collect();
            clean_up(client, place.session, &rules.locks[place.lock], leftovers);
        }
    }

    pub fn release(&mut self, rules: &Rules, t: usize, place: usize, notes: &mut Notes) {
        let hold = self.threads[t].holds.remove(place);
        notes.add(|| format!("{}: gives back {}", letter_of(t), hold.names()));
        let lock = &rules.locks[hold.lock];
        let is_over = self.is_over(t, &hold);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        unwatch_hold(client, t, &hold);
        if is_over {
            return;
        }
        let path = |node: &Node| format!("{}/{}", lock.spec.directory, node.name);
        let requests = hold.nodes.iter().map(|node| (Request::Delete { path: path(node), version: -1 }, None));
        thread.owed = Owed::Release;
        self.submit(t, requests.collect());
        self.threads[t].holds.push(Hold { is_lost: true, is_returned: false, ..hold });
    }

    /// The deletes of a release are answered.
    pub fn released(&mut self, rules: &Rules, t: usize) {
        let answers = self.take_answers(t);
        let thread = &mut *self.threads[t];
        thread.owed = Owed::Nothing;
        let Some(hold) = thread.holds.pop() else { return };
        let client = &mut *self.clients[thread.client];
        for (node, answer) in hold.nodes.into_iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(failed) if failed.code == Some(ErrorCode::NoNode) => {}
                Err(_) => clean_up(client, hold.session, &rules.locks[hold.lock], vec![Leftover::Node(node)]),
            }
        }
    }
}

/// Gives what may be left to the background, as long as its session lives.
pub fn clean_up(client: &mut Client, session: i64, lock: &Lock, leftovers: Vec<Leftover>) {
    if client.is_ended || client.session != session {
        return;
    }
    let directory = number_of(&lock.spec.directory);
    client.jobs.extend(leftovers.into_iter().map(|leftover| Job { session, directory, leftover }));
}

pub fn unwatch_hold(client: &mut Client, t: usize, hold: &Hold) {
    let czxid = hold.nodes.last().map_or(0, |node| node.czxid);
    client.unwatch(|owner| owner != Owner::Holder(t, czxid));
}
