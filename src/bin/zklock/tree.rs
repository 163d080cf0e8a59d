//! `zklock tree`: every lock below a path, and sessions that wait for each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use curator_locks::{CuratorFramework, Error, ErrorCode, LockKind, LockQueue, NameStyle};
use serde_json::{Value, json};

use crate::{
    args::{Connection, Tree},
    connection::connect,
    failure::Result,
    hosts::Hosts,
    show,
};

/// The directory that the servers keep for themselves.
const SYSTEM: &str = "/zookeeper";

pub(crate) fn tree(connection: &Connection, args: &Tree) -> Result<()> {
    let client = connect(connection)?;
    show::repeat(&args.show, || {
        let walk = Walk::through(&client, &args.root, args.limit)?;
        let circles = walk.circles();
        let hosts = Hosts::ask(connection, &args.show)?;
        Ok(if args.show.json {
            show::json(&json!({
                "root": args.root,
                "locks": walk.locks.iter().map(|lock| show::lock(lock, &hosts)).collect::<Value>(),
                "circles": circles,
                "notes": walk.notes,
            }))
        } else {
            describe(args, &walk, &circles, &hosts)
        })
    })
}

/// Every lock, without those in directories that may not be looked into.
pub(crate) fn locks(client: &CuratorFramework) -> Result<Vec<LockQueue>> {
    Ok(Walk::through(client, "/", usize::MAX)?.locks)
}

fn describe(args: &Tree, walk: &Walk, circles: &[Vec<String>], hosts: &Hosts) -> String {
    let mut blocks: Vec<String> = walk.locks.iter().map(|lock| show::table(lock, hosts, args.show.long)).collect();
    if blocks.is_empty() {
        blocks.push(format!("no locks below {}\n", args.root));
    }
    blocks.extend(circles.iter().map(|circle| format!("{}\n", show::paint(show::RED, &say_circle(circle)))));
    blocks.extend(walk.notes.iter().map(|note| format!("{}\n", show::paint(show::YELLOW, &format!("note: {note}")))));
    blocks.join("\n")
}

pub(crate) fn say_circle(sessions: &[String]) -> String {
    let names: Vec<&str> = sessions.iter().chain(sessions.first()).map(String::as_str).collect();
    format!("these sessions wait for each other, for ever if the same threads do: {}", names.join(" -> "))
}

/// All directories from a root on.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) locks: Vec<LockQueue>,
    pub(crate) notes: Vec<String>,
}

impl Walk {
    pub(crate) fn through(client: &CuratorFramework, root: &str, limit: usize) -> Result<Walk> {
        let mut walk = Walk::default();
        let mut left = vec![root.to_owned()];
        let mut seen = 0;
        while let Some(path) = left.pop() {
            seen += 1;
            if seen > limit {
                let directories = show::counted(limit, "directory", "directories");
                walk.notes.push(format!("there are more than {directories}: begin further below, or set --limit"));
                break;
            }
            match look_into(client, &path) {
                Ok((locks, below)) => {
                    // The last one comes first.
                    left.extend(below.into_iter().rev().filter(|path| path != SYSTEM));
                    walk.locks.extend(locks);
                }
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
                    walk.notes.push(format!("may not look into {path}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        walk.drop_queues_of_semaphores();
        Ok(walk)
    }

    /// Circles of sessions, each of which waits for a lock that the next one holds. A session is a client of many threads
    /// perhaps, so that a circle need not be a deadlock.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        circles(&self.locks)
    }

    /// The queues of kazoo's semaphores are beside them, and shown with them.
    fn drop_queues_of_semaphores(&mut self) {
        let is_kazoos = |lock: &&LockQueue| {
            lock.kind == LockKind::Semaphore && lock.entries.iter().any(|entry| entry.names == NameStyle::Kazoo)
        };
        let queues: BTreeSet<String> =
            self.locks.iter().filter(is_kazoos).map(|lock| format!("{}-__lock__", lock.path)).collect();
        self.locks.retain(|lock| !queues.contains(&lock.path));
    }
}

/// The locks there, and the directories below that are not the locks' own.
fn look_into(client: &CuratorFramework, path: &str) -> Result<(Vec<LockQueue>, Vec<String>), Error> {
    let below = |names: &[String]| names.iter().map(|name| format!("{}/{name}", path.trim_end_matches('/'))).collect();
    if path == "/" {
        let mut names = client.get_children().for_path(path)?;
        names.sort_unstable();
        return Ok((Vec::new(), below(&names)));
    }
    let mut queues = show::inspect(client, path)?;
    let directories = below(&queues.iter().flat_map(|queue| queue.others.clone()).collect::<Vec<_>>());
    queues.retain(|queue| queue.kind != LockKind::Unused);
    Ok((queues, directories))
}

fn circles(locks: &[LockQueue]) -> Vec<Vec<String>> {
    let mut waits_for: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for lock in locks {
        for waiter in lock.waiters() {
            let others = lock.holders().map(|holder| holder.session).filter(|holder| *holder != waiter.session);
            waits_for.entry(waiter.session).or_default().extend(others);
        }
    }
    let mut found: Vec<Vec<i64>> = Vec::new();
    for start in waits_for.keys() {
        let is_known = found.iter().flatten().any(|session| session == start);
        if !is_known && let Some(circle) = way_back(*start, &waits_for) {
            found.push(circle);
        }
    }
    found.iter().map(|circle| circle.iter().map(|session| format!("{session:#x}")).collect()).collect()
}

/// A shortest way from a session to itself.
fn way_back(start: i64, waits_for: &BTreeMap<i64, BTreeSet<i64>>) -> Option<Vec<i64>> {
    let (mut ways, mut seen) = (VecDeque::from([vec![start]]), BTreeSet::new());
    while let Some(way) = ways.pop_front() {
        for other in way.last().and_then(|last| waits_for.get(last)).into_iter().flatten() {
            if *other == start {
                return Some(way);
            }
            if seen.insert(*other) {
                ways.push_back([way.as_slice(), &[*other]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(i64, i64)]) -> BTreeMap<i64, BTreeSet<i64>> {
        let mut graph: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry(*from).or_default().insert(*to);
        }
        graph
    }

    #[test]
    fn the_shortest_circle_is_found_and_a_chain_is_none() {
        assert_eq!(way_back(1, &graph(&[(1, 2), (2, 3)])), None);
        assert_eq!(way_back(1, &graph(&[(1, 2), (2, 1)])), Some(vec![1, 2]));
        assert_eq!(way_back(1, &graph(&[(1, 2), (2, 3), (3, 1), (3, 4), (4, 3)])), Some(vec![1, 2, 3]));
        // A circle of others is not this one's.
        assert_eq!(way_back(1, &graph(&[(1, 2), (2, 3), (3, 2)])), None);
    }
}
