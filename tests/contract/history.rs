//! Who held when, on the clock that all processes share.

use std::{thread, time::Duration};

use crate::{
    subject::{Lock, Subject},
    support::{
        SESSION,
        child::{self, ChildProcess},
        history::shared_clock,
    },
    world::{World, client_of},
};

/// How often each contender holds the lock.
const ROUNDS: usize = 8;

/// How long: enough for others to get in if nothing keeps them out.
const WORK: Duration = Duration::from_millis(1);

/// One hold: from after the acquire returned to before the release was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) is_shared: bool,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Holds the lock again and again.
pub(crate) fn contend(lock: &dyn Lock, is_shared: bool) -> Vec<Interval> {
    let hold = |_| {
        lock.acquire().unwrap();
        let from = shared_clock();
        thread::sleep(WORK);
        let to = shared_clock();
        lock.release().unwrap();
        Interval { is_shared, from, to }
    };
    (0..ROUNDS).map(hold).collect()
}

/// Never two holders at a time, unless both share.
#[track_caller]
pub(crate) fn check(contenders: usize, mut holds: Vec<Interval>) {
    assert_eq!(holds.len(), contenders * ROUNDS);
    if let Some((one, other)) = two_holders(&mut holds) {
        panic!("two holders: {one:?} {other:?}");
    }
}

fn two_holders(holds: &mut [Interval]) -> Option<(Interval, Interval)> {
    holds.sort_by_key(|hold| hold.from);
    let mut longest: [Option<Interval>; 2] = [None, None];
    for hold in holds.iter().copied() {
        // Of those before, the one that ended last, of each kind that may not be held beside this one.
        let excluded = if hold.is_shared { &longest[..1] } else { &longest[..] };
        if let Some(other) = excluded.iter().flatten().find(|other| other.to > hold.from) {
            return Some((*other, hold));
        }
        let of_its_kind = &mut longest[usize::from(hold.is_shared)];
        if of_its_kind.is_none_or(|other| other.to < hold.to) {
            *of_its_kind = Some(hold);
        }
    }
    None
}

/// Holds of several processes.
pub(crate) fn contend_in_processes(world: &World, processes: usize) -> Vec<Interval> {
    let start = |k: usize| {
        let (address, k) = (world.server.connect_string(), k.to_string());
        ChildProcess::start("contender", &[world.subject.name, &address, &world.namespace, &k])
    };
    let said = child::race((0..processes).map(start).collect());
    said.iter().map(|said| Interval { is_shared: said[0] == 1, from: said[1], to: said[2] }).collect()
}

/// One of the processes.
pub(crate) fn contender(subject: &'static Subject, arguments: &[String]) {
    let [address, namespace, k] = arguments else { panic!("{arguments:?}") };
    let client = client_of(subject, address, namespace, SESSION);
    let (lock, is_shared) = subject.contender(&client, k.parse().unwrap());
    child::say("ready");
    child::listen();
    for Interval { is_shared, from, to } in contend(&*lock, is_shared) {
        child::say(&format!("{} {from} {to}", u8::from(is_shared)));
    }
    child::say("done");
    client.close();
    child::listen();
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use curator_locks::{InterProcessLock, Result};

    use super::*;
    use crate::subject::Guard;

    fn interval(is_shared: bool, from: u64, to: u64) -> Interval {
        Interval { is_shared, from, to }
    }

    #[test]
    fn two_holders_are_found_and_two_readers_are_none() {
        let holds = |kinds: [bool; 3], times: [(u64, u64); 3]| {
            let mut holds: Vec<_> = (0..3).map(|k| interval(kinds[k], times[k].0, times[k].1)).collect();
            two_holders(&mut holds).is_some()
        };
        let (apart, around) = ([(0, 2), (2, 4), (4, 6)], [(0, 9), (2, 4), (5, 6)]);
        assert!(!holds([false; 3], apart) && !holds([true; 3], apart));
        assert!(holds([false; 3], around) && !holds([true; 3], around));
        assert!(holds([true, true, false], around), "a writer beside the first reader, not beside the second");
        assert!(holds([false, true, true], around) && holds([true, false, true], around));
        assert!(!holds([true, false, true], apart));
    }

    /// Lets all in at the same time.
    struct NoLock(Barrier);

    impl InterProcessLock for NoLock {
        fn acquire(&self) -> Result<()> {
            self.0.wait();
            Ok(())
        }

        fn acquire_timeout(&self, _: Duration) -> Result<bool> {
            Ok(true)
        }

        fn release(&self) -> Result<()> {
            Ok(())
        }

        fn is_acquired_in_this_process(&self) -> bool {
            false
        }
    }

    impl Lock for NoLock {
        fn guard(&self) -> Result<Box<dyn Guard + '_>> {
            unreachable!()
        }
    }

    #[test]
    fn contenders_without_a_lock_are_found() {
        let lock = NoLock(Barrier::new(4));
        let mut holds: Vec<Interval> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| contend(&lock, false))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(two_holders(&mut holds).is_some());
    }
}
