//! `zklock ls`: a lock's queue, as a table and as JSON.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use anstream::adapter::strip_str;
use clap::ColorChoice;
use crossbeam_channel::bounded;
pub(crate) use curator_locks::unversioned::table::{age, brief, data};
use curator_locks::{
    CuratorFramework, EntryState, LockQueue, QueueEntry, RetryForever,
    unversioned::table::{QueueTable, TableLine, WIDTH},
};
use jiff::{Timestamp, tz::TimeZone};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::{
    args::{Connection, Ls, Show, Wait},
    connection::{Settings, connect},
    failure::{Failure, NOT_HAD, Result, cannot},
    hosts::Hosts,
    voice,
};

pub(crate) const BOLD: u8 = 1;
pub(crate) const DIM: u8 = 2;
pub(crate) const RED: u8 = 31;
pub(crate) const GREEN: u8 = 32;
pub(crate) const YELLOW: u8 = 33;

/// The pause between two looks of `zklock wait`.
const PAUSE: Duration = Duration::from_millis(250);
/// Longer lines of prose are hard to read, however wide the terminal is.
const READABLE: usize = 100;
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

/// 0: nobody holds one of the locks; [`NOT_HAD`]: the time was up first. An outage is waited out, as by `zklock run`. Without any time
/// it is one look.
pub(crate) fn wait(connection: &Connection, args: &Wait) -> Result<u8> {
    let begun = Instant::now();
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    let (time, is_one_look) = (timeout.unwrap_or(Duration::MAX), timeout != args.timeout);
    let over = |why: &str| Failure { status: NOT_HAD, text: format!("{why} after {}", brief(begun.elapsed())) };
    let settings = Settings::of(connection)?;
    let client = settings.client(RetryForever::new(RETRY), None)?;
    settings.await_connection_for(time, &client, || false).map_err(|failure| match timeout {
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
        if is_one_look || time.saturating_sub(begun.elapsed()).is_zero() {
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

/// How wide the terminal is, where standard output is one.
pub(crate) fn columns() -> Option<usize> {
    tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The text in lines of no more than this width, unless a word is longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line = format!("{line} {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The help: lines that are too long go on below their last column. Clap breaks none, without one more dependency.
pub(crate) fn help(text: &str) -> String {
    let width = columns().map_or(WIDTH, |columns| columns.min(READABLE));
    text.lines().map(|line| format!("{}\n", in_columns(line, width))).collect()
}

fn in_columns(line: &str, width: usize) -> String {
    let seen = strip_str(line).to_string();
    let text = seen.rfind("  ").and_then(|gap| seen.get(gap + 2..)).unwrap_or(&seen);
    match line.strip_suffix(text) {
        Some(head) if seen.chars().count() > width => {
            let indent = seen.chars().count() - text.chars().count();
            let lines = wrapped(text, width.saturating_sub(indent));
            format!("{head}{}", lines.join(&format!("\n{:indent$}", "")))
        }
        _ => line.to_owned(),
    }
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

/// A lock as lines: a heading, a row for each contender, notes. With all columns, or in 80 of the terminal's.
pub(crate) fn table(queue: &LockQueue, hosts: &Hosts, is_long: bool) -> String {
    let mut table = QueueTable::of(queue);
    if hosts.are_wanted() {
        table.add("HOST", "NAMES", |entry| hosts.of(entry).unwrap_or("-").to_owned());
    }
    if is_long {
        table.add("SINCE", "AGE", |entry| since(entry.since_millis));
        table.add("NODE", "", |entry| below(&queue.path, &entry.path).to_owned());
    } else {
        table.fit(WIDTH);
    }
    table.lines().iter().map(|(subject, line)| format!("{}\n", painted(queue, *subject, line))).collect()
}

/// The znode's path below that of the lock.
fn below<'a>(lock: &str, node: &'a str) -> &'a str {
    node.strip_prefix(lock).map_or(node, |name| name.trim_start_matches('/'))
}

fn painted(queue: &LockQueue, subject: TableLine, line: &str) -> String {
    match subject {
        TableLine::Lock => {
            format!("{}{}", paint(BOLD, &queue.path), line.strip_prefix(&queue.path).unwrap_or_default())
        }
        TableLine::Headings => paint(DIM, line),
        TableLine::Holder => paint(GREEN, line),
        TableLine::Note => format!("  {}", paint(YELLOW, line.trim_start())),
        TableLine::Waiter | TableLine::Others => line.to_owned(),
    }
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

/// Whether its process keeps the lock between holds, so that it may be idle.
pub(crate) fn is_cached(entry: &QueueEntry) -> bool {
    matches!(entry.state, EntryState::Cached(_))
}

fn since(millis: i64) -> String {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default().to_zoned(TimeZone::system());
    let is_recent = age(millis) < Duration::from_secs(20 * 3600);
    at.strftime(if is_recent { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" }).to_string()
}

pub(crate) fn paint(code: u8, text: &str) -> String {
    format!("\x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_go_on_below_their_column() {
        assert_eq!(wrapped("two ticks or more", 9), ["two ticks", "or more"]);
        assert_eq!(wrapped("ab znode.container.checkIntervalMs c", 4), ["ab", "znode.container.checkIntervalMs", "c"]);
        assert_eq!((wrapped("a b", usize::MAX), wrapped("", 9)), (vec!["a b".to_owned()], vec![String::new()]));
        let option = "  \x1b[1m-n\x1b[0m  do not wait";
        assert_eq!(in_columns(option, 12), "  \x1b[1m-n\x1b[0m  do not\n      wait");
        assert_eq!(in_columns(option, 17), option);
        assert_eq!(in_columns("do not wait", 8), "do not\nwait");
        assert_eq!(in_columns("a \x1b[1mbold word\x1b[0m", 8), "a \x1b[1mbold word\x1b[0m", "as it is");
    }

    #[test]
    fn one_is_not_several() {
        let counted = [0, 1, 2].map(|count| counted(count, "holds", "hold"));
        assert_eq!(counted, ["0 hold", "1 holds", "2 hold"]);
    }
}
