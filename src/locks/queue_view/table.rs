//! A queue as lines for a terminal: `Display` of [`LockQueue`] and `zklock` print them.

use std::{fmt, time::Duration};

use crate::{
    base::{
        clock,
        text::{cut, legible},
    },
    locks::queue_view::{
        kinds::{EntryState, LockKind},
        queue::{LockQueue, QueueEntry},
    },
};

/// The width of a table that fits a terminal, unless the data would not be legible.
pub const WIDTH: usize = 80;
const LEAST_DATA: usize = 8;

/// The spaces in front of a row, and between two columns.
pub const GAP: usize = 2;

/// The columns that every view has.
pub const HEADINGS: [&str; 6] = ["STATE", "MODE", "AGE", "SESSION", "NAMES", "DATA"];

/// The subject of one line of a [`QueueTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableLine {
    /// The lock: its path, its kind, how many hold and wait.
    Lock,
    /// The columns' headings.
    Headings,
    /// A contender that has the lock.
    Holder,
    /// A contender that waits.
    Waiter,
    /// A warning.
    Note,
    /// The children that are no contenders.
    Others,
}

/// A queue as a table, to which columns can be added.
#[derive(Debug)]
pub struct QueueTable<'a> {
    queue: &'a LockQueue,
    /// The headings, then the contenders.
    rows: Vec<Vec<String>>,
}

impl<'a> QueueTable<'a> {
    /// Makes the table with the columns that every view has. The last one is `DATA`.
    pub fn of(queue: &'a LockQueue) -> QueueTable<'a> {
        let contenders = queue.entries.iter().map(|entry| row(entry).to_vec());
        let rows = std::iter::once(HEADINGS.map(str::to_owned).to_vec()).chain(contenders).collect();
        QueueTable { queue, rows }
    }

    /// Adds a column in front of the one with the heading `before`, or behind all where there is none.
    pub fn add(&mut self, heading: &str, before: &str, cell: impl Fn(&QueueEntry) -> String) {
        let columns = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        let at = columns.iter().position(|name| name == before).unwrap_or(columns.len());
        let cells = std::iter::once(heading.to_owned()).chain(self.queue.entries.iter().map(cell));
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.insert(at, cell));
    }

    /// Cuts the last column at this width.
    pub fn fit(&mut self, width: usize) {
        let mut widths = widths(&self.rows);
        widths.pop();
        let in_front: usize = widths.iter().map(|width| width + GAP).sum::<usize>() + GAP;
        let most = width.saturating_sub(in_front).max(LEAST_DATA);
        for last in self.rows.iter_mut().filter_map(|row| row.last_mut()) {
            *last = cut(last, most);
        }
    }

    /// The lines, aligned, each with its subject.
    pub fn lines(&self) -> Vec<(TableLine, String)> {
        let queue = self.queue;
        let mut lines = vec![(TableLine::Lock, format!("{}  {}", queue.path, facts(queue).join(", ")))];
        if !queue.entries.is_empty() {
            let subjects = queue.entries.iter().map(|entry| match entry.holds() {
                true => TableLine::Holder,
                false => TableLine::Waiter,
            });
            lines.extend(std::iter::once(TableLine::Headings).chain(subjects).zip(aligned(&self.rows)));
        }
        lines.extend(queue.notes.iter().map(|note| (TableLine::Note, format!("  note: {note}"))));
        if !queue.others.is_empty() && queue.kind != LockKind::Unused {
            lines.push((TableLine::Others, format!("  others: {}", queue.others.join(", "))));
        }
        lines
    }
}

/// How wide each column is.
pub fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    (0..columns).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or_default()).collect()
}

/// The kind of lock, and how many hold it and wait.
pub fn facts(queue: &LockQueue) -> Vec<String> {
    let cached = queue.entries.iter().filter(|entry| matches!(entry.state, EntryState::Cached(_))).count();
    let (holds, waits) = (queue.holders().count() - cached, queue.waiters().count());
    let mut facts = vec![queue.kind.to_string()];
    facts.extend(queue.leases.filter(|leases| *leases != 1).map(|leases| format!("{leases} leases")));
    if queue.kind == LockKind::Unused {
        return facts;
    }
    match holds {
        0 if cached == 0 => facts.push("free".to_owned()),
        0 => {}
        1 => facts.push("1 holds".to_owned()),
        holds => facts.push(format!("{holds} hold")),
    }
    if cached > 0 {
        facts.push(format!("{cached} held or kept idle"));
    }
    match waits {
        _ if !queue.shows_waiters() => facts.push("waiters of this kind are not to be seen".to_owned()),
        0 => {}
        1 => facts.push("1 waits".to_owned()),
        waits => facts.push(format!("{waits} wait")),
    }
    facts
}

/// A contender's cells below [`HEADINGS`].
pub fn row(entry: &QueueEntry) -> [String; HEADINGS.len()] {
    let state = match entry.state {
        EntryState::Holds if entry.is_asked_back => "asked".to_owned(),
        EntryState::Holds | EntryState::Cached(_) => entry.state.to_string(),
        EntryState::Waits(position) => format!("waits {}", position + 1),
    };
    let session = if entry.session == 0 { "none".to_owned() } else { format!("{:#x}", entry.session) };
    let age = brief(age(entry.since_millis));
    [state, entry.mode.to_string(), age, session, entry.names.to_string(), data(entry)]
}

/// A line for each row, with each column as wide as its widest cell.
pub fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The znode's data for a terminal.
pub fn data(entry: &QueueEntry) -> String {
    entry.data.as_deref().map_or_else(|| "(not readable)".to_owned(), legible)
}

/// The age of a moment of the server's clock, by this machine's clock; never negative.
pub fn age(since_millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(clock::wall_millis().saturating_sub(since_millis)).unwrap_or_default())
}

/// `250ms`, `4s`, `3m 20s`, `2h 5m`, `6d 1h`.
pub fn brief(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A table of 80 columns: the path with what the queue is and how many hold and wait, a row for each contender, notes. The
/// locks [beside](LockQueue::beside) it follow, each behind an empty line. Ages are by this machine's clock.
impl fmt::Display for LockQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = QueueTable::of(self);
        table.fit(WIDTH);
        let lines: Vec<String> = table.lines().into_iter().map(|(_, line)| line).collect();
        f.write_str(&lines.join("\n"))?;
        self.beside.iter().try_for_each(|queue| write!(f, "\n\n{queue}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{
        holds::fencing::token::FencingToken,
        queue_view::kinds::{EntryMode, NameStyle, TenureState},
    };

    fn entry(state: EntryState, data: &str) -> QueueEntry {
        QueueEntry {
            state,
            mode: EntryMode::Exclusive,
            names: NameStyle::Curator,
            path: "/locks/order-42/lock-0000000001".to_owned(),
            session: 0x1_0000_a3b8,
            fencing_token: FencingToken::from_value(7),
            // A server's clock that is ahead.
            since_millis: i64::MAX,
            data: Some(data.as_bytes().to_vec()),
            is_asked_back: false,
        }
    }

    fn queue(entries: Vec<QueueEntry>) -> LockQueue {
        LockQueue { entries, leases: Some(1), ..LockQueue::new("/locks/order-42", LockKind::Mutex) }
    }

    #[test]
    fn it_prints_a_row_for_each_contender_notes_and_what_is_beside_it() {
        let holder = QueueEntry { session: 0, ..entry(EntryState::Holds, "host-17\n") };
        let waiter = QueueEntry { data: None, ..entry(EntryState::Waits(0), "") };
        let beside = LockQueue {
            entries: vec![entry(EntryState::Cached(TenureState::HeldOrIdle), "\u{fc}")],
            leases: Some(3),
            ..LockQueue::new("/locks/order-42", LockKind::Semaphore)
        };
        let notes = vec!["two kinds".to_owned()];
        let others = vec!["readme".to_owned()];
        let all = LockQueue { notes, others, beside: vec![beside], ..queue(vec![holder, waiter]) };
        let expected = "\
/locks/order-42  mutex, 1 holds, 1 waits
  STATE    MODE       AGE  SESSION      NAMES    DATA
  holds    exclusive  0ms  none         curator  host-17
  waits 1  exclusive  0ms  0x10000a3b8  curator  (not readable)
  note: two kinds
  others: readme

/locks/order-42  semaphore, 3 leases, 1 held or kept idle
  STATE   MODE       AGE  SESSION      NAMES    DATA
  cached  exclusive  0ms  0x10000a3b8  curator  \u{fc}";
        assert_eq!(all.to_string(), expected);
        assert_eq!(LockQueue::new("/none", LockKind::Unused).to_string(), "/none  unused");
        assert_eq!(queue(Vec::new()).to_string(), "/locks/order-42  mutex, free");
    }

    #[test]
    fn data_are_cut_so_that_the_table_fits_80_columns_and_columns_can_be_added() {
        let asked = QueueEntry { is_asked_back: true, ..entry(EntryState::Holds, &"x".repeat(60)) };
        let held = queue(vec![asked]);
        let lines: Vec<String> = held.to_string().lines().map(str::to_owned).collect();
        assert!(
            lines.last().is_some_and(|line| line.chars().count() == WIDTH && line.ends_with("xxx...")),
            "{lines:?}"
        );
        let mut table = QueueTable::of(&held);
        table.add("HOST", "NAMES", |_| "10.0.0.7".repeat(8));
        table.add("NODE", "", |entry| entry.path.clone());
        let lines = table.lines();
        let subjects: Vec<TableLine> = lines.iter().map(|(subject, _)| *subject).collect();
        assert_eq!(subjects, [TableLine::Lock, TableLine::Headings, TableLine::Holder]);
        let headings: Vec<&str> = lines.get(1).map(|(_, line)| line.split_whitespace().collect()).unwrap_or_default();
        assert_eq!(headings, ["STATE", "MODE", "AGE", "SESSION", "HOST", "NAMES", "DATA", "NODE"]);
        let mut narrow = QueueTable::of(&held);
        narrow.fit(10);
        assert!(narrow.lines().last().is_some_and(|(_, line)| line.ends_with("  xxxxx...")), "{narrow:?}");
    }

    #[test]
    fn ages_are_brief() {
        for (seconds, expected) in [(5, "5s"), (200, "3m 20s"), (7500, "2h 5m"), (522_000, "6d 1h")] {
            assert_eq!(brief(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(brief(Duration::from_millis(250)), "250ms");
        assert_eq!(age(i64::MAX), Duration::ZERO);
        assert!(age(0) > Duration::from_secs(1_700_000_000));
    }
}
