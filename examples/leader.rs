//! One of several processes leads, and the next one takes over when it goes.
//!
//! ```text
//! cargo run --features testing --example leader
//! ```

mod common;

use std::{thread, time::Duration};

use common::{Result, Servers};
use curator_locks::{CloseMode, CuratorFramework, LeaderLatch, LeaderLatchListener, LeaderSelector, Leadership};

/// Told when its latch leads.
struct Scheduler(&'static str);

impl LeaderLatchListener for Scheduler {
    fn is_leader(&self, _leadership: &Leadership) {
        println!("{} leads", self.0);
    }

    /// The next one is not told that it leads before this has returned.
    fn not_leader(&self) {
        println!("{} leads no more", self.0);
    }
}

fn latch(client: &CuratorFramework, name: &'static str) -> Result<LeaderLatch> {
    let latch = LeaderLatch::new(client, "/leader/latch")?.with_id(name).with_close_mode(CloseMode::NotifyLeader);
    latch.add_listener(Scheduler(name));
    latch.start()?;
    Ok(latch)
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let (one, other) = (servers.client()?, servers.client()?);

    // A latch leads from the moment it is told to until it is told otherwise, or closed.
    let first = latch(&one, "first")?;
    first.await_leadership()?;
    let second = latch(&other, "second")?;
    println!("the others see {} as the leader", second.leader()?.ok_or("nobody leads")?.id());
    first.close()?;
    second.await_leadership()?;
    let leadership = second.leadership().ok_or("lost at once")?;
    // Ask right before each piece of work: it is `false` before anybody else can lead.
    println!("second may work: {}", leadership.has_leadership());
    second.close()?;
    println!("second may work after it has closed: {}", leadership.has_leadership());

    // A selector leads while a call lasts, on a thread of its own.
    let (done, pieces) = crossbeam_channel::unbounded();
    let selector = LeaderSelector::new(&one, "/leader/selector", move |_: &CuratorFramework, term: &Leadership| {
        let mut piece = 0;
        while term.has_leadership() && !term.sleep(Duration::from_millis(10)) {
            piece += 1;
            let _ = done.send(piece);
        }
    })?;
    selector.auto_requeue();
    selector.start()?;
    while pieces.recv_timeout(Duration::from_secs(30))? < 3 {
        thread::yield_now();
    }
    println!("the selector has done 3 pieces of work");
    Ok(selector.close()?)
}
