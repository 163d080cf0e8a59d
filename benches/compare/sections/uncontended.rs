//! A lock that nobody else wants: acquire and release.

use crate::{peer::Kind, run::Run, sides::Outcome};

/// What one side does: the lock, the workload, and who. Those of a group take turns.
type Turn = (&'static str, &'static str, Kind);

/// No side has two turns in a row: the second one would have warm caches, which is worth a fifth. The two of this crate stand
/// opposite each other, each behind the bare socket.
const MUTEX: [Turn; 8] = {
    use Kind::{BareSocket, Curator, CuratorLocks, Kazoo, ZooKeeperCrate};
    let workload = "uncontended_mutex";
    [
        ("mutex", workload, CuratorLocks),
        ("mutex", workload, BareSocket),
        ("mutex", workload, Curator),
        ("mutex_in_turn", "uncontended_mutex_in_turn", BareSocket),
        ("mutex_fenced", "uncontended_mutex_fenced", CuratorLocks),
        ("mutex", workload, Kazoo),
        ("mutex", workload, ZooKeeperCrate),
        ("mutex_unlisted", "uncontended_mutex_unlisted", BareSocket),
    ]
};

/// Beside the classical unfair lock, one create and one delete.
const UNFAIR: [Turn; 2] = {
    use Kind::{BareSocket, CuratorLocks};
    let workload = "uncontended_unfair";
    [("unfair", workload, CuratorLocks), ("create_and_delete", workload, BareSocket)]
};

/// By itself: a side that has two turns in a row has its second one with warm caches, which is worth a fifth.
const SAME_AS_UNFAIR: [Turn; 1] = [("unfair", "uncontended_unfair_same_requests", Kind::BareSocket)];

/// Which sides have which other lock.
const OTHERS: [(&str, &str, &[Kind]); 4] = {
    use Kind::{BareSocket, Curator, CuratorLocks, Kazoo};
    [
        ("read", "uncontended_read", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("write", "uncontended_write", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("semaphore", "uncontended_semaphore", &[CuratorLocks, BareSocket, Curator, Kazoo]),
        ("semaphore_mutex", "uncontended_semaphore_mutex", &[CuratorLocks, BareSocket, Curator]),
    ]
};

/// Several locks at once, and how many.
const MULTI: [(&str, usize); 3] = [("multi-2", 2), ("multi-10", 10), ("multi-50", 50)];

const SLICE: usize = 50;

pub fn measure(run: &mut Run) -> Outcome<()> {
    cycles(run, &MUTEX, 60)?;
    cycles(run, &UNFAIR, 24)?;
    cycles(run, &SAME_AS_UNFAIR, 24)?;
    for other in OTHERS {
        cycles(run, &turns(other), 24)?;
    }
    for (lock, n) in MULTI {
        let sides = &[Kind::CuratorLocks, Kind::BareSocket, Kind::Curator];
        cycles_of(run, &turns((lock, "uncontended_multi", sides)), n, 24)?;
    }
    print(run);
    Ok(())
}

/// The mutex and the unfair lock.
pub fn a_few(run: &mut Run) -> Outcome<()> {
    cycles(run, &MUTEX, 8)?;
    cycles(run, &UNFAIR, 8)?;
    print(run);
    Ok(())
}

fn turns((lock, workload, sides): (&'static str, &'static str, &[Kind])) -> Vec<Turn> {
    sides.iter().map(|side| (lock, workload, *side)).collect()
}

fn print(run: &mut Run) {
    let in_turns = MUTEX.iter().chain(&UNFAIR).chain(&SAME_AS_UNFAIR).map(|(_, workload, _)| *workload);
    let others = OTHERS.iter().map(|(_, workload, _)| *workload).chain(["uncontended_multi"]);
    let mut workloads: Vec<_> = in_turns.chain(others).collect();
    workloads.dedup();
    run.print("Uncontended cycles", &workloads);
}

fn cycles(run: &mut Run, turns: &[Turn], rounds: usize) -> Outcome<()> {
    cycles_of(run, turns, 1, rounds)
}

fn cycles_of(run: &mut Run, turns: &[Turn], n: usize, rounds: usize) -> Outcome<()> {
    let (mut turns, mut times) = (turns.to_vec(), vec![Vec::new(); turns.len()]);
    let ours: Vec<_> = (0..turns.len()).filter(|index| turns[*index].2 == Kind::CuratorLocks).collect();
    // The first round makes directories, and connections for those that have none.
    for round in 0..=run.rounds(rounds) {
        for ((lock, workload, side), times) in Run::turns(round, &turns, &mut times) {
            let measured = run.ask(*side, &format!("cycles {lock} /{workload}/{} {SLICE}", side.name()))?;
            if round > 0 {
                times.extend(measured.into_iter().map(|nanos| nanos as f64));
            }
        }
        // What goes before leaves the caches warm or cold: the same cycle in both places differed by 2 to 6 %.
        if let [one, other] = ours[..] {
            turns.swap(one, other);
            times.swap(one, other);
        }
    }
    for ((_, workload, side), times) in turns.iter().zip(times) {
        run.book(workload, *side, n, times.clone(), times);
    }
    Ok(())
}
