//! `zklock revoke` and `zklock break`: asking for a lock back, and taking it away.

use std::io::{self, IsTerminal};

use curator_locks::{CuratorFramework, EntryState, LockQueue, NameStyle, QueueEntry, Revoker};

use crate::{
    args::{Break, Connection, Revoke},
    connection::connect,
    failure::{Failure, Result, cannot},
    hosts::Hosts,
    run, show, tree,
};

pub(crate) fn revoke(connection: &Connection, args: &Revoke) -> Result<()> {
    let client = connect(connection)?;
    let entries = match entry_at(&client, &args.path)? {
        Some((_, entry)) => vec![entry],
        None => {
            let queues = show::inspect(&client, &args.path)?;
            queues.into_iter().flat_map(|queue| queue.entries).filter(QueueEntry::holds).collect()
        }
    };
    if entries.is_empty() {
        return Err(Failure::new(format!("{}: nobody holds it", args.path)));
    }
    for entry in entries {
        match &args.why {
            Some(why) => Revoker::request(&client, &entry.path, &run::who(), why)?,
            None => Revoker::attempt_revoke(&client, &entry.path)?,
        }
        let who = if entry.data.as_ref().is_none_or(Vec::is_empty) {
            String::new()
        } else {
            format!(" ({})", show::data(&entry))
        };
        show::print(&format!("asked {}{who}\n", entry.path))?;
    }
    Ok(())
}

pub(crate) fn break_lock(connection: &Connection, args: &Break) -> Result<()> {
    let client = connect(connection)?;
    let Some((queue, entry)) = meant(&client, &args.node)? else {
        let what = "this is no contender's znode; `zklock ls --long PATH` shows them";
        return Err(Failure::new(format!("{}: {what}", args.node.join(" "))));
    };
    let node = entry.path.as_str();
    show::print(&format!("{}\n{}\n", show::table(&queue, &Hosts::unknown(), true), consequence(&entry)))?;
    if !args.yes && !confirmed(node)? {
        return Err(Failure::new("nothing was done"));
    }
    // The lock may have been given back meanwhile.
    let stat = client.check_exists().for_path(node)?;
    match stat {
        Some(stat) if stat.czxid == entry.fencing_token.value() => client.delete().for_path(node)?,
        _ => return Err(Failure::new(format!("{node}: it is gone already"))),
    }
    show::print(&format!("deleted {node}\n")).map(drop)
}

/// The contender that these words name: a whole path, a lock's path and a name in it, or a name alone.
fn meant(client: &CuratorFramework, words: &[String]) -> Result<Option<(LockQueue, QueueEntry)>> {
    let queues = match words {
        [node] if node.starts_with('/') => return entry_at(client, node),
        // `ls --long` prints a name, `ls --json` the whole path.
        [_, node] if node.starts_with('/') => return entry_at(client, node),
        [_] => tree::locks(client)?,
        [path, ..] => show::inspect(client, path)?,
        [] => Vec::new(),
    };
    let Some(end) = words.last().map(|name| format!("/{name}")) else { return Ok(None) };
    let of = |queue: LockQueue| {
        let entry = queue.entries.iter().find(|entry| entry.path.ends_with(&end)).cloned();
        entry.map(|entry| (queue, entry))
    };
    // Names carry a unique id or the number of a session; where they do not, no guess is made.
    let mut found = queues.into_iter().filter_map(of);
    match (found.next(), found.next()) {
        (Some((first, _)), Some((second, _))) if first.path != second.path => {
            let text = format!("{} is in {} and in {}: say which, PATH NODE", words.join(" "), first.path, second.path);
            Err(Failure::new(text))
        }
        (first, _) => Ok(first),
    }
}

fn consequence(entry: &QueueEntry) -> String {
    let who = match entry.names {
        NameStyle::Kazoo => "kazoo is not told: its holder goes on as if it held the lock.",
        NameStyle::Curator => {
            "A holder of this library is told within moments, and a command under `zklock run` is killed.\n\
             A holder of Curator is not told: it goes on as if it held the lock."
        }
        NameStyle::Unfair => "Its holder is told within moments, and a command under `zklock run` is killed.",
        _ => "Whether its holder is told is its own affair.",
    };
    match entry.state {
        EntryState::Holds | EntryState::Cached(_) => {
            let idle = if show::is_cached(entry) {
                "Its process keeps the lock between holds, so nobody may be inside: `zklock revoke` gets an idle lock back without harm.\n"
            } else {
                ""
            };
            format!(
                "{idle}The next in line holds the lock as soon as {} is deleted.\n{who}\nUntil it stops, two work at what the \
                 lock protects, unless that checks fencing tokens.",
                entry.path
            )
        }
        EntryState::Waits(_) => "A waiter loses its place. It may queue again by itself, at the end.".to_owned(),
    }
}

fn confirmed(node: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new("there is no terminal to ask: say --yes"));
    }
    show::print(&format!("Delete {node}? Type yes: "))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(cannot("read the answer"))?;
    Ok(answer.trim() == "yes")
}

/// The contender whose znode this is, in its queue; `None` if it is none.
fn entry_at(client: &CuratorFramework, node: &str) -> Result<Option<(LockQueue, QueueEntry)>> {
    let mut directory = node;
    // A semaphore and an unfair lock have directories of their own below their paths.
    for _ in 0..3 {
        directory = match directory.rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => parent,
            _ => return Ok(None),
        };
        for queue in show::inspect(client, directory)? {
            if let Some(entry) = queue.entries.iter().find(|entry| entry.path == node).cloned() {
                return Ok(Some((queue, entry)));
            }
        }
    }
    Ok(None)
}
