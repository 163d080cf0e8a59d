//! Every recipe of Curator's, with processes of both sides on one path, and kazoo's and ZooKeeper's own locks.

use std::{env, time::Instant};

use curator_locks::testing::{Fault, FaultProxy, RequestMatch};

use crate::{
    arena::Arena,
    history::{Hold, Report, Side, check_exclusive, check_leases, exclusive},
    peer::{Peer, Place},
    support,
};

/// Of each process; three of them make 1,000 and a few on each side.
pub(crate) const ROUNDS: usize = 334;

/// The same while our side's locks are cached.
pub(crate) const CACHED_ROUNDS: usize = 60;

/// Our side as it comes, and with cached locks: what its kinds begin with, and the rounds.
const COLUMNS: [(&str, usize); 2] = [("", ROUNDS), ("cached-", CACHED_ROUNDS)];

/// Languages that took turns did so at least so often, or there was no contention to speak of.
const CROSSINGS: usize = 200;

/// The same in the fewer rounds of cached locks, where a turn is two holds.
const CACHED_CROSSINGS: usize = 10;

const LOCK: &str = "/deep/down/lock";

/// All at the same time; none of them may fail.
pub(crate) fn hammer(
    peers: &[Peer],
    rounds: usize,
    kind_of: impl Fn(&Peer) -> String,
    path_of: impl Fn(usize) -> String,
) -> Vec<Hold> {
    for (index, peer) in peers.iter().enumerate() {
        peer.tell(&format!("hammer {} {} {rounds}", kind_of(peer), path_of(index)));
    }
    let mut holds = Vec::new();
    for peer in peers {
        assert_eq!(peer.finish(&mut holds), 0, "{:?}: acquires failed", peer.side);
    }
    holds
}

#[track_caller]
fn check_report(cell: &str, begin: Instant, report: &Report) {
    println!("{cell}: {report:?} in {:.1} s", begin.elapsed().as_secs_f64());
    assert_eq!(report.overlaps_by_curator_604, 0, "no session was lost");
    let least = if cell.starts_with("cached-") { CACHED_CROSSINGS } else { CROSSINGS };
    assert!(report.crossings >= least, "{report:?}");
}

/// The kind, with the prefix for our side.
pub(crate) fn of_ours(prefix: &str, kind: &str) -> impl Fn(&Peer) -> String {
    let kinds = [format!("{prefix}{kind}"), kind.to_owned()];
    move |peer| kinds[usize::from(peer.side != Side::Rust)].clone()
}

/// Those who come one after the other are served one after the other, whatever they are written in. The first ones of
/// them get what there is at once.
pub(crate) fn check_line(
    arena: &Arena,
    peers: &[Peer],
    kind_of: impl Fn(&Peer) -> String,
    path: &str,
    queue: &str,
    at_once: usize,
) {
    let mut holds: Vec<Hold> = peers[..at_once].iter().map(|peer| peer.acquire(&kind_of(peer), path)).collect();
    let standing = arena.children(queue).len();
    for (index, peer) in peers[at_once..].iter().enumerate() {
        peer.tell(&format!("acquire {} {path} -1", kind_of(peer)));
        arena.await_children(queue, standing + index + 1);
    }
    for index in 0..peers.len() {
        for waiting in peers.iter().skip(index + at_once) {
            assert_eq!(waiting.heard(), None, "granted out of turn");
        }
        peers[index].release(&mut holds[index]);
        if let Some(next) = peers.get(index + at_once) {
            holds.push(next.await_acquired());
        }
    }
    check_leases(&holds, at_once);
}

#[test]
fn mutex_shared_with_curator() {
    let arena = Arena::shared();
    arena.keep(LOCK);
    let peers = arena.peers(3);
    for (prefix, rounds) in COLUMNS {
        let (begin, kind_of) = (Instant::now(), of_ours(prefix, "mutex"));
        check_line(&arena, &peers, &kind_of, LOCK, LOCK, 1);
        let holds = hammer(&peers, rounds, &kind_of, |_| LOCK.to_owned());
        assert_eq!(holds.len(), 6 * rounds);
        check_report(&format!("{prefix}InterProcessMutex"), begin, &check_exclusive(&holds));
        arena.await_children(LOCK, 0);
    }
    arena.check_nothing_is_left(&[LOCK], peers);
}

#[test]
fn semaphore_mutex_shared_with_curator() {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let [locks, leases] = ["/deep/down/lock/locks", "/deep/down/lock/leases"];
    arena.keep(locks);
    let (peers, kind_of) = (arena.peers(3), of_ours("", "semaphore-mutex"));
    check_line(&arena, &peers, &kind_of, LOCK, locks, 1);
    let holds = hammer(&peers, ROUNDS, &kind_of, |_| LOCK.to_owned());
    assert_eq!(holds.len(), 6 * ROUNDS);
    check_report("InterProcessSemaphoreMutex", begin, &check_exclusive(&holds));
    arena.check_nothing_is_left(&[locks, leases], peers);
}

/// Java takes one lease at a time; our side takes two now and then.
#[test]
fn semaphore_shared_with_curator() {
    const LIMIT: usize = 3;
    let (arena, begin) = (Arena::shared(), Instant::now());
    let [locks, leases] = ["/deep/down/lock/locks", "/deep/down/lock/leases"];
    arena.keep(locks);
    let (peers, kind_of) = (arena.peers(3), of_ours("", "semaphore:3"));
    check_line(&arena, &peers, &kind_of, LOCK, locks, LIMIT);
    let holds = hammer(&peers, ROUNDS, &kind_of, |_| LOCK.to_owned());
    let of_java = holds.iter().filter(|hold| hold.side == Side::Java).count();
    assert!(of_java == 3 * ROUNDS && holds.len() > 6 * ROUNDS, "{of_java} of {}", holds.len());
    let report = check_leases(&holds, LIMIT);
    check_report("InterProcessSemaphoreV2", begin, &report);
    assert_eq!(report.peak, LIMIT, "all leases were in use at some time");
    arena.check_nothing_is_left(&[locks, leases], peers);
}

/// Half of our writers go on as readers.
#[test]
fn read_write_lock_shared_with_curator() {
    let arena = Arena::shared();
    arena.keep(LOCK);
    let peers = arena.peers(3);
    for (prefix, rounds) in COLUMNS {
        let begin = Instant::now();
        check_line(&arena, &peers, of_ours(prefix, "write"), LOCK, LOCK, 1);
        let holds = hammer(&peers, rounds, of_ours(prefix, "rw"), |_| LOCK.to_owned());
        assert!(holds.len() > 6 * rounds, "nobody has gone on as a reader");
        let report = check_exclusive(&holds);
        check_report(&format!("{prefix}InterProcessReadWriteLock"), begin, &report);
        assert!(report.peak > 1, "no two readers at a time");
        arena.await_children(LOCK, 0);
    }
    arena.check_nothing_is_left(&[LOCK], peers);
}

/// Overlapping sets: each peer needs two paths of three.
#[test]
fn multi_lock_shared_with_curator() {
    const PATHS: [&str; 3] = ["/deep/a", "/deep/b", "/deep/c"];
    let arena = Arena::shared();
    PATHS.iter().for_each(|path| arena.keep(path));
    let peers = arena.peers(3);
    let pairs = ["/deep/a,/deep/b", "/deep/b,/deep/c", "/deep/a,/deep/c"];
    for (prefix, rounds) in COLUMNS {
        let begin = Instant::now();
        let holds = hammer(&peers, rounds, of_ours(prefix, "multi"), |index| pairs[index / 2].to_owned());
        assert_eq!(holds.len(), 2 * 6 * rounds);
        check_report(&format!("{prefix}InterProcessMultiLock"), begin, &check_exclusive(&holds));
        PATHS.iter().for_each(|path| arena.await_children(path, 0));
    }
    arena.check_nothing_is_left(&PATHS, peers);
}

#[test]
fn mutex_shared_with_curator_and_with_kazoo_under_compatible_names() {
    let arena = Arena::shared();
    let mut peers = arena.peers(3);
    peers.extend(arena.start((0..3).map(|_| Peer::kazoo(&arena.place))));
    check_with_kazoo(&arena, peers, "compatible");
}

#[test]
fn mutex_shared_with_kazoo_under_its_own_names_and_the_extra_pattern() {
    let arena = Arena::shared();
    let peers: Vec<Peer> = (0..3).flat_map(|_| [Peer::rust(&arena.place, &[]), Peer::kazoo(&arena.place)]).collect();
    let peers = arena.start(peers);
    check_with_kazoo(&arena, peers, "own");
}

fn check_with_kazoo(arena: &Arena, peers: Vec<Peer>, kind: &str) {
    arena.keep(LOCK);
    for (prefix, rounds) in COLUMNS {
        let (begin, other) = (Instant::now(), of_ours(prefix, "mutex"));
        let kind_of = |peer: &Peer| if peer.side == Side::Kazoo { kind.to_owned() } else { other(peer) };
        let holds = hammer(&peers, rounds, kind_of, |_| LOCK.to_owned());
        assert_eq!(holds.len(), peers.len() * rounds);
        check_report(&format!("{prefix}InterProcessMutex, kazoo's {kind}"), begin, &check_exclusive(&holds));
        arena.await_children(LOCK, 0);
    }
    arena.check_nothing_is_left(&[LOCK], peers);
}

/// Why the documentation says never to do this.
#[test]
fn curator_and_kazoo_by_default_hold_one_lock_together() {
    let arena = Arena::shared();
    arena.keep(LOCK);
    let peers = arena.start([Peer::curator(&arena.place, &[]), Peer::kazoo(&arena.place)]);
    let mut holds = vec![peers[0].acquire("mutex", LOCK), peers[1].acquire("default", LOCK)];
    assert_eq!(arena.children(LOCK).len(), 2);
    for (peer, hold) in peers.iter().zip(&mut holds) {
        peer.release(hold);
    }
    assert!(exclusive(&holds).is_err(), "the checker finds it");
    arena.check_nothing_is_left(&[LOCK], peers);
}

/// The directory is persistent there, so it stays.
#[test]
fn write_lock_shared_with_zookeepers_own() {
    let (arena, begin) = (Arena::shared(), Instant::now());
    arena.keep("/elections");
    let peers: Vec<Peer> =
        (0..3).flat_map(|_| [Peer::rust(&arena.place, &[]), Peer::write_lock(&arena.place)]).collect();
    let peers = arena.start(peers);
    let path = "/elections/leader";
    let holds = hammer(&peers, ROUNDS, of_ours("", "zk-write-lock"), |_| path.to_owned());
    assert_eq!(holds.len(), 6 * ROUNDS);
    check_report("WriteLock", begin, &check_exclusive(&holds));
    arena.await_children(path, 0);
    arena.client.delete().for_path(path).unwrap();
    arena.check_nothing_is_left(&[], peers);
}

/// ZooKeeper's own recipe finds its znode again by a name without the directory, does not know it for the owner's, and
/// would stand at the head of the queue for ever. Its processes have to leave there and begin anew, as the peer does.
#[test]
fn a_reply_that_zookeepers_own_write_lock_lost_does_not_stop_the_queue() {
    let arena = Arena::shared();
    arena.keep("/elections");
    let proxy = FaultProxy::start(("127.0.0.1", support::server().port())).unwrap();
    let behind_proxy = Place { servers: proxy.connect_string(), ..arena.place.clone() };
    let peers = arena.start([Peer::write_lock(&behind_proxy), Peer::rust(&arena.place, &[])]);
    let (java, rust) = (&peers[0], &peers[1]);
    let path = "/elections/leader";
    // The recipe makes the directory by a create, too.
    let mut hold = java.acquire("zk-write-lock", path);
    java.release(&mut hold);

    let lost = proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
    java.tell(&format!("hammer zk-write-lock {path} 2"));
    lost.wait_for_hits(1, support::PATIENCE).unwrap();
    rust.tell(&format!("hammer zk-write-lock {path} 2"));
    let mut holds = vec![hold];
    for peer in [java, rust] {
        assert_eq!(peer.finish(&mut holds), 0, "{:?}: acquires failed", peer.side);
    }
    assert_eq!(exclusive(&holds).unwrap().holds, 5);
    arena.await_children(path, 0);
    arena.client.delete().for_path(path).unwrap();
    arena.check_nothing_is_left(&[], peers);
}

/// With so many accounts that two transfers seldom want the same, and often enough.
const ACCOUNTS: u8 = 20;

/// How many transfers a thread makes at a time; each process has four threads.
const TRANSFERS: usize = 25;

/// A transfer that waits for one of its locks holds none behind it, in Java as here: so all of them end, and no money is lost.
/// `TRANSFERS` says how many there are to be.
#[test]
fn transfers_between_accounts_end_and_keep_the_sum() {
    let wanted = env::var("TRANSFERS").map_or(16 * TRANSFERS, |wanted| wanted.parse().unwrap());
    let arena = Arena::shared();
    let ours = || Peer::rust(&arena.place, &[]);
    let mut peers = arena.start([ours(), ours(), ours(), Peer::curator(&arena.place, &[])]);
    let accounts: Vec<char> = (b'a'..b'a' + ACCOUNTS).map(char::from).collect();
    for account in &accounts {
        arena.keep(&format!("/accounts/lock{account}"));
        arena.client.create().for_path_and_data(&format!("/accounts/money{account}"), "1000").unwrap();
    }
    let transfer = |peers: &[Peer], how: &str| {
        peers.iter().for_each(|peer| peer.tell(&format!("transfer {how} /accounts {ACCOUNTS} {TRANSFERS} 4")));
        peers.iter().map(|peer| peer.hear("moved").parse::<u64>().unwrap()).max().unwrap()
    };
    for _ in 0..wanted.div_ceil(16 * TRANSFERS) {
        transfer(&peers, "multi");
    }
    let java = std::mem::replace(&mut peers[3], arena.start([ours()]).remove(0));
    java.quit();
    let rounds = 2 + wanted / 10_000;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (how, times) in ["multi", "singly"].iter().zip(&mut times) {
            times.push(transfer(&peers, how));
        }
    }
    let [multi, singly] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    println!(
        "{wanted} transfers beside Java; multi locks / one lock after the other: {:.2}",
        multi as f64 / singly as f64
    );
    let mut sum = 0;
    for account in &accounts {
        let money = format!("/accounts/money{account}");
        sum += String::from_utf8(arena.client.get_data().for_path(&money).unwrap()).unwrap().parse::<i64>().unwrap();
        arena.client.delete().for_path(&money).unwrap();
    }
    assert_eq!(sum, 1000 * i64::from(ACCOUNTS));
    let directories: Vec<String> = accounts.iter().map(|account| format!("/accounts/lock{account}")).collect();
    arena.check_nothing_is_left(&directories.iter().map(String::as_str).collect::<Vec<_>>(), peers);
}
