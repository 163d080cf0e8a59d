//! The page that `zklock top` draws: lines for a terminal of a certain size.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use curator_locks::{
    EntryMode, LockQueue, QueueEntry,
    unversioned::table::{GAP, HEADINGS, aligned, cut, facts, row, widths},
};

use super::{
    history::{GRANTS, Grant, History, LockId, clock_time, id_of},
    keys::Key,
};
use crate::{
    failure::Result,
    show::{self, BOLD, DIM, GREEN, RED, YELLOW},
    tree::{self, Walk},
};

/// From which age on a waiter is yellow, and red.
const LONG: Duration = Duration::from_secs(10);
const VERY_LONG: Duration = Duration::from_secs(60);

/// By how much more than three pauses the last look is older before that is said: a busy server is no outage.
const LATE: Duration = Duration::from_secs(2);

/// How many contenders of one lock are shown, and how many circles and notes.
const CONTENDERS: usize = 5;
const NOTES: usize = 3;

/// From which width on sessions, and whose names they are, are shown.
const WIDE: usize = 120;

/// As wide as most ages: `23h 59m`.
const AGE: usize = 7;

/// In what order the locks stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    Hold,
    Waiters,
    HandOvers,
    Path,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Wait => Order::Hold,
            Order::Hold => Order::Waiters,
            Order::Waiters => Order::HandOvers,
            Order::HandOvers => Order::Path,
            Order::Path => Order::Wait,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Wait => "longest wait",
            Order::Hold => "longest hold",
            Order::Waiters => "most waiters",
            Order::HandOvers => "most hand-overs",
            Order::Path => "path",
        }
    }
}

/// A line, and its colour.
struct PageLine {
    text: String,
    color: Option<u8>,
}

impl PageLine {
    fn new(text: impl Into<String>, color: u8) -> PageLine {
        PageLine { text: text.into(), color: Some(color) }
    }
}

/// The last look, and how it is to be shown.
pub(super) struct State {
    root: String,
    /// Between two looks.
    pause: Duration,
    has_colors: bool,
    walk: Walk,
    circles: Vec<Vec<String>>,
    history: History,
    /// How often a second locks change hands.
    rates: BTreeMap<LockId, f64>,
    looked_at: String,
    seen_at: Instant,
    /// Why the last look has failed, if it has.
    failure: Option<String>,
    order: Order,
    /// The first line of the locks that is shown, how many there is room for, and how many there are.
    offset: usize,
    room: usize,
    lines: usize,
}

impl State {
    pub(super) fn new(root: &str, pause: Duration, has_colors: bool) -> State {
        State {
            root: root.to_owned(),
            pause,
            has_colors,
            walk: Walk::default(),
            circles: Vec::new(),
            history: History::default(),
            rates: BTreeMap::new(),
            looked_at: clock_time(),
            seen_at: Instant::now(),
            failure: None,
            order: Order::Wait,
            offset: 0,
            room: 0,
            lines: 0,
        }
    }

    /// Takes what a look has found. One that has failed leaves what was seen before, and is said.
    pub(super) fn seen(&mut self, walk: Result<Walk>, at: Instant) {
        match walk {
            Ok(walk) => {
                self.history.look(&walk.locks, at);
                self.rates = self.history.rates(at);
                self.circles = walk.circles();
                self.walk = walk;
                self.failure = None;
                (self.looked_at, self.seen_at) = (clock_time(), at);
            }
            Err(failure) => self.failure = Some(failure.text),
        }
    }

    pub(super) fn press(&mut self, key: Key) {
        let page = self.room.max(1);
        self.offset = match key {
            Key::Up => self.offset.saturating_sub(1),
            Key::Down => self.offset + 1,
            Key::PageUp => self.offset.saturating_sub(page),
            Key::PageDown => self.offset + page,
            Key::First => 0,
            Key::Last => usize::MAX,
            Key::Sort => {
                self.order = self.order.next();
                0
            }
            Key::Quit | Key::Look => self.offset,
        }
        .min(self.lines.saturating_sub(page));
    }

    /// The lines for a terminal of so many columns and rows, painted.
    pub(super) fn page(&mut self, (columns, rows): (usize, usize), now: Instant) -> Vec<String> {
        let (mut above, mut locks, mut below) = (self.head(now), self.locks(columns), self.grants(columns, rows));
        let heading = (locks.len() > 1).then(|| locks.remove(0));
        let taken = above.len() + usize::from(heading.is_some()) + below.len();
        (self.lines, self.room) = (locks.len(), rows.saturating_sub(taken));
        self.offset = self.offset.min(self.lines.saturating_sub(self.room));
        if let Some(keys) = above.get_mut(1) {
            keys.text.push_str(&self.position());
        }
        above.extend(heading);
        above.extend(locks.into_iter().skip(self.offset).take(self.room));
        let gap = rows.saturating_sub(above.len() + below.len());
        above.extend((0..gap).map(|_| PageLine { text: String::new(), color: None }));
        above.append(&mut below);
        above.truncate(rows);
        above.iter().map(|line| self.painted(line, columns)).collect()
    }

    fn painted(&self, line: &PageLine, columns: usize) -> String {
        let text = cut(&line.text, columns);
        line.color.filter(|_| self.has_colors).map_or(text.clone(), |color| show::paint(color, &text))
    }

    fn position(&self) -> String {
        if self.lines <= self.room {
            return String::new();
        }
        let last = (self.offset + self.room).min(self.lines);
        format!("  {}-{last}/{}", self.offset + 1, self.lines)
    }

    /// The numbers of all locks, and the keys.
    fn head(&self, now: Instant) -> Vec<PageLine> {
        let locks = &self.walk.locks;
        let held = locks.iter().filter(|lock| lock.is_held()).count();
        let waits = locks.iter().map(|lock| lock.waiters().count()).sum();
        let facts = [
            show::counted(locks.len(), "lock", "locks"),
            format!("{held} held"),
            show::counted(waits, "waits", "wait"),
            format!("{:.1} hand-overs/s", self.rates.values().fold(0.0, |sum, rate| sum + rate)),
        ];
        let text = format!("zklock top {}  {}  {}", self.root, self.looked_at, facts.join(", "));
        let keys = format!("by {}   s sorts, space looks, j k scroll, q quits", self.order.name());
        let mut lines = vec![PageLine::new(text, BOLD), PageLine::new(keys, DIM)];
        let age = now.saturating_duration_since(self.seen_at);
        match &self.failure {
            Some(failure) => lines.push(PageLine::new(format!("since then: {failure}"), RED)),
            None if age > self.pause.saturating_mul(3).saturating_add(LATE) => {
                let (age, at) = (show::brief(age), &self.looked_at);
                let late = format!("no look has come back for {age}; what follows, but for ages, is of {at}");
                lines.push(PageLine::new(late, YELLOW));
            }
            None => {}
        }
        let circles = self.circles.iter().map(|circle| PageLine::new(tree::say_circle(circle), RED));
        let notes = self.walk.notes.iter().map(|note| PageLine::new(format!("note: {note}"), YELLOW));
        lines.extend(circles.chain(notes).take(NOTES));
        lines
    }

    /// A heading, and each lock with its contenders, in order.
    fn locks(&self, columns: usize) -> Vec<PageLine> {
        let mut locks: Vec<&LockQueue> = self.walk.locks.iter().collect();
        if locks.is_empty() {
            return vec![PageLine { text: format!("no locks below {}", self.root), color: None }];
        }
        locks.sort_by_cached_key(|lock| (Reverse(self.weight(lock)), lock.path.clone()));
        let shown = locks.iter().flat_map(|lock| lock.entries.iter().take(CONTENDERS).map(move |one| (*lock, one)));
        let mut rows = vec![cells(HEADINGS.map(str::to_owned), "WAITS FOR".to_owned(), columns)];
        rows.extend(shown.map(|(lock, one)| cells(row(one), waits_for(lock, one).unwrap_or_default(), columns)));
        fit(&mut rows, columns);
        let mut texts = aligned(&rows).into_iter();
        let mut lines: Vec<PageLine> = texts.next().into_iter().map(|heading| PageLine::new(heading, DIM)).collect();
        for lock in locks {
            lines.push(PageLine::new(self.title(lock, columns), BOLD));
            let of_lock = lock.entries.iter().take(CONTENDERS).zip(texts.by_ref());
            lines.extend(of_lock.map(|(one, text)| PageLine { text, color: color_of(one) }));
            match lock.entries.len().saturating_sub(CONTENDERS) {
                0 => {}
                more => lines.push(PageLine::new(format!("  and {more} more"), DIM)),
            }
        }
        lines
    }

    /// The measure by which a lock comes in front of others.
    fn weight(&self, lock: &LockQueue) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self.order {
            Order::Wait => longest(lock.waiters()).map_or(0, |wait| millis(wait) + 1),
            Order::Hold => longest(lock.holders()).map_or(0, |hold| millis(hold) + 1),
            Order::Waiters => lock.waiters().count() as u64,
            // Rates are small, and never negative.
            Order::HandOvers => (self.rate_of(lock) * 1e6) as u64,
            Order::Path => 0,
        }
    }

    fn rate_of(&self, lock: &LockQueue) -> f64 {
        self.rates.get(&id_of(lock)).copied().unwrap_or_default()
    }

    fn title(&self, lock: &LockQueue, columns: usize) -> String {
        let mut facts = facts(lock);
        facts.extend(longest(lock.waiters()).map(|wait| format!("longest {}", show::brief(wait))));
        let rate = self.rate_of(lock);
        // Less would be shown as 0.0.
        if rate >= 0.05 {
            facts.push(format!("{rate:.1} hand-overs/s"));
        }
        format!("{}  {}", tail(&lock.path, columns / 2), facts.join(", "))
    }

    /// The last grants, in no more than the lower half of the terminal.
    fn grants(&self, columns: usize, rows: usize) -> Vec<PageLine> {
        let room = GRANTS.min((rows / 2).saturating_sub(2));
        let row = |grant: &Grant| {
            vec![grant.at.clone(), grant.waited.clone(), tail(&grant.path, columns / 3), grant.name.clone()]
        };
        let rows: Vec<Vec<String>> = self.history.grants().take(room).map(row).collect();
        if rows.is_empty() {
            return Vec::new();
        }
        let lines = aligned(&rows).into_iter().map(|text| PageLine { text, color: None });
        [PageLine::new("LAST GRANTS", DIM)].into_iter().chain(lines).collect()
    }
}

fn longest<'a>(contenders: impl Iterator<Item = &'a QueueEntry>) -> Option<Duration> {
    contenders.map(|one| show::age(one.since_millis)).max()
}

fn color_of(entry: &QueueEntry) -> Option<u8> {
    if entry.holds() {
        return Some(GREEN);
    }
    match show::age(entry.since_millis) {
        age if age >= VERY_LONG => Some(RED),
        age if age >= LONG => Some(YELLOW),
        _ => None,
    }
}

/// Whom a contender waits for: the next one in front that excludes it, or the holders.
fn waits_for(lock: &LockQueue, entry: &QueueEntry) -> Option<String> {
    if entry.holds() {
        return None;
    }
    let excludes = |other: &&QueueEntry| entry.mode != EntryMode::Read || other.mode != EntryMode::Read;
    let in_front: Vec<&QueueEntry> =
        lock.entries.iter().take_while(|other| other.path != entry.path).filter(excludes).collect();
    let last = in_front.last()?;
    let holders = in_front.iter().filter(|other| other.holds()).count();
    Some(match (last.holds(), holders) {
        // In front, as the end is cut where the terminal is narrow.
        (true, 2..) => format!("{holders} holders, {}", show::name(last)),
        _ => show::name(last),
    })
}

/// The cells of a row that the terminal has room for, in their order; the last two share what the others leave.
fn cells(row: [String; HEADINGS.len()], waits_for: String, columns: usize) -> Vec<String> {
    let [state, mode, age, session, names, data] = row;
    // So that the columns behind it keep their places from look to look.
    let age = format!("{age:AGE$}");
    match columns >= WIDE {
        true => vec![state, mode, age, session, names, data, waits_for],
        false => vec![state, mode, age, data, waits_for],
    }
}

/// Cuts the last two columns so that both are legible.
fn fit(rows: &mut [Vec<String>], columns: usize) {
    let mut in_front = widths(rows);
    let (other, data) = (in_front.pop().unwrap_or_default(), in_front.pop().unwrap_or_default());
    let room = columns.saturating_sub(in_front.iter().map(|width| width + GAP).sum::<usize>() + 2 * GAP);
    // Whichever is shorter than its half leaves the rest to the other one.
    let data = data.min((room / 2).max(room.saturating_sub(other)));
    for row in rows.iter_mut() {
        for (cell, most) in row.iter_mut().skip(in_front.len()).zip([data, room - data]) {
            *cell = cut(cell, most);
        }
    }
}

/// The end of a path tells more than its begin.
fn tail(path: &str, most: usize) -> String {
    let count = path.chars().count();
    if count <= most {
        return path.to_owned();
    }
    "...".chars().chain(path.chars().skip(count - most.saturating_sub(3))).collect()
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_where_it_tells_least() {
        assert_eq!((tail("/locks/a", 8), tail("/locks/orders/a", 8)), ("/locks/a".to_owned(), "...ers/a".to_owned()));
        let row = |data: &str, other: &str| ["waits 1", data, other].map(str::to_owned).to_vec();
        let fitted = |data: &str, other: &str, columns| {
            let mut rows = vec![row(data, other)];
            fit(&mut rows, columns);
            (rows[0][1].clone(), rows[0][2].clone())
        };
        let (long, short) = ("0123456789abcdef", "0123");
        assert_eq!(fitted(long, short, 80), (long.to_owned(), short.to_owned()));
        // 2 + 7 + 2 + 2 leave 12.
        assert_eq!(fitted(long, short, 25), ("01234...".to_owned(), short.to_owned()));
        assert_eq!(fitted(short, long, 25), (short.to_owned(), "01234...".to_owned()));
        assert_eq!(fitted(long, long, 25), ("012...".to_owned(), "012...".to_owned()));
        assert_eq!(fitted(long, long, 3), (String::new(), String::new()));
    }

    #[test]
    fn orders_come_in_turn() {
        let orders: Vec<&str> =
            std::iter::successors(Some(Order::Wait), |order| Some(order.next())).take(6).map(Order::name).collect();
        assert_eq!(orders.first(), orders.last());
    }
}
