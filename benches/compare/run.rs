//! One run: a throw-away server and the sides, which take turns.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use curator_locks::testing::TestingServer;
use tempfile::TempDir;

use crate::{
    peer::{Kind, Peer},
    results::{Fact, Results, Row, Storage, quantile, short, table},
    sides::Outcome,
};

pub struct Run {
    pub results: Results,
    pub is_quick: bool,
    storage: Storage,
    // In the order in which they go.
    peers: BTreeMap<Kind, Peer>,
    pub server: TestingServer,
    directory: TempDir,
}

impl Run {
    pub fn start(storage: Storage, is_quick: bool) -> Outcome<Run> {
        let directory = match storage {
            Storage::Tmpfs => tempfile::tempdir_in("/dev/shm")?,
            // Beside the results: what the system calls temporary may be in memory.
            Storage::Disk => tempfile::tempdir_in(disk())?,
        };
        let server = TestingServer::builder()
            .data_directory(directory.path())
            .force_sync(storage == Storage::Disk)
            // As in production: the quick start of a test server costs speed later.
            .jvm_option("-XX:TieredStopAtLevel=4")
            .jvm_option("-Xms512m")
            .jvm_option("-Xmx1g")
            // So that no directory goes between two rounds.
            .container_check_interval(Duration::from_secs(3600))
            .start()?;
        let mut run = Run { results: Results::default(), is_quick, server, storage, peers: BTreeMap::new(), directory };
        for kind in Kind::ALL {
            let peer = run.peer(kind)?;
            run.peers.insert(kind, peer);
        }
        Ok(run)
    }

    /// A second run on disk that goes on with the results.
    pub fn on_disk(self) -> Outcome<Run> {
        let Run { results, is_quick, .. } = self;
        Ok(Run { results, ..Run::start(Storage::Disk, is_quick)? })
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// One more process of a side.
    pub fn peer(&self, kind: Kind) -> Outcome<Peer> {
        Peer::start(kind, &self.server.connect_string())
    }

    pub fn ask(&mut self, kind: Kind, command: &str) -> Outcome<Vec<u64>> {
        self.peers.get_mut(&kind).ok_or("no such side")?.ask(command)
    }

    /// Sides that take turns, with what is measured of each: every round begins with another one, and two of four rounds go
    /// the other way round. One that always followed the same side would have the server as warm as that leaves it. (Every
    /// other round the other way round would undo the first rule where there are two sides.)
    pub fn turns<'a, S, T>(round: usize, sides: &'a [S], measured: &'a mut [T]) -> Vec<(&'a S, &'a mut T)> {
        let mut turns: Vec<_> = sides.iter().zip(measured).collect();
        let first = round % turns.len().max(1);
        turns.rotate_left(first);
        if round / 2 % 2 == 1 {
            turns.reverse();
        }
        turns
    }

    /// Fewer of what is repeated in a run that is only to be tried.
    pub fn rounds(&self, full: usize) -> usize {
        if self.is_quick { full.div_ceil(4) } else { full }
    }

    /// Until compilers of virtual machines have seen everything.
    pub fn warm_up(&mut self) -> Outcome<()> {
        let cycles = if self.is_quick { 500 } else { 1500 };
        for _ in 0..2 {
            for kind in Kind::ALL {
                self.ask(kind, &format!("cycles mutex /warm/{} {cycles}", kind.name()))?;
            }
        }
        Ok(())
    }

    pub fn say(&mut self, text: &str) {
        println!("{text}");
        self.results.report.push_str(text);
        self.results.report.push('\n');
    }

    /// Books what was measured, in nanoseconds: `typical` for the median, `all` for the 99th percentile.
    pub fn book(&mut self, workload: &str, side: Kind, n: usize, mut typical: Vec<f64>, mut all: Vec<f64>) {
        let median_us = quantile(&mut typical, 0.5) / 1000.0;
        let p99_us = quantile(&mut all, 0.99) / 1000.0;
        let (workload, storage) = (workload.to_owned(), self.storage);
        self.results.rows.push(Row { workload, side, n, storage, median_us, p99_us });
    }

    pub fn book_fact(&mut self, name: &str, side: Kind, n: usize, value: f64) {
        self.results.facts.push(Fact { name: name.to_owned(), side, n, value });
    }

    /// Prints what was booked for these workloads: a line for each workload and n, a column for each side.
    pub fn print(&mut self, title: &str, workloads: &[&str]) {
        let rows: Vec<Row> = self.results.rows.iter().filter(|row| row.storage == self.storage).cloned().collect();
        let mut keys: Vec<(&str, usize)> = Vec::new();
        for row in &rows {
            let workload = workloads.iter().find(|workload| **workload == row.workload);
            if let Some(key) = workload.map(|workload| (*workload, row.n))
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
        let is_here = |row: &Row, key: &(&str, usize)| row.workload == key.0 && row.n == key.1;
        let has = |side: &Kind| rows.iter().any(|row| row.side == *side && keys.iter().any(|key| is_here(row, key)));
        let sides: Vec<Kind> = Kind::EVERY.into_iter().filter(has).collect();
        let header = ["workload".to_owned(), "n".to_owned()];
        let header: Vec<String> = header.into_iter().chain(sides.iter().map(|side| side.name().to_owned())).collect();
        let lines: Vec<Vec<String>> = keys
            .iter()
            .map(|key| {
                let cells = sides.iter().map(|side| {
                    let row = rows.iter().find(|row| row.side == *side && is_here(row, key));
                    row.map_or("-".into(), |row| format!("{} ({})", short(row.median_us), short(row.p99_us)))
                });
                [key.0.to_owned(), key.1.to_string()].into_iter().chain(cells).collect()
            })
            .collect();
        let storage = self.storage.name();
        self.say(&format!("\n### {title}\n\nMicroseconds, median (99th percentile), {storage}.\n"));
        self.say(table(&header, &lines).trim_end());
    }

    /// Waits until the server keeps at least so many watches, and no more are on their way.
    pub fn await_watches(&self, least: u64) -> Outcome<()> {
        let begin = Instant::now();
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let count = self.server.watch_count()?;
            if count != last {
                (last, since) = (count, Instant::now());
            }
            if count >= least && since.elapsed() > Duration::from_millis(200) {
                return Ok(());
            }
            if begin.elapsed() > Duration::from_secs(120) {
                return Err(format!("{count} watches of {least}").into());
            }
            thread::sleep(Duration::from_millis(30));
        }
    }
}

fn disk() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    if directory.is_dir() { directory } else { std::env::temp_dir() }
}
