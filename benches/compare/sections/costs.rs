//! What waiting costs: memory, threads, requests; and what a reconnect costs.

use std::{thread, time::Duration};

use curator_locks::testing::FaultProxy;

use crate::{
    peer::{Kind, Peer},
    relay::Relay,
    results::{short, table},
    run::Run,
    sides::{Outcome, now},
};

const WAITERS: usize = 1000;

const SIDES: [Kind; 3] = [Kind::CuratorLocks, Kind::Curator, Kind::Kazoo];

/// From the cut to the first grant; the lock is released by another process right after the cut.
pub fn reconnect(run: &mut Run) -> Outcome<()> {
    let workload = "reconnect";
    let mut lines = Vec::new();
    for side in SIDES {
        let (mut times, mut requests) = (Vec::new(), Vec::new());
        for round in 0..run.rounds(3) {
            let path = format!("/{workload}/{}-{round}", side.name());
            let proxy = FaultProxy::start(("127.0.0.1", run.server.port()))?;
            let mut waiting = Peer::start(side, &proxy.connect_string())?;
            run.ask(side, &format!("hold {path}"))?;
            waiting.ask(&format!("queue shared {path} {WAITERS} open"))?;
            run.await_watches(WAITERS as u64)?;
            let before = run.server.packets_received()?;
            let cut = now()?;
            proxy.cut();
            run.ask(side, "unhold")?;
            let granted = waiting.ask("first")?;
            times.push(granted.first().copied().unwrap_or(cut).saturating_sub(cut) as f64);
            requests.push(run.server.packets_received()?.saturating_sub(before + 1));
        }
        requests.sort_unstable();
        lines.push(format!("{} {}", side.name(), requests[requests.len() / 2]));
        run.book(workload, side, WAITERS, times.clone(), times);
    }
    run.print("The connection of 1,000 waiters is cut and the lock released: time to the first grant", &[workload]);
    run.say(&format!("\nRequests at the server until then: {}.", lines.join(", ")));
    Ok(())
}

/// Threads and memory of a process with one client, without waiters and with them.
pub fn memory(run: &mut Run) -> Outcome<()> {
    let mut lines = Vec::new();
    for side in SIDES {
        let path = format!("/memory/{}", side.name());
        let mut peer = run.peer(side)?;
        peer.ask(&format!("cycles mutex {path} 100"))?;
        let (threads, resident) = (peer.status("Threads")?, peer.status("VmRSS")?);
        let heap = (side == Kind::CuratorLocks).then(|| peer.ask("heap")).transpose()?;
        peer.ask(&format!("queue shared {path} {WAITERS} held"))?;
        run.await_watches(WAITERS as u64)?;
        let more_threads = peer.status("Threads")?.saturating_sub(threads).saturating_sub(WAITERS as u64);
        let per_waiter = peer.status("VmRSS")?.saturating_sub(resident) as f64 / WAITERS as f64;
        let heap = heap.map(|before| Outcome::Ok((peer.ask("heap")?[0] - before[0]) / WAITERS as u64)).transpose()?;
        // A process of this crate has the main thread besides; of the others the machine's own threads as well.
        let of_client = if side == Kind::CuratorLocks { threads - 1 } else { threads };
        run.book_fact("client_threads", side, WAITERS, (of_client + more_threads) as f64);
        if let Some(heap) = heap {
            run.book_fact("heap_per_waiter", side, WAITERS, heap as f64);
        }
        lines.push(vec![
            side.name().to_owned(),
            threads.to_string(),
            more_threads.to_string(),
            short(resident as f64 / 1024.0),
            short(per_waiter),
            heap.map_or("-".into(), |heap| heap.to_string()),
        ]);
    }
    let header = [
        "side",
        "threads of the process",
        "more with 1,000 waiters, beside theirs",
        "memory, MiB",
        "memory per waiter with its stack, KiB",
        "heap per waiter, bytes",
    ];
    run.say("\n### Threads and memory of a process with one client\n");
    run.say(table(&header.map(str::to_owned), &lines).trim_end());
    Ok(())
}

/// The three ways to wait, each waiter with a session of its own.
pub fn strategies(run: &mut Run) -> Outcome<()> {
    let mut lines = Vec::new();
    for n in [20, 200] {
        for (name, strategy) in
            [("poll, every 50 ms", "poll 50"), ("watch the parent", "parent"), ("watch the predecessor", "predecessor")]
        {
            let relay = Relay::start(run.server.port(), false)?;
            let mut peer = Peer::start(Kind::CuratorLocks, &relay.address)?;
            peer.ask(&format!("strategy {strategy}"))?;
            peer.ask(&format!("queue own /strategies/{n} {n} held"))?;
            // Waiters that poll have no watch; give them all the time to have looked once.
            thread::sleep(Duration::from_millis(500));
            let counters = |run: &Run| -> Outcome<(u64, u64, u64)> {
                Ok((run.server.packets_received()?, run.server.metric("zk_packets_sent")?, relay.bytes()))
            };
            let before = counters(run)?;
            let times = peer.ask("drain")?;
            let after = counters(run)?;
            let took = times[times.len() - 1].saturating_sub(times[0]) as f64;
            let per_hand_over = |after: u64, before: u64| (after - before) as f64 / n as f64;
            let requests = per_hand_over(after.0, before.0);
            run.book_fact(
                &format!("requests_{}", strategy.split(' ').next().unwrap_or_default()),
                Kind::CuratorLocks,
                n,
                requests,
            );
            lines.push(vec![
                name.to_owned(),
                n.to_string(),
                short(per_hand_over(after.2, before.2)),
                short(requests),
                short(per_hand_over(after.1, before.1)),
                short((after.0 - before.0) as f64 / (took / 1e9)),
                short(took / n as f64 / 1e6),
            ]);
        }
    }
    let header = [
        "strategy",
        "waiters",
        "bytes per hand-over",
        "requests per hand-over",
        "replies and events per hand-over",
        "requests per second",
        "milliseconds per hand-over",
    ];
    run.say("\n### Polling, watching the parent, watching the predecessor: a session for each waiter\n");
    run.say(table(&header.map(str::to_owned), &lines).trim_end());
    Ok(())
}
