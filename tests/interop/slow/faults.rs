//! The same contention while a holder of the other side is killed, a holder of ours is paused beyond its session, or the
//! server restarts. Each kind of lock, each fault.

use std::{
    iter, thread,
    time::{Duration, Instant},
};

use crate::{
    arena::Arena,
    history::{Hold, Report, Side, check_exclusive, check_leases},
    peer::{Peer, Place},
    support::{self, history::shared_clock, quick_server},
};

/// Of who is to lose it while it is paused, and not before, on a machine that may stand still for 8 s.
const SHORT_SESSION: Duration = Duration::from_secs(15);
/// Of everybody else: long enough for a server to come back, on a machine that has much else to do.
const LONG_SESSION: Duration = Duration::from_secs(40);
/// How much contention there is around a fault.
const ROUNDS: usize = 60;
/// Rounds without an end, in a number that all languages have.
const UNTIL_TOLD: usize = i32::MAX as usize;

/// A lock in a fault.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// What our side holds at the fault, and what it contends for.
    ours: [&'static str; 2],
    /// The same where its locks are cached.
    cached: Option<[&'static str; 2]>,
    /// How many processes there are of each side.
    of_each: usize,
    theirs: [&'static str; 2],
    start_theirs: fn(&Place) -> Peer,
    path: &'static str,
    /// Where those stand who wait.
    queue: &'static str,
    /// Everywhere a znode can be left behind.
    directories: &'static [&'static str],
    /// What is kept while nobody is there.
    kept: &'static [&'static str],
    /// The directory is persistent.
    stays: bool,
    limit: usize,
}

const MUTEX: Case = Case {
    name: "InterProcessMutex",
    ours: ["mutex"; 2],
    cached: Some(["cached-mutex"; 2]),
    of_each: 3,
    theirs: ["mutex"; 2],
    start_theirs: |place| Peer::curator(place, &[]),
    path: "/locks/l",
    queue: "/locks/l",
    directories: &["/locks/l"],
    kept: &["/locks/l"],
    stays: false,
    limit: 1,
};
const SEMAPHORE_MUTEX: Case = Case {
    name: "InterProcessSemaphoreMutex",
    ours: ["semaphore-mutex"; 2],
    cached: None,
    theirs: ["semaphore-mutex"; 2],
    queue: "/locks/l/locks",
    directories: &["/locks/l/locks", "/locks/l/leases"],
    kept: &["/locks/l/locks"],
    ..MUTEX
};
const SEMAPHORE: Case = Case {
    name: "InterProcessSemaphoreV2",
    ours: ["semaphore:2"; 2],
    theirs: ["semaphore:2"; 2],
    limit: 2,
    ..SEMAPHORE_MUTEX
};
const READ_WRITE: Case = Case {
    name: "InterProcessReadWriteLock",
    ours: ["write", "rw"],
    cached: Some(["cached-write", "cached-rw"]),
    theirs: ["write", "rw"],
    ..MUTEX
};
const MULTI: Case = Case {
    name: "InterProcessMultiLock",
    ours: ["multi"; 2],
    cached: Some(["cached-multi"; 2]),
    theirs: ["multi"; 2],
    path: "/locks/a,/locks/b",
    queue: "/locks/a",
    directories: &["/locks/a", "/locks/b"],
    kept: &["/locks/a", "/locks/b"],
    ..MUTEX
};
const KAZOO: Case = Case {
    name: "InterProcessMutex and kazoo with compatible names",
    theirs: ["compatible"; 2],
    start_theirs: Peer::kazoo,
    ..MUTEX
};
const KAZOO_OWN_NAMES: Case =
    Case { name: "InterProcessMutex and kazoo with the extra pattern", theirs: ["own"; 2], ..KAZOO };
const WRITE_LOCK: Case = Case {
    name: "WriteLock",
    ours: ["zk-write-lock"; 2],
    cached: None,
    theirs: ["zk-write-lock"; 2],
    start_theirs: Peer::write_lock,
    kept: &["/locks"],
    stays: true,
    ..MUTEX
};

impl Case {
    /// Our side as it comes, and with cached locks. A process then has two threads, so fewer will do.
    fn columns(&self) -> impl Iterator<Item = Case> + use<> {
        let cached = |ours| Case { ours, of_each: 2, ..*self };
        iter::once(*self).chain(self.cached.map(cached))
    }

    /// Processes of each side, in turn, ours first. Those with these numbers are to lose their sessions.
    fn start(&self, arena: &Arena, short: &[usize]) -> Vec<Peer> {
        self.kept.iter().for_each(|directory| arena.keep(directory));
        let start = |number: usize| {
            let session = if short.contains(&number) { SHORT_SESSION } else { LONG_SESSION };
            let place = Place { session, ..arena.place.clone() };
            if number.is_multiple_of(2) { Peer::rust(&place, &[]) } else { (self.start_theirs)(&place) }
        };
        arena.start((0..2 * self.of_each).map(start))
    }

    fn kinds(&self, peer: &Peer) -> [&'static str; 2] {
        if peer.side == Side::Rust { self.ours } else { self.theirs }
    }

    fn acquire(&self, peer: &Peer) -> Hold {
        peer.acquire(self.kinds(peer)[0], self.path)
    }

    fn begin_to_wait(&self, arena: &Arena, peer: &Peer) {
        let standing = arena.children(self.queue).len();
        peer.tell(&format!("acquire {} {} -1", self.kinds(peer)[0], self.path));
        arena.await_children(self.queue, standing + 1);
    }

    fn hammer(&self, peer: &Peer, rounds: usize) {
        peer.tell(&format!("hammer {} {} {rounds}", self.kinds(peer)[1], self.path));
    }

    #[track_caller]
    fn check(&self, fault: &str, begin: Instant, holds: &[Hold], arena: &Arena, peers: Vec<Peer>) {
        let report: Report = if self.limit == 1 { check_exclusive(holds) } else { check_leases(holds, self.limit) };
        println!("{}, {}, {fault}: {report:?} in {:.1} s", self.name, self.ours[1], begin.elapsed().as_secs_f64());
        if self.stays {
            arena.await_children(self.path, 0);
            arena.client.delete().for_path(self.path).unwrap();
        }
        arena.check_nothing_is_left(self.directories, peers);
    }
}

/// All columns at a time: most of it is waiting.
fn in_each_column(case: &Case, fault: fn(Case)) {
    thread::scope(|scope| {
        let columns: Vec<_> = case.columns().map(|column| scope.spawn(move || fault(column))).collect();
        columns.into_iter().for_each(|column| column.join().unwrap());
    });
}

/// One test for each kind of lock.
macro_rules! cells {
    ($($fault:ident: $($name:ident $case:ident)*;)*) => {
        $(mod $fault {
            $(#[test]
            fn $name() {
                super::$fault(&super::$case);
            })*
        })*
    };
}

cells! {
    their_holder_killed:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI
        kazoo KAZOO
        kazoo_own_names KAZOO_OWN_NAMES
        write_lock WRITE_LOCK;
    our_holder_paused_beyond_its_session:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI
        kazoo KAZOO
        kazoo_own_names KAZOO_OWN_NAMES
        write_lock WRITE_LOCK;
    server_restarted_in_mid_contention:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI
        kazoo KAZOO
        kazoo_own_names KAZOO_OWN_NAMES
        write_lock WRITE_LOCK;
}

fn sides(peers: &[Peer]) -> (Vec<&Peer>, Vec<&Peer>) {
    peers.iter().partition(|peer| peer.side == Side::Rust)
}

fn their_holder_killed(case: &Case) {
    in_each_column(case, kill_their_holder);
}

fn our_holder_paused_beyond_its_session(case: &Case) {
    in_each_column(case, pause_our_holder);
}

/// One of their processes dies while it holds, and our waiter is the next; another one dies in the middle of things.
fn kill_their_holder(case: Case) {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let peers = case.start(&arena, &[]);
    let (ours, theirs) = sides(&peers);
    let (holders, crowd) = theirs.split_at(case.limit);
    let mut holds: Vec<Hold> = holders.iter().map(|peer| case.acquire(peer)).collect();
    case.begin_to_wait(&arena, ours[0]);
    ours[1..].iter().chain(crowd).for_each(|peer| case.hammer(peer, ROUNDS));
    let killed_at = holders[0].kill();
    holders[0].expire(support::server());
    holds[0].to = killed_at;
    let mut next = ours[0].await_acquired();
    assert!(next.from > killed_at, "granted beside a holder that lived");
    ours[0].release(&mut next);
    holds.push(next);
    for (peer, hold) in holders.iter().zip(&mut holds).skip(1) {
        peer.release(hold);
    }
    ours[..1].iter().chain(&holders[1..]).for_each(|peer| case.hammer(peer, ROUNDS));
    let (victim, crowd) = crowd.split_first().unwrap();
    holds.extend((0..5).map(|_| victim.await_hold()));
    victim.kill();
    victim.expire(support::server());
    holds.extend(victim.rest());
    for peer in ours.iter().chain(&holders[1..]).chain(crowd) {
        assert_eq!(peer.finish(&mut holds), 0, "acquires of {:?} failed", peer.side);
    }
    let dead = [holders[0].pid(), victim.pid()];
    let alive = peers.into_iter().filter(|peer| !dead.contains(&peer.pid())).collect();
    case.check("their holder killed", begin, &holds, &arena, alive);
}

/// Ours goes on after its session is gone and one of theirs holds the lock: it is told, and everybody goes on.
fn pause_our_holder(case: Case) {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let peers = case.start(&arena, &[0]);
    let (ours, theirs) = sides(&peers);
    let (holders, crowd) = ours.split_at(case.limit);
    let mut holds: Vec<Hold> = holders.iter().map(|peer| case.acquire(peer)).collect();
    case.begin_to_wait(&arena, theirs[0]);
    holders[0].pause();
    let paused_at = shared_clock();
    theirs[1..].iter().chain(crowd).for_each(|peer| case.hammer(peer, ROUNDS));
    let mut next = theirs[0].await_acquired();
    let resumed_at = shared_clock();
    holders[0].resume();
    assert!(await_loss(holders[0]) > resumed_at);
    holders[0].tell("release");
    let (to, until) = await_end(holders[0]);
    // ZooKeeper's own lock knows no time; but while it was paused it could not act on it.
    let valid_until = if case.stays { paused_at } else { until };
    assert!(valid_until < next.from, "it believed in its lock when another one had it");
    holds[0] = Hold { to, valid_until, was_told_lost: true, ..holds[0].clone() };
    theirs[0].release(&mut next);
    holds.push(next);
    for (peer, hold) in holders.iter().zip(&mut holds).skip(1) {
        peer.release(hold);
    }
    holders.iter().chain(&theirs[..1]).for_each(|peer| case.hammer(peer, ROUNDS));
    for (number, peer) in peers.iter().enumerate() {
        // The first one's session is short, and may end once more on a busy machine.
        assert!(peer.finish(&mut holds) == 0 || number == 0, "{number} of {:?} failed", peer.side);
    }
    case.check("our holder paused", begin, &holds, &arena, peers);
}

/// When the holder heard that its lock is lost. It may be in doubt before.
fn await_loss(peer: &Peer) -> u64 {
    loop {
        let line = peer.hear("state");
        let (at, state) = line.split_once(' ').unwrap();
        if state.starts_with("Lost") {
            return at.parse().unwrap();
        }
        assert!(["InDoubt", "Held"].contains(&state), "{state}");
    }
}

/// When it tried to release the lock, and up to when it was valid.
fn await_end(peer: &Peer) -> (u64, u64) {
    loop {
        let line = peer.line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["lost", to, until] => return (to.parse().unwrap(), until.parse().unwrap()),
            // ZooKeeper's own lock queues again when it is lost, and that place was given back.
            ["released", to] => return (to.parse().unwrap(), 0),
            // Of the other locks of a multi lock.
            ["state", ..] => {}
            _ => panic!("{line}"),
        }
    }
}

/// Twice: killed, and stopped. Clients in Java may lose their sessions by it: a server that starts may leave a
/// connection open that it never answers (ZOOKEEPER-5051), and they wait on it for as long as a session lasts.
fn server_restarted_in_mid_contention(case: &Case) {
    let (server, begin) = (quick_server().start().unwrap(), Instant::now());
    let start = |case: Case| {
        let arena = Arena::new(&server, LONG_SESSION);
        let peers = case.start(&arena, &[]);
        peers.iter().for_each(|peer| case.hammer(peer, UNTIL_TOLD));
        (case, arena, peers, Vec::new())
    };
    let mut columns: Vec<_> = case.columns().map(start).collect();
    let mut await_progress = || columns.iter_mut().for_each(|(.., peers, holds)| await_progress(peers, holds));
    await_progress();
    server.kill().unwrap();
    server.restart().unwrap();
    await_progress();
    server.stop().unwrap();
    server.restart().unwrap();
    await_progress();
    for (case, arena, peers, mut holds) in columns {
        peers.iter().for_each(|peer| peer.tell("stop"));
        let mut failures = 0;
        for peer in &peers {
            let failed = peer.finish(&mut holds);
            assert!(failed == 0 || peer.side != Side::Rust, "our side failed {failed} times");
            failures += failed;
        }
        let fault = format!("server restarted twice, and {failures} of their acquires failed");
        case.check(&fault, begin, &holds, &arena, peers);
    }
}

/// Everybody has been granted the lock some more times.
fn await_progress(peers: &[Peer], holds: &mut Vec<Hold>) {
    let since = shared_clock();
    for peer in peers {
        let mut grants = 0;
        while grants < ROUNDS / 6 {
            let hold = peer.await_hold();
            grants += usize::from(hold.from > since);
            holds.push(hold);
        }
    }
}

/// Curator's client gives a session up by itself, and is then granted the lock on the znode that it left there. The
/// server deletes that znode, and our side gets the lock: two holders, and it is provable whose fault that is.
#[test]
fn an_overlap_by_curator_604_is_proved_by_its_znodes_owner_and_reported_apart() {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let peers = MUTEX.start(&arena, &[]);
    let [first, java, second] = [&peers[0], &peers[1], &peers[2]];
    let mut holds = vec![MUTEX.acquire(first)];
    MUTEX.begin_to_wait(&arena, java);
    MUTEX.begin_to_wait(&arena, second);
    // Its session ends only once it has the answer to its watch: what is read behind it is answered behind it. Ended as soon as its
    // znode was there, it was once not granted the lock within 90 s.
    let in_front = &holds[0].node;
    support::eventually("Curator watches", || support::watchers(&arena.client, in_front).contains(&java.session));
    java.ask(&format!("read {in_front}"), "data");
    java.ask("expire", "expired");
    support::eventually("Curator has a new session", || {
        java.ask("session", "session").parse::<i64>().is_ok_and(|session| session != java.session && session != 0)
    });
    first.release(&mut holds[0]);
    let mut by_mistake = java.await_acquired();
    assert_eq!(by_mistake.owner, java.session, "its znode is not of its former session");
    assert_ne!(by_mistake.session, java.session);
    java.expire(support::server());
    let mut next = second.await_acquired();
    second.release(&mut next);
    java.release(&mut by_mistake);
    holds.extend([by_mistake, next]);
    assert_eq!(check_exclusive(&holds).overlaps_by_curator_604, 1);
    MUTEX.check("CURATOR-604", begin, &holds, &arena, peers);
}
