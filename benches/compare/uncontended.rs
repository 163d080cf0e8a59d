//! A lock that nobody else wants: acquire and release.

use crate::{peer::Kind, run::Run, sides::Outcome};

/// Which sides have which lock.
const LOCKS: [(&str, &str, &[Kind]); 9] = {
    use Kind::{BareSocket, Curator, CuratorLocks, Kazoo, ZooKeeperCrate};
    [
        ("mutex", "uncontended_mutex", &[CuratorLocks, BareSocket, Curator, Kazoo, ZooKeeperCrate]),
        ("mutex_in_turn", "uncontended_mutex_in_turn", &[BareSocket]),
        ("mutex_unlisted", "uncontended_mutex_unlisted", &[BareSocket]),
        ("unfair", "uncontended_unfair", &[CuratorLocks, BareSocket]),
        ("read", "uncontended_read", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("write", "uncontended_write", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("semaphore", "uncontended_semaphore", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("semaphore_mutex", "uncontended_semaphore_mutex", &[CuratorLocks, BareSocket, Curator]),
        ("multi", "uncontended_multi", &[CuratorLocks, Curator]),
    ]
};

const SLICE: usize = 50;

pub fn measure(run: &mut Run) -> Outcome<()> {
    for (lock, workload, sides) in LOCKS {
        let rounds = if lock == "mutex" { 60 } else { 24 };
        cycles(run, lock, workload, sides, rounds)?;
    }
    run.print("Uncontended cycles", &LOCKS.map(|(_, workload, _)| workload));
    Ok(())
}

pub fn mutex_only(run: &mut Run) -> Outcome<()> {
    for (lock, workload, sides) in LOCKS.into_iter().take(4) {
        cycles(run, lock, workload, sides, 8)?;
    }
    run.print("Uncontended cycles", &LOCKS.map(|(_, workload, _)| workload));
    Ok(())
}

fn cycles(run: &mut Run, lock: &str, workload: &str, sides: &[Kind], rounds: usize) -> Outcome<()> {
    let mut times = vec![Vec::new(); sides.len()];
    // The first round makes directories, and connections for those that have none.
    for round in 0..=run.rounds(rounds) {
        for (side, times) in Run::turns(round, sides, &mut times) {
            let measured = run.ask(*side, &format!("cycles {lock} /{workload}/{} {SLICE}", side.name()))?;
            if round > 0 {
                times.extend(measured.into_iter().map(|nanos| nanos as f64));
            }
        }
    }
    for (side, times) in sides.iter().zip(times) {
        run.book(workload, *side, 1, times.clone(), times);
    }
    Ok(())
}
