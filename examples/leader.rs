//! One of several processes leads, and the next one takes over when it goes.
//!
//! ```text
//! cargo run --features testing --example leader
//! ```

mod common;

use std::{thread, time::Duration};

use common::{Result, Servers};
use crossbeam_channel::{Receiver, Sender};
use curator_locks::{CloseMode, CuratorFramework, LeaderLatch, LeaderLatchListener, LeaderSelector, Leadership};

const PATIENCE: Duration = Duration::from_secs(30);

/// Told when its latch leads, on the client's thread for listeners: so it hands the news on.
struct Scheduler(&'static str, Sender<Leadership>);

impl LeaderLatchListener for Scheduler {
    fn is_leader(&self, leadership: &Leadership) {
        println!("{} leads", self.0);
        let _ = self.1.send(leadership.clone());
    }

    /// The next one is not told that it leads before this has returned.
    fn not_leader(&self) {
        println!("{} leads no more", self.0);
    }
}

fn latch(client: &CuratorFramework, name: &'static str) -> Result<(LeaderLatch, Receiver<Leadership>)> {
    let latch = LeaderLatch::new(client, "/leader/latch")?.with_id(name).with_close_mode(CloseMode::NotifyLeader);
    let (tell, terms) = crossbeam_channel::unbounded();
    latch.add_listener(Scheduler(name, tell));
    latch.start()?;
    Ok((latch, terms))
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let (one, other) = (servers.client()?, servers.client()?);

    // A latch leads from the moment it is told to until it is told otherwise, or closed.
    let (first, terms) = latch(&one, "first")?;
    // Without a listener, `await_leadership` waits for the same.
    terms.recv_timeout(PATIENCE)?;
    let (second, terms) = latch(&other, "second")?;
    println!("the others see {} as the leader", second.leader()?.ok_or("nobody leads")?.id());
    first.close()?;
    let leadership = terms.recv_timeout(PATIENCE)?;
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
        Ok(()) // an error would be told to the client's listener for unhandled errors
    })?;
    selector.auto_requeue();
    selector.start()?;
    while pieces.recv_timeout(PATIENCE)? < 3 {
        thread::yield_now();
    }
    println!("the selector has done 3 pieces of work");
    Ok(selector.close()?)
}
