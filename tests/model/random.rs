//! Schedules by chance: up to eight threads, several rounds each, faults at any time.

use super::{
    rules::{ALL_FAULTS, Fault, Lock, Op, Rules},
    scenarios::{DOWNGRADE, PASSING, UPGRADE, UPGRADE_AND_READ, lease, rules, upgradable_locks},
    world::{Action, Notes, World},
};

/// How many threads there are, each in a client of its own but for the last two, which share one.
const THREADS: [usize; 4] = [2, 3, 5, 8];

/// How many steps the world has to come to rest once there are no more faults.
const STEPS_TO_REST: usize = 20_000;

/// SplitMix64: the same everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }
}

/// Runs the schedule of a seed. Notes are taken only where somebody reads them.
pub fn run(seed: u64, notes: &mut Notes) -> Result<usize, String> {
    let mut chance = Chance(seed);
    let rules = mixed(&mut chance);
    notes.add(|| format!("seed {seed}: {:?}", rules.threads));
    let rate = [10, 30, 100][chance.below(3)];
    let mut world = World::new(&rules);
    let mut left = STEPS_TO_REST;
    let mut steps = 0;
    loop {
        let actions = world.actions(&rules);
        let fault =
            if world.faults > 0 && chance.below(rate) == 0 { by_chance(&world, &rules, &mut chance) } else { None };
        let Some(action) = fault.or_else(|| chance.one_of(&actions)) else { break };
        if world.faults == 0 || actions.is_empty() {
            left -= 1;
        }
        if left == 0 {
            return Err("it never comes to rest".to_owned());
        }
        world.apply(&rules, action, notes)?;
        steps += 1;
    }
    world.check_rest(&rules)?;
    Ok(steps)
}

/// Every kind of fault is as likely as another.
fn by_chance(world: &World, rules: &Rules, chance: &mut Chance) -> Option<Action> {
    let kind = chance.one_of(&rules.kinds)?;
    let of_kind: Vec<Action> = world
        .faults(rules)
        .into_iter()
        .filter(|action| matches!(action, Action::Fault(of, ..) if *of == kind))
        .collect();
    chance.one_of(&of_kind)
}

/// The same once more: the lines of its trace, and what went wrong.
pub fn replay(seed: u64) -> (String, String) {
    let mut notes = Notes(Some(Vec::new()));
    let what = run(seed, &mut notes).err().unwrap_or_else(|| "nothing is wrong".to_owned());
    (notes.0.unwrap_or_default().join("\n"), what)
}

/// Some locks in one directory, and who acquires which of them.
fn mixed(chance: &mut Chance) -> Rules {
    let (locks, programs): (Vec<Lock>, Vec<Vec<Op>>) = match chance.below(6) {
        0 | 1 => {
            let kinds = vec![
                Lock::write(),
                Lock::downgrade(0),
                Lock::read(),
                Lock::mutex(),
                Lock::mutex().listing_later(),
                Lock::mutex().watching_all(),
                Lock::mutex().polling(),
            ];
            let mut programs = vec![DOWNGRADE.to_vec()];
            programs.extend([0, 2, 3, 4, 4, 5, 6].map(|lock| vec![Op::Acquire(lock), Op::Release(lock)]));
            (kinds, programs)
        }
        2 => {
            let limit = 1 + chance.below(3);
            let (one, queued) = (Lock::lease_at_once(limit), Lock::lease(limit, Some(1)));
            let count = 1 + chance.below(limit);
            let many = [one.clone().many(count), queued.clone().many(count)];
            let locks = [vec![one, Lock::place(), queued], many.to_vec()].concat();
            (locks, vec![lease(0, 2).to_vec(), lease(3, 4).to_vec()])
        }
        3 => (vec![Lock::unfair(), Lock::unfair().trying()], vec![once(0), once(0), once(0), once(1)]),
        4 => {
            let (mutex, polls) = (Lock::mutex(), Lock::passing().polling());
            let locks = [upgradable_locks(), vec![mutex, polls, Lock::write().trying()]].concat();
            let mut programs = vec![UPGRADE.to_vec(), UPGRADE_AND_READ.to_vec()];
            programs.extend((3..locks.len()).map(once));
            programs.push(once(PASSING));
            (locks, programs)
        }
        _ => (vec![Lock::classical()], vec![once(0)]),
    };
    let count = chance.one_of(&THREADS).unwrap_or(2);
    let threads = (0..count).map(|t| (t.min(count - 2), rounds(&programs, chance))).collect();
    let mut kinds = ALL_FAULTS.to_vec();
    // More than one can tell from a mess is no use: some kinds at a time.
    let most = 1 + chance.below(4);
    while kinds.len() > most {
        kinds.swap_remove(chance.below(kinds.len()));
    }
    if chance.below(2) == 0 {
        kinds.push(Fault::Pause);
    }
    let faults = u8::try_from(chance.below(16)).unwrap_or(0);
    let has_directories = chance.below(4) > 0;
    Rules { kinds, faults, has_delays: true, has_directories, retries: 20, ..rules(locks, threads) }
}

fn once(lock: usize) -> Vec<Op> {
    vec![Op::Acquire(lock), Op::Release(lock)]
}

/// One round or more. A round whose parts may jump stays the only one.
fn rounds(programs: &[Vec<Op>], chance: &mut Chance) -> Vec<Op> {
    let mut all = Vec::new();
    for _ in 0..1 + chance.below(3) {
        let Some(program) = programs.get(chance.below(programs.len())) else { break };
        let at = all.len();
        all.extend(program.iter().map(|op| match op {
            Op::Try(lock, or_else) => Op::Try(*lock, or_else + at),
            op => *op,
        }));
        if program.contains(&Op::End) {
            break;
        }
    }
    all
}
