//! Many at once: paths, processes, tries, mixes.

use crate::{
    peer::{Kind, Peer},
    run::Run,
    sides::Outcome,
};

const PATHS: usize = 1000;
const THREADS: [usize; 2] = [32, 256];
const PROCESSES: usize = 4;
const MIXED: usize = 16;

/// Every thread has paths of its own, so nobody waits for a lock.
pub fn many_paths(run: &mut Run) -> Outcome<()> {
    let workload = "many_paths";
    let sides = [Kind::CuratorLocks, Kind::BareSocket, Kind::Curator, Kind::Kazoo];
    let unlisted = "many_paths_unlisted";
    let sides = sides.map(|side| (workload, side)).into_iter().chain([(unlisted, Kind::BareSocket)]);
    let sides: Vec<_> = sides.collect();
    for threads in THREADS {
        let command = |workload: &str, side: Kind| match workload {
            "many_paths" => format!("many /{workload}/{} {PATHS} {threads}", side.name()),
            _ => format!("many_unlisted /{workload}/{} {PATHS} {threads}", side.name()),
        };
        // Short and often, so that what else the machine does strikes all sides.
        throughput(run, threads, &sides, 25, 400, command)?;
    }
    run.print(
        "1,000 locks on 1,000 paths, 32 and 256 threads of one client: time per cycle, all threads together",
        &[workload, unlisted],
    );
    Ok(())
}

pub fn mixes(run: &mut Run) -> Outcome<()> {
    // kazoo's readers and writers (2.8.0) wait for each other for ever: https://github.com/python-zk/kazoo/issues/649
    let both: &[Kind] = &[Kind::CuratorLocks, Kind::Curator];
    let all: &[Kind] = &[Kind::CuratorLocks, Kind::Curator, Kind::Kazoo];
    for (kind, workload, sides) in [("semaphore", "semaphore_mix", all), ("read_write", "read_write_mix", both)] {
        let command = |workload: &str, side: Kind| format!("mix {kind} /{workload}/{} {MIXED}", side.name());
        let sides: Vec<_> = sides.iter().map(|side| (workload, *side)).collect();
        throughput(run, MIXED, &sides, 3, 1500, command)?;
    }
    let title = "16 threads of one client on a semaphore of 10 leases, and on a read/write lock with 10 % writes: time \
                 per cycle, all threads together";
    run.print(title, &["semaphore_mix", "read_write_mix"]);
    Ok(())
}

fn throughput(
    run: &mut Run,
    n: usize,
    sides: &[(&str, Kind)],
    rounds: usize,
    millis: u64,
    command: impl Fn(&str, Kind) -> String,
) -> Outcome<()> {
    let mut times = vec![Vec::new(); sides.len()];
    let millis = if run.is_quick { millis.min(500) } else { millis };
    // The first round makes directories.
    for round in 0..=run.rounds(rounds) {
        for ((workload, side), times) in Run::turns(round, sides, &mut times) {
            let [cycles, took] = run.ask(*side, &format!("{} {millis}", command(workload, *side)))?[..] else {
                return Err("not two numbers".into());
            };
            if round > 0 {
                times.push(took as f64 / cycles.max(1) as f64);
            }
        }
    }
    for ((workload, side), times) in sides.iter().zip(times) {
        run.book(workload, *side, n, times.clone(), times);
    }
    Ok(())
}

/// Processes that all want the same lock, each with one thread.
pub fn processes(run: &mut Run) -> Outcome<()> {
    let workload = "processes_one_path";
    let sides = [Kind::CuratorLocks, Kind::Curator, Kind::Kazoo, Kind::ZooKeeperCrate];
    let millis = if run.is_quick { 500 } else { 2000 };
    let mut all = Vec::new();
    for side in sides {
        let peers: Vec<Peer> = (0..PROCESSES).map(|_| run.peer(side)).collect::<Outcome<_>>()?;
        all.push((side, peers, Vec::new(), Vec::new()));
    }
    for round in 0..=run.rounds(4) {
        for (side, peers, together, times) in &mut all {
            let command = format!("hammer /{workload}/{} {millis}", side.name());
            for peer in peers.iter_mut() {
                peer.tell(&command)?;
            }
            let mut cycles = 0;
            for peer in peers.iter_mut() {
                let measured = peer.hear(&command)?;
                cycles += measured.len();
                // The first round warms up.
                times.extend(measured.into_iter().filter(|_| round > 0).map(|nanos| nanos as f64));
            }
            if round > 0 {
                together.push(millis as f64 * 1e6 / cycles.max(1) as f64);
            }
        }
    }
    for (side, _, together, times) in all {
        run.book(workload, side, PROCESSES, times.clone(), times);
        run.book("processes_one_path_together", side, PROCESSES, together.clone(), together);
    }
    run.print(
        "4 processes on one path: a cycle as each of them sees it, and time per cycle of all together",
        &[workload, "processes_one_path_together"],
    );
    Ok(())
}

/// Another process holds the lock.
pub fn busy_try_lock(run: &mut Run) -> Outcome<()> {
    const TRIES: usize = 200;
    let workload = "busy_try_lock";
    let mut packets = Vec::new();
    for side in [Kind::CuratorLocks, Kind::Curator, Kind::Kazoo] {
        let path = format!("/{workload}/{}", side.name());
        let mut holder = run.peer(side)?;
        holder.ask(&format!("hold {path}"))?;
        run.ask(side, &format!("try {path} 20"))?;
        // This crate's holder watches its own znode after 100 ms.
        run.await_watches(0)?;
        let before = run.server.packets_received()?;
        let mut times = Vec::new();
        for _ in 0..run.rounds(5) {
            times.extend(run.ask(side, &format!("try {path} {TRIES}"))?.into_iter().map(|nanos| nanos as f64));
        }
        // The question counts as one.
        let per_try = (run.server.packets_received()? - before - 1) as f64 / times.len() as f64;
        run.book_fact("busy_try_packets", side, 1, per_try);
        packets.push(format!("{} {per_try:.2}", side.name()));
        run.book(workload, side, 1, times.clone(), times);
    }
    run.print("A try of a lock that another process holds", &[workload]);
    run.say(&format!("\nRequests at the server per try: {}.", packets.join(", ")));
    Ok(())
}
