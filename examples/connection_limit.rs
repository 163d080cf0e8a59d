//! At most so many connections to a database, counted over all processes: a semaphore whose limit can change.
//!
//! ```text
//! cargo run --features testing --example connection_limit
//! ```

mod common;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use common::{Result, Servers};
use curator_locks::{CuratorFramework, InterProcessSemaphoreV2, SharedCount};

/// Connections that are open now, and the most that were.
#[derive(Default)]
struct Database {
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Database {
    fn query(&self) {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn queries(client: &CuratorFramework, limit: &SharedCount, database: &Database) -> Result<()> {
    let connections = InterProcessSemaphoreV2::with_shared_count(client, "/database/connections", limit)?;
    for _ in 0..3 {
        let lease = connections.acquire()?;
        database.query();
        lease.close()?; // or drop
    }
    Ok(())
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let client = servers.client()?;
    // All processes read the limit from one znode. One that is fixed: `InterProcessSemaphoreV2::new(&client, path, 3)`.
    let limit = SharedCount::new(&client, "/database-limit", 3)?;
    limit.start()?;
    for connections in [3, 5] {
        limit.set_count(connections)?; // those who wait hear of it
        let database = Database::default();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..8).map(|_| scope.spawn(|| queries(&client, &limit, &database))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
        })?;
        let is_kept = database.most.load(Ordering::SeqCst) <= usize::try_from(connections)?;
        println!("8 threads made 24 queries, never more than {connections} at a time: {is_kept}");
    }
    limit.close();
    // A count is kept for ever. This one is of no use without the example.
    Ok(client.delete().for_path("/database-limit")?)
}
