//! What the demo shows: a line while it runs, a table, the verdict.

use std::{
    collections::HashSet,
    fmt,
    io::{IsTerminal, Write, stdout},
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{lock::LockKind, sale::Books, seller::Receipt};

/// How often the line on a terminal changes.
const TERMINAL: Duration = Duration::from_millis(100);

/// How often a line is written elsewhere.
const LOG: Duration = Duration::from_secs(1);

/// The line that shows how far the sale is.
pub(crate) struct Progress {
    stock: u32,
    items: HashSet<u32>,
    sales: usize,
    start: Instant,
    next: Instant,
    every: Duration,
    terminal: bool,
}

impl Progress {
    pub(crate) fn begin(stock: u32) -> Progress {
        let (start, terminal) = (Instant::now(), stdout().is_terminal());
        let every = if terminal { TERMINAL } else { LOG };
        let progress = Progress { stock, items: HashSet::new(), sales: 0, start, next: start + every, every, terminal };
        progress.show();
        progress
    }

    pub(crate) fn sold(&mut self, item: u32) {
        self.sales += 1;
        self.items.insert(item);
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.every;
            self.show();
        }
    }

    pub(crate) fn end(self) {
        self.show();
        if self.terminal {
            println!();
        }
    }

    fn show(&self) {
        let (items, oversold) = (self.items.len(), self.sales - self.items.len());
        let line = format!(
            "  {:4.1} s: {items} of {} sold, {oversold} oversold",
            self.start.elapsed().as_secs_f64(),
            self.stock
        );
        if self.terminal {
            print!("\r{line}  ");
            // A terminal that does not show it is not worth failing for.
            let _ = stdout().flush();
        } else {
            println!("{line}");
        }
    }
}

pub(crate) fn print_table(books: &Books, lock: LockKind) {
    println!("  process      pid   sold   mean wait    p99 wait");
    for (process, (sold, pid)) in books.sold.iter().zip(&books.pids).enumerate() {
        println!("  {:>7}  {pid:>7}  {}", process + 1, row(sold, lock));
    }
    let all: Vec<Receipt> = books.sold.iter().flatten().copied().collect();
    println!("  {:>7}  {:>7}  {}", "all", "", row(&all, lock));
    println!(
        "  {} receipts for {} different items in {:.1} s; the file says {} left",
        books.sales(),
        books.items(),
        books.took.as_secs_f64(),
        books.left
    );
}

/// How fast each lock let them sell.
pub(crate) fn print_rates(sales: &[(LockKind, Books)]) {
    println!("\n  lock                         sales per second");
    for (lock, books) in sales {
        let sales = u32::try_from(books.sales()).unwrap_or(u32::MAX);
        let rate = f64::from(sales) / books.took.as_secs_f64();
        println!("  {:<27}  {rate:>16.1}", lock.title());
    }
}

fn row(sold: &[Receipt], lock: LockKind) -> String {
    let waits: Vec<Duration> = sold.iter().map(|receipt| receipt.waited).collect();
    let show = |wait: Option<Duration>| match wait {
        Some(wait) if lock != LockKind::None => format!("{:.1} ms", wait.as_secs_f64() * 1000.0),
        _ => "-".to_owned(),
    };
    format!("{:>5}  {:>10}  {:>10}", sold.len(), show(mean(&waits)), show(p99(waits)))
}

fn mean(waits: &[Duration]) -> Option<Duration> {
    let count = u32::try_from(waits.len()).ok()?;
    waits.iter().sum::<Duration>().checked_div(count)
}

/// The shortest wait that 99 of 100 did not exceed.
fn p99(mut waits: Vec<Duration>) -> Option<Duration> {
    waits.sort_unstable();
    let rank = (waits.len() * 99).div_ceil(100);
    waits.get(rank.checked_sub(1)?).copied()
}

/// How the demo ended.
pub(crate) enum Verdict {
    Ok { stock: u32, control_oversold: usize },
    Failed(String),
}

impl Verdict {
    pub(crate) fn of<'a>(stock: u32, guarded: impl Iterator<Item = &'a Books>, control: &Books) -> Verdict {
        let control_oversold = control.oversold();
        let is_right = |books: &Books| {
            let is_whole = usize::try_from(stock).is_ok_and(|stock| stock == books.items());
            is_whole && books.oversold() == 0 && books.left == 0
        };
        let sales: Vec<&Books> = guarded.collect();
        let Some(last) = sales.iter().find(|books| !is_right(books)).or(sales.last()) else {
            return Verdict::Failed("nothing was sold".to_owned());
        };
        if is_right(last) && control_oversold > 0 {
            return Verdict::Ok { stock, control_oversold };
        }
        let reason = if control_oversold == 0 { "; the control has to oversell" } else { "" };
        Verdict::Failed(format!(
            "{} of {stock} sold, {} oversold, {} left in the file (without the lock: {control_oversold} oversold{reason})",
            last.items(),
            last.oversold(),
            last.left,
        ))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Verdict::Ok { .. } => ExitCode::SUCCESS,
            Verdict::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Ok { stock, control_oversold } => {
                write!(f, "ok: {stock} of {stock} sold, 0 oversold (without the lock: {control_oversold} oversold)")
            }
            Verdict::Failed(what) => write!(f, "FAILED: {what}"),
        }
    }
}
