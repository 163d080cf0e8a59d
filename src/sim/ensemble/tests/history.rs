//! Random clients and random faults: what was acknowledged stays, servers agree, and a seed is a history.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::*;
use crate::sim::ensemble::{
    Throttle,
    faults::{Isolated, Tail},
    looks::Happened,
};

/// One run: what clients were promised, and what the servers did.
struct History {
    run: Run,
    random: fastrand::Rng,
    clients: Vec<Client>,
    /// Paths of creates that were answered.
    created: BTreeSet<String>,
    faults: u32,
    hash: DefaultHasher,
}

impl History {
    fn of(servers: usize, seed: u64) -> History {
        let run = Run::new(EnsembleConfig { servers, ..EnsembleConfig::default() }, seed);
        let mut history = History {
            run,
            random: fastrand::Rng::with_seed(seed),
            clients: Vec::new(),
            created: BTreeSet::new(),
            faults: 0,
            hash: DefaultHasher::new(),
        };
        history.run.ensemble.keep_journal();
        for step in 0..150 {
            history.step(step);
        }
        history.heal();
        history
    }

    fn step(&mut self, step: u32) {
        match self.random.u32(0..10) {
            0 => self.fault(),
            1 | 2 => {
                let time = Duration::from_millis(self.random.u64(0..1500));
                self.run.after(time);
            }
            3 => self.connect(),
            _ => self.write(step),
        }
    }

    fn connect(&mut self) {
        let server = self.random.usize(0..self.run.ensemble.servers());
        let former = self.random.choice(&self.clients).cloned().filter(|_| self.random.bool());
        let client = self.run.connect(server, Duration::from_secs(8), former.as_ref());
        self.clients.extend(client);
    }

    fn write(&mut self, step: u32) {
        let Some(client) = self.random.choice(&self.clients).cloned() else { return };
        let path = format!("/{step}");
        let answer = self.run.create(&client, &path);
        format!("{answer:?} {:?}", self.run.now).hash(&mut self.hash);
        if is_done(&answer) {
            self.created.insert(path);
        }
    }

    fn fault(&mut self) {
        self.faults += 1;
        let server = self.random.usize(0..self.run.ensemble.servers());
        let tail = if self.random.bool() { Tail::Kept } else { Tail::Lost };
        let how = [Isolated::In, Isolated::Out, Isolated::Both][self.random.usize(0..3)];
        let lag = Duration::from_millis(self.random.u64(0..800));
        let which = self.random.u32(0..10);
        self.run.act(|ensemble, now, out| match which {
            0 => ensemble.crash(server, tail, now, out),
            1 | 2 => ensemble.restart(server, now),
            3 => ensemble.pause(server, now),
            4 => ensemble.resume(server, now, out),
            5 => ensemble.isolate(server, how, now),
            6 | 7 => ensemble.mend(server, now),
            8 => ensemble.transfer_leadership(server, now, out),
            _ => ensemble.set_lag(server, lag),
        });
    }

    fn heal(&mut self) {
        for server in 0..self.run.ensemble.servers() {
            self.run.act(|ensemble, now, out| {
                ensemble.restart(server, now);
                ensemble.resume(server, now, out);
                ensemble.mend(server, now);
                ensemble.set_lag(server, Duration::ZERO);
                ensemble.set_throttle(server, Throttle::Off);
            });
        }
        self.run.until("all serve", |run| {
            let leads = run.ensemble.leader().is_some();
            leads && (0..run.ensemble.servers()).all(|server| run.ensemble.serves(server))
        });
        self.run.after(Duration::from_secs(20));
    }

    fn check(&mut self) {
        self.check_what_is_left();
        self.check_numbers();
    }

    /// All servers have the same znodes, with everything that was acknowledged, and no session that nobody keeps.
    fn check_what_is_left(&self) {
        let ensemble = &self.run.ensemble;
        let paths = |server: usize| ensemble.tree(server).nodes().map(|(path, node)| format!("{path} {node:?}"));
        for server in 0..ensemble.servers() {
            let tree = ensemble.tree(server);
            assert!(paths(server).eq(paths(0)), "servers 0 and {server} differ");
            let lost = self.created.iter().find(|path| tree.node(path).is_none());
            assert_eq!(lost, None, "server {server} has lost what was acknowledged");
            assert!(tree.sessions.is_empty(), "{:?}", tree.sessions);
        }
    }

    /// No number has two transactions, no epoch two leaders, and a session that has expired does nothing after its end.
    fn check_numbers(&mut self) {
        let (mut entries, mut leaders, mut expired) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for (_, happened) in self.run.ensemble.take_journal() {
            match happened {
                Happened::Committed(entry) => {
                    let text = format!("{entry:?}");
                    assert_eq!(*entries.entry(entry.zxid).or_insert_with(|| text.clone()), text);
                }
                Happened::Leads { server, epoch } => {
                    assert_eq!(*leaders.entry(epoch).or_insert(server), server);
                }
                Happened::Expired(session) => drop(expired.insert(session)),
            }
        }
        let left = self.run.ensemble.tree(0).sessions.keys().find(|session| expired.contains(session));
        assert_eq!(left, None, "it has expired");
    }
}

#[test]
fn what_was_acknowledged_survives_all_faults_and_the_servers_agree() {
    let (mut created, mut faults, mut elections) = (0, 0, 0);
    for (servers, seeds) in [(1, 0..40), (3, 0..200), (5, 0..60)] {
        for seed in seeds {
            let mut history = History::of(servers, seed);
            history.check();
            created += history.created.len();
            faults += history.faults;
            elections += history.run.ensemble.counters().elections;
        }
    }
    println!("{created} acknowledged creates, {faults} faults, {elections} elections");
    assert!(created > 5_000 && faults > 2_000 && elections > 500);
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 0..20 {
        let hashes = [(), ()].map(|()| History::of(3, seed).hash.finish());
        assert_eq!(hashes[0], hashes[1]);
    }
}
