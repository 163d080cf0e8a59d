//! What is explored.

use curator_locks::{CreateMode, unversioned::contender::Condition};

use super::rules::{ALL_FAULTS, Fault, Lock, Op, Rules};

const ONCE: [Op; 2] = [Op::Acquire(0), Op::Release(0)];

/// Of a writer that goes on as a reader; both locks come first.
pub const DOWNGRADE: [Op; 4] = [Op::Acquire(0), Op::Acquire(1), Op::Release(0), Op::Release(1)];

/// Of one that takes a lease at once, or queues for it; the lock with number 1 is its place in the queue.
pub fn lease(at_once: usize, in_queue: usize) -> [Op; 12] {
    [
        Op::Try(at_once, 3),
        Op::Release(at_once),
        Op::End,
        Op::Acquire(1),
        Op::Try(in_queue, 7),
        Op::Release(in_queue),
        Op::End,
        // Its place was lost: it queues once more.
        Op::Release(1),
        Op::Acquire(1),
        Op::Acquire(in_queue),
        Op::Release(in_queue),
        Op::End,
    ]
}

/// Of one that upgrades and goes on as it was; both locks come first.
pub const UPGRADE: [Op; 4] = [Op::Acquire(0), Op::Acquire(1), Op::Release(1), Op::Release(0)];

/// Of one that upgrades, reads as well, and goes on as a reader: the end of the upgradable lock is that of the upgrade.
pub const UPGRADE_AND_READ: [Op; 5] =
    [Op::Acquire(0), Op::Acquire(1), Op::Acquire(2), Op::Release(0), Op::Release(2)];

pub fn rules(locks: Vec<Lock>, threads: Vec<(usize, Vec<Op>)>) -> Rules {
    let kinds = ALL_FAULTS.to_vec();
    Rules {
        locks,
        threads,
        kinds,
        faults: 0,
        target: None,
        omitted: None,
        is_symmetric: false,
        has_delays: false,
        has_directories: true,
        retries: 3,
    }
}

/// So many threads do the same, each in a client of its own.
fn alike(threads: usize, locks: Vec<Lock>, program: &[Op]) -> Rules {
    let threads = (0..threads).map(|client| (client, program.to_vec())).collect();
    Rules { is_symmetric: true, ..rules(locks, threads) }
}

pub fn mutex(threads: usize) -> Rules {
    alike(threads, vec![Lock::mutex()], &ONCE)
}

/// The first two threads share a client.
pub fn mutex_in_one_process(threads: usize) -> Rules {
    rules(vec![Lock::mutex()], (0..threads).map(|t| (t.saturating_sub(1), ONCE.to_vec())).collect())
}

/// Contenders that list in a second step.
pub fn mutex_that_lists_later(threads: usize) -> Rules {
    alike(threads, vec![Lock::mutex().listing_later()], &ONCE)
}

/// Waiters that watch the directory.
pub fn mutex_that_watches_all(threads: usize) -> Rules {
    alike(threads, vec![Lock::mutex().watching_all()], &ONCE)
}

/// One that only tries, beside others.
pub fn tried(lock: fn() -> Lock, others: usize) -> Rules {
    let mut rules = rules(vec![lock(), lock().trying()], vec![(0, vec![Op::Acquire(1), Op::Release(1)])]);
    rules.threads.extend((1..=others).map(|client| (client, ONCE.to_vec())));
    rules
}

/// Two leases of three at a time.
pub fn many_leases(threads: usize) -> Rules {
    let locks = vec![Lock::lease_at_once(3).many(2), Lock::place(), Lock::lease(3, Some(1)).many(2)];
    alike(threads, locks, &lease(0, 2))
}

/// A writer that downgrades, and so many others of each kind.
pub fn read_write(writers: usize, readers: usize) -> Rules {
    let locks = vec![Lock::write(), Lock::downgrade(0), Lock::read()];
    let mut programs = vec![DOWNGRADE.to_vec()];
    programs.extend((0..writers).map(|_| ONCE.to_vec()));
    programs.extend((0..readers).map(|_| vec![Op::Acquire(2), Op::Release(2)]));
    rules(locks, programs.into_iter().enumerate().collect())
}

/// Mutexes in the directory of a read/write lock.
pub fn beside_read_write(mutexes: usize, readers: usize) -> Rules {
    let locks = vec![Lock::write(), Lock::downgrade(0), Lock::read(), Lock::mutex()];
    let mut programs = vec![DOWNGRADE.to_vec()];
    programs.extend((0..mutexes).map(|_| vec![Op::Acquire(3), Op::Release(3)]));
    programs.extend((0..readers).map(|_| vec![Op::Acquire(2), Op::Release(2)]));
    rules(locks, programs.into_iter().enumerate().collect())
}

/// An upgradable lock, its upgrade, its holder as a reader, a reader that goes past, a writer, and Curator's reader.
pub fn upgradable_locks() -> Vec<Lock> {
    let reads_on = Lock { downgrades: Some(0), ..Lock::passing() };
    let mut locks = vec![Lock::upgradable(), Lock::upgrade(0), reads_on];
    locks[2].spec.mode = CreateMode::Ephemeral;
    locks.extend([Lock::passing(), Lock::write(), Lock::curators_read()]);
    locks
}

pub const PASSING: usize = 3;
pub const WRITE: usize = 4;
pub const CURATORS_READ: usize = 5;

/// Those that upgrade, each in its way, and others of these kinds.
pub fn upgradable(programs: &[&[Op]], others: &[usize]) -> Rules {
    let others = others.iter().map(|lock| vec![Op::Acquire(*lock), Op::Release(*lock)]);
    let programs = programs.iter().map(|program| program.to_vec()).chain(others);
    rules(upgradable_locks(), programs.enumerate().collect())
}

/// One whose time is up while it waits in between, in front of a reader.
pub fn upgrade_behind_one_that_gives_up() -> Rules {
    Rules { kinds: vec![Fault::TimeUp], ..upgradable(&[&UPGRADE], &[WRITE, PASSING]) }
}

pub fn semaphore(threads: usize, limit: usize) -> Rules {
    let locks = vec![Lock::lease_at_once(limit), Lock::place(), Lock::lease(limit, Some(1))];
    alike(threads, locks, &lease(0, 2))
}

pub fn unfair(threads: usize) -> Rules {
    alike(threads, vec![Lock::unfair()], &ONCE)
}

pub fn classical(threads: usize) -> Rules {
    alike(threads, vec![Lock::classical()], &ONCE)
}

/// Two that wait, and one that comes for the lock and leaves at once if it cannot have it.
fn two_and_one() -> Rules {
    let mut impatient = Lock::mutex();
    impatient.spec.waits = None;
    let last = vec![Op::Acquire(1), Op::Release(1)];
    rules(vec![Lock::mutex(), impatient], vec![(0, ONCE.to_vec()), (1, ONCE.to_vec()), (2, last)])
}

/// What shows that a condition is needed.
pub fn without(condition: Condition) -> Rules {
    let (mut rules, kinds, faults) = match condition {
        Condition::Connection => (two_and_one(), vec![Fault::Cut, Fault::Delete], 2),
        Condition::OwnWatch => (two_and_one(), vec![Fault::Delete], 1),
        Condition::Kind => (beside_read_write(1, 0), Vec::new(), 0),
        Condition::LastLook | Condition::ValidUntil => (mutex(2), vec![Fault::Pause], 1),
        Condition::EmptyDirectory => (unfair(2), Vec::new(), 0),
        Condition::NoUpgrade => (upgrade_behind_one_that_gives_up(), vec![Fault::TimeUp], 1),
    };
    // The one in the middle is enough.
    rules.target = matches!(condition, Condition::Connection | Condition::OwnWatch).then_some(1);
    rules.omitted = Some(condition);
    Rules { kinds, faults, ..rules }
}
