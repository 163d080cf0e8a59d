//! Leaders of this crate and of Curator in one election, and every change of leader: who was next leads, and nobody else.

use std::time::{Duration, Instant};

use curator_locks::{
    LockQueue,
    testing::{FaultProxy, TestingServer},
};

use crate::{
    arena::Arena,
    history::Side,
    peer::{Peer, Place},
    support::{PATIENCE, SESSION, eventually, history::shared_clock, quick_server},
};

const PATH: &str = "/leaders/one";
const OF_EACH: usize = 3;
const CHANGES: usize = 100;
/// So many changes are a fault's doing: one of so many.
const FAULT_EVERY: usize = 5;

/// Of ours: a pause is to outlast it, and a machine that stands still for 8 s is not to end a term, which it does after
/// little more than a third of it.
const SHORT_SESSION: Duration = Duration::from_secs(30);

struct Candidate {
    peer: Peer,
    id: String,
    proxy: FaultProxy,
}

struct Election {
    kind: &'static str,
    arena: Arena,
    server: TestingServer,
    candidates: Vec<Candidate>,
    leader: usize,
    /// When the last term ended: nobody has led since.
    ended: u64,
    started: usize,
    faults: Vec<&'static str>,
}

impl Election {
    fn begin(kind: &'static str) -> Election {
        let server = quick_server().start().unwrap();
        let arena = Arena::new(&server, SESSION);
        let (candidates, faults) = (Vec::new(), Vec::new());
        let mut election = Election { kind, arena, server, candidates, leader: 0, ended: 0, started: 0, faults };
        for number in 0..2 * OF_EACH {
            election.add(if number % 2 == 0 { Side::Rust } else { Side::Java });
        }
        election.expect(0);
        election
    }

    /// Another one comes, behind all others.
    fn add(&mut self, side: Side) {
        let proxy = FaultProxy::start(self.server.connect_string()).unwrap();
        let session = if side == Side::Rust { SHORT_SESSION } else { SESSION };
        let place = Place { servers: proxy.connect_string(), session, ..self.arena.place.clone() };
        let id = format!("{side:?}-{}", self.started);
        self.started += 1;
        let mut peer = Peer::leader(side, &place, &id);
        peer.await_ready();
        peer.tell(&format!("{} {PATH}", self.kind));
        self.candidates.push(Candidate { peer, id, proxy });
        self.await_all();
    }

    fn queue(&self) -> Vec<String> {
        let queue = LockQueue::inspect(&self.arena.client, PATH).unwrap();
        queue.entries.into_iter().map(|one| String::from_utf8(one.data.unwrap()).unwrap()).collect()
    }

    fn await_all(&self) {
        eventually("all stand in the queue", || {
            let mut queue = self.queue();
            queue.sort();
            queue.dedup();
            queue.len() == self.candidates.len()
        });
    }

    /// Whoever stands behind the leader.
    fn next(&self) -> usize {
        let queue = self.queue();
        assert_eq!(queue[0], self.candidates[self.leader].id, "somebody else stands first: {queue:?}");
        self.candidates.iter().position(|one| one.id == queue[1]).unwrap()
    }

    /// This one leads now, and nobody else has anything to say.
    fn expect(&mut self, leader: usize) {
        let began: u64 = self.candidates[leader].peer.hear("leads").parse().unwrap();
        assert!(self.ended < began, "{} leads {} ns too early", self.candidates[leader].id, self.ended - began);
        self.leader = leader;
        for one in &self.candidates {
            assert_eq!(one.peer.heard(), None, "{}", one.id);
        }
    }

    /// The leader says that it leads no more: when it was told so, and when it last asked.
    fn await_end(&self) -> (u64, u64) {
        let said = self.candidates[self.leader].peer.hear("ends");
        let (told, asked) = said.split_once(' ').unwrap_or((&said, &said));
        (told.parse().unwrap(), asked.parse().unwrap())
    }

    fn resign(&mut self) {
        let next = self.next();
        self.candidates[self.leader].peer.tell("resign");
        self.ended = self.await_end().0;
        self.expect(next);
        self.await_all();
    }

    /// Something happens to the leader, and the next one leads.
    fn strike(&mut self, number: usize) {
        let next = self.next();
        let leader = &mut self.candidates[self.leader];
        match (leader.peer.side, number % 3) {
            (Side::Rust, 0) => {
                self.faults.push("ours paused beyond its session");
                leader.peer.pause();
                let before = self.leader;
                self.ended = 0;
                self.expect_beside(next);
                let paused = &self.candidates[before].peer;
                paused.resume();
                let said = paused.hear("ends");
                let asked: u64 = said.split_once(' ').unwrap().1.parse().unwrap();
                assert!(asked < self.ended, "it asked and led {} ns beside the next", asked - self.ended);
            }
            (Side::Rust, 1) => {
                self.faults.push("ours deleted by somebody");
                let node = LockQueue::inspect(&self.arena.client, PATH).unwrap().entries.remove(0).path;
                self.arena.client.delete().for_path(&node).unwrap();
                // An administrator's delete lets the next one in before anybody can be told.
                self.await_end();
                self.ended = 0;
                self.expect(next);
            }
            (Side::Rust, _) => {
                self.faults.push("ours cut off beyond its session");
                leader.peer.tell("session");
                leader.peer.hear_session("session");
                let cut_at = shared_clock();
                leader.proxy.refuse();
                leader.proxy.cut();
                self.ended = self.await_end().0;
                // The server may have heard of it a third of a session before, and keeps its session for a whole one.
                let took = Duration::from_nanos(self.ended.saturating_sub(cut_at));
                assert!(took < SHORT_SESSION * 2 / 3, "it led for {took:?} without a connection");
                self.candidates[self.leader].peer.expire(&self.server);
                self.expect_beside(next);
                let healed = self.candidates.iter().filter(|one| one.proxy.open_connections() == 0);
                healed.for_each(|one| one.proxy.pass().unwrap());
            }
            (_, _) => {
                self.faults.push("theirs killed");
                self.ended = leader.peer.kill();
                leader.peer.expire(&self.server);
                let dead = self.leader;
                self.expect_beside(next);
                self.candidates.remove(dead);
                self.leader -= usize::from(self.leader > dead);
                self.add(Side::Java);
            }
        }
        self.await_all();
    }

    /// The next one leads while the one before is in no state to say anything.
    fn expect_beside(&mut self, leader: usize) {
        let began: u64 = self.candidates[leader].peer.hear("leads").parse().unwrap();
        assert!(self.ended < began, "{} leads {} ns too early", self.candidates[leader].id, self.ended - began);
        self.leader = leader;
        self.ended = began;
    }

    fn participants(&self, of: usize) -> String {
        self.candidates[of].peer.ask("participants", "participants")
    }
}

/// Each change is one leader's end and the next one's beginning, whatever brings it about.
fn change_leaders(kind: &'static str) {
    let begin = Instant::now();
    let mut election = Election::begin(kind);
    let seen = election.participants(0);
    assert_eq!(seen, election.participants(1), "both languages see the same");
    assert!(seen.starts_with("Rust-0* Java-1 Rust-2 "), "{seen}");
    let mut crossings = 0;
    for change in 1..=CHANGES {
        let before = election.candidates[election.leader].peer.side;
        if change % FAULT_EVERY == 0 {
            election.strike(change / FAULT_EVERY);
        } else {
            election.resign();
        }
        crossings += usize::from(election.candidates[election.leader].peer.side != before);
    }
    let mut faults = election.faults.clone();
    faults.sort_unstable();
    println!("{kind}: {CHANGES} changes, {crossings} from one language to the other, in {:.1?}", begin.elapsed());
    for chunk in faults.chunk_by(|one, other| one == other) {
        println!("{kind}: {} of them because {}", chunk.len(), chunk[0]);
    }
    assert!(crossings >= CHANGES / 2, "{crossings}");
    for one in election.candidates {
        one.peer.tell("quit");
        // Whoever leaves ends a term, or has begun one because another has left.
        while one.peer.line() != "bye" {}
    }
    eventually("the queue is empty", || election.arena.children(PATH).is_empty());
    assert!(begin.elapsed() < PATIENCE * 20);
}

#[test]
fn selectors_shared_with_curator_change_leaders_one_at_a_time() {
    change_leaders("selector");
}

#[test]
fn latches_shared_with_curator_change_leaders_one_at_a_time() {
    change_leaders("latch");
}
