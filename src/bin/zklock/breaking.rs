//! `zklock revoke` and `zklock break`: asking for a lock back, and taking it away.

use std::io::{self, IsTerminal};

use curator_locks::{CuratorFramework, EntryState, LockQueue, NameStyle, QueueEntry, Revoker};

use crate::{
    args::{Break, Connection, Revoke},
    connection::connect,
    failure::{Failure, Result, cannot},
    hosts::Hosts,
    run, show,
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
    let Some((queue, entry)) = entry_at(&client, &args.node)? else {
        let what = "this is no contender's znode; `zklock ls PATH` shows them";
        return Err(Failure::new(format!("{}: {what}", args.node)));
    };
    show::print(&format!("{}\n{}\n", show::table(&queue, &Hosts::unknown()), consequence(&entry)))?;
    if !args.yes && !confirmed(&args.node)? {
        return Err(Failure::new("nothing was done"));
    }
    // The lock may have been given back meanwhile.
    let stat = client.check_exists().for_path(&args.node)?;
    match stat {
        Some(stat) if stat.czxid == entry.fencing_token.value() => client.delete().for_path(&args.node)?,
        _ => return Err(Failure::new(format!("{}: it is gone already", args.node))),
    }
    show::print(&format!("deleted {}\n", args.node)).map(drop)
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
