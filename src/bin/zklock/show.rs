//! `zklock ls`: a lock's queue, as a table and as JSON.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use clap::ColorChoice;
use crossbeam_channel::bounded;
use curator_locks::{CuratorFramework, EntryState, LockKind, LockQueue, QueueEntry, RetryForever};
use jiff::{Timestamp, tz::TimeZone};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::{
    args::{Connection, Ls, Show, Wait},
    connection::{Settings, connect},
    failure::{Failure, NOT_HAD, Result, cannot},
    hosts::Hosts,
    voice,
};

pub(crate) const HEADINGS: [&str; 8] = ["STATE", "MODE", "SINCE", "AGE", "SESSION", "NAMES", "DATA", "NODE"];
/// Which column tells the host: the one behind the session's.
const HOST: usize = 5;
/// Columns for whoever wants all of them.
const SINCE: usize = 2;
/// Longer data are cut in the table.
const WIDEST_DATA: usize = 48;
/// How wide the table is that does not show all, unless the data would not be legible.
const WIDTH: usize = 80;
const LEAST_DATA: usize = 8;

pub(crate) const BOLD: u8 = 1;
pub(crate) const DIM: u8 = 2;
pub(crate) const RED: u8 = 31;
pub(crate) const GREEN: u8 = 32;
pub(crate) const YELLOW: u8 = 33;

/// The spaces in front of a row, and between two columns.
pub(crate) const GAP: usize = 2;

/// The pause between two looks of `zklock wait`.
const PAUSE: Duration = Duration::from_millis(250);
/// The retry interval of `zklock wait`.
const RETRY: Duration = Duration::from_millis(500);
/// Longer waits come in parts.
const LONGEST: Duration = Duration::from_secs(3600);

pub(crate) fn ls(connection: &Connection, args: &Ls) -> Result<u8> {
    let (client, mut is_held) = (connect(connection)?, false);
    repeat(&args.show, || {
        let queues: curator_locks::Result<Vec<Vec<LockQueue>>> =
            args.paths.iter().map(|path| inspect(&client, path)).collect();
        let (queues, hosts) = (queues?.concat(), Hosts::ask(connection, &args.show)?);
        is_held = queues.iter().any(LockQueue::is_held);
        if args.show.json {
            return Ok(json(&queues.iter().map(|queue| lock(queue, &hosts)).collect()));
        }
        Ok(queues.iter().map(|queue| table(queue, &hosts, args.show.long)).collect::<Vec<_>>().join("\n"))
    })?;
    Ok(u8::from(args.exit_code && is_held))
}

/// 0: nobody holds one of the locks; [`NOT_HAD`]: the time was up first. An outage is waited out, as by `zklock run`.
pub(crate) fn wait(connection: &Connection, args: &Wait) -> Result<u8> {
    let begun = Instant::now();
    let time = args.timeout.unwrap_or(Duration::MAX);
    let over = |why: &str| Failure { status: NOT_HAD, text: format!("{why} after {}", brief(begun.elapsed())) };
    let settings = Settings::of(connection)?;
    let client = settings.client(RetryForever::new(RETRY), None)?;
    settings.await_connection_for(time, &client, || false).map_err(|failure| match args.timeout {
        Some(timeout) if begun.elapsed() >= timeout => over(&failure.text),
        _ => failure,
    })?;
    let (tell, told) = bounded(1);
    let paths = args.paths.clone();
    let look = move || {
        loop {
            let queues = settings.check_chroot(&client).and_then(|()| {
                let queues = paths.iter().map(|path| inspect(&client, path));
                queues.collect::<curator_locks::Result<Vec<_>>>().map_err(Failure::from)
            });
            // The receiver may be gone.
            if tell.send(queues.map(|queues| queues.concat())).is_err() {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    thread::Builder::new().name("look".into()).spawn(look).map_err(cannot("start a thread"))?;
    let mut held = None;
    loop {
        let left = time.saturating_sub(begun.elapsed());
        match told.recv_timeout(left.min(LONGEST)) {
            Ok(queues) => held = queues?.into_iter().find(LockQueue::is_held).map(|queue| queue.path),
            Err(_) if left > LONGEST => continue,
            Err(_) => {
                return Err(over(&held.map_or_else(|| "no answer".to_owned(), |path| format!("{path}: still held"))));
            }
        }
        if held.is_none() {
            return Ok(0);
        }
        if time.saturating_sub(begun.elapsed()).is_zero() {
            return Err(over(&format!("{}: still held", held.unwrap_or_default())));
        }
    }
}

/// The lock at a path, and those of other kinds there.
pub(crate) fn inspect(client: &CuratorFramework, path: &str) -> curator_locks::Result<Vec<LockQueue>> {
    let mut queue = LockQueue::inspect(client, path)?;
    let beside = std::mem::take(&mut queue.beside);
    Ok(std::iter::once(queue).chain(beside).collect())
}

/// Prints what `look` gives, once or again and again.
pub(crate) fn repeat(show: &Show, mut look: impl FnMut() -> Result<String>) -> Result<()> {
    choose_colors(show.color);
    let clears = show.watch.is_some() && !show.json && io::stdout().is_terminal();
    loop {
        match (look(), show.watch) {
            (Ok(text), _) => {
                let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
                if !print(&format!("{clear}{text}"))? {
                    return Ok(());
                }
            }
            // A watching person wants to see how it goes on.
            (Err(failure), Some(_)) => voice::say(failure.text),
            (Err(failure), None) => return Err(failure),
        }
        let Some(pause) = show.watch else { return Ok(()) };
        if is_unread_after(pause.max(Duration::from_millis(100))) {
            return Ok(());
        }
    }
}

/// Colours as the command line says, and otherwise as the environment does.
pub(crate) fn choose_colors(color: ColorChoice) {
    match color {
        ColorChoice::Auto => {}
        ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
        ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// Waits for this time, or until standard output is closed: in an outage no write would tell.
fn is_unread_after(pause: Duration) -> bool {
    let out = io::stdout();
    let mut waits = [PollFd::new(out.as_fd(), PollFlags::empty())];
    // A signal only makes the next look come sooner.
    let _ = poll(&mut waits, PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX));
    waits.iter().any(|wait| wait.any().unwrap_or_default())
}

/// Writes to standard output; `false`: it is not read any more, as in `zklock ls | head`.
pub(crate) fn print(text: &str) -> Result<bool> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(cannot("write to standard output")),
    }
}

/// One document on one line, so that `--watch` makes a stream of documents.
pub(crate) fn json(document: &Value) -> String {
    format!("{document}\n")
}

/// A lock as JSON.
pub(crate) fn lock(queue: &LockQueue, hosts: &Hosts) -> Value {
    json!({
        "path": queue.path,
        "kind": queue.kind.to_string(),
        "held": queue.is_held(),
        "shows_waiters": queue.shows_waiters(),
        "leases": queue.leases,
        "entries": queue.entries.iter().map(|entry| contender(entry, hosts)).collect::<Value>(),
        "others": queue.others,
        "notes": queue.notes,
    })
}

fn contender(entry: &QueueEntry, hosts: &Hosts) -> Value {
    let position = match entry.state {
        EntryState::Holds | EntryState::Cached(_) => None,
        EntryState::Waits(position) => Some(position),
    };
    json!({
        "state": entry.state.to_string(),
        "position": position,
        "mode": entry.mode.to_string(),
        "client": entry.names.to_string(),
        "session": (entry.session != 0).then(|| format!("{:#x}", entry.session)),
        "host": hosts.of(entry),
        "token": entry.fencing_token.value(),
        "since": Timestamp::from_millisecond(entry.since_millis).unwrap_or_default().to_string(),
        "age_seconds": age(entry.since_millis).as_secs_f64(),
        "data": entry.data.as_ref().map(|data| String::from_utf8_lossy(data)),
        "asked_back": entry.is_asked_back,
        "node": entry.path,
    })
}

/// The kind of a lock, and how many hold it and wait for it.
pub(crate) fn facts(queue: &LockQueue) -> Vec<String> {
    let cached = queue.entries.iter().filter(|entry| is_cached(entry)).count();
    let (holds, waits) = (queue.holders().count() - cached, queue.waiters().count());
    let mut facts = vec![queue.kind.to_string()];
    facts.extend(queue.leases.filter(|leases| *leases != 1).map(|leases| format!("{leases} leases")));
    if queue.kind != LockKind::Unused {
        match holds {
            0 if cached == 0 => facts.push("free".to_owned()),
            0 => {}
            holds => facts.push(counted(holds, "holds", "hold")),
        }
        if cached > 0 {
            facts.push(format!("{cached} held or kept idle"));
        }
        match waits {
            _ if !queue.shows_waiters() => facts.push("waiters of this kind are not to be seen".to_owned()),
            0 => {}
            waits => facts.push(counted(waits, "waits", "wait")),
        }
    }
    facts
}

/// A lock as lines: a heading, a row for each contender, notes. With all columns, or in 80 of the terminal's.
pub(crate) fn table(queue: &LockQueue, hosts: &Hosts, is_long: bool) -> String {
    let mut text = format!("{}  {}\n", paint(BOLD, &queue.path), facts(queue).join(", "));
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(queue.entries.iter().map(|entry| row(queue, entry).to_vec()));
    if hosts.are_wanted() {
        let of = queue.entries.iter().map(|entry| hosts.of(entry).unwrap_or("-"));
        rows.iter_mut().zip(["HOST"].into_iter().chain(of)).for_each(|(row, host)| row.insert(HOST, host.to_owned()));
    }
    if !is_long {
        shorten(&mut rows);
    }
    if rows.len() > 1 {
        text.push_str(&columns(&rows));
    }
    for note in &queue.notes {
        text.push_str(&format!("  {}\n", paint(YELLOW, &format!("note: {note}"))));
    }
    if !queue.others.is_empty() && queue.kind != LockKind::Unused {
        text.push_str(&format!("  others: {}\n", queue.others.join(", ")));
    }
    text
}

/// A contender's cells below [`HEADINGS`].
pub(crate) fn row(queue: &LockQueue, entry: &QueueEntry) -> [String; HEADINGS.len()] {
    let state = match entry.state {
        EntryState::Holds if entry.is_asked_back => "asked".to_owned(),
        EntryState::Holds | EntryState::Cached(_) => entry.state.to_string(),
        EntryState::Waits(position) => format!("waits {}", position + 1),
    };
    let session = if entry.session == 0 { "none".to_owned() } else { format!("{:#x}", entry.session) };
    let node = entry.path.strip_prefix(&queue.path).map_or(entry.path.as_str(), |node| node.trim_start_matches('/'));
    [
        state,
        entry.mode.to_string(),
        since(entry.since_millis),
        brief(age(entry.since_millis)),
        session,
        entry.names.to_string(),
        data(entry),
        node.to_owned(),
    ]
}

/// Takes away the moment and the znode, and cuts the data at the edge of the terminal.
fn shorten(rows: &mut [Vec<String>]) {
    for row in rows.iter_mut() {
        row.pop();
        row.remove(SINCE);
    }
    let last = rows.first().map_or(0, |heading| heading.len() - 1);
    let in_front: usize = (0..last).map(|column| width(rows, column) + GAP).sum::<usize>() + GAP;
    let most = WIDTH.saturating_sub(in_front).max(LEAST_DATA);
    for row in rows.iter_mut() {
        if let Some(data) = row.last_mut() {
            *data = cut(data, most);
        }
    }
}

/// The text, or its begin with dots.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(3)).chain("...".chars()).take(most).collect(),
        None => text.to_owned(),
    }
}

/// Whether its process keeps the lock between holds, so that it may be idle.
pub(crate) fn is_cached(entry: &QueueEntry) -> bool {
    matches!(entry.state, EntryState::Cached(_))
}

pub(crate) fn width(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// A line for each row, each column as wide as its widest cell.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(|column| width(rows, column)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Aligned, the first row as a heading. Colours come after the widths are known.
fn columns(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, (row, line)) in rows.iter().zip(aligned(rows)).enumerate() {
        let is_holder = row.first().is_some_and(|state| !state.starts_with("waits"));
        text.push_str(&if index == 0 {
            paint(DIM, &line)
        } else if is_holder {
            paint(GREEN, &line)
        } else {
            line
        });
        text.push('\n');
    }
    text
}

/// The znode's data for a terminal: nothing in it moves the cursor.
pub(crate) fn data(entry: &QueueEntry) -> String {
    let Some(data) = &entry.data else { return "(not readable)".to_owned() };
    let text: String = String::from_utf8_lossy(data).trim().chars().flat_map(char::escape_debug).collect();
    cut(&text, WIDEST_DATA)
}

/// One of them, or several.
pub(crate) fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// A contender for people: its data, or its session where it has none.
pub(crate) fn name(entry: &QueueEntry) -> String {
    match data(entry) {
        data if data.is_empty() => format!("session {:#x}", entry.session),
        data => data,
    }
}

/// The age of a moment of the server's clock, by this machine's clock; never negative.
pub(crate) fn age(since_millis: i64) -> Duration {
    let elapsed = Timestamp::now().as_millisecond().saturating_sub(since_millis);
    Duration::from_millis(u64::try_from(elapsed).unwrap_or_default())
}

fn since(millis: i64) -> String {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default().to_zoned(TimeZone::system());
    let is_recent = age(millis) < Duration::from_secs(20 * 3600);
    at.strftime(if is_recent { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" }).to_string()
}

/// `4s`, `3m 20s`, `2h 5m`, `6d 1h`.
pub(crate) fn brief(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

pub(crate) fn paint(code: u8, text: &str) -> String {
    format!("\x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_brief() {
        for (seconds, expected) in [(5, "5s"), (200, "3m 20s"), (7500, "2h 5m"), (522_000, "6d 1h")] {
            assert_eq!(brief(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(brief(Duration::from_millis(250)), "250ms");
        assert_eq!(age(i64::MAX), Duration::ZERO, "a server's clock that goes ahead");
    }

    #[test]
    fn one_is_not_several() {
        let counted = [0, 1, 2].map(|count| counted(count, "holds", "hold"));
        assert_eq!(counted, ["0 hold", "1 holds", "2 hold"]);
    }

    #[test]
    fn columns_are_aligned_whatever_stands_in_them() {
        let rows = [["A", "B"], ["long", "x"], ["\u{fc}", "y"]].map(|row| row.map(str::to_owned).to_vec());
        let plain = anstream::adapter::strip_str(&columns(&rows)).to_string();
        assert_eq!(plain, "  A     B\n  long  x\n  \u{fc}     y\n");
    }
}
