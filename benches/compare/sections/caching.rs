//! Locks that stay in their process while nobody else wants them.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::testing::{FaultProxy, op};

use crate::{
    peer::{Kind, Peer},
    results::quantile,
    run::Run,
    sides::Outcome,
};

/// Cycles in one slice: one alone is no longer than a look at the clock, and many are more than a busy machine leaves
/// alone.
const BATCH: usize = 2_000;
const PROCESSES: usize = 4;
const THREADS: usize = 8;
const READERS: usize = 8;

/// The default of `Caching::max_tenure`, in nanoseconds.
const MAX_TENURE: f64 = 50e6;

pub fn measure(run: &mut Run) -> Outcome<()> {
    let mut limits = run.peer(Kind::Limits)?;
    uncontended(run, &mut limits)?;
    reads(run, &mut limits)?;
    drains(run, &mut limits)?;
    processes(run)?;
    lone_contender(run)?;
    java_contender(run)
}

/// Requests are counted on their way, without pings: those are the session's, which is there with a lock or without one.
fn uncontended(run: &mut Run, limits: &mut Peer) -> Outcome<()> {
    let proxy = FaultProxy::start(run.server.connect_string())?;
    let ours = &mut Peer::start(Kind::CuratorLocks, &proxy.connect_string())?;
    let workload = "cached_mutex";
    let command = format!("batch cached /{workload} {BATCH}");
    let (mut of_ours, mut of_limit) = (Vec::new(), Vec::new());
    ours.ask(&command)?;
    // The watches on the znode and on its directory come after the first grant.
    thread::sleep(Duration::from_millis(500));
    ours.ask(&command)?;
    proxy.clear_log();
    let begin = Instant::now();
    for _ in 0..run.rounds(400) {
        of_ours.extend(ours.ask(&command)?);
        of_limit.extend(limits.ask(&format!("reentrant {BATCH}"))?);
    }
    let requests = proxy.log().iter().filter(|request| request.op != op::PING).count();
    let cycles = (of_ours.len() * BATCH) as f64;
    run.book_fact("cached_mutex_requests", Kind::CuratorLocks, 1, per_tenure(requests, begin));
    for (kind, batches) in [(Kind::CuratorLocks, of_ours), (Kind::ParkingLot, of_limit)] {
        let per_cycle: Vec<f64> = batches.into_iter().map(|nanos| nanos as f64 / BATCH as f64).collect();
        run.book(workload, kind, 1, per_cycle.clone(), per_cycle);
    }
    run.print("A cached mutex that nobody else wants, and a re-entrant mutex of one process", &[workload]);
    run.say(&format!("\nRequests at the server in {cycles} cycles, pings not counted: {requests}."));
    Ok(())
}

/// How many requests there were for each `max_tenure` since then: a tenure asks by the clock who else waits.
fn per_tenure(requests: usize, begin: Instant) -> f64 {
    requests as f64 * MAX_TENURE / begin.elapsed().as_nanos() as f64
}

/// Threads that read by one lock object, beside a `RwLock` of one process: time per cycle of all together.
fn reads(run: &mut Run, limits: &mut Peer) -> Outcome<()> {
    let proxy = FaultProxy::start(run.server.connect_string())?;
    let ours = &mut Peer::start(Kind::CuratorLocks, &proxy.connect_string())?;
    let workload = "cached_read";
    let command = |n: usize| format!("batches cached_read /{workload} {n} {}", BATCH / n);
    let mut times = [1, READERS].map(|n| (n, Vec::new(), Vec::new()));
    ours.ask(&command(1))?;
    // As above.
    thread::sleep(Duration::from_millis(500));
    ours.ask(&command(READERS))?;
    proxy.clear_log();
    let begin = Instant::now();
    // By turns, so that both have the same machine.
    for _ in 0..run.rounds(40) {
        for (n, of_ours, of_limit) in &mut times {
            of_ours.extend(ours.ask(&command(*n))?);
            of_limit.extend(limits.ask(&format!("reads {n} {}", BATCH / *n))?);
        }
    }
    let requests = proxy.log().iter().filter(|request| request.op != op::PING).count();
    let cycles: usize = times.iter().map(|(n, batches, _)| batches.len() * (BATCH / n * n)).sum();
    run.book_fact("cached_read_requests", Kind::CuratorLocks, READERS, per_tenure(requests, begin));
    for (n, of_ours, of_limit) in times {
        for (kind, batches) in [(Kind::CuratorLocks, of_ours), (Kind::ParkingLot, of_limit)] {
            let per_cycle: Vec<f64> = batches.into_iter().map(|nanos| nanos as f64 / (BATCH / n * n) as f64).collect();
            run.book(workload, kind, n, per_cycle.clone(), per_cycle);
        }
    }
    run.print("A cached read lock, n threads that read: time per cycle of all together", &[workload]);
    run.say(&format!("\nRequests at the server in {cycles} cycles, pings not counted: {requests}."));
    Ok(())
}

fn drains(run: &mut Run, limits: &mut Peer) -> Outcome<()> {
    let ours = &mut run.peer(Kind::CuratorLocks)?;
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

/// How long one waits that comes again and again while threads of these processes always want the lock; and a cycle of its
/// own on another path meanwhile, which is two round trips.
fn waits(busy: &mut [Peer], lock: &str, path: &str, one: &mut Peer, count: usize) -> Outcome<(Vec<f64>, f64)> {
    let (mut waits, mut cycles) = (Vec::new(), Vec::new());
    while waits.len() < count {
        let command = format!("mix {lock} {path} {THREADS} 3000");
        for peer in busy.iter_mut() {
            peer.tell(&command)?;
        }
        thread::sleep(Duration::from_millis(200));
        cycles.extend(one.ask(&format!("cycles mutex {path}-other 50"))?);
        waits.extend(one.ask(&format!("waits {path} 2000"))?);
        for peer in busy.iter_mut() {
            peer.hear(&command)?;
        }
    }
    let mut cycles: Vec<f64> = cycles.into_iter().map(|nanos| nanos as f64).collect();
    Ok((waits.into_iter().map(|nanos| nanos as f64).collect(), quantile(&mut cycles, 0.5)))
}

/// One thread of a fifth process beside four whose threads are busy. The holders do nothing, so that their section is
/// no time.
fn lone_contender(run: &mut Run) -> Outcome<()> {
    let mut busy: Vec<Peer> = (0..PROCESSES).map(|_| run.peer(Kind::CuratorLocks)).collect::<Outcome<_>>()?;
    let mut lone = run.peer(Kind::CuratorLocks)?;
    let count = run.rounds(1000);
    let (mut times, round_trips) = waits(&mut busy, "cached", "/lone", &mut lone, count)?;
    let longest = quantile(&mut times, 1.0);
    let limit = MAX_TENURE + round_trips;
    run.book("cached_lone_contender", Kind::CuratorLocks, PROCESSES, times.clone(), times.clone());
    run.book_fact("cached_lone_contender_longest", Kind::CuratorLocks, PROCESSES, longest / limit);
    run.print("The wait of a lone contender beside 4 caching processes of 8 busy threads", &["cached_lone_contender"]);
    let over = times.iter().filter(|time| **time > limit).count();
    run.say(&format!(
        "\nThe longest of {} waits: {:.1} ms; max_tenure and two round trips: {:.1} ms, which {over} were over.",
        times.len(),
        longest / 1e6,
        limit / 1e6,
    ));
    Ok(())
}

/// Curator beside one process whose threads are busy, with and without caching.
fn java_contender(run: &mut Run) -> Outcome<()> {
    let workload = "java_contender";
    let count = run.rounds(200);
    let mut medians = Vec::new();
    for (side, lock) in [(Kind::CuratorLocks, "cached"), (Kind::CuratorLocksPlain, "mutex")] {
        let mut busy = vec![run.peer(Kind::CuratorLocks)?];
        let mut java = run.peer(Kind::Curator)?;
        java.ask("cycles mutex /java-warm 500")?;
        let (mut times, _) = waits(&mut busy, lock, &format!("/java-{lock}"), &mut java, count)?;
        medians.push(quantile(&mut times, 0.5));
        run.book(workload, side, 1, times.clone(), times);
    }
    let [cached, plain] = medians[..] else { return Err("not two medians".into()) };
    run.book_fact("java_contender_wait", Kind::CuratorLocks, 1, cached / (MAX_TENURE + 2.0 * plain));
    run.print(
        "The wait of a Java contender beside one process of 8 busy threads, with and without caching",
        &[workload],
    );
    Ok(())
}
