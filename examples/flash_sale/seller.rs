//! A seller process: some threads that sell until nothing is left.
//!
//! It says `ready` on its standard output, waits for a line on its standard input, and then writes one [`Receipt`] for
//! each sale.

use std::{
    fmt,
    io::{self, Write},
    path::PathBuf,
    str::FromStr,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use curator_locks::InterProcessLock;

use crate::{Failure, ensemble, lock::LockKind, stock::Stock};

/// What a seller is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Seller {
    #[arg(long)]
    pub(crate) connect: String,
    #[arg(long)]
    pub(crate) path: String,
    #[arg(long)]
    pub(crate) lock: LockKind,
    #[arg(long)]
    pub(crate) file: PathBuf,
    #[arg(long)]
    pub(crate) threads: usize,
    #[arg(long)]
    pub(crate) think: u64,
}

/// The proof of one sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Which item was sold: the number that the seller read.
    pub(crate) item: u32,
    /// How long it waited for the lock.
    pub(crate) waited: Duration,
}

/// What a seller says when it is connected.
pub(crate) const READY: &str = "ready";

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sold {} {}", self.item, self.waited.as_micros())
    }
}

impl FromStr for Receipt {
    type Err = String;

    fn from_str(line: &str) -> Result<Receipt, String> {
        let parse = || {
            let (item, waited) = line.strip_prefix("sold ")?.split_once(' ')?;
            Some(Receipt { item: item.parse().ok()?, waited: Duration::from_micros(waited.parse().ok()?) })
        };
        parse().ok_or_else(|| format!("not a receipt: {line:?}"))
    }
}

impl Seller {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let client = ensemble::connect(&self.connect)?;
        let lock = self.lock.make(&client, &self.path)?;
        say(READY)?;
        let mut go = String::new();
        if io::stdin().read_line(&mut go)? == 0 {
            return Err("the sale was called off".into());
        }
        let start = Barrier::new(self.threads);
        let result = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        self.sell(&*lock)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
        });
        client.close();
        result
    }

    /// Sells until nothing is left.
    fn sell(&self, lock: &dyn InterProcessLock) -> Result<(), Failure> {
        loop {
            let asked = Instant::now();
            lock.acquire()?;
            let sold = self.sell_one(asked.elapsed());
            lock.release()?;
            if !sold? {
                return Ok(());
            }
        }
    }

    /// Read, think, write. `false`: nothing is left.
    fn sell_one(&self, waited: Duration) -> Result<bool, Failure> {
        let stock = Stock::at(&self.file);
        let item = stock.read()?;
        if item == 0 {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(self.think));
        stock.write(item - 1)?;
        // Before the release: what was sold counts, whatever becomes of the lock.
        say(Receipt { item, waited })?;
        Ok(true)
    }
}

fn say(line: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
