//! Clients that only write, one at each server, so that what the servers do is not taken for what the locks do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use curator_locks::testing::TestingServer;

use crate::{
    NAMESPACE, SESSION,
    support::{history::shared_clock, raw::RawClient},
};

const PAUSE: Duration = Duration::from_millis(50);

/// A server that answers no write for so long serves nobody.
const LONG: Duration = Duration::from_millis(500);

pub struct Witnesses {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<(u64, u64)>>>,
}

impl Witnesses {
    pub fn of(servers: &[TestingServer]) -> Witnesses {
        let end = Arc::<AtomicBool>::default();
        let watch = |server: &TestingServer| {
            let (address, end) = (server.connect_string(), end.clone());
            thread::spawn(move || outages(&address, &end))
        };
        let threads = servers.iter().map(watch).collect();
        Witnesses { end, threads }
    }

    /// From when to when one of the servers answered no write.
    pub fn outages(self) -> Vec<(u64, u64)> {
        self.end.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

fn outages(address: &str, end: &AtomicBool) -> Vec<(u64, u64)> {
    let connect = || RawClient::connect(address, SESSION).ok();
    let path = format!("/{NAMESPACE}");
    let (mut client, mut last, mut outages) = (connect(), shared_clock(), Vec::new());
    loop {
        // It is there already: a quorum has to agree on that answer, too.
        let is_written = client.as_mut().is_some_and(|client| client.create(&path, false).is_ok());
        let (now, is_over) = (shared_clock(), end.load(Relaxed));
        if (is_written || is_over) && now - last > LONG.as_nanos() as u64 {
            outages.push((last, now));
        }
        if is_over {
            return outages;
        }
        if is_written {
            last = now;
        } else {
            client = connect();
        }
        thread::sleep(PAUSE);
    }
}
