//! The same contention while a Java holder is killed, a holder of ours is paused beyond its session, or the server
//! restarts. Each kind of lock, each fault.

use std::time::{Duration, Instant};

use crate::{
    arena::Arena,
    common::{self, quick_server, shared_clock},
    history::{Hold, Report, Side, check_exclusive, check_leases},
    peer::Peer,
};

/// Short: it is how long a lock stays with the dead.
const SESSION: Duration = Duration::from_millis(2_000);
/// Long enough for a server to come back.
const LONG_SESSION: Duration = Duration::from_secs(12);
const ROUNDS: usize = 60;

/// A lock in a fault.
struct Case {
    kind: &'static str,
    /// What contends, where it is not the same kind.
    crowd: &'static str,
    path: &'static str,
    /// Where those stand who wait.
    queue: &'static str,
    /// Everywhere a znode can be left behind.
    directories: &'static [&'static str],
    limit: usize,
}

const MUTEX: Case =
    Case { kind: "mutex", crowd: "mutex", path: "/locks/l", queue: "/locks/l", directories: &["/locks/l"], limit: 1 };
const SEMAPHORE_MUTEX: Case = Case {
    kind: "semaphore-mutex",
    crowd: "semaphore-mutex",
    path: "/locks/l",
    queue: "/locks/l/locks",
    directories: &["/locks/l/locks", "/locks/l/leases"],
    limit: 1,
};
const SEMAPHORE: Case = Case { kind: "semaphore:2", crowd: "semaphore:2", limit: 2, ..SEMAPHORE_MUTEX };
const READ_WRITE: Case = Case { kind: "write", crowd: "rw", ..MUTEX };
const MULTI: Case = Case {
    kind: "multi",
    crowd: "multi",
    path: "/locks/a,/locks/b",
    queue: "/locks/a",
    directories: &["/locks/a", "/locks/b"],
    limit: 1,
};

impl Case {
    fn keep(&self, arena: &Arena) {
        if self.queue.ends_with("/locks") {
            arena.keep(self.queue);
        } else {
            self.directories.iter().for_each(|directory| arena.keep(directory));
        }
    }

    fn begin_to_wait(&self, arena: &Arena, peer: &Peer, order: &str) {
        let standing = arena.children(self.queue).len();
        peer.tell(order);
        arena.await_children(self.queue, standing + 1);
    }

    fn acquire(&self) -> String {
        format!("acquire {} {} -1", self.kind, self.path)
    }

    fn hammer(&self) -> String {
        format!("hammer {} {} {ROUNDS}", self.crowd, self.path)
    }

    #[track_caller]
    fn check(&self, fault: &str, holds: &[Hold], begin: Instant) {
        let report: Report = if self.limit == 1 { check_exclusive(holds) } else { check_leases(holds, self.limit) };
        println!("{fault}, {}: {report:?} in {:.1} s", self.crowd, begin.elapsed().as_secs_f64());
    }
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
    java_holder_killed:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI;
    rust_holder_paused_beyond_its_session:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI;
    server_restarted_in_mid_contention:
        mutex MUTEX
        semaphore_mutex SEMAPHORE_MUTEX
        semaphore SEMAPHORE
        read_write_lock READ_WRITE
        multi_lock MULTI;
}

fn of(side: Side, peers: &[Peer]) -> Vec<&Peer> {
    peers.iter().filter(|peer| peer.side == side).collect()
}

/// One process of Java's dies while it holds, and our waiter is the next; another one dies in the middle of things.
fn java_holder_killed(case: &Case) {
    let (arena, begin) = (Arena::new(common::server(), SESSION), Instant::now());
    case.keep(&arena);
    let peers = arena.peers(3);
    let (rust, java) = (of(Side::Rust, &peers), of(Side::Java, &peers));
    let (holders, crowd) = java.split_at(case.limit);
    let mut holds: Vec<Hold> = holders.iter().map(|peer| peer.acquire(case.kind, case.path)).collect();
    case.begin_to_wait(&arena, rust[0], &case.acquire());
    for peer in rust[1..].iter().chain(crowd) {
        peer.tell(&case.hammer());
    }
    let killed_at = holders[0].kill();
    holds[0].to = killed_at;
    let mut next = rust[0].await_acquired();
    assert!(next.from > killed_at, "granted beside a holder that lived");
    rust[0].release(&mut next);
    holds.push(next);
    rust[0].tell(&case.hammer());
    let mut others: Vec<&Peer> = rust.clone();
    for (peer, hold) in holders.iter().zip(&mut holds).skip(1) {
        peer.release(hold);
        peer.tell(&case.hammer());
        others.push(peer);
    }
    let (victim, crowd) = crowd.split_first().unwrap();
    holds.extend((0..5).map(|_| victim.await_hold()));
    victim.kill();
    holds.extend(victim.rest());
    others.extend(crowd);
    for peer in others {
        assert_eq!(peer.finish(&mut holds), 0);
    }
    case.check("Java holder killed", &holds, begin);
    let dead = [holders[0].pid(), victim.pid()];
    let alive = peers.into_iter().filter(|peer| !dead.contains(&peer.pid())).collect();
    arena.check_nothing_is_left(case.directories, alive);
}

/// Ours goes on after its session is gone and Java holds the lock: it is told, and everybody goes on.
fn rust_holder_paused_beyond_its_session(case: &Case) {
    let (arena, begin) = (Arena::new(common::server(), SESSION), Instant::now());
    case.keep(&arena);
    let peers = arena.peers(3);
    let (rust, java) = (of(Side::Rust, &peers), of(Side::Java, &peers));
    let (holders, crowd) = rust.split_at(case.limit);
    let mut holds: Vec<Hold> = holders.iter().map(|peer| peer.acquire(case.kind, case.path)).collect();
    case.begin_to_wait(&arena, java[0], &case.acquire());
    holders[0].pause();
    for peer in java[1..].iter().chain(crowd) {
        peer.tell(&case.hammer());
    }
    let mut next = java[0].await_acquired();
    let resumed_at = shared_clock();
    holders[0].resume();
    let told_at = await_loss(holders[0]);
    assert!(told_at > resumed_at);
    holders[0].tell("release");
    let (to, until) = await_lost(holders[0]);
    holds[0] = Hold { to, valid_until: until, was_told_lost: true, ..holds[0].clone() };
    assert!(until < next.from, "it believed in its lock when Java had it");
    java[0].release(&mut next);
    holds.push(next);
    for (peer, hold) in holders.iter().zip(&mut holds).skip(1) {
        peer.release(hold);
    }
    for peer in holders.iter().chain(&java[..1]) {
        peer.tell(&case.hammer());
    }
    for peer in &peers {
        assert_eq!(peer.finish(&mut holds), 0);
    }
    case.check("Rust holder paused", &holds, begin);
    arena.check_nothing_is_left(case.directories, peers);
}

/// When the holder heard that its lock is lost. It may be in doubt before.
fn await_loss(peer: &Peer) -> u64 {
    loop {
        let line = peer.hear("state");
        let (at, state) = line.split_once(' ').unwrap();
        if state.starts_with("Lost") {
            return at.parse().unwrap();
        }
        assert_eq!(state, "InDoubt");
    }
}

/// When it tried to release the lock, and up to when it was valid.
fn await_lost(peer: &Peer) -> (u64, u64) {
    loop {
        let line = peer.line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["lost", to, until] => return (to.parse().unwrap(), until.parse().unwrap()),
            // Of the other locks of a multi lock.
            ["state", ..] => {}
            _ => panic!("{line}"),
        }
    }
}

/// Twice: killed, and stopped.
fn server_restarted_in_mid_contention(case: &Case) {
    let (server, begin) = (quick_server().start().unwrap(), Instant::now());
    let arena = Arena::new(&server, LONG_SESSION);
    case.keep(&arena);
    let peers = arena.peers(3);
    for peer in &peers {
        peer.tell(&case.hammer());
    }
    let mut holds: Vec<Hold> = (0..10).map(|_| peers[0].await_hold()).collect();
    server.kill().unwrap();
    server.restart().unwrap();
    let back_first = shared_clock();
    holds.extend((0..10).map(|_| peers[0].await_hold()));
    server.stop().unwrap();
    server.restart().unwrap();
    let back_again = shared_clock();
    let mut failures = 0;
    for peer in &peers {
        let failed = peer.finish(&mut holds);
        assert!(failed == 0 || peer.side == Side::Java, "our side failed {failed} times");
        failures += failed;
    }
    for side in [Side::Rust, Side::Java] {
        let is_between = |hold: &Hold| hold.side == side && (back_first..back_again).contains(&hold.from);
        assert!(holds.iter().any(is_between), "{side:?} got nothing between the restarts");
        let is_after = |hold: &Hold| hold.side == side && hold.from > back_again;
        assert!(holds.iter().any(is_after), "{side:?} got nothing after the restarts");
    }
    case.check(&format!("server restarted twice ({failures} acquires of Java's failed)"), &holds, begin);
    arena.check_nothing_is_left(case.directories, peers);
}

/// Curator's client gives a session up by itself, and is then granted the lock on the znode that it left there. The
/// server deletes that znode, and our side gets the lock: two holders, and it is provable whose fault that is.
#[test]
fn an_overlap_by_curator_604_is_proved_by_its_znodes_owner_and_reported_apart() {
    let (arena, begin) = (Arena::new(common::server(), Duration::from_secs(4)), Instant::now());
    arena.keep(MUTEX.path);
    let peers = arena.peers(2);
    let [first, java, second] = [&peers[0], &peers[1], &peers[2]];
    let mut holds = vec![first.acquire("mutex", MUTEX.path)];
    MUTEX.begin_to_wait(&arena, java, &MUTEX.acquire());
    MUTEX.begin_to_wait(&arena, second, &MUTEX.acquire());
    java.ask("expire", "expired");
    common::wait_until("Curator has a new session", || {
        java.ask("session", "session").parse::<i64>().is_ok_and(|session| session != java.session && session != 0)
    });
    first.release(&mut holds[0]);
    let mut by_mistake = java.await_acquired();
    assert_eq!(by_mistake.owner, java.session, "its znode is not of its former session");
    assert_ne!(by_mistake.session, java.session);
    let mut next = second.await_acquired();
    second.release(&mut next);
    java.release(&mut by_mistake);
    holds.extend([by_mistake, next]);
    let report = check_exclusive(&holds);
    println!("CURATOR-604: {report:?} in {:.1} s", begin.elapsed().as_secs_f64());
    assert_eq!(report.overlaps_by_curator_604, 1);
    arena.check_nothing_is_left(MUTEX.directories, peers);
}
