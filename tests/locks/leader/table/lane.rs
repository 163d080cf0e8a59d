//! Three processes in one election, and what is done to them.

use std::{thread, time::Duration};

use curator_locks::testing::Direction;

use super::{
    SESSION,
    servers::{Network, Servers},
    tally::{Belief, Record, Tally},
};
use crate::support::{child::ChildProcess, eventually, history::shared_clock};

const CANDIDATES: usize = 3;

struct Party {
    child: ChildProcess,
    network: Network,
    record: Record,
    /// Since when it has been told that it leads.
    leads_since: Option<u64>,
    /// And since when whoever does not listen works.
    works_since: Option<u64>,
    is_finished: bool,
}

impl Party {
    fn start(kind: &str, servers: &Servers, path: &str) -> Party {
        let network = servers.network();
        let child = ChildProcess::start("candidate", &[kind, &network.connect_string(), path]);
        Party { child, network, record: Record::default(), leads_since: None, works_since: None, is_finished: false }
    }

    /// Takes down what it has said so far.
    fn listen(&mut self) {
        while let Some(line) = self.child.heard() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| words[index].parse().unwrap();
            match words[0] {
                "ready" => {}
                "asked" => {
                    let token = words[3].parse().unwrap();
                    self.record.asked.push(Belief { from: number(1), to: number(2), token });
                }
                "leads" => (self.leads_since, self.works_since) = (Some(number(1)), Some(number(1))),
                "ends" => self.told_until(number(1)),
                "done" => {
                    let from = self.works_since.take().unwrap();
                    self.record.worked.push(Belief { from, to: number(1), token: 0 });
                }
                "late" => self.record.pauses.push((number(1), number(2))),
                "finished" => self.is_finished = true,
                _ => panic!("{line}"),
            }
        }
    }

    fn told_until(&mut self, to: u64) {
        if let Some(from) = self.leads_since.take() {
            self.record.told.push(Belief { from, to, token: 0 });
        }
    }
}

fn listen(parties: &mut [Party]) -> Option<usize> {
    parties.iter_mut().for_each(Party::listen);
    parties.iter().position(|party| party.leads_since.is_some())
}

/// Waits for somebody to lead.
fn leader_of(parties: &mut [Party]) -> usize {
    let mut leader = 0;
    eventually("somebody leads", || {
        let found = listen(parties);
        leader = found.unwrap_or(leader);
        found.is_some()
    });
    leader
}

pub fn run(kind: &'static str, servers: &Servers, lane: usize, is_another: &dyn Fn() -> bool) -> Tally {
    let path = format!("/{kind}/{lane}");
    let mut parties: Vec<Party> = (0..CANDIDATES).map(|_| Party::start(kind, servers, &path)).collect();
    let mut tally = Tally::new(kind);
    while is_another() {
        let leader = leader_of(&mut parties);
        thread::sleep(between(0, 400));
        let is_leader = fastrand::u8(..4) != 0;
        // Around a change of leaders, now and then.
        if fastrand::u8(..3) == 0 {
            parties[leader].child.tell("resign");
            thread::sleep(between(0, 20));
        }
        let victim = if is_leader { leader } else { (leader + 1 + fastrand::usize(..CANDIDATES - 1)) % CANDIDATES };
        let (fault, length) = strike(&mut parties[victim], servers);
        *tally.by_fault.entry(fault).or_default() += 1;
        tally.long_pauses += usize::from(fault == "pause" && is_leader && length > SESSION);
    }
    leader_of(&mut parties);
    parties.iter_mut().for_each(|party| party.child.tell("finish"));
    eventually("all have said what they believed", || {
        listen(&mut parties);
        parties.iter().all(|party| party.is_finished)
    });
    let end = shared_clock();
    parties.iter_mut().for_each(|party| party.told_until(end));
    let records: Vec<Record> = parties.into_iter().map(|party| party.record).collect();
    tally.count(&records);
    tally
}

/// Does something to one of them, and undoes it.
fn strike(party: &mut Party, servers: &Servers) -> (&'static str, Duration) {
    let percent = SESSION / 100;
    let length = if fastrand::bool() { percent * fastrand::u32(110..170) } else { percent * fastrand::u32(20..100) };
    if fastrand::u8(..6) == 0 && servers.lose_the_leader(length) {
        return ("ensemble's leader", length);
    }
    match fastrand::u8(..4) {
        0 => {
            party.network.cut();
            ("cut", Duration::ZERO)
        }
        1 => {
            party.network.refuse();
            party.network.cut();
            thread::sleep(length);
            party.network.pass();
            (if length > SESSION { "expiry" } else { "outage" }, length)
        }
        2 => {
            let ways = [Direction::Both, Direction::ToServer, Direction::ToClient];
            party.network.black_hole(ways[fastrand::usize(..ways.len())]);
            thread::sleep(length);
            party.network.pass();
            ("black hole", length)
        }
        _ => {
            let from = shared_clock();
            party.child.pause();
            party.child.await_stop();
            thread::sleep(length);
            party.child.resume();
            party.record.pauses.push((from, shared_clock()));
            ("pause", length)
        }
    }
}

fn between(from: u64, to: u64) -> Duration {
    Duration::from_millis(fastrand::u64(from..to))
}
