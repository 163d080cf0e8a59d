//! One sale: starts the sellers and keeps the books by their receipts.

use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use crate::{
    Failure,
    lock::LockKind,
    report::Progress,
    seller::{READY, Receipt},
    stock::Stock,
};

/// Longer than any wait that goes well; a seller that is silent for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);

pub(crate) struct Sale {
    pub(crate) connect_string: String,
    pub(crate) lock_path: String,
    pub(crate) lock: LockKind,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) stock: u32,
    pub(crate) think: u64,
}

/// What was sold, by the sellers' receipts.
pub(crate) struct Books {
    /// By process.
    pub(crate) sold: Vec<Vec<Receipt>>,
    pub(crate) pids: Vec<u32>,
    /// What the file says in the end.
    pub(crate) left: u32,
    pub(crate) took: Duration,
}

impl Books {
    /// How many sales there were.
    pub(crate) fn sales(&self) -> usize {
        self.sold.iter().map(Vec::len).sum()
    }

    /// How many different items were sold.
    pub(crate) fn items(&self) -> usize {
        self.by_item().len()
    }

    /// How many sales sold what was sold already.
    pub(crate) fn oversold(&self) -> usize {
        self.sales() - self.items()
    }

    fn by_item(&self) -> HashMap<u32, usize> {
        let mut times = HashMap::new();
        for receipt in self.sold.iter().flatten() {
            *times.entry(receipt.item).or_default() += 1;
        }
        times
    }
}

/// What is heard of a seller.
enum News {
    Ready,
    Sold(Receipt),
    Ended,
    Garbled(String),
}

/// Seller processes; dropping them ends them.
struct Staff(Vec<Child>);

impl Drop for Staff {
    fn drop(&mut self) {
        for seller in &mut self.0 {
            // An error means that it has ended.
            let _ = seller.kill();
            let _ = seller.wait();
        }
    }
}

impl Sale {
    pub(crate) fn run(&self) -> Result<Books, Failure> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("stock");
        let stock = Stock::at(&file);
        stock.write(self.stock)?;

        let (sender, news) = channel();
        let mut staff = Staff(Vec::new());
        for process in 0..self.processes {
            let mut seller = self.hire(&file)?;
            listen(process, seller.stdout.take(), sender.clone());
            staff.0.push(seller);
        }
        // From here on the channel ends when the last seller has.
        drop(sender);

        self.await_ready(&news)?;
        let start = Instant::now();
        for seller in &mut staff.0 {
            seller.stdin.take().ok_or("a seller without standard input")?.write_all(b"go\n")?;
        }
        let sold = self.collect(&news)?;
        let took = start.elapsed();
        let pids = staff.0.iter().map(Child::id).collect();
        for seller in &mut staff.0 {
            check(seller.id(), seller.wait()?)?;
        }
        Ok(Books { sold, pids, left: stock.read()?, took })
    }

    fn hire(&self, file: &std::path::Path) -> Result<Child, Failure> {
        let lock = self.lock.to_possible_value().ok_or("a lock without a name")?;
        let mut command = Command::new(env::current_exe()?);
        command
            .arg("seller")
            .args(["--connect", &self.connect_string])
            .args(["--path", &self.lock_path])
            .args(["--lock", lock.get_name()])
            .arg("--file")
            .arg(file)
            .args(["--threads", &self.threads.to_string()])
            .args(["--think", &self.think.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Ok(command.spawn()?)
    }

    fn await_ready(&self, news: &Receiver<(usize, News)>) -> Result<(), Failure> {
        for _ in 0..self.processes {
            match news.recv_timeout(SILENCE) {
                Ok((_, News::Ready)) => {}
                Ok((process, _)) => return Err(format!("seller {} ended before the sale began", process + 1).into()),
                Err(_) => return Err(format!("not all sellers were ready within {SILENCE:?}").into()),
            }
        }
        Ok(())
    }

    /// Collects receipts until all sellers have gone home.
    fn collect(&self, news: &Receiver<(usize, News)>) -> Result<Vec<Vec<Receipt>>, Failure> {
        let mut sold = vec![Vec::new(); self.processes];
        let mut progress = Progress::begin(self.stock);
        let mut at_work = self.processes;
        while at_work > 0 {
            match news.recv_timeout(SILENCE + Duration::from_millis(self.think)) {
                Ok((process, News::Sold(receipt))) => {
                    progress.sold(receipt.item);
                    sold.get_mut(process).ok_or("a receipt of nobody")?.push(receipt);
                }
                Ok((_, News::Ended)) => at_work -= 1,
                Ok((process, News::Garbled(line))) => return Err(format!("seller {}: {line}", process + 1).into()),
                Ok((_, News::Ready)) => {}
                Err(_) => return Err(format!("no sale and no end for {SILENCE:?}: the sellers hang").into()),
            }
        }
        progress.end();
        Ok(sold)
    }
}

/// Reads what a seller says, on a thread of its own.
fn listen(process: usize, out: Option<ChildStdout>, news: Sender<(usize, News)>) {
    thread::spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            let heard = match line.parse() {
                _ if line == READY => News::Ready,
                Ok(receipt) => News::Sold(receipt),
                Err(error) => News::Garbled(error),
            };
            // Nobody listens any more once the sale has failed.
            let _ = news.send((process, heard));
        }
        let _ = news.send((process, News::Ended));
    });
}

fn check(pid: u32, status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(format!("the seller with pid {pid} ended with {status}").into()) }
}
