//! One run of a plan: the processes work while faults come, everything heals, everybody is served, all is given back.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    director::Director,
    notes::Notes,
    objects::{Objects, Panics},
    plan::Plan,
    user::{Shared, User},
};
use crate::{
    base::{
        channel::{Receiver, Sender, bounded},
        sim::{
            run::{Outcome, Waiting},
            thread::sleep,
        },
        sync::Mutex,
    },
    sim::{
        check::{Verdict, Violation, history::Actor},
        ensemble::EnsembleConfig,
        process::{Process, Task},
        world::{World, WorldConfig},
    },
};

/// How long clean-up may take once nobody uses a lock any more: a job that was refused rests for up to 30 s.
const TO_CLEAN_UP: Duration = Duration::from_secs(75);

/// What a run came to.
#[derive(Debug)]
#[allow(dead_code, reason = "a report shows all of it")]
pub(crate) struct Ran {
    pub(crate) seed: u64,
    pub(crate) hash: u64,
    pub(crate) time: Duration,
    pub(crate) verdict: Verdict,
    pub(crate) counts: BTreeMap<String, u64>,
    /// The last things that happened.
    pub(crate) tail: Vec<String>,
}

impl Ran {
    /// The first broken promise.
    pub(crate) fn failure(&self) -> Option<&Violation> {
        self.verdict.violations.first()
    }
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan) -> Ran {
    let plan = Arc::new(plan.clone());
    let result: Arc<std::sync::Mutex<Option<Notes>>> = Arc::default();
    let config = WorldConfig {
        servers: EnsembleConfig {
            servers: plan.servers,
            tick: plan.tick,
            late: (plan.late.0, Duration::ZERO..=plan.late.1),
            sync_limit: plan.sync_limit,
            disk: Duration::from_micros(50)..=plan.disk,
            expiry: Duration::ZERO..=plan.expiry,
            min_session_timeout: Duration::from_millis(100),
            max_session_timeout: plan.timeout,
            container_interval: plan.timeout,
            frame_limit: plan.max_frame.unwrap_or(EnsembleConfig::default().frame_limit),
            ..EnsembleConfig::default()
        },
        stall: Some(plan.stall),
        ..WorldConfig::default()
    };
    let notes_of = result.clone();
    let of_director = plan.clone();
    let report = World::run(plan.seed, config, move |world| {
        let notes = Notes::new(world, &of_director);
        *notes_of.lock().unwrap() = Some(notes.clone());
        direct(world, &of_director, &notes);
    });
    let notes = result.lock().unwrap().take();
    let (history, counts) = notes.map(|notes| notes.read_at(report.time)).unwrap_or_default();
    let mut verdict = Verdict::of(&history);
    let reported = report.violations.iter().map(|what| ("reported", what.clone()));
    let outcome = match &report.outcome {
        Outcome::Done => None,
        Outcome::Deadlock(waiting) => Some(("a deadlock", list(waiting))),
        Outcome::Livelock(waiting) => Some(("a livelock", list(waiting))),
        Outcome::OutOfTime(waiting) => Some(("no end", list(waiting))),
        Outcome::Panic { thread, message } => Some(("a panic", format!("{thread}: {message}"))),
    };
    let ends = reported.chain(outcome).map(|(rule, what)| Violation { rule, at: report.time, what });
    verdict.violations.extend(ends);
    Ran { seed: plan.seed, hash: report.hash, time: report.time, verdict, counts, tail: report.tail }
}

fn list(waiting: &[Waiting]) -> String {
    waiting.iter().map(|waiting| format!("\n  {waiting}")).collect()
}

/// One process under way.
struct Running {
    process: Process,
    /// Its threads are done; the director lets it close then.
    done: Receiver<()>,
    close: Sender<()>,
    main: Task<()>,
}

fn direct(world: &World, plan: &Arc<Plan>, notes: &Notes) {
    world.ensemble(|ensemble, now, out| {
        ensemble.keep_journal();
        ensemble.create("/sim", b"", now, out);
        for place in 0..plan.places.len() {
            ensemble.create(&format!("/data{place}"), b"", now, out);
        }
    });
    world.sleep(Duration::from_millis(100));
    notes.facts(|facts| {
        facts.timeout = plan.timeout;
        let slowest = plan.processes.iter().map(|process| process.latency).max().unwrap_or_default();
        // A lock that listens for deaths takes up to five round trips more, where the directory of marks was removed.
        let trips = if plan.processes.iter().any(|process| process.hears_of_deaths.is_some()) { 500 } else { 200 };
        // A thread that stands still for longer than the session timeout may cost its process all places in the queues.
        let starts_anew = if plan.stall > plan.timeout / 2 { plan.stall * 20 } else { Duration::ZERO };
        facts.grace = plan.timeout * 12 + slowest * trips + starts_anew + Duration::from_secs(90);
        facts.stall = plan.stall;
        facts.slowest = slowest;
    });
    let is_calm = Arc::new(AtomicBool::new(false));
    let processes: Vec<Process> =
        (0..plan.processes.len()).map(|number| world.process(&format!("p{number}"))).collect();
    for (process, own) in processes.iter().zip(&plan.processes) {
        process.set_clock_rate(own.rate);
    }
    let mut director = Director::new(world, plan, notes, processes.clone());
    let start = |(number, process): (usize, Process)| start(plan, notes, &is_calm, number, process);
    let running: Vec<Running> = processes.into_iter().enumerate().map(start).collect();
    director.run();
    is_calm.store(true, Ordering::SeqCst);
    // Whoever takes longer than that is found by the checks.
    let latest = world.now() + plan.timeout * 60 + Duration::from_secs(600);
    for (number, one) in running.iter().enumerate() {
        wait(world, &director, latest, || one.done.try_recv().is_ok() || notes.is_dead(number));
    }
    let is_quiet = |world: &World| left_at_servers(world).is_empty();
    wait(world, &director, world.now() + TO_CLEAN_UP, || is_quiet(world));
    for left in left_at_servers(world) {
        let went = left.split(' ').next().and_then(|path| notes.went(path));
        let rule = if went.is_some() { "a delete that the servers forgot" } else { "something left at the servers" };
        notes.broken(rule, format!("{left}, gone at {went:?}"));
    }
    notes.facts(|facts| facts.marks = marks(world));
    for one in &running {
        let _ = one.close.try_send(());
    }
    let latest = world.now() + plan.timeout * 3 + Duration::from_secs(10);
    for (_, one) in running.iter().enumerate().filter(|(number, _)| !notes.is_dead(*number)) {
        wait(world, &director, latest, || one.main.is_finished());
        if !one.main.is_finished() {
            notes.broken("a process that does not close", one.process.name().to_owned());
        }
    }
    // Sessions of clients that were closed before they had one expire one by one, and there may be hundreds.
    let backlog = u32::try_from(open_at_servers(world).len()).unwrap_or(u32::MAX);
    wait(world, &director, latest + plan.expiry * backlog, || open_at_servers(world).is_empty());
    for session in notes.never_closed() {
        notes.broken("a session that nobody closed", format!("{session:#x}"));
    }
    for left in open_at_servers(world) {
        notes.broken("something left at the servers after the close", left);
    }
}

/// Waits until that is so, at most until then.
fn wait(world: &World, director: &Director<'_>, latest: Duration, is_so: impl Fn() -> bool) {
    while !is_so() && world.now() < latest {
        director.audit();
        world.sleep(Duration::from_millis(200));
    }
}

fn start(plan: &Arc<Plan>, notes: &Notes, is_calm: &Arc<AtomicBool>, number: usize, process: Process) -> Running {
    let ((tell, done), (close, closes)) = (bounded(1), bounded(1));
    let (plan, notes, is_calm, own) = (plan.clone(), notes.clone(), is_calm.clone(), process.clone());
    let main = process.spawn("main", move || {
        let objects = Objects::new(&plan, &plan.processes[number], &own, &notes, 0);
        let Ok(objects) = objects else { return notes.broken("a client that cannot be made", format!("{number}")) };
        let panics = Panics::new(plan.processes[number].panics);
        let shared = Arc::new(Shared {
            plan: plan.clone(),
            number,
            process: own.clone(),
            notes: notes.clone(),
            objects: Mutex::new(Arc::new(objects)),
            clients: AtomicU64::new(0),
            is_calm,
            panics,
        });
        let user = |thread| User { shared: shared.clone(), by: Actor { process: number, thread } };
        let spawn = |thread| {
            let user = user(thread);
            own.spawn(&format!("t{thread}"), move || user.run())
        };
        let threads: Vec<Task<()>> = (0..plan.processes[number].threads.len()).map(spawn).collect();
        for thread in threads {
            if thread.join().is_none() {
                notes.broken("a panic", format!("a thread of process {number}"));
            }
        }
        let client = {
            let objects = shared.objects();
            objects.client.clone()
        };
        // The locks go, and with them what they keep idle.
        drop(shared);
        quiet(&client, &notes, number);
        let _ = tell.send(());
        let _ = closes.recv();
        client.close();
    });
    Running { process, done, close, main }
}

/// Waits until the client has nothing left to do, and reports what it cannot finish.
fn quiet(client: &crate::CuratorFramework, notes: &Notes, number: usize) {
    let left = || {
        let metrics = client.metrics();
        let counts = [("held", metrics.held), ("watches", metrics.watches), ("clean-up jobs", metrics.clean_up_jobs)];
        let lists =
            [("waiting for a connection", client.core.waiting()), ("reactions", client.core.reactions.living().len())];
        let lists = lists.into_iter().map(|(what, count)| (what, u64::try_from(count).unwrap_or(u64::MAX)));
        counts.into_iter().chain(lists).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    for _ in 0..TO_CLEAN_UP.as_millis() / 200 {
        if left().is_empty() {
            return;
        }
        sleep(Duration::from_millis(200));
    }
    notes.broken("something left in a process", format!("process {number}: {:?}", left()));
}

/// What the servers still have of locks while the clients are there.
fn left_at_servers(world: &World) -> Vec<String> {
    world.ensemble(|ensemble, _, _| {
        let Some(leader) = ensemble.leader() else { return vec!["no leader".to_owned()] };
        let nodes = ensemble.tree(leader).nodes();
        let znodes =
            nodes.filter(|(_, node)| node.owner() > 0).map(|(path, node)| format!("{path} of {:#x}", node.owner()));
        let watches = (0..ensemble.servers()).flat_map(|server| ensemble.watches(server));
        znodes.chain(watches.map(|(path, session)| format!("a watch on {path} by {session:#x}"))).collect()
    })
}

/// The tokens of holders that have left a mark.
fn marks(world: &World) -> Vec<i64> {
    world.ensemble(|ensemble, _, _| {
        let Some(leader) = ensemble.leader() else { return Vec::new() };
        let token = |path: &str| i64::from_str_radix(path.rsplit_once("~holders/")?.1, 16).ok();
        ensemble.tree(leader).nodes().filter_map(|(path, _)| token(path)).collect()
    })
}

/// What the servers still have once all clients are closed.
fn open_at_servers(world: &World) -> Vec<String> {
    world.ensemble(|ensemble, _, _| {
        let Some(leader) = ensemble.leader() else { return vec!["no leader".to_owned()] };
        let sessions = ensemble.tree(leader).sessions.keys().map(|session| format!("session {session:#x}"));
        let connections = (0..ensemble.servers()).flat_map(|server| ensemble.connections(server));
        sessions.chain(connections.map(|(conn, session)| format!("{conn:?} of {session:#x}"))).collect()
    })
}
