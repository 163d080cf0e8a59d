//! Every schedule, breadth first.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::{BuildHasherDefault, Hasher},
};

use super::{
    fingerprint::fingerprint,
    rules::Rules,
    world::{Action, Notes, World},
};

/// What an exploration has come to.
#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    /// How many steps of schedules were taken.
    pub steps: usize,
    /// All schedules up to this length; all there are if `is_complete`.
    pub depth: usize,
    pub is_complete: bool,
    pub counterexample: Option<Counterexample>,
}

#[derive(Debug)]
pub struct Counterexample {
    pub what: String,
    pub actions: Vec<Action>,
    pub lines: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.what, self.actions.len())?;
        self.lines.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// How each state was reached, by its fingerprint.
type Parents = HashMap<u64, (u64, Option<Action>), BuildHasherDefault<Itself>>;

/// A fingerprint is its own hash.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Goes on until all is explored or so many states are known, and then to the end of that length.
pub fn explore(rules: &Rules, most_states: usize) -> Explored {
    let first = World::new(rules);
    let mut parents = Parents::default();
    parents.insert(fingerprint(&first), (0, None));
    let mut explored = Explored { states: 1, steps: 0, depth: 0, is_complete: false, counterexample: None };
    let mut level = vec![first];
    while !level.is_empty() && parents.len() < most_states {
        let mut next = Vec::new();
        for world in level {
            if let Err((what, last)) = expand(rules, &world, &mut parents, &mut next, &mut explored.steps) {
                explored.states = parents.len();
                explored.counterexample = Some(trace(rules, what, &world, &parents, last));
                return explored;
            }
        }
        level = next;
        explored.depth += 1;
    }
    explored.states = parents.len();
    explored.is_complete = level.is_empty();
    explored
}

fn expand(
    rules: &Rules,
    world: &World,
    parents: &mut Parents,
    next: &mut Vec<World>,
    steps: &mut usize,
) -> Result<(), (String, Option<Action>)> {
    let own = fingerprint(world);
    let actions = match world.step_at_once(rules) {
        Some(step) => vec![step],
        None => world.actions(rules),
    };
    if actions.is_empty() {
        world.check_rest(rules).map_err(|what| (what, None))?;
    }
    for action in actions.into_iter().chain(world.faults(rules)) {
        let mut then = world.clone();
        then.apply(rules, action, &mut Notes::default()).map_err(|what| (what, Some(action)))?;
        *steps += 1;
        if let Entry::Vacant(entry) = parents.entry(fingerprint(&then)) {
            entry.insert((own, Some(action)));
            next.push(then);
        }
    }
    Ok(())
}

fn trace(rules: &Rules, what: String, world: &World, parents: &Parents, last: Option<Action>) -> Counterexample {
    let mut actions = Vec::from_iter(last);
    let mut at = fingerprint(world);
    while let Some((before, Some(action))) = parents.get(&at) {
        actions.push(*action);
        at = *before;
    }
    actions.reverse();
    let lines = replay(rules, &actions);
    Counterexample { what, actions, lines }
}

/// The lines of a schedule.
pub fn replay(rules: &Rules, actions: &[Action]) -> Vec<String> {
    let mut world = World::new(rules);
    let mut notes = Notes(Some(Vec::new()));
    for action in actions {
        if let Err(what) = world.apply(rules, *action, &mut notes) {
            notes.add(|| what);
        }
    }
    notes.0.unwrap_or_default()
}
