//! A flash sale: processes and threads sell one stock, and only a lock keeps them from selling it twice.
//!
//! Three processes of eight threads each sell a stock of 200. The stock is a number in a plain file, and a sale is what
//! nobody should do without a lock: read the number, think, write the number less one. The sale runs twice, under an
//! [`InterProcessMutex`](curator_locks::InterProcessMutex) and without any lock. The first has to sell each item exactly
//! once; the second is the control that shows what the lock is good for, and has to oversell. With `--caching` it runs
//! a third time, under a mutex that stays in its process while no other one wants it ([`Caching`](curator_locks::Caching)).
//!
//! ```text
//! cargo run --release --features testing --example flash_sale -- --help
//! ```
//!
//! It starts a ZooKeeper server of its own and throws it away afterwards. With `ZK_CONNECT=host:port,...` it uses that
//! ensemble, below a path of its own that it removes in the end.

#[path = "../common/mod.rs"]
mod common;
mod ensemble;
mod lock;
mod report;
mod sale;
mod seller;
mod stock;

use std::{error::Error, num::NonZeroUsize, process::ExitCode};

use clap::{Parser, Subcommand};

use ensemble::Ensemble;
use lock::LockKind;
use report::Verdict;
use sale::{Books, Sale};

type Failure = Box<dyn Error + Send + Sync>;

/// Sells a stock from several processes under one lock, and once more without it.
#[derive(Debug, Parser)]
struct Demo {
    /// The lock to sell under; `none` shows that this demo can fail
    #[arg(long, value_name = "NAME", default_value = "mutex")]
    lock: LockKind,
    /// Sell once more under a mutex with `Caching`, and compare the sales per second
    #[arg(long, conflicts_with = "lock")]
    caching: bool,
    /// Seller processes
    #[arg(long, value_name = "N", default_value = "3")]
    processes: NonZeroUsize,
    /// Threads of each seller process
    #[arg(long, value_name = "N", default_value = "8")]
    threads: NonZeroUsize,
    /// Items in stock
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    stock: u32,
    /// Time between reading the stock and writing it back, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    think: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program starts itself again as.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Seller(seller::Seller),
}

fn main() -> ExitCode {
    let demo = Demo::parse();
    if let Some(Role::Seller(seller)) = demo.role {
        return match seller.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("seller {}: {}", std::process::id(), with_causes(&*error));
                ExitCode::FAILURE
            }
        };
    }
    let verdict = demo.run().unwrap_or_else(|error| Verdict::Failed(with_causes(&*error)));
    println!("\ndemo: {verdict}");
    verdict.exit_code()
}

impl Demo {
    fn run(&self) -> Result<Verdict, Failure> {
        let (stock, think) = (self.stock, self.think);
        println!(
            "flash sale: {} processes x {} threads sell a stock of {stock}, which is a number in a plain file",
            self.processes, self.threads
        );
        println!("one sale: read the number, think for {think} ms, write the number less one");
        let ensemble = Ensemble::get()?;
        println!("ZooKeeper: {ensemble}");
        let books = self.sell_all(&ensemble);
        let left = ensemble.leave();
        let (guarded, control) = books?;
        left?;
        if self.caching {
            report::print_rates(&guarded);
        }
        Ok(Verdict::of(stock, guarded.iter().map(|(_, books)| books), &control))
    }

    /// Under each lock, and without any.
    fn sell_all(&self, ensemble: &Ensemble) -> Result<(Vec<(LockKind, Books)>, Books), Failure> {
        let mut guarded = vec![(self.lock, self.sell(ensemble, self.lock)?)];
        if self.caching {
            guarded.push((LockKind::CachedMutex, self.sell(ensemble, LockKind::CachedMutex)?));
        }
        Ok((guarded, self.sell(ensemble, LockKind::None)?))
    }

    fn sell(&self, ensemble: &Ensemble, lock: LockKind) -> Result<Books, Failure> {
        match lock {
            LockKind::None => println!("\nselling without a lock"),
            _ => println!("\nselling under {}", lock.title()),
        }
        let sale = Sale {
            connect_string: ensemble.connect_string(),
            lock_path: ensemble.lock_path(),
            lock,
            processes: self.processes.get(),
            threads: self.threads.get(),
            stock: self.stock,
            think: self.think,
        };
        let books = sale.run()?;
        report::print_table(&books, lock);
        Ok(books)
    }
}

/// An error and what caused it, on one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.trim_end().replace('\n', "; ")
}
