//! Locks that stay in their process while nobody else wants them.

use crate::{
    peer::{Kind, Peer},
    run::Run,
    sides::Outcome,
};

/// Cycles in one slice: one alone is no longer than a look at the clock.
const BATCH: usize = 20_000;
const PROCESSES: usize = 4;
const THREADS: usize = 8;

pub fn measure(run: &mut Run) -> Outcome<()> {
    let mut ours = run.peer(Kind::CuratorLocks)?;
    let mut limits = run.peer(Kind::Limits)?;
    uncontended(run, &mut ours, &mut limits)?;
    drains(run, &mut ours, &mut limits)?;
    processes(run)
}

fn uncontended(run: &mut Run, ours: &mut Peer, limits: &mut Peer) -> Outcome<()> {
    let workload = "cached_mutex";
    let command = format!("batch cached /{workload} {BATCH}");
    let (mut of_ours, mut of_limit) = (Vec::new(), Vec::new());
    ours.ask(&command)?;
    let before = run.server.packets_received()?;
    let begin = std::time::Instant::now();
    for _ in 0..run.rounds(40) {
        of_ours.extend(ours.ask(&command)?);
        of_limit.extend(limits.ask(&format!("reentrant {BATCH}"))?);
    }
    // The question counts as one. What remains are heartbeats, one each 20 s for each client.
    let heartbeats = begin.elapsed().as_secs() / 20 * (Kind::ALL.len() as u64 + 1);
    let requests = run.server.packets_received()?.saturating_sub(before + 1 + heartbeats);
    let cycles = (of_ours.len() * BATCH) as f64;
    run.book_fact("cached_mutex_requests", Kind::CuratorLocks, 1, requests as f64 / cycles);
    for (kind, batches) in [(Kind::CuratorLocks, of_ours), (Kind::ParkingLot, of_limit)] {
        let per_cycle: Vec<f64> = batches.into_iter().map(|nanos| nanos as f64 / BATCH as f64).collect();
        run.book(workload, kind, 1, per_cycle.clone(), per_cycle);
    }
    run.print("A cached mutex that nobody else wants, and a re-entrant mutex of one process", &[workload]);
    run.say(&format!("\nRequests at the server in {cycles} cycles, besides heartbeats: {requests}."));
    Ok(())
}

fn drains(run: &mut Run, ours: &mut Peer, limits: &mut Peer) -> Outcome<()> {
    let workload = "cached_drain";
    for n in [10, 100, 1000] {
        let (mut of_ours, mut of_limit) = (Vec::new(), Vec::new());
        for _ in 0..run.rounds(15) {
            let measured = ours.ask(&format!("cached_drain /{workload}/{n} {n}"))?;
            of_ours.push(measured[1].saturating_sub(measured[0]) as f64 / n as f64);
            let measured = limits.ask(&format!("chain {n}"))?;
            of_limit.push(measured[1].saturating_sub(measured[0]) as f64 / n as f64);
        }
        for (kind, times) in [(Kind::CuratorLocks, of_ours), (Kind::Channels, of_limit)] {
            run.book(workload, kind, n, times.clone(), times);
        }
    }
    run.print("Hand-over between sleeping threads of one client, cached, and along a chain of channels", &[workload]);
    Ok(())
}

/// Processes whose threads all want the same lock.
fn processes(run: &mut Run) -> Outcome<()> {
    let workload = "cached_processes_together";
    let millis = if run.is_quick { 500 } else { 2000 };
    let sides = [
        (Kind::CuratorLocks, Kind::CuratorLocks, "cached"),
        (Kind::CuratorLocksPlain, Kind::CuratorLocks, "mutex"),
        (Kind::Curator, Kind::Curator, "mutex"),
    ];
    let mut all = Vec::new();
    for (side, program, lock) in sides {
        let peers: Vec<Peer> = (0..PROCESSES).map(|_| run.peer(program)).collect::<Outcome<_>>()?;
        all.push((side, lock, peers, Vec::new()));
    }
    for round in 0..=run.rounds(4) {
        for (side, lock, peers, times) in &mut all {
            let command = format!("mix {lock} /{workload}/{} {THREADS} {millis}", side.name());
            for peer in peers.iter_mut() {
                peer.tell(&command)?;
            }
            let (mut cycles, mut took) = (0, 0);
            for peer in peers.iter_mut() {
                let [of_peer, its_time] = peer.hear(&command)?[..] else { return Err("not two numbers".into()) };
                cycles += of_peer;
                took = took.max(its_time);
            }
            // The first round warms up.
            if round > 0 {
                times.push(took as f64 / cycles.max(1) as f64);
            }
        }
    }
    for (side, _, _, times) in all {
        run.book(workload, side, PROCESSES, times.clone(), times);
    }
    run.print("4 processes of 8 threads on one path: time per cycle of all together", &[workload]);
    Ok(())
}
