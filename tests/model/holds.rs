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
        let of = |lock: Option<usize>| lock.and_then(|writer| self.threads[t].hold_of(writer));
        let writer = of(lock.downgrades).map(|writer| writer.last_token);
        let base = of(lock.upgrades).and_then(|base| Some((base.lock, base.nodes.last()?.czxid)));
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
        let (token, since) = (writer.or(contender.token).unwrap_or((czxid, 0)), client.clock);
        let (is_lost, is_returned) = (false, false);
        let (last_token, rests_on) = (token, base);
        let hold = Hold {
            lock: number,
            nodes,
            session,
            token,
            last_token,
            rests_on,
            seen_over,
            is_lost,
            is_returned,
            since,
        };
        thread.holds.push(hold);
        // The head of the other queue is for whoever waits next.
        let place = thread.holds.iter().position(|hold| Some(hold.lock) == lock.bar);
        if let Some(place) = place.map(|place| thread.holds.remove(place)).filter(|place| !place.is_lost) {
            unwatch_hold(client, t, &place);
            let leftovers = place.nodes.into_iter().map(Leftover::Node).collect();
            clean_up(client, place.session, &rules.locks[place.lock], leftovers);
        }
    }

    /// Whether an event of the own znode's end waits in the mailbox.
    pub fn was_deleted(&self, t: usize) -> bool {
        self.threads[t].mailbox.iter().any(|(watch, event)| {
            let is_end = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. } | WatchEvent::Ended);
            matches!(watch, WatchId::Own(_)) && is_end
        })
    }

    pub fn release(&mut self, rules: &Rules, t: usize, place: usize, notes: &mut Notes) {
        let is_over = self.is_over(t, &self.threads[t].holds[place]);
        let mut hold = self.threads[t].holds.remove(place);
        notes.add(|| format!("{}: gives back {}", letter_of(t), hold.names()));
        let lock = &rules.locks[hold.lock];
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        unwatch_hold(client, t, &hold);
        // An upgrade goes with what it rests on, and before it.
        let is_upgrade = |other: &mut Hold| other.rests_on.is_some_and(|(base, _)| base == hold.lock);
        let upgrades: Vec<Hold> = thread.holds.extract_if(.., is_upgrade).collect();
        upgrades.iter().for_each(|upgrade| unwatch_hold(client, t, upgrade));
        let of_upgrades = upgrades.into_iter().flat_map(|upgrade| upgrade.nodes);
        if is_over {
            // A lost upgrade may still stand.
            let nodes = of_upgrades.chain(hold.nodes.drain(..).filter(|_| hold.rests_on.is_some()));
            clean_up(client, hold.session, lock, nodes.map(Leftover::Node).collect());
            return;
        }
        hold.nodes = of_upgrades.chain(hold.nodes).collect();
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
