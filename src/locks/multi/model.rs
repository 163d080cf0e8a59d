//! Every schedule of a few multi lockers over a few paths, some of which take one lock after the other: whether all come to
//! an end, also where a transaction is cut into parts, and where one of them is in doubt of what it was told. Taking the rule out by which a multi lock that waits stands in no later queue is found as a deadlock.

use std::collections::{BTreeSet, VecDeque};

/// How a locker goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It queues for one lock after the other, as Curator does.
    OneByOne,
    /// It queues for all that are left at once, and withdraws from those behind the first that it has to wait for.
    Together,
    /// As that, but it stays in the later queues.
    Staying,
}

/// One of the lockers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Locker {
    /// Which of its locks it gets next; all before that are held.
    next: usize,
    stage: Stage,
    /// How often it is still to hold all its locks.
    rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Outside,
    /// Its creates were carried out, and it is to look at the lists.
    Queued,
    /// It knows that it has to wait, and its deletes are not carried out yet.
    Withdrawing,
    Waiting,
}

/// The queues of all paths, and the lockers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    queues: Vec<Vec<usize>>,
    lockers: Vec<Locker>,
}

/// The lockers: how each goes, and by which paths, in sorted order.
type Cast<'a> = &'a [(Way, &'a [usize])];

impl World {
    /// The next step of this locker; `None`: it can do nothing now. `is_odd`: of its creates only the first is carried out for
    /// now, as the transaction was cut into parts, or it is in doubt of what it was told, and asks again.
    fn step(&self, cast: Cast<'_>, who: usize, is_odd: bool) -> Option<World> {
        let ((way, paths), mut world) = (cast[who], self.clone());
        let (queues, locker) = (&mut world.queues, &mut world.lockers[who]);
        let is_first = |queues: &[Vec<usize>], path: usize| queues[path].first() == Some(&who);
        match locker.stage {
            Stage::Withdrawing | Stage::Waiting if is_odd => return None,
            Stage::Outside if is_odd && locker.next == paths.len() => return None,
            Stage::Outside if locker.next == paths.len() => {
                queues.iter_mut().for_each(|queue| queue.retain(|other| *other != who));
                (locker.next, locker.rounds) = (0, locker.rounds - 1);
            }
            Stage::Outside if locker.rounds == 0 => return None,
            Stage::Outside => {
                let count = if way == Way::OneByOne { 1 } else { paths.len() };
                let missing = paths.iter().skip(locker.next).take(count).filter(|path| !queues[**path].contains(&who));
                let missing: Vec<usize> = missing.copied().collect();
                if is_odd && missing.len() < 2 {
                    return None;
                }
                let now = if is_odd { 1 } else { missing.len() };
                missing.into_iter().take(now).for_each(|path| queues[path].push(who));
                locker.stage = if is_odd { Stage::Outside } else { Stage::Queued };
            }
            Stage::Queued => {
                while !is_odd && paths.get(locker.next).is_some_and(|path| is_first(queues, *path)) {
                    locker.next += 1;
                }
                locker.stage = match paths.get(locker.next).map(|path| queues[*path].contains(&who)) {
                    None | Some(false) => Stage::Outside,
                    Some(true) => Stage::Withdrawing,
                };
            }
            Stage::Withdrawing => {
                let later = paths.iter().skip(locker.next + 1).filter(|_| way == Way::Together);
                later.for_each(|path| queues[*path].retain(|other| *other != who));
                locker.stage = Stage::Waiting;
            }
            Stage::Waiting if is_first(queues, paths[locker.next]) => {
                locker.next += 1;
                locker.stage = Stage::Outside;
            }
            Stage::Waiting => return None,
        }
        Some(world)
    }
}

/// Goes through all schedules. Returns how many states there are, and whether one of them is a deadlock.
fn explore(cast: Cast<'_>, rounds: usize) -> (usize, bool) {
    let count = cast.iter().flat_map(|(_, paths)| paths.iter()).max().map_or(0, |last| last + 1);
    let lockers = vec![Locker { next: 0, stage: Stage::Outside, rounds }; cast.len()];
    let begin = World { queues: vec![Vec::new(); count], lockers };
    let (mut seen, mut open, mut is_deadlock) = (BTreeSet::from([begin.clone()]), VecDeque::from([begin]), false);
    while let Some(world) = open.pop_front() {
        let next: Vec<World> = (0..cast.len())
            .flat_map(|who| [false, true].map(|is_odd| world.step(cast, who, is_odd)))
            .flatten()
            .collect();
        let is_over = world.lockers.iter().all(|locker| locker.rounds == 0) && world.queues.iter().all(Vec::is_empty);
        is_deadlock |= next.is_empty() && !is_over;
        open.extend(next.into_iter().filter(|world| seen.insert(world.clone())));
    }
    (seen.len(), is_deadlock)
}

/// Two and three lockers, over two and three paths, overlapping in every way.
fn casts(way: Way) -> Vec<Vec<(Way, &'static [usize])>> {
    let sets: [&[usize]; 4] = [&[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];
    let mut casts = Vec::new();
    for one in sets {
        for other in sets {
            casts.push(vec![(way, one), (way, other)]);
            casts.push(vec![(way, one), (Way::OneByOne, other)]);
            for third in sets {
                casts.push(vec![(way, one), (way, other), (way, third)]);
                casts.push(vec![(way, one), (way, other), (Way::OneByOne, third)]);
            }
        }
    }
    casts
}

#[test]
fn lockers_of_any_overlapping_paths_all_come_to_an_end_in_every_schedule() {
    let mut states = 0;
    for cast in casts(Way::Together) {
        let (seen, is_deadlock) = explore(&cast, 1);
        assert!(!is_deadlock, "{:?}", cast.iter().map(|(_, paths)| paths).collect::<Vec<_>>());
        states += seen;
    }
    assert!(states > 10_000, "{states}");
    assert!(!explore(&[(Way::Together, &[0, 1]), (Way::OneByOne, &[0, 1])], 3).1);
}

#[test]
fn one_that_stays_in_later_queues_and_a_peer_that_goes_one_by_one_wait_for_each_other() {
    let with_a_peer = |cast: &&Vec<(Way, &[usize])>| cast.iter().any(|(way, _)| *way == Way::OneByOne);
    let deadlocks = casts(Way::Staying).iter().filter(with_a_peer).filter(|cast| explore(cast, 1).1).count();
    assert!(deadlocks > 0);
    assert!(explore(&[(Way::Staying, &[0, 1]), (Way::OneByOne, &[0, 1])], 1).1);
}
