//! Who held when, on the clock that all processes share.

use std::time::Duration;

use super::{
    seam::{ChildProcess, Parent, SESSION, race, shared_clock, sleep},
    subject::{Lock, Subject},
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
        sleep(WORK);
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

pub(crate) fn two_holders(holds: &mut [Interval]) -> Option<(Interval, Interval)> {
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
    let said = race((0..processes).map(start).collect());
    said.iter().map(|said| Interval { is_shared: said[0] == 1, from: said[1], to: said[2] }).collect()
}

/// One of the processes.
pub(crate) fn contender(subject: &'static Subject, arguments: &[String], parent: &Parent) {
    let [address, namespace, k] = arguments else { panic!("{arguments:?}") };
    let client = client_of(subject, address, namespace, SESSION);
    let (lock, is_shared) = subject.contender(&client, k.parse().unwrap());
    parent.say("ready");
    parent.listen();
    for Interval { is_shared, from, to } in contend(&*lock, is_shared) {
        parent.say(&format!("{} {from} {to}", u8::from(is_shared)));
    }
    parent.say("done");
    client.close();
    parent.listen();
}
