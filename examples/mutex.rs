//! A mutex that threads and processes share: two clients add to a number in a file.
//!
//! ```text
//! cargo run --features testing --example mutex
//! ZK_CONNECT=zk1:2181 cargo run --features testing --example mutex     # in two terminals: they take turns
//! ```

mod common;

use std::{fs, path::Path, thread, time::Duration};

use common::{Result, Servers};
use curator_locks::{CuratorFramework, InterProcessMutex};

const PATH: &str = "/locks/counter";
const ROUNDS: u32 = 50;

/// What nobody should do without a lock: read, think, write.
fn add_one(file: &Path) -> Result<()> {
    let count: u32 = fs::read_to_string(file)?.parse()?;
    thread::sleep(Duration::from_millis(1));
    Ok(fs::write(file, (count + 1).to_string())?)
}

fn work(client: &CuratorFramework, file: &Path) -> Result<()> {
    let mutex = InterProcessMutex::new(client, PATH)?;
    for _ in 0..ROUNDS {
        // Dropping it would do as well; `release` also says how it went.
        let held = mutex.lock()?;
        add_one(file)?;
        held.release()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    // Two clients are two sessions, as two processes are.
    let (one, other) = (servers.client()?, servers.client()?);
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("counter");
    fs::write(&file, "0")?;
    thread::scope(|scope| {
        let works = [&one, &other].map(|client| scope.spawn(|| work(client, &file)));
        works.into_iter().try_for_each(|work| work.join().map_err(|_| "a thread panicked")?)
    })?;
    println!("2 clients x {ROUNDS} rounds: the file says {}", fs::read_to_string(&file)?);

    // As in Java, and re-entrant: who acquires twice releases twice.
    let mutex = InterProcessMutex::new(&one, PATH)?;
    mutex.acquire()?;
    mutex.acquire()?;
    let others = InterProcessMutex::new(&other, PATH)?;
    println!("the other client, without waiting: {}", others.try_lock()?.is_some());
    println!("the other client, after 200 ms: {}", others.acquire_timeout(Duration::from_millis(200))?);
    mutex.release()?;
    mutex.release()?;
    let held = others.lock_timeout(Duration::from_secs(30))?.ok_or("somebody else has had it for 30 s")?;
    println!("the other client, when it is free: true");
    Ok(held.release()?)
}
