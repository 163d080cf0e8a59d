//! A long job that holds a lock, and somebody who asks for it politely.
//!
//! ```text
//! cargo run --features testing --example revocation
//! ```

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use common::{Result, Servers};
use curator_locks::{CuratorFramework, InterProcessMutex, LockQueue, Revoker};

const PATH: &str = "/table";

/// Works in pieces, so that it can stop between two of them.
fn long_job(client: &CuratorFramework) -> Result<()> {
    let mutex = InterProcessMutex::new(client, PATH)?.with_lock_data("the nightly job");
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    mutex.on_revocation(move |_| asked.store(true, Ordering::SeqCst));
    let held = mutex.lock()?;
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(10)); // a piece
    }
    let (who, why) = held.revocation().unwrap_or_default();
    println!("the nightly job stops for {who}: {why}");
    Ok(held.release()?)
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let (one, other) = (servers.client()?, servers.client()?);
    thread::scope(|scope| {
        let job = scope.spawn(|| long_job(&one));
        let holder = loop {
            // Who holds it, of whichever language, is to be seen.
            let queue = LockQueue::inspect(&other, PATH)?;
            if let Some(holder) = queue.holders().next() {
                break holder.clone();
            }
            thread::sleep(Duration::from_millis(10));
        };
        println!("held by {}", String::from_utf8_lossy(holder.data.as_deref().unwrap_or_default()));
        let mutex = InterProcessMutex::new(&other, PATH)?;
        Revoker::request(&other, &holder.path, "the operator", "a repair")?;
        let held = mutex.lock()?;
        println!("the operator has it");
        held.release()?;
        job.join().map_err(|_| "a thread panicked")?
    })
}
